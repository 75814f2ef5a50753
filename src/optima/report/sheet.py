"""Strips of labelled pictures as one PNG. Needs matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence
from textwrap import wrap
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional

from optima.report.layouts import Tile
from optima.report.preview import Preview, explanation, labels
from optima.report.strips import Strips

_DPI = 100
_TILE, _GAP, _MARGIN = 112, 8, 16  # pixels
_NAMES = 84  # to the left of the pictures
_TITLE, _CAPTION, _LETTER = 56, 15, 6
_WRAP = 20  # letters below a picture
_QUIET = "#666c75"


class Line(NamedTuple):
    """Pictures (C, H, W) side by side, a name to their left, and captions below each."""

    name: str
    pictures: Sequence[Tensor]
    captions: Sequence[Sequence[str]] = ()

    @property
    def height(self) -> int:
        """In pixels, with the gap to the next one."""
        return _TILE + _CAPTION * max((len(lines) for lines in self.captions), default=0) + _GAP


class Block(NamedTuple):
    """A title, what is to be said about it, and its lines."""

    title: str
    note: str
    lines: Sequence[Line]

    @property
    def height(self) -> int:
        """In pixels."""
        return _TITLE * bool(self.title) + sum(line.height for line in self.lines) + _GAP


def sheet(blocks: Sequence[Block]) -> bytes:
    """The blocks below one another, as the bytes of a PNG file."""
    columns = max(len(line.pictures) for block in blocks for line in block.lines)
    width = 2 * _MARGIN + _NAMES + columns * (_TILE + _GAP)
    height = 2 * _MARGIN + sum(block.height for block in blocks)
    canvas = np.full((height, width, 3), 255, np.uint8)
    with mpl.rc_context({"font.family": "DejaVu Sans", "font.size": 8}):
        drawing = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI)
        top = _MARGIN
        for block in blocks:
            _draw(block, drawing, canvas, top)
            top += block.height
        drawing.figimage(canvas, zorder=-1)
        file = io.BytesIO()
        drawing.savefig(file, format="png", dpi=_DPI, metadata={"Software": None}, pil_kwargs={"optimize": True})
    return file.getvalue()


def preview_sheet(preview: Preview) -> bytes:
    """What `preview_page` shows, without its tables."""
    images = Line("", list(preview.originals), [(name[:_WRAP],) for name in preview.images])
    alone = [Block(strip.name or strip.family, explanation(strip), _lines(strip)) for strip in preview.strips]
    together = [
        Line(name, list(draws[:, index]))
        for index in range(len(preview.originals))
        for name, draws in preview.drawn().items()
    ]
    policy = Block("images", f"Policy {preview.policy}", [images])
    return sheet([policy, *alone, Block("all together", "Random draws of φ and γ.", together)])


def line(name: str, strip: Strips, tiles: Sequence[Tile]) -> Line:
    """A strip with its numbers, which take as many lines as they need."""
    texts = [[tile.place, *wrap(text, _WRAP)] for tile, text in zip(tiles, labels(strip, tiles), strict=True)]
    return Line(name, [tile.image for tile in tiles], texts)


def _lines(strip: Strips) -> list[Line]:
    if strip.prior is None:
        return [line("fixed", strip, strip.learned)]
    return [line("learned", strip, strip.learned), line("prior", strip, strip.prior)]


def _draw(block: Block, drawing: Figure, canvas: np.ndarray, top: int) -> None:
    if block.title:
        _write(drawing, canvas, _MARGIN, top + 14, block.title, weight="bold", size=10)
        for row, text in enumerate(wrap(block.note, canvas.shape[1] // _LETTER)):
            _write(drawing, canvas, _MARGIN, top + 31 + row * _CAPTION, text, color=_QUIET)
        top += _TITLE
    for strip in block.lines:
        _write(drawing, canvas, _MARGIN, top + _TILE // 2, strip.name)
        for column, picture in enumerate(strip.pictures):
            left = _MARGIN + _NAMES + column * (_TILE + _GAP)
            canvas[top : top + _TILE, left : left + _TILE] = _tile(picture)
            for row, caption in enumerate(strip.captions[column] if strip.captions else ()):
                place = top + _TILE + 10 + row * _CAPTION
                _write(drawing, canvas, left + _TILE // 2, place, caption, color=_QUIET, ha="center", size=7.5)
        top += strip.height


def _write(drawing: Figure, canvas: np.ndarray, x: int, y: int, text: str, **style: Any) -> None:
    """Text at a pixel, counted from the top left as pictures are; vertically about that pixel."""
    drawing.text(x / canvas.shape[1], 1 - y / canvas.shape[0], text, va="center", parse_math=False, **style)


def _tile(picture: Tensor) -> np.ndarray:
    """The picture in a white square (H, W, 3): small ones with their pixels visible, large ones averaged."""
    height, width = picture.shape[-2:]
    scale = _TILE / max(height, width)
    size = (max(1, round(height * scale)), max(1, round(width * scale)))
    given = picture.detach().float().clamp(0, 1)[None]
    mode = "nearest-exact" if scale >= 1 else "area"
    resized = functional.interpolate(given, size=size, mode=mode)[0].expand(3, -1, -1)
    square = np.full((_TILE, _TILE, 3), 255, np.uint8)
    top, left = (_TILE - size[0]) // 2, (_TILE - size[1]) // 2
    square[top : top + size[0], left : left + size[1]] = resized.permute(1, 2, 0).mul(255).round().byte().numpy()
    return square
