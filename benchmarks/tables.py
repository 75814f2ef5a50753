"""What `benchmarks.images` wrote, as Markdown: times, ratios to the peers, and the aims that are met and missed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.families import FAMILIES, SIZES
from benchmarks.notes import notes
from benchmarks.results import DASH, KORNIA, NAMES, SETTINGS, Results, caption, number, table, title

FASTER = 1.5  # the aim on every family, against every peer that draws per example
PAPER_AUGMIX = 949  # ms for two views of 32×3×224×224 with Pillow, taken once on a machine of two cores


def images(path: Path) -> str:
    """Every table of the page."""
    found = Results(path)
    parts = [caption(found.data)]
    for size in found.sizes():
        parts += [_heading(found, size), _forward(found, size), _settings(found, size)]
    parts += ["### Aims", _aims(found), notes(found)]
    return "\n\n".join(part for part in parts if part)


def _heading(found: Results, size: str) -> str:
    shape = "×".join(map(str, SIZES[size]))
    copies = {
        setting: statistics.median(times)
        for setting in SETTINGS
        if (times := [t for f in FAMILIES if (t := found.ms(f, size, "copy", *setting)) is not None])
    }
    copied = ", ".join(f"{number(time)} ({dtype}, {_threads(threads)})" for (dtype, threads), time in copies.items())
    return f"### {shape}\n\nCopying the batch takes, in ms: {copied}."


def _forward(found: Results, size: str) -> str:
    """float32 on one thread: everybody."""
    columns: dict[str, Callable[[str], str]] = {
        "optima": lambda f: number(found.ms(f, size, "optima")),
        "kornia": lambda f: _several(found.ms(f, size, name) for name in KORNIA),
        "torchvision, looped": lambda f: number(found.ms(f, size, "torchvision_loop")),
        "torchvision, one draw per batch": lambda f: number(found.ms(f, size, "torchvision_batch")),
        "OpenCV": lambda f: number(found.ms(f, size, "opencv")),
        "Pillow": lambda f: number(found.ms(f, size, "pil")),
        "times as fast as": lambda f: _fastest(found.rivals(f, size)),
        "optima, to φ": lambda f: number(found.ms(f, size, "optima_backward")),
        "÷ forward": lambda f: _over(found.ms(f, size, "optima_backward"), found.ms(f, size, "optima")),
        "kornia, to its ranges": lambda f: _several(found.ms(f, size, f"{name}_backward") for name in KORNIA),
    }
    rows = [[title(family), *(cell(family) for cell in columns.values())] for family in found.families(size)]
    return "float32, one thread, ms per batch.\n\n" + table(["", *columns], rows) if rows else ""


def _settings(found: Results, size: str) -> str:
    """optima in every setting, and how many times as fast as the fastest that does as much."""
    settings = [setting for setting in SETTINGS if found.families(size, *setting)]
    families = [family for family in FAMILIES if any(family in found.families(size, *s) for s in settings)]
    if len(settings) < 2:
        return ""

    def cell(family: str, setting: tuple[str, int]) -> str:
        ours, rivals = found.ms(family, size, "optima", *setting), found.rivals(family, size, *setting)
        return number(ours) + (f" ({min(rivals.values()):.1f}×)" if rivals else "")

    head = ["", *(f"{dtype}, {_threads(threads)}" for dtype, threads in settings)]
    rows = [[title(family), *(cell(family, setting) for setting in settings)] for family in families]
    return (
        "optima forwards, ms per batch, and in brackets how many times as fast as the fastest peer that draws as often."
        "\n\n" + table(head, rows)
    )


def _aims(found: Results) -> str:
    rows = [row for size in found.sizes() for row in _aims_at(found, size)]
    return table(["aim", "size", "measured", ""], rows)


def _aims_at(found: Results, size: str) -> list[list[str]]:
    rows = []
    measured = {family: rivals for family in found.families(size) if (rivals := found.rivals(family, size))}
    for who, names in (
        ("any other", (*KORNIA, "torchvision_loop", "pil", "torchvision_batch")),
        ("OpenCV", ("opencv",)),
    ):
        ratios = {
            family: min(known)
            for family, rivals in measured.items()
            if (known := [rivals[n] for n in names if n in rivals])
        }
        slow = [f"{title(family)} {ratio:.2f}" for family, ratio in ratios.items() if ratio < FASTER]
        said = f"{len(ratios) - len(slow)} of {len(ratios)} families" + (f"; not {', '.join(slow)}" if slow else "")
        if ratios:
            rows.append(
                [f"≥ {FASTER}× as fast as {who} with as many draws, on every family", size, said, _met(not slow)]
            )
    for aim, least, ratio in _ratio_aims(found, size):
        if ratio is not None:
            rows.append([aim, size, f"{ratio:.2f}", _verdict(ratio, least)])
    return rows


def _verdict(ratio: float, least: float) -> str:
    """For a ratio that should be at least 1 or more, or (given as one over it) at most so much; none for 0."""
    if not least:
        return DASH
    return _met(ratio >= least if least >= 1 else ratio <= 1 / least)


def _ratio_aims(found: Results, size: str) -> list[tuple[str, float, float | None]]:
    """Aim, the least ratio (or one over the greatest), and the ratio measured."""

    def times(family: str, who: str, threads: int = 1) -> float | None:
        return _ratio(
            found.ms(family, size, who, "float32", threads), found.ms(family, size, "optima", "float32", threads)
        )

    paper = _ratio(PAPER_AUGMIX, found.ms("augmix", size, "optima", "float32", 2))
    together = _ratio(found.ms("four_warps", size, "optima"), found.ms("rotate", size, "optima"))
    aims: list[tuple[str, float, float | None]] = [
        ("colour, ≥ 5× as fast as ColorJiggle", 5, times("colour", "kornia_jiggle")),
        ("CutMix, ≥ 5× as fast as kornia's", 5, times("cutmix", "kornia")),
        ("four warps ÷ one, ≤ 1.1", 1 / 1.1, together),
    ]
    if size == "224":
        aims.append(("AugMix, ≥ 3× as fast as Pillow, two threads against two processes", 3, times("augmix", "pil", 2)))
        aims.append((f"{PAPER_AUGMIX} ms, the paper's script on another machine, for the record", 0, paper))
        aims.append(("one warp, towards OpenCV's time", 1, times("rotate", "opencv")))
    else:
        aims.append(("AugMix, ≥ 10× as fast as torchvision, looped", 10, times("augmix", "torchvision_loop")))
    return aims


def _fastest(rivals: dict[str, float]) -> str:
    """How many times as fast as the fastest, and who that is."""
    if not rivals:
        return DASH
    name = min(rivals, key=rivals.__getitem__)
    return f"{rivals[name]:.2f} {NAMES[name]}"


def _several(times: Iterable[float | None]) -> str:
    return " / ".join(number(time) for time in times if time is not None) or DASH


def _over(one: float | None, other: float | None) -> str:
    ratio = _ratio(one, other)
    return DASH if ratio is None else f"{ratio:.1f}"


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def _met(met: bool) -> str:
    return "met" if met else "**missed**"


def _threads(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"
