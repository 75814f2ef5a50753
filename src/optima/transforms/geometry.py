r"""Warps of images by one bilinear interpolation, differentiable in the warp.

The output pixel at p reads the input at A⁻¹p, where p runs over pixel centres measured from the image's centre.
Angles turn the picture counter-clockwise as it is displayed; shifts are fractions of the size, positive to the right
and downwards.

Two warps in a row are one: `Warp.then` multiplies their matrices, so that the picture is interpolated once, and what
one of them moves out of the frame and the other back is not lost.

`grid_sample` wants the corners of the image at ±1 (align_corners=False), so pixel k of W sits at (2k + 1)/W − 1. With
align_corners=True the pixel *centres* at the border sit at ±1 instead, and a shift by a fraction of the size becomes
one by a fraction of the size less one pixel. A rotation written in either of these coordinates shears every image that
is not square; `_grid` therefore works in pixels from the centre, and only scales the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from optima.transforms.operators import Operator

Padding = Literal["zeros", "border", "reflection"]
PADDINGS = ("zeros", "border", "reflection")


# ---- the matrices --------------------------------------------------------------------------------------------------


def turn(angle: Float[Tensor, " B"]) -> Float[Tensor, "B 2 2"]:
    """A⁻¹ of a counter-clockwise turn by `angle` radians, with y pointing down."""
    cos, sin = angle.cos(), angle.sin()
    return _matrix(cos, -sin, sin, cos)


def magnify(log_scale: Float[Tensor, "B 2"]) -> Float[Tensor, "B 2 2"]:
    """A⁻¹ of a magnification by exp(log_scale), horizontally and vertically."""
    shrink = (-log_scale).exp()
    zero = torch.zeros_like(shrink[:, 0])
    return _matrix(shrink[:, 0], zero, zero, shrink[:, 1])


def slant(angle: Float[Tensor, "B 2"]) -> Float[Tensor, "B 2 2"]:
    """A⁻¹ of a shear: rows move sideways by tan(angle₁) per row, and columns downwards by tan(angle₂) per column."""
    sideways, downwards = angle.tan().unbind(1)
    one = torch.ones_like(sideways)
    # A = [[1, 0], [b, 1]] [[1, a], [0, 1]]: sideways, then downwards, which keeps the area whatever the angles
    return _matrix(one + sideways * downwards, -sideways, -downwards, one)


def _matrix(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return torch.stack([a, b, c, d], -1).view(-1, 2, 2)


# ---- the warp ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Warp:
    """Each image read at inverse · p + offset, in pixels from the centre.

    Args:
        inverse: (B, 2, 2), A⁻¹.
        offset: (B, 2), horizontal first.
        padding: what lies beyond the border.
    """

    inverse: Tensor
    offset: Tensor
    padding: Padding = "zeros"

    def __call__(self, x: Tensor) -> Tensor:
        read = self._read(x, "bilinear")
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return read  # to ask which rows stay would make an accelerator's host wait, and a graph break
        still = (self.inverse == torch.eye(2, dtype=self.inverse.dtype)).all((1, 2)) & (self.offset == 0).all(1)
        if not bool(still.any()):
            return read
        # in float32 a position among 224 pixels is off by some 1e-5, and no change should be none; the slope is kept
        return torch.where(still.view(-1, 1, 1, 1), x.detach() + (read - read.detach()), read)

    def on_mask(self, mask: Tensor) -> Tensor:
        """Labels of the nearest pixels; beyond the border label 0, or what `padding` says."""
        wide = mask.unsqueeze(1).to(torch.float64)  # exact for every label a mask can hold
        return self._read(wide, "nearest").squeeze(1).to(mask.dtype)

    def on_boxes(self, boxes: Tensor, height: int, width: int) -> Tensor:
        """The smallest upright boxes around the moved ones."""
        forward = torch.linalg.inv(self.inverse.to(boxes.dtype))
        middle = boxes.new_tensor([width / 2, height / 2])
        moved = (_corners(boxes) - middle - self.offset.to(boxes.dtype)[:, None, None]) @ forward.mT[:, None] + middle
        return torch.cat([moved.amin(2), moved.amax(2)], -1)

    def rows(self, index: Tensor) -> Warp:
        return Warp(self.inverse[index], self.offset[index], self.padding)

    def then(self, following: Operator) -> Operator | None:
        if isinstance(following, Reflection):
            following = following.as_warp(self.inverse, self.padding)
        if not isinstance(following, Warp) or following.padding != self.padding:
            return None
        offset = (self.inverse @ following.offset.unsqueeze(-1)).squeeze(-1) + self.offset
        return Warp(self.inverse @ following.inverse, offset, self.padding)

    def _read(self, image: Tensor, mode: str) -> Tensor:
        """In float32 at least, or pixels blur."""
        precise = torch.promote_types(image.dtype, torch.float32)
        grid = _grid(image.shape[-2], image.shape[-1], self.inverse.to(precise), self.offset.to(precise))
        read = functional.grid_sample(
            image.to(precise), grid, mode=mode, padding_mode=self.padding, align_corners=False
        )
        return read.to(image.dtype)


def _grid(height: int, width: int, inverse: Tensor, offset: Tensor) -> Tensor:
    like = {"dtype": inverse.dtype, "device": inverse.device}
    half_size = torch.tensor([width / 2, height / 2], **like)
    # dividing the matrix costs B·6 divisions, dividing the grid one per pixel
    inverse, offset = inverse / half_size[:, None], offset / half_size
    x = torch.arange(width, **like) - (width - 1) / 2
    y = torch.arange(height, **like) - (height - 1) / 2
    column = (x[:, None] * inverse[:, None, :, 0]).unsqueeze(1)  # (B, 1, W, 2)
    row = (y[:, None] * inverse[:, None, :, 1] + offset[:, None]).unsqueeze(2)  # (B, H, 1, 2)
    return column + row


def _corners(boxes: Tensor) -> Tensor:
    """The corners (…, 4, 2) of boxes (…, 4) given as left, top, right, bottom."""
    left, top, right, bottom = boxes.unbind(-1)
    corners = [left, top, right, top, left, bottom, right, bottom]
    return torch.stack(corners, -1).unflatten(-1, (4, 2))


@dataclass(frozen=True)
class Reflection:
    """Mirror images, exactly: no pixel is interpolated.

    Args:
        flipped: (B, 2), whether to swap left and right, and whether to swap top and bottom.
    """

    flipped: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return self._apply(x)

    def on_mask(self, mask: Tensor) -> Tensor:
        return self._apply(mask)

    def on_boxes(self, boxes: Tensor, height: int, width: int) -> Tensor:
        """The mirrored boxes."""
        signs = 1.0 - 2.0 * self.flipped.to(boxes.dtype)
        middle = boxes.new_tensor([width / 2, height / 2])
        moved = (_corners(boxes) - middle) * signs[:, None, None] + middle
        return torch.cat([moved.amin(2), moved.amax(2)], -1)

    def rows(self, index: Tensor) -> Reflection:
        return Reflection(self.flipped[index])

    def then(self, following: Operator) -> Operator | None:
        if isinstance(following, Reflection):
            return Reflection(self.flipped ^ following.flipped)
        if isinstance(following, Warp):
            return self.as_warp(following.inverse, following.padding).then(following)
        return None

    def as_warp(self, like: Tensor, padding: Padding) -> Warp:
        """The same as a matrix, in the type of `like`."""
        signs = 1.0 - 2.0 * self.flipped.to(like.dtype)
        return Warp(torch.diag_embed(signs), torch.zeros_like(signs), padding)

    def _apply(self, x: Tensor) -> Tensor:
        for axis, flags in zip((-1, -2), self.flipped.unbind(1), strict=True):
            x = _mirrored(x, flags, axis)
        return x


def _mirrored(x: Tensor, flags: Tensor, axis: int) -> Tensor:
    """The rows with a flag turned round along an axis."""
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        # to ask which rows would make an accelerator's host wait, and a graph break
        return torch.where(flags.view(-1, *[1] * (x.ndim - 1)), x.flip(axis), x)
    index = flags.nonzero().flatten()
    return x.index_copy(0, index, x.index_select(0, index).flip(axis)) if len(index) else x


# ---- one image operation each --------------------------------------------------------------------------------------


def rotate(
    image: Float[Tensor, "B C H W"], angle: Float[Tensor, " B"], *, padding: Padding = "zeros"
) -> Float[Tensor, "B C H W"]:
    """Turn each image about its centre: image (B, C, H, W), angle (B,) in radians, counter-clockwise."""
    return centred(turn(angle), padding)(image)


def translate(
    image: Float[Tensor, "B C H W"], shift: Float[Tensor, "B 2"], *, padding: Padding = "zeros"
) -> Float[Tensor, "B C H W"]:
    """Move each image: image (B, C, H, W), shift (B, 2) as fractions of width and height."""
    return shifted(shift, image, padding)(image)


def scale(
    image: Float[Tensor, "B C H W"], log_scale: Float[Tensor, "B 2"], *, padding: Padding = "zeros"
) -> Float[Tensor, "B C H W"]:
    """Magnify each image about its centre: image (B, C, H, W), log_scale (B, 2), horizontal and vertical."""
    return centred(magnify(log_scale), padding)(image)


def shear(
    image: Float[Tensor, "B C H W"], angle: Float[Tensor, "B 2"], *, padding: Padding = "zeros"
) -> Float[Tensor, "B C H W"]:
    """Slant each image about its centre: image (B, C, H, W), angle (B, 2) in radians, sideways and downwards."""
    return centred(slant(angle), padding)(image)


def centred(inverse: Tensor, padding: Padding) -> Warp:
    """The warp that leaves the centre where it is."""
    return Warp(inverse, torch.zeros_like(inverse[..., 0]), padding)


def shifted(shift: Tensor, image: Tensor, padding: Padding, inverse: Tensor | None = None) -> Warp:
    """The warp that moves images of this size by fractions of it, after A where `inverse` = A⁻¹ is given."""
    size = torch.tensor([image.shape[-1], image.shape[-2]], dtype=shift.dtype, device=shift.device)
    if inverse is None:
        return Warp(
            torch.eye(2, dtype=shift.dtype, device=shift.device).expand(len(shift), 2, 2), -shift * size, padding
        )
    return Warp(inverse, (inverse @ (-shift * size).unsqueeze(-1)).squeeze(-1), padding)
