r"""Boxes that cover pixels fractionally, so that their area is exact and moves smoothly with their edges.

Pixel k of n covers [k/n, (k+1)/n] of an axis. A box from a to b covers the share

    c_k = n · |[a, b] ∩ [k/n, (k+1)/n]|

of it, and a rectangle covers the product of its rows' and its columns' shares. The mean over the image is then the
area of the rectangle inside the image, whatever its position: nothing is rounded to whole pixels.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def cover_axis(low: Float[Tensor, " B"], high: Float[Tensor, " B"], pixels: int) -> Float[Tensor, "B pixels"]:
    """The share of each pixel of an axis that lies between `low` and `high`, given in fractions of the axis."""
    edges = torch.arange(pixels + 1, dtype=low.dtype, device=low.device)
    start, stop = low.unsqueeze(1) * pixels, high.unsqueeze(1) * pixels
    return (torch.minimum(edges[1:], stop) - torch.maximum(edges[:-1], start)).clamp_min(0.0)


def cover_box(
    centre: Float[Tensor, "B 2"], sides: Float[Tensor, "B 2"], height: int, width: int
) -> tuple[Float[Tensor, "B height"], Float[Tensor, "B width"]]:
    """Rows' and columns' shares inside a box: centre and sides (B, 2), horizontal first, in fractions of the image.

    What lies beyond the border is cut off. The image of a box is rows ⊗ columns, its area mean(rows) · mean(columns).
    """
    low, high = centre - sides / 2, centre + sides / 2
    return cover_axis(low[:, 1], high[:, 1], height), cover_axis(low[:, 0], high[:, 0], width)


def box_of_share(share: Float[Tensor, " B"]) -> Float[Tensor, "B 2"]:
    """The sides of a box, of the image's own shape, that has this share of its area."""
    # at a share of 0 the root has no slope; the box is gone, and so is its say
    root = torch.where(share > 0, share, 1.0).sqrt() * (share > 0)
    return root.unsqueeze(1).expand(-1, 2)


def whole_pixels(
    centre: Float[Tensor, "B 2"], sides: Float[Tensor, "B 2"], height: int, width: int
) -> tuple[Float[Tensor, "B 2"], Float[Tensor, "B 2"]]:
    """The box with its sides and its place rounded down to whole pixels, as CutMix was published; no gradient."""
    size = torch.tensor([width, height], dtype=sides.dtype, device=sides.device)
    pixels = (sides.detach() * size).floor()
    low = (centre * size).floor() - (pixels / 2).floor()
    # the published box ends half its width beyond the centre on either side, and so is even
    high = (centre * size).floor() + (pixels / 2).floor()
    return (low + high) / (2 * size), (high - low) / size
