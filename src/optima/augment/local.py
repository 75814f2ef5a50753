"""Augmentations that take detail out of an image."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, Uniform

from optima.augment.base import Augmentation
from optima.augment.view import View
from optima.augment.width import add_width, check_images
from optima.posterior import Learn, Number
from optima.sampling import Pathwise, ScoreFunction
from optima.streams import Noise
from optima.transforms.blur import blur
from optima.transforms.erase import erase


class Blur(Augmentation):
    r"""Blur each image by a Gaussian of width |γ| pixels, γ ~ Normal(0, std²) or Uniform(0, range).

    Beyond the border the image is mirrored. A width of 1 takes the same detail out of a large and a small image,
    counted in pixels.

    Args:
        std: spread of γ in pixels; give this or `range`.
        range: the largest width in pixels.
    """

    estimators = (Pathwise, ScoreFunction)
    keeps_masks = True

    def __init__(self, std: Number | Learn | None = None, *, range: Number | Learn | None = None, **options: Any):
        super().__init__(**options)
        self.width = add_width(self, std, range, unit="pixels")

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"width": _from_zero(self.width, phi[self.width])}

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        return blur(x, gamma["width"].abs())

    def check(self, view: View) -> None:
        check_images(self, view)


class Erase(Augmentation):
    r"""Replace a box of each image, |γ| of its height by |γ| of its width, γ ~ Normal(0, std²) or Uniform(0, range).

    The box's centre is anywhere in the image, and what lies beyond the border is cut off. Pixels that it covers in
    part are replaced in part, so that the image is continuous in γ. Masks and boxes are refused: what was labelled may
    be gone.

    Args:
        std: spread of γ as a fraction of the size; give this or `range`.
        range: the largest side as a fraction of the size.
        value: what the box is filled with: a number, or "mean" for the mean of each channel of the image.
    """

    estimators = (Pathwise, ScoreFunction)

    def __init__(
        self,
        std: Number | Learn | None = None,
        *,
        range: Number | Learn | None = None,
        value: float | Literal["mean"] = 0.0,
        **options: Any,
    ):
        super().__init__(**options)
        self.width = add_width(self, std, range, unit="of the size")
        if value != "mean" and not (isinstance(value, int | float) and math.isfinite(value)):
            raise ValueError(f'value must be a finite number or "mean", got {value!r}')
        self.value: float | Literal["mean"] = value

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"side": _from_zero(self.width, phi[self.width])}

    def draw_free(self, view: View, noise: Noise) -> dict[str, Tensor]:
        # in float32 whatever x is: in half precision a centre would be a whole number of pixels
        centre = noise.named("centre").uniform((len(view.x), 2), dtype=torch.float32, device=view.x.device)
        return {"centre": centre}

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        sides = gamma["side"].abs().unsqueeze(1).expand(-1, 2)
        return erase(x, gamma["centre"], sides, self.value)

    def check(self, view: View) -> None:
        check_images(self, view)


def _from_zero(kind: str, width: Tensor) -> Distribution:
    """A Gaussian, of which only the size matters, or a uniform from 0."""
    zero = torch.zeros_like(width)
    law = Normal if kind == "std" else Uniform
    return law(zero, width, validate_args=False)
