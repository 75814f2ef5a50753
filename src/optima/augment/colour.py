"""Augmentations of an image's colours. Neighbours in a `Sequential` that are linear in the colours are one pass.

γ = 0 is no change, so a width of 0 is none either. `clip=(0.0, 1.0)` cuts what leaves that interval, as image
libraries do; without it inputs may be normalised, and no gradient is lost. A clip ends the chain of neighbours that
join.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from optima.augment.base import Augmentation
from optima.augment.geometric import DEGREE, HALF_TURN
from optima.augment.view import View
from optima.augment.width import add_width, check_images, spread
from optima.posterior import Learn, Number
from optima.sampling import Pathwise, ScoreFunction
from optima.transforms.colour import Clip, ColourMap, PowerMap


class Brightness(Augmentation):
    r"""Multiply each image by exp(γ), γ ~ Normal(0, std²) or Uniform(−range, range).

    Args:
        std: spread of the logarithm of the factor; give this or `range`. 0.1 is about 10 %.
        range: half-width of a uniform logarithm.
        clip: the lowest and highest value that may come out.
    """

    estimators = (Pathwise, ScoreFunction)
    keeps_masks = True

    def __init__(
        self,
        std: Number | Learn | None = None,
        *,
        range: Number | Learn | None = None,
        clip: Clip | None = None,
        **options: Any,
    ):
        super().__init__(**options)
        self.width = add_width(self, std, range, unit="log of the factor")
        self.clip = checked_clip(clip)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"log_factor": _about_zero(self.width, phi)}

    def operator(self, x: Tensor, gamma: dict[str, Tensor]) -> ColourMap:
        return ColourMap(brightness=gamma["log_factor"], clip=self.clip)

    def check(self, view: View) -> None:
        check_images(self, view)


class Contrast(Augmentation):
    r"""Spread each image's values about its mean grey by exp(γ), γ ~ Normal(0, std²) or Uniform(−range, range).

    Grey is 0.299 R + 0.587 G + 0.114 B, or the average of the channels where there are not three.

    Args:
        std: spread of the logarithm of the factor; give this or `range`. 0.1 is about 10 %.
        range: half-width of a uniform logarithm.
        clip: the lowest and highest value that may come out.
    """

    estimators = (Pathwise, ScoreFunction)
    keeps_masks = True

    def __init__(
        self,
        std: Number | Learn | None = None,
        *,
        range: Number | Learn | None = None,
        clip: Clip | None = None,
        **options: Any,
    ):
        super().__init__(**options)
        self.width = add_width(self, std, range, unit="log of the factor")
        self.clip = checked_clip(clip)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"log_factor": _about_zero(self.width, phi)}

    def operator(self, x: Tensor, gamma: dict[str, Tensor]) -> ColourMap:
        return ColourMap(contrast=gamma["log_factor"], clip=self.clip)

    def check(self, view: View) -> None:
        check_images(self, view)


class Saturation(Augmentation):
    r"""Spread each pixel's channels about its grey by exp(γ), γ ~ Normal(0, std²) or Uniform(−range, range).

    Args:
        std: spread of the logarithm of the factor; give this or `range`. 0.1 is about 10 %.
        range: half-width of a uniform logarithm.
        clip: the lowest and highest value that may come out.
    """

    estimators = (Pathwise, ScoreFunction)
    keeps_masks = True

    def __init__(
        self,
        std: Number | Learn | None = None,
        *,
        range: Number | Learn | None = None,
        clip: Clip | None = None,
        **options: Any,
    ):
        super().__init__(**options)
        self.width = add_width(self, std, range, unit="log of the factor")
        self.clip = checked_clip(clip)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"log_factor": _about_zero(self.width, phi)}

    def operator(self, x: Tensor, gamma: dict[str, Tensor]) -> ColourMap:
        return ColourMap(saturation=gamma["log_factor"], clip=self.clip)

    def check(self, view: View) -> None:
        _check_colour(self, view)


class Hue(Augmentation):
    r"""Turn each image's colours about the grey axis by γ ~ Normal(0, std²) or Uniform(−range, range).

    The turn is that of the chroma plane of YIQ, which is linear and keeps the grey of every pixel. It is not the hue
    of HSV: the two agree on which way red turns to yellow, not on how far. γ is recorded in radians under the name
    `angle`; a `prior_gamma` is over radians too. Widths end at 180°, as for `Rotate`.

    Args:
        std: spread of the angle in degrees; give this or `range`.
        range: half-width of a uniform angle in degrees.
        clip: the lowest and highest value that may come out.
    """

    estimators = (Pathwise, ScoreFunction)
    keeps_masks = True

    def __init__(
        self,
        std: Number | Learn | None = None,
        *,
        range: Number | Learn | None = None,
        clip: Clip | None = None,
        **options: Any,
    ):
        super().__init__(**options)
        self.width = add_width(self, std, range, unit="degrees", support=HALF_TURN)
        self.clip = checked_clip(clip)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"angle": _about_zero(self.width, {self.width: phi[self.width] * DEGREE})}

    def operator(self, x: Tensor, gamma: dict[str, Tensor]) -> ColourMap:
        return ColourMap(hue=gamma["angle"], clip=self.clip)

    def check(self, view: View) -> None:
        _check_colour(self, view)


class Gamma(Augmentation):
    r"""Raise each image's values to the power exp(γ), γ ~ Normal(0, std²) or Uniform(−range, range).

    Values below 0 are kept as they are, so this is for images in [0, 1]: give it before normalising. It joins other
    `Gamma`s only.

    Args:
        std: spread of the logarithm of the exponent; give this or `range`. 0.1 is about 10 %.
        range: half-width of a uniform logarithm.
        clip: the lowest and highest value that may come out.
    """

    estimators = (Pathwise, ScoreFunction)
    keeps_masks = True

    def __init__(
        self,
        std: Number | Learn | None = None,
        *,
        range: Number | Learn | None = None,
        clip: Clip | None = None,
        **options: Any,
    ):
        super().__init__(**options)
        self.width = add_width(self, std, range, unit="log of the exponent")
        self.clip = checked_clip(clip)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"log_exponent": _about_zero(self.width, phi)}

    def operator(self, x: Tensor, gamma: dict[str, Tensor]) -> PowerMap:
        return PowerMap(gamma["log_exponent"], clip=self.clip)

    def check(self, view: View) -> None:
        check_images(self, view)


def checked_clip(clip: Sequence[float] | None) -> Clip | None:
    """The lowest and the highest value as a pair of numbers, or None."""
    if clip is None:
        return None
    numbers = isinstance(clip, Sequence) and all(isinstance(end, int | float) and math.isfinite(end) for end in clip)
    if not numbers or len(clip) != 2 or not clip[0] < clip[1]:
        raise ValueError(f"clip must be the lowest and the highest value, as in (0.0, 1.0), got {clip!r}")
    return float(clip[0]), float(clip[1])


def _about_zero(kind: str, phi: dict[str, Tensor]) -> Distribution:
    return spread(kind, torch.zeros_like(phi[kind]), phi[kind])


def _check_colour(owner: Augmentation, view: View) -> None:
    check_images(owner, view)
    if view.x.shape[1] != 3:
        raise ValueError(f"{type(owner).__name__} needs the channels red, green and blue, got {view.x.shape[1]}")
