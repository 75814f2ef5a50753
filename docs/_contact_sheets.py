"""Draws docs/augmentations/*.png: every image operation at three strengths. Run: python docs/_contact_sheets.py [NAME…]

Needs matplotlib. The pictures are one drawn here, with edges, ramps, writing and all colours, and a bundled digit.
What is shown of an augmentation follows from its γ, as in `optima preview`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import optima
from optima.augment.augmenter import Augmenter
from optima.data import digits
from optima.report.sheet import Block, Line, line, sheet
from optima.report.strips import Strips, strips

FOLDER = Path(__file__).parent / "augmentations"
SIDE = 96
_FINE = 4  # the picture is drawn so many times larger and averaged, which smooths its edges


class Entry(NamedTuple):
    """One sheet: a policy for each column, which of a strip's three places are its rows, and if grey has one too."""

    build: dict[str, Callable[[], Augmenter]]
    places: tuple[int, ...] = (0, 2)
    grey: bool = True


def _of(name: str, argument: str, *values: Any, **fixed: Any) -> dict[str, Callable[[], Augmenter]]:
    """The same family at several strengths."""

    def at(value: Any) -> Callable[[], Augmenter]:
        return lambda: getattr(optima, name)(**{argument: value}, **fixed)

    return {f"{argument} = {value}": at(value) for value in values}


def _affine(angle: float, share: float) -> list[float]:
    return [angle, share, share, angle, share / 2, share / 2]


MIDDLE_AND_END = (1, 2)
SHEETS: dict[str, Entry] = {
    "rotate": Entry(_of("Rotate", "std", 5.0, 15.0, 45.0)),
    "translate": Entry(_of("Translate", "std", 0.03, 0.1, 0.25), MIDDLE_AND_END),
    "scale": Entry(_of("Scale", "std", 0.1, 0.25, 0.5)),
    "shear": Entry(_of("Shear", "std", 5.0, 12.0, 25.0), MIDDLE_AND_END),
    "affine": Entry(
        {
            f"std ×{times}": lambda times=times: optima.Affine(std=_affine(4.0 * times, 0.05 * times))
            for times in (1, 2, 4)
        },
        MIDDLE_AND_END,
    ),
    "cropresize": Entry(_of("CropResize", "range", 0.2, 0.6, 1.2), MIDDLE_AND_END),
    "brightness": Entry(_of("Brightness", "std", 0.1, 0.3, 0.6)),
    "contrast": Entry(_of("Contrast", "std", 0.1, 0.3, 0.8)),
    "saturation": Entry(_of("Saturation", "std", 0.2, 0.5, 1.0), grey=False),
    "hue": Entry(_of("Hue", "std", 10.0, 30.0, 90.0), grey=False),
    "gamma": Entry(_of("Gamma", "std", 0.1, 0.3, 0.6)),
    "shift": Entry(_of("Shift", "std", 0.05, 0.15, 0.3)),
    "gaussiannoise": Entry(_of("GaussianNoise", "std", 0.05, 0.15, 0.4), (1,)),
    "blur": Entry(_of("Blur", "std", 0.5, 1.0, 3.0), MIDDLE_AND_END),
    "erase": Entry(_of("Erase", "range", 0.2, 0.4, 0.8), MIDDLE_AND_END),
    "mixup": Entry(_of("Mixup", "alpha", 0.1, 1.0, 10.0)),
    "cutmix": Entry(_of("CutMix", "alpha", 0.1, 1.0, 10.0)),
    "augmix": Entry(_of("AugMix", "severity", 1.0, 3.0, 10.0), MIDDLE_AND_END, grey=False),
}
CASES: dict[str, Callable[[], Augmenter]] = {
    "flip": lambda: optima.Flip(p=0.3),
    "oneof": lambda: optima.OneOf(
        optima.Rotate(std=20.0), optima.Scale(std=0.3), optima.GaussianNoise(std=0.15), probs=[0.5, 0.3, 0.2]
    ),
    "maybe": lambda: optima.Maybe(optima.Rotate(std=30.0), p=0.3),
}

OPERATIONS = {
    "augmix_tones": (
        "autocontrast",
        "equalize",
        "posterize",
        "solarize",
        "color",
        "contrast",
        "brightness",
        "sharpness",
    ),
    "augmix_moves": ("rotate", "shear_x", "shear_y", "translate_x", "translate_y"),
}


def picture() -> Tensor:
    """A hill with a house, a sun, a chart of colours, ramps and something like writing, (3, 96, 96)."""
    size = SIDE * _FINE
    y, x = torch.meshgrid(torch.linspace(0, 1, size), torch.linspace(0, 1, size), indexing="ij")
    canvas = torch.stack([0.45 + 0.45 * y, 0.65 + 0.25 * y, 0.95 - 0.15 * y])  # a sky that pales towards the ground

    def paint(where: Tensor, *colour: float) -> None:
        canvas[:, where] = torch.tensor(colour)[:, None]

    paint((x - 0.2) ** 2 + (y - 0.2) ** 2 < 0.11**2, 0.98, 0.80, 0.16)
    paint(y > 0.60 + 0.06 * torch.sin(5 * x), 0.30, 0.58, 0.24)
    paint((x > 0.42) & (x < 0.82) & (y > 0.42) & (y < 0.70), 0.86, 0.80, 0.68)
    paint((y > 0.42 - 0.8 * (0.24 - (x - 0.62).abs())) & (y < 0.42), 0.70, 0.20, 0.15)
    paint((x > 0.48) & (x < 0.57) & (y > 0.49) & (y < 0.59), 0.18, 0.26, 0.42)
    paint((x > 0.66) & (x < 0.75) & (y > 0.50) & (y < 0.70), 0.35, 0.22, 0.12)
    bars = ((0.9, 0.1, 0.1), (0.9, 0.85, 0.1), (0.1, 0.7, 0.2), (0.1, 0.75, 0.8), (0.15, 0.2, 0.85), (0.8, 0.2, 0.75))
    for place, colour in enumerate(bars):
        paint((x > 0.05 + 0.05 * place) & (x < 0.10 + 0.05 * place) & (y > 0.74) & (y < 0.82), *colour)
    ramp = (x > 0.05) & (x < 0.35) & (y > 0.84) & (y < 0.92)
    canvas[:, ramp] = ((x[ramp] - 0.05) / 0.30).expand(3, -1)
    paint((x > 0.42) & (x < 0.95) & (y > 0.76) & (y < 0.95), 0.97, 0.97, 0.95)
    for row, word in enumerate(("110111011011101", "101101110110000")):
        for place, letter in enumerate(word):
            left, top = 0.45 + 0.031 * place, 0.79 + 0.07 * row
            ink = (x > left) & (x < left + 0.022) & (y > top) & (y < top + 0.042)
            paint(ink & ~((x > left + 0.008) & (y > top + 0.014) & (y < top + 0.028)) & (letter == "1"), 0.1, 0.1, 0.12)
    return torch.nn.functional.avg_pool2d(canvas[None], _FINE)[0]


def partner() -> Tensor:
    """What the picture is mixed with: rings and a chequered ground."""
    axis = torch.linspace(-1, 1, SIDE)
    y, x = axis[:, None].expand(SIDE, SIDE), axis[None].expand(SIDE, SIDE)
    ground = (((x * 4).floor() + (y * 4).floor()) % 2) * 0.25 + 0.55
    rings = 0.5 + 0.5 * torch.cos(14 * (x**2 + y**2).sqrt())
    inside = (x**2 + y**2 < 0.7).float()
    return torch.stack([ground * (1 - inside) + inside * tone * rings for tone in (0.95, 0.55, 0.2)])


def strengths(entry: Entry) -> Block:
    """Columns are strengths; rows places of the picture's strip, and the last one of a digit's."""
    lines = []
    for image, mixed in pictures()[: 1 + entry.grey]:
        columns = [_alone(build(), image, mixed) for build in entry.build.values()]
        places = entry.places if not lines else entry.places[-1:]
        lines += [_row(image, columns, place, list(entry.build)) for place in places]
    return Block("", "", lines)


def cases(build: Callable[[], Augmenter]) -> Block:
    """Columns are the values of γ."""
    lines = []
    for image, mixed in pictures():
        strip = _alone(build(), image, mixed)
        shown = line("", strip, strip.learned)
        lines.append(Line("", [image, *shown.pictures], [("original",), *shown.captions]))
    return Block("", "", lines)


def pictures() -> list[tuple[Tensor, Tensor]]:
    """The picture and a digit, each with its partner."""
    digit, other = digits().images[[5, 9]]
    return [(picture(), partner()), (digit, other)]


def _alone(policy: Augmenter, image: Tensor, mixed: Tensor) -> Strips:
    """The strip of the policy's first augmentation."""
    return strips(policy, image, mixed, count=3, seed=0)[0]


def _row(image: Tensor, columns: list[Strips], place: int, names: list[str]) -> Line:
    shown = [line("", strip, strip.learned) for strip in columns]
    texts = [
        () if strip.how == "draws" else each.captions[place][1:] for strip, each in zip(columns, shown, strict=True)
    ]
    captions = [("original",), *((name, *text) for name, text in zip(names, texts, strict=True))]
    where = columns[0].learned[place].place
    return Line(
        f"{'draw' if columns[0].how == 'draws' else 'γ'} at {where}",
        [image, *(each.pictures[place] for each in shown)],
        captions,
    )


def operations(names: tuple[str, ...]) -> Block:
    """AugMix's operations alone: rows are operations, columns levels."""
    photo, levels = picture(), (1.0, 4.0, 9.0)
    lines = []
    for name in names:
        policy = optima.AugMix(width=1, depth=1, operations=[name])
        gamma = dict(policy(photo[None]).gamma)  # the operation's number is the only one of its kind
        gamma |= {key: torch.ones_like(gamma[key]) for key in ("weights", "blend", "depth")}
        drawn = [
            policy(photo[None], replay={**gamma, "level": torch.full_like(gamma["level"], at)}).x[0] for at in levels
        ]
        lines.append(Line(name, [photo, *drawn], [("original",), *((f"level {at:g}",) for at in levels)]))
    return Block("", "", lines)


def main(wanted: list[str]) -> None:
    """Draw the sheets of that name, or all; one whose classes do not exist is named and left out."""
    FOLDER.mkdir(exist_ok=True)
    for name in wanted or [*SHEETS, *CASES, *OPERATIONS]:
        try:
            block = _block(name)
        except AttributeError as error:
            if error.obj is not optima:
                raise
            print(f"{name}: optima has no {error.name}")  # noqa: T201
            continue
        content = sheet([block])
        (FOLDER / f"{name}.png").write_bytes(content)
        print(f"{name}: {len(content) // 1000} kB")  # noqa: T201


def _block(name: str) -> Block:
    if name in OPERATIONS:
        return operations(OPERATIONS[name])
    return strengths(SHEETS[name]) if name in SHEETS else cases(CASES[name])


if __name__ == "__main__":
    main(sys.argv[1:])
