"""Augmentations that move an image's pixels."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, Uniform, constraints

from optima.augment.base import Augmentation
from optima.augment.view import View
from optima.posterior import Learn, Number
from optima.sampling import Pathwise, ScoreFunction
from optima.transforms import rotate, translate
from optima.transforms.geometry import Padding

_PADDINGS = ("zeros", "border", "reflection")


class Rotate(Augmentation):
    r"""Turn each image about its centre by γ ~ Normal(mean, std²) or γ ~ Uniform(mean − range, mean + range).

    γ is recorded in radians under the name `angle`; a `prior_gamma` is over radians too.

    Args:
        std: spread of the angle in degrees; give this or `range`.
        range: half-width of a uniform angle in degrees.
        mean: centre of the angle in degrees; positive is counter-clockwise.
        padding: what lies beyond the border: "zeros", "border" or "reflection".
    """

    estimators = (Pathwise, ScoreFunction)

    def __init__(
        self,
        std: Number | Learn | None = None,
        *,
        range: Number | Learn | None = None,
        mean: Number | Learn = 0.0,
        padding: Padding = "zeros",
        **options: Any,
    ):
        super().__init__(**options)
        self.width = add_width(self, std, range, unit="degrees")
        self.add_phi("mean", mean, support=constraints.real, unit="degrees", off=0.0, prior_scale=10.0)
        self.padding: Padding = checked_padding(padding)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        degree = math.pi / 180
        return {"angle": spread(self.width, phi["mean"] * degree, phi[self.width] * degree)}

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        return rotate(x, gamma["angle"], padding=self.padding)

    def check(self, view: View) -> None:
        check_images(self, view)


class Translate(Augmentation):
    r"""Move each image by γ, two numbers per image, each Normal(0, std²) or Uniform(−range, range).

    Args:
        std: spread as a fraction of width and height, one number for both or a pair (horizontal, vertical); give this
            or `range`.
        range: half-width of a uniform shift, likewise.
        padding: what lies beyond the border: "zeros", "border" or "reflection".
    """

    estimators = (Pathwise, ScoreFunction)

    def __init__(
        self,
        std: Number | Learn | None = None,
        *,
        range: Number | Learn | None = None,
        padding: Padding = "zeros",
        **options: Any,
    ):
        super().__init__(**options)
        self.width = add_width(self, std, range, unit="of the size", shapes=((), (2,)))
        self.padding: Padding = checked_padding(padding)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        width = phi[self.width]
        width = width if width.ndim == 2 else width.unsqueeze(-1).expand(-1, 2)
        return {"shift": spread(self.width, torch.zeros_like(width), width)}

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        return translate(x, gamma["shift"], padding=self.padding)

    def check(self, view: View) -> None:
        check_images(self, view)


def add_width(
    owner: Augmentation,
    std: Number | Learn | None,
    range: Number | Learn | None,
    *,
    unit: str,
    shapes: tuple[tuple[int, ...], ...] = ((),),
) -> str:
    """Declare the width of γ's distribution, given as exactly one of `std` and `range`; return which."""
    given = {name: value for name, value in (("std", std), ("range", range)) if value is not None}
    if len(given) != 1:
        raise TypeError(
            f"{type(owner).__name__} takes exactly one of std (Gaussian) and range (uniform),"
            f" got {'both' if given else 'neither'}"
        )
    name, value = next(iter(given.items()))
    owner.add_phi(name, value, support=constraints.positive, unit=unit, off=0.0, shapes=shapes)
    return name


def spread(kind: str, centre: Tensor, width: Tensor) -> Distribution:
    """The Gaussian or uniform law of that width."""
    if kind == "std":
        return Normal(centre, width, validate_args=False)
    return Uniform(centre - width, centre + width, validate_args=False)


def checked_padding(padding: Padding) -> Padding:
    """The padding, if grid_sample knows it."""
    if padding not in _PADDINGS:
        raise ValueError(f"padding must be one of {_PADDINGS}, got {padding!r}")
    return padding


def check_images(owner: Augmentation, view: View) -> None:
    """Raise unless the batch is floating-point images."""
    if view.x.ndim != 4:
        raise ValueError(f"{type(owner).__name__} needs images of shape (B, C, H, W), got {tuple(view.x.shape)}")
    Augmentation.check(owner, view)
