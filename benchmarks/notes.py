"""What a reader of the tables has to know besides: who is absent, and who does not do the same."""

from __future__ import annotations

from benchmarks.families import FAMILIES
from benchmarks.results import NAMES, Results, title

UNLIKE = 2.5  # a mean change of the pixels that differs by more is pointed out


def notes(found: Results) -> str:
    """Who is absent and why; what was not measured; who changes the images by a different amount."""
    lines: dict[str, list[str]] = {}
    for key, cell in found.cells.items():
        for who, reason in cell["absent"].items():
            lines.setdefault(f"{_named(who)} is absent: {reason.removeprefix(f'{who} ')}", []).append(key)
        for who in _unlike(key, cell["change"]):
            lines.setdefault(
                f"{_named(who)} changes pixels {UNLIKE} times as much, or as little, as optima", []
            ).append(key)
    for key, reason in found.data["skipped"].items():
        lines.setdefault(f"not measured: {reason}", []).append(key)
    items = [f"- {line} ({_listed(found, keys)})" for line, keys in sorted(lines.items())]
    return "### Absent\n\n" + "\n".join(items) if items else ""


def _unlike(key: str, change: dict[str, float]) -> list[str]:
    """Contestants whose change of the images is of another size; not where one draw decides it."""
    if FAMILIES[key.split("/")[0]].shared:
        return []
    ratios = {who: value / change["optima"] for who, value in change.items() if who != "torchvision_batch"}
    return [who for who, ratio in ratios.items() if not 1 / UNLIKE <= ratio <= UNLIKE]


def _named(who: str) -> str:
    backward = who.endswith("_backward")
    name = who.removesuffix("_backward")
    return f"{NAMES.get(name, name)}{', to its ranges,' if backward else ''}"


def _listed(found: Results, keys: list[str]) -> str:
    """The families, unless it is all of them; and the type, unless it is both."""
    families = dict.fromkeys(title(key.split("/")[0]) for key in keys)
    dtypes = {key.split("/")[2] for key in keys}
    every = {title(key.split("/")[0]) for key in found.cells} <= set(families)
    where = f" in {dtypes.pop()}" if len(dtypes) == 1 and any("/bf16/" in key for key in found.cells) else ""
    return ("every family" if every else "; ".join(families)) + where
