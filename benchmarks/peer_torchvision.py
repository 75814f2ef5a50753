"""torchvision.transforms.v2: one parameter per call, so per batch, or per image in a loop."""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import strengths as s
from benchmarks.families import Batch, Unmeasurable
from benchmarks.timing import Action

SCALES = (1 / (1 + s.LOG_SCALE), 1 + s.LOG_SCALE)


def _gamma(v2: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: v2.functional.adjust_gamma(x, random.uniform(1 - s.GAMMA, 1 + s.GAMMA))  # noqa: S311


def _whole_affine(v2: Any, bilinear: Any) -> Any:
    shift = (s.SHIFT, s.SHIFT)
    return v2.RandomAffine(s.ANGLE, shift, SCALES, (-s.SLANT, s.SLANT, -s.SLANT, s.SLANT), interpolation=bilinear)


BUILDS: dict[str, Callable[[Any, Any], Any]] = {
    "rotate": lambda v, b: v.RandomRotation(s.ANGLE, interpolation=b),
    "translate": lambda v, b: v.RandomAffine(0, (s.SHIFT, s.SHIFT), interpolation=b),
    "scale": lambda v, b: v.RandomAffine(0, scale=SCALES, interpolation=b),
    "shear": lambda v, b: v.RandomAffine(0, shear=(-s.SLANT, s.SLANT, -s.SLANT, s.SLANT), interpolation=b),
    "four_warps": _whole_affine,
    "flip": lambda v, b: v.RandomHorizontalFlip(0.5),
    "brightness": lambda v, b: v.ColorJitter(brightness=s.COLOUR),
    "contrast": lambda v, b: v.ColorJitter(contrast=s.COLOUR),
    "saturation": lambda v, b: v.ColorJitter(saturation=s.COLOUR),
    "hue": lambda v, b: v.ColorJitter(hue=s.HUE),
    "gamma": lambda v, b: _gamma(v),
    "colour": lambda v, b: v.ColorJitter(s.COLOUR, s.COLOUR, s.COLOUR, s.HUE),
    "noise": lambda v, b: v.GaussianNoise(0.0, s.NOISE, clip=False),  # nobody else clips
    "blur": lambda v, b: v.GaussianBlur(s.BLUR_KERNEL, (0.1, s.BLUR)),
    "erase": lambda v, b: v.RandomErasing(1.0, s.ERASED),
}
MIXERS = {"mixup": "MixUp", "cutmix": "CutMix"}


def forwards(family: str, on: Batch, shim: Path | None) -> dict[str, Action]:
    """x' for the whole batch with one draw, and with one draw per image."""
    v2, bilinear = _library(str(shim) if shim else None)
    if family in MIXERS:
        mixer = getattr(v2, MIXERS[family])(alpha=s.CONCENTRATION, num_classes=s.CLASSES)
        return {"torchvision_batch": lambda: mixer(on.x, on.y)[0]}
    if family == "augmix":
        return _augmix(v2, on)
    x, size = on.x, on.x.shape[-2:]
    if family == "crop_resize":
        transform = v2.RandomResizedCrop(tuple(size), (0.5, 1.0), (1.0, 1.0), antialias=False)
    elif family in BUILDS:
        transform = BUILDS[family](v2, bilinear)
    else:
        raise Unmeasurable("it has none of this kind")
    return {
        "torchvision_batch": lambda: transform(x),
        "torchvision_loop": lambda: torch.stack([transform(image) for image in x]),
    }


def _augmix(v2: Any, on: Batch) -> dict[str, Action]:
    """Two views of every image, as bytes, which its posterize and equalize are quickest on, and back."""
    transform = v2.AugMix(s.SEVERITY)
    pixels = (on.x.float() * 255).round().to(torch.uint8)

    def views(one: Callable[[Tensor], Tensor]) -> Tensor:
        return torch.cat([one(pixels), one(pixels)]).to(on.x.dtype) / 255

    return {
        "torchvision_batch": lambda: views(transform),
        "torchvision_loop": lambda: views(lambda x: torch.stack([transform(image) for image in x])),
    }


@functools.cache
def _library(shim: str | None) -> tuple[Any, Any]:
    if shim is not None:
        sys.path.insert(0, shim)
        __import__("torchvision_cpu")
    try:
        from torchvision.transforms import InterpolationMode, v2  # pyright: ignore[reportMissingImports]  # of the extra "bench"
    except Exception as error:  # a build for another torch fails with RuntimeError
        first = str(error).splitlines()[0] if str(error) else ""
        raise Unmeasurable(f"torchvision cannot be imported ({type(error).__name__}: {first})") from error
    return v2, InterpolationMode.BILINEAR
