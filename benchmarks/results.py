"""What a JSON file of `benchmarks.images` holds, and the pieces of Markdown that all tables share."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.families import FAMILIES, SIZES

TITLES = {
    "four_warps": "Rotate + Translate + Scale + Shear",
    "affine": "Affine, diagonal",
    "affine_full": "Affine, full covariance",
    "crop_resize": "CropResize",
    "colour": "Brightness + Contrast + Saturation + Hue",
    "noise": "GaussianNoise",
    "mixup_batch": "Mixup, one λ per batch",
    "cutmix": "CutMix",
    "cutmix_whole": "CutMix, whole pixels",
    "cutmix_batch": "CutMix, one box per batch",
    "augmix": "AugMix, two views",
    "pipeline": "Rotate + Translate + GaussianNoise + Mixup",
}
KORNIA = ("kornia", "kornia_jiggle", "kornia_jitter")
PER_EXAMPLE = (*KORNIA, "torchvision_loop", "opencv", "pil")
NAMES = {
    "kornia": "kornia",
    "kornia_jiggle": "ColorJiggle",
    "kornia_jitter": "ColorJitter",
    "torchvision_loop": "torchvision, looped",
    "torchvision_batch": "torchvision",
    "torchvision": "torchvision",
    "opencv": "OpenCV",
    "pil": "Pillow",
    "optima": "optima",
}
DASH = "–"
SETTINGS = [(dtype, threads) for dtype in ("float32", "bf16") for threads in (1, 2)]


class Results:
    """The cells of one file, by family and setting."""

    def __init__(self, path: Path):
        self.data = record.load(path)
        self.cells: dict[str, Any] = self.data["cells"]

    def ms(self, family: str, size: str, who: str, dtype: str = "float32", threads: int = 1) -> float | None:
        """The median of a contestant, if it was there."""
        cell = self.cells.get(f"{family}/{size}/{dtype}/{threads}")
        return cell["ms"][who]["median"] if cell and who in cell["ms"] else None

    def families(self, size: str, dtype: str = "float32", threads: int = 1) -> list[str]:
        """Those that were measured in this setting, in the order of the list."""
        return [family for family in FAMILIES if f"{family}/{size}/{dtype}/{threads}" in self.cells]

    def rivals(self, family: str, size: str, dtype: str = "float32", threads: int = 1) -> dict[str, float]:
        """How many times as long as optima each peer takes that does as much: per example, or per batch if we do."""
        ours = self.ms(family, size, "optima", dtype, threads)
        names = ("torchvision_batch",) if FAMILIES[family].shared else PER_EXAMPLE
        times = {name: self.ms(family, size, name, dtype, threads) for name in names}
        return {name: time / ours for name, time in times.items() if ours and time is not None}

    def sizes(self) -> list[str]:
        """The sizes that were measured."""
        return [size for size in SIZES if any(key.split("/")[1] == size for key in self.cells)]


def caption(data: dict[str, Any]) -> str:
    """Where, when, with what, and how sure."""
    machine, cells = data["machine"], data["cells"].values()
    rounds = sorted({cell["rounds"] for cell in cells})
    spreads = [
        (value["q3"] - value["q1"]) / value["median"]
        for cell in cells
        for value in cell["ms"].values()
        if value["median"]
    ]
    spread = f"{statistics.median(spreads):.0%}" if spreads else "unknown"
    loads = [cell["load"] for cell in cells] or [0.0]
    codes = len({cell["code"] for cell in cells})
    lines = [
        f"Measured {data['date']} by `{data['command']}` on {machine['cpu']}, {machine['cores']} cores,"
        f" {machine['memory_gib']} GiB, {machine['system']};"
        f" {', '.join(f'{name} {version}' for name, version in data['versions'].items())}.",
        f"Medians of {_either(rounds)} rounds; the middle half of a contestant's readings spans {spread} of its median,"
        f" typically. The machine's load average lay between {min(loads):.1f} and {max(loads):.1f}.",
    ]
    if codes > 1:
        lines.append(f"The cells come from {codes} states of the code: run it again before comparing rows.")
    return "\n".join(lines)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Markdown, numbers to the right."""
    head = list(head)
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *map(list, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def title(family: str) -> str:
    """What a family is called in a table."""
    return TITLES.get(family, family.capitalize())


def number(value: float | None) -> str:
    """Three significant digits, never an exponent."""
    if value is None:
        return DASH
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 10 else f"{value:.{2 if value >= 1 else 3}f}"


def _either(rounds: list[int]) -> str:
    return str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}" if rounds else "no"
