"""What `benchmarks.learning_cost` wrote, as Markdown."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.families import FAMILIES
from benchmarks.results import DASH, caption, number, table, title

TIME, MEMORY = 1.05, 1.1  # the aims, learned ÷ fixed
FLOOR = 1.02  # or this close to the floor, where the floor alone is above the aim


def learning_cost(path: Path) -> str:
    """One table for each network and number of threads."""
    data = record.load(path)
    parts = [caption(data)]
    for setting in dict.fromkeys(key.split("/", 1)[1] for key in data["cells"]):
        network, threads = setting.split("/")
        named = f"{network.replace('resnet', 'ResNet-')}, {threads} thread{'' if threads == '1' else 's'}"
        rows = [
            _row(family, data["cells"][f"{family}/{setting}"])
            for family in FAMILIES
            if f"{family}/{setting}" in data["cells"]
        ]
        parts.append(f"### {named}\n\n" + table(HEAD, rows))
    parts.append(_skipped(data))
    return "\n\n".join(part for part in parts if part)


HEAD = [
    "",
    "fixed, ms",
    "fixed ÷ plain",
    "floor ÷ fixed",
    "learned ÷ fixed",
    "learned ÷ floor",
    "time",
    "a quarter ÷ fixed",
    "memory, fixed, MiB",
    "learned ÷ fixed",
    "memory",
    "a quarter ÷ fixed",
]


def _row(family: str, cell: dict[str, Any]) -> list[str]:
    time, memory = cell["time_ratio"], cell["memory_ratio"]
    # where φ learns by the score function alone, nothing comes through the images, and there is no such floor
    through = not FAMILIES[family].score
    return [
        title(family),
        number(cell["ms"]["fixed"]["median"]),
        f"{time['fixed/plain']['median']:.3f}",
        _spread(time["floor/fixed"]) if through else DASH,
        _spread(time["learned/fixed"]),
        _spread(time["learned/floor"]) if through else DASH,
        _verdict(time, cell["rounds"], through=through),
        _spread(time["quarter/fixed"]) if through else DASH,
        number(cell["peak_mib"]["fixed"]),
        f"{memory['learned/fixed']:.3f}",
        "met" if memory["learned/fixed"] <= MEMORY else "**missed**",
        f"{memory['quarter/fixed']:.3f}" if through else DASH,
    ]


def _verdict(time: dict[str, dict[str, float]], rounds: int, *, through: bool) -> str:
    """Whether the aim is met, beyond the noise of the measurement; or what is in the way."""
    low, high = _bounds(time["learned/fixed"], rounds)
    if high <= TIME:
        return "met"
    if low <= TIME:
        return "unclear"
    at_floor = time["floor/fixed"]["median"] > TIME and time["learned/floor"]["median"] <= FLOOR
    return "at the floor" if through and at_floor else "**missed**"


def _bounds(ratio: dict[str, float], rounds: int) -> tuple[float, float]:
    """The median ± 2 standard errors, which are 1.253 σ / √n with σ = (q3 − q1) / 1.349."""
    error = 1.253 * (ratio["q3"] - ratio["q1"]) / 1.349 / math.sqrt(rounds)
    return ratio["median"] - 2 * error, ratio["median"] + 2 * error


def _spread(ratio: dict[str, float]) -> str:
    """The median ratio, and the quartiles of the ratios of readings taken together."""
    return f"{ratio['median']:.3f} ({ratio['q1']:.2f} … {ratio['q3']:.2f})"


def _skipped(data: dict[str, Any]) -> str:
    reasons: dict[str, list[str]] = {}
    for key, reason in data["skipped"].items():
        names = reasons.setdefault(reason, [])
        if (name := title(key.split("/")[0])) not in names:
            names.append(name)
    return "\n".join(f"- not measured: {', '.join(names)}; {reason}" for reason, names in reasons.items())
