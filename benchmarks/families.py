"""What optima is measured on: one policy per family, and the batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import optima
from benchmarks import strengths as s
from optima.augment.augmenter import Augmenter
from optima.augment.view import MixedTarget, View

learn = optima.learn
WITHIN = (0.0, 1.0)  # to which every peer clips; of maps that join, only the last may clip
SIZES = {"32": (128, 3, 32, 32), "224": (32, 3, 224, 224)}
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}


class Unmeasurable(Exception):  # noqa: N818 - it is an answer, not a fault
    """Why something is not in the table."""


@dataclass(frozen=True)
class Family:
    """One row of the tables.

    Args:
        build: the learned policy, from the module that has the classes.
        views: draws of γ per image.
        score: φ learns by the score function, so that x needs no gradient.
        like: the family whose peers it is compared with; its own name when empty.
        shared: γ is one for the whole batch, as torchvision's is.
    """

    build: Callable[[Any], Augmenter]
    views: int = 1
    score: bool = False
    like: str = ""
    shared: bool = False


@dataclass(frozen=True)
class Batch:
    """Images in [0, 1], integer labels, and fixed weights that make a scalar of whatever comes out."""

    x: Tensor
    y: Tensor
    weight: Tensor
    label_weight: Tensor


FAMILIES: dict[str, Family] = {
    "rotate": Family(lambda o: o.Rotate(range=learn(s.ANGLE))),
    "translate": Family(lambda o: o.Translate(range=learn(s.SHIFT))),
    "scale": Family(lambda o: o.Scale(range=learn(s.LOG_SCALE))),
    "shear": Family(lambda o: o.Shear(range=learn(s.SLANT))),
    "affine": Family(lambda o: o.Affine(range=learn(s.AFFINE)), like="four_warps"),
    "affine_full": Family(lambda o: o.Affine(range=learn(s.AFFINE), covariance="full"), like="four_warps"),
    "four_warps": Family(
        lambda o: o.Sequential(
            o.Rotate(range=learn(s.ANGLE)),
            o.Translate(range=learn(s.SHIFT)),
            o.Scale(range=learn(s.LOG_SCALE)),
            o.Shear(range=learn(s.SLANT)),
        )
    ),
    "flip": Family(lambda o: o.Flip(p=learn(0.5)), score=True),
    "crop_resize": Family(lambda o: o.CropResize(range=learn(s.CROP))),
    "brightness": Family(lambda o: o.Brightness(range=learn(s.COLOUR), clip=WITHIN)),
    "contrast": Family(lambda o: o.Contrast(range=learn(s.COLOUR), clip=WITHIN)),
    "saturation": Family(lambda o: o.Saturation(range=learn(s.COLOUR), clip=WITHIN)),
    "hue": Family(lambda o: o.Hue(range=learn(360 * s.HUE), clip=WITHIN)),
    "gamma": Family(lambda o: o.Gamma(range=learn(s.GAMMA))),
    "colour": Family(
        lambda o: o.Sequential(
            o.Brightness(range=learn(s.COLOUR)),
            o.Contrast(range=learn(s.COLOUR)),
            o.Saturation(range=learn(s.COLOUR)),
            o.Hue(range=learn(360 * s.HUE), clip=WITHIN),
        )
    ),
    "noise": Family(lambda o: o.GaussianNoise(std=learn(s.NOISE))),
    "blur": Family(lambda o: o.Blur(range=learn(s.BLUR))),
    "erase": Family(lambda o: o.Erase(range=learn(s.ERASED_SIDE))),
    "mixup": Family(lambda o: o.Mixup(alpha=learn(s.CONCENTRATION))),
    "mixup_batch": Family(lambda o: o.Mixup(alpha=learn(s.CONCENTRATION), mode="batch"), like="mixup", shared=True),
    "cutmix": Family(lambda o: o.CutMix(alpha=learn(s.CONCENTRATION))),
    "cutmix_whole": Family(lambda o: o.CutMix(alpha=learn(s.CONCENTRATION), boxes="whole"), score=True, like="cutmix"),
    "cutmix_batch": Family(lambda o: o.CutMix(alpha=learn(s.CONCENTRATION), mode="batch"), like="cutmix", shared=True),
    "augmix": Family(
        lambda o: o.AugMix(severity=learn(float(s.SEVERITY)), dirichlet=learn(1.0), beta=learn(1.0)), views=2
    ),
    "pipeline": Family(
        lambda o: o.Sequential(
            o.Rotate(range=learn(s.ANGLE)),
            o.Translate(range=learn(s.SHIFT)),
            o.GaussianNoise(std=learn(s.NOISE)),
            o.Mixup(alpha=learn(s.CONCENTRATION)),
        )
    ),
}


def policy(name: str) -> Augmenter:
    """The learned policy of a family, or the reason why there is none."""
    try:
        return FAMILIES[name].build(optima)
    except AttributeError as error:
        if error.obj is not optima:
            raise
        raise Unmeasurable(f"optima has no {error.name}") from error
    except (TypeError, ValueError) as error:
        raise Unmeasurable(f"it could not be built: {error}") from error


def batch(size: str, dtype: str) -> Batch:
    """Images that are smooth at first and rough at last, as photographs are; the same for everybody."""
    shape = SIZES[size]
    chance = torch.Generator().manual_seed(0)
    x = torch.zeros(shape)
    for cells, share in ((4, 0.5), (8, 0.3), (shape[-1], 0.2)):
        coarse = torch.rand(*shape[:2], cells, cells, generator=chance)
        x += share * functional.interpolate(coarse, size=shape[-2:], mode="bilinear")
    return Batch(
        x.to(DTYPES[dtype]),
        torch.randint(s.CLASSES, shape[:1], generator=chance),
        torch.randn(shape, generator=chance).to(DTYPES[dtype]),
        torch.randn(shape[0], 2, generator=chance),
    )


def to_phi(view: View, on: Batch) -> None:
    """Back from a fixed weighted sum of everything that comes out of a view to q(φ)."""
    rows = len(view.x) // len(on.x)
    loss = (view.x.unflatten(0, (rows, -1)) * on.weight).sum(dtype=torch.float32)
    if isinstance(view.target, MixedTarget):
        loss = loss + (view.target.weights.unflatten(0, (rows, -1)) * on.label_weight).sum()
    if view.log_prob is not None:
        loss = loss + view.log_prob.sum()
    loss.backward()


def check_reach(name: str, augment: Augmenter) -> None:
    """Raise unless every q(φ) has a gradient that is finite and not zero."""
    for phi, parameter in augment.named_parameters():
        gradient = parameter.grad
        if gradient is None or not bool(gradient.isfinite().all()) or not bool(gradient.any()):
            raise Unmeasurable(f"the gradient of {name}'s {phi} is {'missing' if gradient is None else 'not usable'}")
