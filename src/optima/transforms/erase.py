"""A rectangle of each image replaced by one colour, differentiable in where it is and how large."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from optima.transforms.boxes import cover_box

Fill = float | Literal["mean"]


def erase(
    image: Float[Tensor, "B C H W"], centre: Float[Tensor, "B 2"], sides: Float[Tensor, "B 2"], value: Fill = 0.0
) -> Float[Tensor, "B C H W"]:
    """x (1 − m) + v m, where m is the share of each pixel that a box covers.

    Args:
        image: (B, C, H, W).
        centre: (B, 2), horizontal first, as fractions of width and height.
        sides: (B, 2), likewise, not negative; what lies beyond the border is cut off.
        value: v, a number, or "mean" for the mean of each channel of the image.
    """
    precise = image.to(torch.promote_types(image.dtype, torch.float32))
    rows, columns = cover_box(centre.to(precise.dtype), sides.to(precise.dtype), *image.shape[2:])
    covered = (rows.unsqueeze(2) * columns.unsqueeze(1)).unsqueeze(1)
    kept = precise * (1.0 - covered)
    if value == "mean":
        kept = kept + precise.mean((2, 3), keepdim=True) * covered
    elif value:
        kept = kept.add_(covered * value)  # the product is ours alone, and autograd does not need it
    return kept.to(image.dtype)
