"""Augmentations that move an image's pixels. Neighbours in a `Sequential` are one warp, with one interpolation."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Distribution, constraints

from optima.augment.base import Augmentation
from optima.augment.view import View
from optima.augment.width import add_width, check_images, checked_padding, spread
from optima.posterior import Learn, Number
from optima.sampling import Pathwise, Relaxed, ScoreFunction, StraightThrough
from optima.streams import Noise
from optima.transforms.geometry import (
    Padding,
    Reflection,
    Warp,
    centred,
    magnify,
    shifted,
    slant,
    turn,
)
from optima.transforms.operators import Operator

DEGREE = math.pi / 180
HALF_TURN = constraints.interval(0.0, 180.0)  # a wider angle is one that has been met already


class Rotate(Augmentation):
    r"""Turn each image about its centre by γ ~ Normal(mean, std²) or γ ~ Uniform(mean − range, mean + range).

    γ is recorded in radians under the name `angle`; a `prior_gamma` is over radians too. Widths end at 180°: beyond
    it a uniform angle covers some directions twice, and a Gaussian one is uniform to within one per cent.

    Args:
        std: spread of the angle in degrees; give this or `range`.
        range: half-width of a uniform angle in degrees.
        mean: centre of the angle in degrees; positive is counter-clockwise.
        padding: what lies beyond the border: "zeros", "border" or "reflection".
    """

    estimators = (Pathwise, ScoreFunction)
    keeps_masks = True

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
        self.width = add_width(self, std, range, unit="degrees", support=HALF_TURN)
        self.add_phi("mean", mean, support=constraints.real, unit="degrees", off=0.0, prior_scale=10.0)
        self.padding: Padding = checked_padding(padding)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"angle": spread(self.width, phi["mean"] * DEGREE, phi[self.width] * DEGREE)}

    def operator(self, x: Tensor, gamma: dict[str, Tensor]) -> Warp:
        return centred(turn(gamma["angle"]), self.padding)

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
    keeps_masks = True

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
        return {"shift": _pair(self.width, phi[self.width])}

    def operator(self, x: Tensor, gamma: dict[str, Tensor]) -> Warp:
        return shifted(gamma["shift"], x, self.padding)

    def check(self, view: View) -> None:
        check_images(self, view)


class Scale(Augmentation):
    r"""Magnify each image about its centre by exp(γ), γ ~ Normal(0, std²) or Uniform(−range, range).

    Args:
        std: spread of the logarithm of the magnification; give this or `range`. 0.1 is about 10 %.
        range: half-width of a uniform logarithm, likewise.
        padding: what lies beyond the border: "zeros", "border" or "reflection".
    """

    estimators = (Pathwise, ScoreFunction)
    keeps_masks = True

    def __init__(
        self,
        std: Number | Learn | None = None,
        *,
        range: Number | Learn | None = None,
        padding: Padding = "zeros",
        **options: Any,
    ):
        super().__init__(**options)
        self.width = add_width(self, std, range, unit="log of the scale")
        self.padding: Padding = checked_padding(padding)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"log_scale": spread(self.width, torch.zeros_like(phi[self.width]), phi[self.width])}

    def operator(self, x: Tensor, gamma: dict[str, Tensor]) -> Warp:
        return centred(magnify(gamma["log_scale"].unsqueeze(1).expand(-1, 2)), self.padding)

    def check(self, view: View) -> None:
        check_images(self, view)


class Shear(Augmentation):
    r"""Slant each image by γ, two angles per image, sideways and then downwards, each Normal(0, std²) or
    Uniform(−range, range).

    γ is recorded in radians under the name `angle`; a `prior_gamma` is over radians too. Angles end at ±85°, short of
    the right angle where nothing of the image would be left.

    Args:
        std: spread in degrees, one number for both or a pair (sideways, downwards); 0 in a pair leaves that one out.
            Give this or `range`.
        range: half-width of uniform angles, likewise.
        padding: what lies beyond the border: "zeros", "border" or "reflection".
    """

    estimators = (Pathwise, ScoreFunction)
    keeps_masks = True

    def __init__(
        self,
        std: Number | Learn | None = None,
        *,
        range: Number | Learn | None = None,
        padding: Padding = "zeros",
        **options: Any,
    ):
        super().__init__(**options)
        support = constraints.interval(0.0, 85.0)
        self.width = add_width(self, std, range, unit="degrees", shapes=((), (2,)), support=support)
        self.padding: Padding = checked_padding(padding)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"angle": _pair(self.width, phi[self.width] * DEGREE)}

    def operator(self, x: Tensor, gamma: dict[str, Tensor]) -> Warp:
        return centred(slant(gamma["angle"].clamp(-85 * DEGREE, 85 * DEGREE)), self.padding)

    def check(self, view: View) -> None:
        check_images(self, view)


class Flip(Augmentation):
    r"""Mirror each image with probability p: γ ~ Bernoulli(p). No pixel is interpolated.

    Args:
        p: the probability.
        axis: "horizontal" swaps left and right, "vertical" top and bottom.
    """

    default_estimator = "score_function"
    estimators = (ScoreFunction, Relaxed, StraightThrough)

    def __init__(
        self, p: Number | Learn = 0.5, *, axis: Literal["horizontal", "vertical"] = "horizontal", **options: Any
    ):
        super().__init__(**options)
        if axis not in ("horizontal", "vertical"):
            raise ValueError(f'axis must be "horizontal" or "vertical", got {axis!r}')
        self.add_phi("p", p, support=constraints.unit_interval, unit="of the images", off=0.0)
        self.axis = axis
        self.keeps_masks = isinstance(self.estimator, ScoreFunction)  # half a mirror image has no labels

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"flipped": Bernoulli(probs=phi["p"], validate_args=False)}

    def operator(self, x: Tensor, gamma: dict[str, Tensor]) -> Operator | None:
        if not isinstance(self.estimator, ScoreFunction):
            return None
        on = gamma["flipped"].bool()
        off = torch.zeros_like(on)
        return Reflection(torch.stack([on, off] if self.axis == "horizontal" else [off, on], 1))

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        share = gamma["flipped"].view(-1, 1, 1, 1).to(torch.promote_types(x.dtype, torch.float32))
        return torch.lerp(x.to(share), x.flip(-1 if self.axis == "horizontal" else -2).to(share), share)

    def check(self, view: View) -> None:
        check_images(self, view)


class CropResize(Augmentation):
    r"""Cut a part out of each image and magnify it to the whole size: its side is exp(−|γ|) of the image's, with
    γ ~ Normal(0, std²) or Uniform(−range, range), and it lies anywhere inside.

    Args:
        std: spread of the logarithm of the crop's side; give this or `range`. The crop's area is the square of its
            side: range=0.35 cuts down to one half of the area, 1.26 to the 8 % customary for ImageNet.
        range: largest logarithm of a uniform one, likewise.
        padding: what a neighbour that joins may bring in from beyond the border: "zeros", "border" or "reflection".
    """

    estimators = (Pathwise, ScoreFunction)
    keeps_masks = True

    def __init__(
        self,
        std: Number | Learn | None = None,
        *,
        range: Number | Learn | None = None,
        padding: Padding = "zeros",
        **options: Any,
    ):
        super().__init__(**options)
        self.width = add_width(self, std, range, unit="log of the side")
        self.padding: Padding = checked_padding(padding)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"log_side": spread(self.width, torch.zeros_like(phi[self.width]), phi[self.width])}

    def draw_free(self, view: View, noise: Noise) -> dict[str, Tensor]:
        place = noise.named("place").uniform((len(view.x), 2), dtype=torch.float32, device=view.x.device)
        return {"place": place}

    def operator(self, x: Tensor, gamma: dict[str, Tensor]) -> Warp:
        log_side = -gamma["log_side"].abs()
        # expm1: a crop of nearly everything must not lose its offset to rounding
        margin = -torch.expm1(log_side).unsqueeze(1)
        # between the centres of the outermost pixels, beyond which interpolation would read the padding
        span = torch.tensor([x.shape[-1] - 1, x.shape[-2] - 1], dtype=log_side.dtype, device=x.device)
        inverse = magnify(-log_side.unsqueeze(1).expand(-1, 2))
        return Warp(inverse, margin * (gamma["place"].to(margin) - 0.5) * span, self.padding)

    def check(self, view: View) -> None:
        check_images(self, view)


def _pair(kind: str, width: Tensor) -> Distribution:
    """Two numbers per example, around 0."""
    width = width if width.ndim == 2 else width.unsqueeze(-1).expand(-1, 2)
    return spread(kind, torch.zeros_like(width), width)
