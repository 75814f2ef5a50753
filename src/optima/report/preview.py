"""The page of `optima preview`, and the same numbers as JSON. Needs neither matplotlib nor Pillow."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from optima.augment.summary import Row
from optima.report.elements import Markup, element, figure, image, page, section, table
from optima.report.layouts import Tile
from optima.report.pictures import png
from optima.report.strips import Strips
from optima.version import __version__

SCHEMA = 1
_COLUMNS = 5  # of a strip; more pictures go on in the next line
_LARGEST = 128  # pixels of a side that are kept, or a page of photographs would be tens of megabytes
_SMOOTH = 64  # pixels; a larger picture is scaled smoothly, a smaller one shows its pixels
_EXPLANATIONS = {
    "gamma": "The quantiles of {gamma}.",
    "size": "The quantiles of {gamma}, whose sign makes no difference here.",
    "norm": "Draws at the quantiles of the size of {gamma}, chosen to point the same way.",
    "cases": "The values of {gamma}, with their probabilities.",
    "branches": "The alternatives, with their probabilities: of 64 draws of each, the one with the median change.",
    "phi": "The same noise, one with the median change, at the quantiles of {gamma}.",
    "draws": "Of 16 draws at {gamma}, the quantiles by how much they change the image.",
}


@dataclass(frozen=True)
class Preview:
    """All that is on the page.

    Args:
        policy: where the policy was read from.
        images: where the images come from, one name each.
        rows: the policy's summary.
        originals: the images, (N, C, H, W).
        strips: each augmentation on the first image.
        learned: draws of the whole policy, (draws, N, C, H, W).
        prior: the same with φ from its prior; None where nothing was to be learned.
        seed: of every draw.
    """

    policy: str
    images: list[str]
    rows: list[Row]
    originals: Tensor
    strips: list[Strips]
    learned: Tensor
    prior: Tensor | None
    seed: int

    def drawn(self) -> dict[str, Tensor]:
        """The draws of the whole policy by the name of their strips."""
        return {"fixed": self.learned} if self.prior is None else {"learned": self.learned, "prior": self.prior}


def preview_page(preview: Preview) -> str:
    """The whole document."""
    return page(
        "optima preview",
        element("h1", "What the policy does to an image"),
        _lead(preview),
        _originals(preview),
        section(
            "Strengths", table(("φ", "unit", "prior mean (90 %)", "posterior mean (90 %)", "verdict"), cells(preview))
        ),
        *(section(strip.name or strip.family, _strips(strip)) for strip in preview.strips),
        section("All together", _all_together(preview)),
        _footer(preview),
    )


def cells(preview: Preview) -> list[tuple[str, ...]]:
    """The rows of the table of strengths."""
    return [
        (row.name, row.unit or "–", row.prior, _interval(row.mean, row.low, row.high), row.verdict)
        for row in preview.rows
    ]


def as_json(preview: Preview) -> dict[str, Any]:
    """Every number, ready for `json.dumps`."""
    return {
        "schema": SCHEMA,
        "kind": "optima preview",
        "policy": preview.policy,
        "images": preview.images,
        "image_shape": list(preview.originals.shape[1:]),
        "seed": preview.seed,
        "strengths": [row._asdict() for row in preview.rows],
        "augmentations": [
            {
                "name": strip.name,
                "type": strip.family,
                "shown": strip.how,
                "units": strip.units,
                "learned": [_numbers(tile) for tile in strip.learned],
                "prior": None if strip.prior is None else [_numbers(tile) for tile in strip.prior],
                "unchanged": strip.unchanged,
            }
            for strip in preview.strips
        ],
        "versions": {"optima": __version__, "torch": str(torch.__version__)},
    }


def explanation(strip: Strips) -> str:
    """How to read one augmentation's strips."""
    amounts = [f"{name} ({unit})" if unit else name for name, unit in strip.units.items()]
    if strip.how == "draws":
        amounts = [f"{name} {text}" for name, (text,) in _columns(strip, strip.learned[:1]).items()]
    return _EXPLANATIONS[strip.how].format(gamma=", ".join(amounts))


def labels(strip: Strips, tiles: Sequence[Tile]) -> list[str]:
    """What stands below each picture: its name, or its numbers to two digits of the strip's largest one."""
    columns = _columns(strip, tiles)
    if strip.how == "cases":
        columns = {name: [f"= {text}" for text in column] for name, column in columns.items()}
    if strip.how in ("phi", "draws"):  # what is the same everywhere need not be said everywhere
        columns = {name: column for name, column in columns.items() if len(set(column)) > 1}
    if strip.how != "cases" and len(columns) == 1:
        columns = {"": next(iter(columns.values()))}
    rows = [", ".join(f"{name} {column[row]}".strip() for name, column in columns.items()) for row in range(len(tiles))]
    return [tile.name or row for tile, row in zip(tiles, rows, strict=True)]


def _columns(strip: Strips, tiles: Sequence[Tile]) -> dict[str, list[str]]:
    """The numbers of every component, one text per picture."""
    return {name: _written([tile.amount[name] for tile in tiles], strip.units[name]) for name in tiles[0].amount}


def _written(amounts: Sequence[Sequence[float]], unit: str) -> list[str]:
    each = unit.split(", ") if ", " in unit else [unit] * len(amounts[0])
    columns = [_column(column, unit) for column, unit in zip(zip(*amounts, strict=True), each, strict=True)]
    return [", ".join(row) for row in zip(*columns, strict=True)]


def _column(numbers: Sequence[float], unit: str) -> list[str]:
    largest = max(map(abs, numbers))
    whole = all(number.is_integer() for number in numbers)
    digits = 0 if whole else max(0, 1 - math.floor(math.log10(largest / 2)))
    sign = "°" if unit == "degrees" else ""
    rounded = [round(number, digits) + 0.0 for number in numbers]  # −0 is 0
    return [f"{number:.{digits}f}{sign}".replace("-", "−") for number in rounded]


def _lead(preview: Preview) -> Markup:
    count = len(preview.originals)
    return element(
        "p",
        f"The policy {preview.policy}: first each augmentation alone on one image, {preview.images[0]}, then all of "
        f"them together on {'it' if count == 1 else f'{count} images'}. Learned strips are drawn from the posterior "
        "q(φ), prior strips from p(φ), which is what was assumed before any data. Images have values in [0, 1].",
        class_="lead",
    )


def _originals(preview: Preview) -> Markup:
    return _strip("images", preview.originals, preview.images)


def _strips(strip: Strips) -> Markup:
    rows = [_labelled("fixed" if strip.prior is None else "learned", strip, strip.learned)]
    if strip.prior is not None:
        rows.append(_labelled("prior", strip, strip.prior))
    note = " Nothing that can be seen happens to this image." if strip.unchanged else ""
    return figure(element("div", *rows), explanation(strip) + note)


def _all_together(preview: Preview) -> Markup:
    rows = [
        _strip(name, draws[:, index], note=preview.images[index])
        for index in range(len(preview.originals))
        for name, draws in preview.drawn().items()
    ]
    return figure(element("div", *rows), "Random draws of φ and of γ, with every augmentation in its order.")


def _labelled(name: str, strip: Strips, tiles: Sequence[Tile]) -> Markup:
    return _strip(name, [tile.image for tile in tiles], [tile.place for tile in tiles], labels(strip, tiles))


def _strip(name: str, images: Iterable[Tensor], *labels: Sequence[str], note: str = "") -> Markup:
    pictures = list(images)
    lines = list(zip(*labels, strict=True)) or [()] * len(pictures)
    tiles = [_tile(name, picture, line) for picture, line in zip(pictures, lines, strict=True)]
    grid = f"display: grid; grid-template-columns: repeat({_COLUMNS}, minmax(0, 1fr)); gap: 0.4rem"
    named = element("div", name, *([element("small", note)] if note else []), class_="label")
    return element("div", named, element("div", *tiles, style=grid), class_="strip")


def _tile(name: str, picture: Tensor, lines: Sequence[str]) -> Markup:
    if (factor := _LARGEST / max(picture.shape[-2:])) < 1:
        picture = functional.interpolate(picture[None], scale_factor=factor, mode="area")[0]
    data = "data:image/png;base64," + base64.b64encode(png(picture)).decode()
    shown = image(data, " ".join((name, *lines)))
    if min(picture.shape[-2:]) >= _SMOOTH:
        shown = Markup(shown.replace("<img ", '<img style="image-rendering: auto" ', 1))
    return element("div", shown, element("div", *(element("small", line) for line in lines), class_="label"))


def _footer(preview: Preview) -> Markup:
    return element(
        "footer",
        f"optima {__version__}, torch {torch.__version__}, seed {preview.seed}. The strips of one augmentation use "
        "16,384 draws of φ and γ. What φ has no say in, such as a partner or a place, is the same in all of them.",
    )


def _numbers(tile: Tile) -> dict[str, Any]:
    return {"place": tile.place, "amount": tile.amount}


def _interval(mean: Any, low: Any, high: Any) -> str:
    if isinstance(mean, list):
        return "; ".join(_interval(*part) for part in zip(mean, low, high, strict=True))
    return f"{mean:.3g}" if low == high else f"{mean:.3g} ({low:.3g} … {high:.3g})"
