"""OpenCV in a loop over the images, on one thread: float32, channels last, results into arrays that exist already.

Images are converted beforehand, and not back: what it costs to get a batch of tensors in and out is left out, to
OpenCV's advantage.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import strengths as s
from benchmarks.families import Batch, Unmeasurable
from benchmarks.timing import Action

Image = NDArray[np.float32]
Transform = Callable[[Any, Image, Image, np.random.Generator], None]  # cv2, image, where the result goes, chance


def forwards(family: str, on: Batch) -> dict[str, Action]:
    """x' of every image, one after the other."""
    if on.x.dtype != torch.float32:
        raise Unmeasurable("it has no bfloat16")
    import cv2  # pyright: ignore[reportMissingImports]  # of the extra "bench"

    images = on.x.permute(0, 2, 3, 1).contiguous().numpy()
    result = np.empty_like(images)
    chance = np.random.default_rng(0)

    def loop(transform: Transform) -> NDArray[Any]:
        for image, target in zip(images, result, strict=True):
            transform(cv2, image, target, chance)
        return result

    def mixing(mix: Callable[[Any, Image, Image, Image, np.random.Generator], None]) -> NDArray[Any]:
        for image, partner, target in zip(images, chance.permutation(len(images)), result, strict=True):
            mix(cv2, image, images[partner], target, chance)
        return result

    cv2.setNumThreads(1)
    if family in MIXERS:
        return {"opencv": lambda: mixing(MIXERS[family])}
    if family not in TRANSFORMS:
        raise Unmeasurable("it has none of this kind")
    return {"opencv": lambda: loop(TRANSFORMS[family])}


def _warping(**used: bool) -> Transform:
    """A warp by rotation, shift, scale and slant, as far as they are used."""

    def warp(cv2: Any, image: Image, target: Image, chance: np.random.Generator) -> None:
        draws = chance.uniform(-1, 1, 6)
        height, width = image.shape[:2]
        angle = math.radians(s.ANGLE * draws[0]) if used.get("turn") else 0.0
        scale = math.exp(s.LOG_SCALE * draws[1]) if used.get("scale") else 1.0
        slants = np.tan(np.radians(s.SLANT * draws[2:4])) if used.get("slant") else np.zeros(2)
        shift = s.SHIFT * draws[4:] * (width, height) if used.get("shift") else np.zeros(2)
        cos, sin = scale * math.cos(angle), scale * math.sin(angle)
        matrix = np.array([[cos, sin], [-sin, cos]]) @ [[1, slants[0]], [slants[1], 1]]
        centre = np.array([(width - 1) / 2, (height - 1) / 2])
        offset = centre - matrix @ centre + shift
        cv2.warpAffine(image, np.column_stack([matrix, offset]), (width, height), target, cv2.INTER_LINEAR)

    return warp


def _flip(cv2: Any, image: Image, target: Image, chance: np.random.Generator) -> None:
    if chance.random() < 0.5:
        cv2.flip(image, 1, target)
    else:
        target[:] = image


def _crop(cv2: Any, image: Image, target: Image, chance: np.random.Generator) -> None:
    height, width = image.shape[:2]
    side = math.exp(-s.CROP * chance.random())
    rows, columns = max(1, round(side * height)), max(1, round(side * width))
    top, left = chance.integers(height - rows + 1), chance.integers(width - columns + 1)
    cv2.resize(image[top : top + rows, left : left + columns], (width, height), target, interpolation=cv2.INTER_LINEAR)


def _factor(chance: np.random.Generator, half: float) -> float:
    return chance.uniform(1 - half, 1 + half)


def _brightness(cv2: Any, image: Image, target: Image, chance: np.random.Generator) -> None:
    _blend(cv2, image, image, _factor(chance, s.COLOUR), 0.0, 0.0, target)


def _contrast(cv2: Any, image: Image, target: Image, chance: np.random.Generator) -> None:
    factor = _factor(chance, s.COLOUR)
    mean = cv2.mean(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY))[0]
    _blend(cv2, image, image, factor, 0.0, (1 - factor) * mean, target)


def _saturation(cv2: Any, image: Image, target: Image, chance: np.random.Generator) -> None:
    factor = _factor(chance, s.COLOUR)
    grey = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    _blend(cv2, image, grey, factor, 1 - factor, 0.0, target)


def _hue(cv2: Any, image: Image, target: Image, chance: np.random.Generator) -> None:
    colours = cv2.cvtColor(image, cv2.COLOR_RGB2HSV)  # hue in degrees
    colours[..., 0] = (colours[..., 0] + 360 * chance.uniform(-s.HUE, s.HUE)) % 360
    cv2.cvtColor(colours, cv2.COLOR_HSV2RGB, target)


def _colour(cv2: Any, image: Image, target: Image, chance: np.random.Generator) -> None:
    _brightness(cv2, image, target, chance)
    for step in (_contrast, _saturation, _hue):
        step(cv2, target, target, chance)


def _gamma(cv2: Any, image: Image, target: Image, chance: np.random.Generator) -> None:
    cv2.pow(image, _factor(chance, s.GAMMA), target)


def _noise(cv2: Any, image: Image, target: Image, chance: np.random.Generator) -> None:
    cv2.randn(target, (0.0,) * 3, (s.NOISE,) * 3)
    cv2.add(image, target, target)


def _blur(cv2: Any, image: Image, target: Image, chance: np.random.Generator) -> None:
    sigma = chance.uniform(0.1, s.BLUR)
    cv2.GaussianBlur(image, (s.BLUR_KERNEL, s.BLUR_KERNEL), sigma, target, sigma, cv2.BORDER_REFLECT_101)


def _erase(cv2: Any, image: Image, target: Image, chance: np.random.Generator) -> None:
    target[:] = image
    _box(target, chance.uniform(*s.ERASED), chance)[:] = 0.0


def _mixup(cv2: Any, image: Image, partner: Image, target: Image, chance: np.random.Generator) -> None:
    share = chance.beta(s.CONCENTRATION, s.CONCENTRATION)
    cv2.addWeighted(image, share, partner, 1 - share, 0.0, target)


def _cutmix(cv2: Any, image: Image, partner: Image, target: Image, chance: np.random.Generator) -> None:
    target[:] = image
    height, width = image.shape[:2]
    rows, columns = _sides(height, width, 1 - chance.beta(s.CONCENTRATION, s.CONCENTRATION))
    top, left = chance.integers(height - rows + 1), chance.integers(width - columns + 1)
    box = (slice(top, top + rows), slice(left, left + columns))
    target[box] = partner[box]


def _box(image: Image, area: float, chance: np.random.Generator) -> Image:
    height, width = image.shape[:2]
    rows, columns = _sides(height, width, area)
    top, left = chance.integers(height - rows + 1), chance.integers(width - columns + 1)
    return image[top : top + rows, left : left + columns]


def _sides(height: int, width: int, area: float) -> tuple[int, int]:
    return round(height * math.sqrt(area)), round(width * math.sqrt(area))


def _blend(cv2: Any, one: Image, other: Image, share: float, rest: float, add: float, target: Image) -> None:
    """share · one + rest · other + add, kept within [0, 1]."""
    cv2.addWeighted(one, share, other, rest, add, target)
    np.clip(target, 0.0, 1.0, out=target)


TRANSFORMS: dict[str, Transform] = {
    "rotate": _warping(turn=True),
    "translate": _warping(shift=True),
    "scale": _warping(scale=True),
    "shear": _warping(slant=True),
    "four_warps": _warping(turn=True, shift=True, scale=True, slant=True),
    "flip": _flip,
    "crop_resize": _crop,
    "brightness": _brightness,
    "contrast": _contrast,
    "saturation": _saturation,
    "hue": _hue,
    "colour": _colour,
    "gamma": _gamma,
    "noise": _noise,
    "blur": _blur,
    "erase": _erase,
}
MIXERS: dict[str, Callable[[Any, Image, Image, Image, np.random.Generator], None]] = {
    "mixup": _mixup,
    "cutmix": _cutmix,
}
