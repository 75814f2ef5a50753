r"""Gaussian blur of images, one width per image, smooth in the width down to none at all.

A pixel is an interval of length 1, and pixel i receives from pixel j the share of a Gaussian about i's centre that lies
on j:

    a_ij = Φ((j + ½ − i)/s) − Φ((j − ½ − i)/s)

What falls beyond the border is folded back, as if the image were mirrored at its edge. Every row of A then sums to 1,
and so does every column: an image keeps its mean. As s → 0, A becomes the identity, and its derivatives vanish.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

_SHARPEST = 0.01  # pixels; Φ(±½/s) is 0 and 1 in float64 from here on down, and so are all derivatives
_BLOCK = 32  # rows of A that are multiplied at a time
_PERIODS = 4  # of the mirrored image that are folded: exact up to widths of half the image


def blur(image: Float[Tensor, "B C H W"], width: Float[Tensor, " B"]) -> Float[Tensor, "B C H W"]:
    """Blur each image by a Gaussian of standard deviation `width`, (B,) pixels, not negative."""
    precise = image.to(torch.promote_types(image.dtype, torch.float32))
    width = width.to(precise.dtype)
    _, channels, rows, columns = image.shape
    across = coverage(width, columns)
    down = across if rows == columns else coverage(width, rows)
    reach = _reach(width)
    blurred = _along_rows(precise.flatten(1, 2), across, reach)
    blurred = _along_columns(blurred.view(-1, rows, columns), down, reach)
    return blurred.view(-1, channels, rows, columns).to(image.dtype)


def coverage(width: Float[Tensor, " B"], pixels: int) -> Float[Tensor, "B pixels pixels"]:
    """A, for an axis of that many pixels."""
    period = 2 * pixels  # of an image and its mirror image
    edges = torch.arange(-_PERIODS // 2 * period, _PERIODS // 2 * period + 1, dtype=width.dtype, device=width.device)
    below = torch.erf((edges - 0.5) / (math.sqrt(2.0) * width.clamp_min(_SHARPEST)).unsqueeze(1)) / 2  # Φ − ½
    share = below.diff(dim=1).unflatten(1, (_PERIODS, period)).sum(1)  # (B, period), of the pixels at distance 0, 1, …
    share = share / share.sum(1, keepdim=True)
    straight = torch.cat([share[:, 1:pixels].flip(1), share[:, :pixels]], 1).unfold(1, pixels, 1).flip(1)  # |i − j|
    mirrored = share[:, 1:].unfold(1, pixels, 1)  # i + j + 1
    return straight.add_(mirrored)


def _reach(width: Tensor) -> int | None:
    """How many pixels away A is nought to the last digit; None where to ask would make an accelerator's host wait."""
    if width.device.type != "cpu" or torch.compiler.is_compiling() or not len(width):
        return None
    widest = float(width.detach().amax())
    digits = 8.5 if width.dtype == torch.float64 else 5.5  # Φ(−8.5) = 1e-17, Φ(−5.5) = 2e-8
    return math.ceil(digits * widest) + 1 if math.isfinite(widest) else None


def _along_rows(x: Tensor, matrix: Tensor, reach: int | None) -> Tensor:
    """A applied to each row of x, (B, m, n)."""
    if _is_wide(matrix, reach):
        with torch.autocast(x.device.type, enabled=False):  # which would round the products to half precision
            return torch.bmm(x, matrix.transpose(1, 2))
    product: Any = _Banded.apply(matrix, x.transpose(1, 2), reach)
    return product.transpose(1, 2)


def _along_columns(x: Tensor, matrix: Tensor, reach: int | None) -> Tensor:
    """A applied to each column of x, (B·C, n, m), where C images in turn share a matrix."""
    if _is_wide(matrix, reach):
        with torch.autocast(x.device.type, enabled=False):
            return torch.bmm(_shared(matrix, x), x)
    product: Any = _Banded.apply(matrix, x, reach)
    return product


def _is_wide(matrix: Tensor, reach: int | None) -> bool:
    """Whether the blocks about the diagonal are most of the matrix."""
    return reach is None or 2 * reach + _BLOCK > 0.8 * matrix.shape[-1]


def _shared(matrix: Tensor, x: Tensor) -> Tensor:
    each = len(x) // max(len(matrix), 1)
    return matrix if each == 1 else matrix.repeat_interleave(each, 0)


class _Banded(torch.autograd.Function):
    """A x where A is nought further than `reach` from its diagonal: only the blocks about the diagonal are computed."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, x: Tensor, reach: int) -> Tensor:
        ctx.save_for_backward(matrix, x)
        ctx.reach = reach
        return _banded_product(matrix, x, reach)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # pyright: ignore
        matrix, x = ctx.saved_tensors
        for_matrix = _banded_outer(grad, x, matrix, ctx.reach) if ctx.needs_input_grad[0] else None
        for_x = _banded_product(matrix.transpose(1, 2), grad, ctx.reach) if ctx.needs_input_grad[1] else None
        return for_matrix, for_x, None


def _blocks(size: int, reach: int) -> list[tuple[slice, slice]]:
    """Some rows of a band, and the columns where they are not nought."""
    starts = range(0, size, _BLOCK)
    return [(slice(at, at + _BLOCK), slice(max(0, at - reach), at + _BLOCK + reach)) for at in starts]


def _banded_product(matrix: Tensor, x: Tensor, reach: int) -> Tensor:
    product = torch.empty_like(x)  # in x's strides
    with torch.autocast(x.device.type, enabled=False):
        for rows, columns in _blocks(x.shape[1], reach):
            torch.bmm(_shared(matrix[:, rows, columns], x), x[:, columns], out=product[:, rows])
    return product


def _banded_outer(grad: Tensor, x: Tensor, matrix: Tensor, reach: int) -> Tensor:
    """The gradient of A x with respect to A, on the band."""
    outer = torch.zeros_like(matrix)
    with torch.autocast(x.device.type, enabled=False):
        for rows, columns in _blocks(x.shape[1], reach):
            block = torch.bmm(grad[:, rows], x[:, columns].transpose(1, 2))
            outer[:, rows, columns] = block.unflatten(0, (len(matrix), -1)).sum(1)
    return outer
