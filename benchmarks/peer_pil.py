"""AugMix as it was first published (Hendrycks et al., 2020): images of Pillow one by one, in as many processes as the
run has threads.

Each process holds its share of the images as Pillow images and writes two views of each into memory that all share;
decoding files, normalising and building a batch of tensors are left out.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.sharedctypes import RawArray
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps

from benchmarks import strengths as s
from benchmarks.families import Batch
from benchmarks.timing import Action

VIEWS = 2
WIDTH = 3
DEPTH = 3
Op = Callable[[Image.Image, float, float], Image.Image]  # image, level in (0, 1), sign


def _affine(image: Image.Image, coefficients: tuple[float, ...]) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR)


def _enhance(kind: Callable[[Image.Image], Any]) -> Op:
    return lambda image, level, sign: kind(image).enhance(0.1 + 1.8 * level)


OPS: tuple[Op, ...] = (
    lambda image, level, sign: ImageOps.autocontrast(image),
    lambda image, level, sign: ImageOps.equalize(image),
    lambda image, level, sign: ImageOps.posterize(image, max(1, 4 - int(4 * level))),
    lambda image, level, sign: ImageOps.solarize(image, 256 - int(256 * level)),
    lambda image, level, sign: image.rotate(sign * int(30 * level), Image.Resampling.BILINEAR),
    lambda image, level, sign: _affine(image, (1, sign * 0.3 * level, 0, 0, 1, 0)),
    lambda image, level, sign: _affine(image, (1, 0, 0, sign * 0.3 * level, 1, 0)),
    lambda image, level, sign: _affine(image, (1, 0, sign * int(level * image.width / 3), 0, 1, 0)),
    lambda image, level, sign: _affine(image, (1, 0, 0, 0, 1, sign * int(level * image.height / 3))),
    _enhance(ImageEnhance.Color),
    _enhance(ImageEnhance.Contrast),
    _enhance(ImageEnhance.Brightness),
    _enhance(ImageEnhance.Sharpness),
)


def augmix(image: Image.Image, chance: np.random.Generator) -> NDArray[np.float32]:
    """One view, (H, W, C) in [0, 1]: m x + (1 − m) Σ_i w_i chain_i(x), w ~ Dirichlet(1, 1, 1), m ~ Beta(1, 1)."""
    original = _pixels(image)
    mixed = np.zeros_like(original)
    for weight in chance.dirichlet(np.ones(WIDTH)).astype(np.float32):
        chained = image
        for _ in range(chance.integers(1, DEPTH + 1)):
            level = chance.uniform(0.1, s.SEVERITY) / 10
            chained = OPS[chance.integers(len(OPS))](chained, level, chance.choice((-1, 1)))
        mixed += weight * _pixels(chained)
    share = np.float32(chance.beta(1, 1))
    return np.asarray(mixed + share * (original - mixed), np.float32)


def forwards(family: str, on: Batch, processes: int) -> tuple[dict[str, Action], Callable[[], None]]:
    """Two views of the batch, and what ends the processes."""
    pixels = (on.x.float() * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
    shape = (VIEWS, *pixels.shape)
    memory = RawArray("f", int(np.prod(shape)))
    result = np.frombuffer(memory, np.float32).reshape(shape)
    if processes == 1:
        _start(memory, shape, pixels)
        return {"pil": lambda: (_share(range(len(pixels))), result)[1]}, lambda: None
    shares = [range(first, len(pixels), processes) for first in range(processes)]
    pool = multiprocessing.get_context("spawn").Pool(processes, _start, (memory, shape, pixels))
    return {"pil": lambda: (pool.map(_share, shares, chunksize=1), result)[1]}, pool.terminate


_held: dict[str, Any] = {}  # what one process works on


def _start(memory: Any, shape: tuple[int, ...], pixels: NDArray[np.uint8]) -> None:
    _held["images"] = [Image.fromarray(image) for image in pixels]
    _held["views"] = np.frombuffer(memory, np.float32).reshape(shape)
    _held["chance"] = np.random.default_rng()


def _share(indices: range) -> None:
    for index in indices:
        for views in _held["views"]:
            views[index] = augmix(_held["images"][index], _held["chance"])


def _pixels(image: Image.Image) -> NDArray[np.float32]:
    return np.asarray(image, np.float32) / np.float32(255)
