r"""Maps of colours, differentiable in their strength, that join into one pass over the pixels.

With w the weights of grey and μ the mean pixel of an image, each of the four linear maps leaves two subspaces alone:

    brightness   p' = e^b p
    contrast     p' = e^c p + (1 − e^c) (w·μ) 1
    saturation   p' = e^s p + (1 − e^s) (w·p) 1
    hue          p' = grey of p + chroma of p, turned by h about the grey axis

P = 1 wᵀ keeps the grey of a pixel, I − P its chroma, and K turns the chroma by a quarter. P, I − P and K commute, so
that any number of the four, in any order, is

    p' = [e^{b+c} P + e^{b+c+s} (cos h (I − P) + sin h K)] p + (e^b − e^{b+c}) (w·μ) 1

and joining them means adding their b, c, s and h. What does not commute is a clip, or a map that is not linear.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from optima.transforms.operators import Operator
from optima.transforms.signal import per_example

Clip = tuple[float, float]

GREY = (0.299, 0.587, 0.114)
_BLUENESS, _REDNESS = 0.492, 0.877  # of the chroma plane of YIQ and YUV: U = 0.492 (B − Y), V = 0.877 (R − Y)


@dataclass(frozen=True)
class ColourMap:
    """Brightness, contrast, saturation and hue of images (B, C, H, W), all at once; None is no change.

    Args:
        brightness: b, (B,), the logarithm of a factor.
        contrast: c, (B,), the logarithm of a factor, about the mean grey of the image.
        saturation: s, (B,), the logarithm of a factor, about the grey of each pixel; needs C = 3.
        hue: h, (B,), in radians, positive from red to yellow; needs C = 3.
        clip: the lowest and highest value that may come out. A clipped map does not join what follows it.
    """

    brightness: Float[Tensor, " B"] | None = None
    contrast: Float[Tensor, " B"] | None = None
    saturation: Float[Tensor, " B"] | None = None
    hue: Float[Tensor, " B"] | None = None
    clip: Clip | None = None

    def __call__(self, x: Tensor) -> Tensor:
        precise = x.to(torch.promote_types(x.dtype, torch.float32))
        grey = self._factor(precise, "brightness", "contrast")
        if self.saturation is None and self.hue is None:
            matrix, vectors = grey.view(-1, 1, 1), precise.flatten(1).unsqueeze(1)
        else:
            matrix, vectors = self._matrix(precise, grey), precise.flatten(2)
        # as matrix products, whose gradient towards γ needs no tensor of the size of x
        with torch.autocast(x.device.type, enabled=False):  # it would round them to half precision
            if self.contrast is None:
                mapped = torch.bmm(matrix, vectors)
            else:
                mapped = torch.baddbmm(self._offset(precise, grey).view(-1, 1, 1), matrix, vectors)
        return _clipped(mapped.view(x.shape), self.clip).to(x.dtype)

    def on_mask(self, mask: Tensor) -> Tensor:
        return mask

    def on_boxes(self, boxes: Tensor, height: int, width: int) -> Tensor:
        return boxes

    def rows(self, index: Tensor) -> ColourMap:
        return ColourMap(*(None if part is None else part[index] for part in self._parts()), clip=self.clip)

    def then(self, following: Operator) -> ColourMap | None:
        if not isinstance(following, ColourMap) or self.clip is not None:
            return None
        pairs = zip(self._parts(), following._parts(), strict=True)
        return ColourMap(*(_total(first, second) for first, second in pairs), clip=following.clip)

    def _parts(self) -> tuple[Tensor | None, ...]:
        return self.brightness, self.contrast, self.saturation, self.hue

    def _matrix(self, x: Tensor, grey: Tensor) -> Tensor:
        """What a pixel is multiplied by, (B, 3, 3)."""
        chroma = self._factor(x, "brightness", "contrast", "saturation")
        turn = x.new_zeros(len(x)) if self.hue is None else self.hue.to(x.dtype)
        along, across = chroma * turn.cos(), chroma * turn.sin()
        # in terms of I, P and K, so that no change is the identity to the last bit
        parts = torch.stack([along, grey - along, across], 1)
        basis = torch.tensor(_BASIS, dtype=x.dtype, device=x.device)
        return (parts.unsqueeze(2) * basis).sum(1).view(-1, 3, 3)

    def _offset(self, x: Tensor, grey: Tensor) -> Tensor:
        """(e^b − e^{b+c}) w·μ, (B,)."""
        weights = torch.tensor(grey_weights(x.shape[1]), dtype=x.dtype, device=x.device)
        return (self._factor(x, "brightness") - grey) * (x.mean((2, 3)) * weights).sum(1)

    def _factor(self, x: Tensor, *names: str) -> Tensor:
        """exp of the sum of the named parts, (B,)."""
        total: Tensor | None = None
        for name in names:
            total = _total(total, getattr(self, name))
        return x.new_ones(len(x)) if total is None else total.to(x.dtype).exp()


@dataclass(frozen=True)
class PowerMap:
    r"""x ↦ x^e with e = exp(γ) where x > 0; negative numbers are kept as they are.

    At x = 0 the gradient with respect to x is taken from the left: 1, and not the infinite one of a power below 1.

    Args:
        log_exponent: γ, (B,).
        clip: the lowest and highest value that may come out. A clipped map does not join what follows it.
    """

    log_exponent: Float[Tensor, " B"]
    clip: Clip | None = None

    def __call__(self, x: Tensor) -> Tensor:
        precise = x.to(torch.promote_types(x.dtype, torch.float32))
        excess = per_example(torch.expm1(self.log_exponent.to(precise.dtype)), precise)
        # x · x^(e − 1): e = 1 changes no bit, and where x is not positive the logarithm is that of 1
        logarithm = functional.threshold(precise, 0.0, 1.0).log_()
        return _clipped(precise * (logarithm * excess).exp_(), self.clip).to(x.dtype)

    def on_mask(self, mask: Tensor) -> Tensor:
        return mask

    def on_boxes(self, boxes: Tensor, height: int, width: int) -> Tensor:
        return boxes

    def rows(self, index: Tensor) -> PowerMap:
        return PowerMap(self.log_exponent[index], self.clip)

    def then(self, following: Operator) -> PowerMap | None:
        if not isinstance(following, PowerMap) or self.clip is not None:
            return None
        return PowerMap(self.log_exponent + following.log_exponent, following.clip)


def grey_weights(channels: int) -> tuple[float, ...]:
    """How much each channel adds to grey: ITU-R BT.601 for three, their average otherwise."""
    return GREY if channels == 3 else (1.0 / channels,) * channels


def _total(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second


def _clipped(x: Tensor, clip: Clip | None) -> Tensor:
    """Cut to the interval; `x` is fresh, and may be written to where no gradient wants it."""
    if clip is None:
        return x
    return x.clamp(*clip) if x.requires_grad else x.clamp_(*clip)


def _quarter_turn() -> list[float]:
    """K, row by row: (U, V) ↦ (−V, U) at the same grey, nought for grey itself."""
    red = [(channel == 0) - weight for channel, weight in enumerate(GREY)]  # R − Y as a function of (R, G, B)
    blue = [(channel == 2) - weight for channel, weight in enumerate(GREY)]  # B − Y
    ratio = _BLUENESS / _REDNESS
    new_red, new_blue = [ratio * part for part in blue], [-part / ratio for part in red]
    new_green = [-(GREY[0] * r + GREY[2] * b) / GREY[1] for r, b in zip(new_red, new_blue, strict=True)]
    return [*new_red, *new_green, *new_blue]


_IDENTITY = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
_BASIS = [_IDENTITY, [*GREY] * 3, _quarter_turn()]
