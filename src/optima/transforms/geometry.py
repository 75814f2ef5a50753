r"""Warps of images by one bilinear interpolation, differentiable in the warp.

The output pixel at p reads the input at A⁻¹p, where p runs over pixel centres measured from the image's centre.
Angles turn the picture counter-clockwise as it is displayed; shifts are fractions of the size, positive to the right
and downwards.

`grid_sample` wants the corners of the image at ±1 (align_corners=False), so pixel k of W sits at (2k + 1)/W − 1. A
rotation written in those coordinates shears every image that is not square; `_grid` therefore works in pixels and
divides at the end.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

Padding = Literal["zeros", "border", "reflection"]


def rotate(
    image: Float[Tensor, "B C H W"], angle: Float[Tensor, " B"], *, padding: Padding = "zeros"
) -> Float[Tensor, "B C H W"]:
    """Turn each image about its centre: image (B, C, H, W), angle (B,) in radians, counter-clockwise."""
    cos, sin = angle.cos(), angle.sin()
    # A⁻¹ of a counter-clockwise turn, with y pointing down
    inverse = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)
    return _warp(image, inverse, torch.zeros_like(inverse[..., 0]), padding)


def translate(
    image: Float[Tensor, "B C H W"], shift: Float[Tensor, "B 2"], *, padding: Padding = "zeros"
) -> Float[Tensor, "B C H W"]:
    """Move each image: image (B, C, H, W), shift (B, 2) as fractions of width and height."""
    size = torch.tensor([image.shape[-1], image.shape[-2]], dtype=shift.dtype, device=shift.device)
    identity = torch.eye(2, dtype=shift.dtype, device=shift.device).expand(len(shift), 2, 2)
    return _warp(image, identity, -shift * size, padding)


def _warp(image: Tensor, inverse: Tensor, offset: Tensor, padding: Padding) -> Tensor:
    """Read each image at inverse · p + offset, in pixels from the centre; in float32 at least, or pixels blur."""
    precise = torch.promote_types(image.dtype, torch.float32)
    grid = _grid(image.shape[-2], image.shape[-1], inverse.to(precise), offset.to(precise))
    warped = functional.grid_sample(image.to(precise), grid, mode="bilinear", padding_mode=padding, align_corners=False)
    return warped.to(image.dtype)


def _grid(height: int, width: int, inverse: Tensor, offset: Tensor) -> Tensor:
    like = {"dtype": inverse.dtype, "device": inverse.device}
    x = torch.arange(width, **like) - (width - 1) / 2
    y = torch.arange(height, **like) - (height - 1) / 2
    half_size = torch.tensor([width / 2, height / 2], **like)
    column = (x[:, None] * inverse[:, None, :, 0]).unsqueeze(1)  # (B, 1, W, 2)
    row = (y[:, None] * inverse[:, None, :, 1] + offset[:, None]).unsqueeze(2)  # (B, H, 1, 2)
    return (column + row) / half_size
