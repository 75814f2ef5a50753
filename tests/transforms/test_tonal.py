"""Tonal operations against Pillow on 8-bit images, and against loops over pixels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from optima.transforms import tonal

Picture = NDArray[np.float64]  # (C, H, W)

GREY = np.array([0.299, 0.587, 0.114])
FACTORS = [0.118, 0.4, 1.0, 1.3, 1.9]
ENHANCERS = {
    "colour": (tonal.colour, ImageEnhance.Color),
    "contrast": (tonal.contrast, ImageEnhance.Contrast),
    "brightness": (tonal.brightness, ImageEnhance.Brightness),
    "sharpness": (tonal.sharpness, ImageEnhance.Sharpness),
}


def eight_bit(channels: int = 3) -> NDArray[np.uint8]:
    """Noise, a ramp, a narrow range, two values, one value, one pixel apart, and an image of few pixels' worth."""
    chance = np.random.default_rng(0)
    images = chance.integers(0, 256, (7, channels, 17, 19))
    images[1] = np.arange(17 * 19).reshape(17, 19) * 255 // (17 * 19)
    images[2] = chance.integers(90, 130, (channels, 17, 19))
    images[3] = chance.integers(0, 2, (channels, 17, 19)) * 200 + 3
    images[4] = 77
    images[5] = 12
    images[5, :, 3, 4] = 13
    images[6] = (chance.random((channels, 17, 19)) ** 4 * 255).astype(int)
    return images.astype(np.uint8)


def as_tensor(images: NDArray[np.uint8], dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.from_numpy(images.astype(np.float64) / 255).to(dtype)


def by_pillow(images: NDArray[np.uint8], operation: Callable[[Image.Image], Image.Image]) -> NDArray[np.int64]:
    results = []
    for image in images:
        picture = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
        result = np.asarray(operation(picture)).astype(np.int64)
        results.append(result[None] if len(image) == 1 else result.transpose(2, 0, 1))
    return np.stack(results)


def in_bytes(images: Tensor) -> NDArray[np.int64]:
    values = images.double().numpy() * 255
    assert np.abs(values - values.round()).max() < 1e-3
    return values.round().astype(np.int64)


each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
each_depth = pytest.mark.parametrize("channels", [1, 3])


# ---- Pillow ------------------------------------------------------------------------------------------------------


@each_dtype
@each_depth
@pytest.mark.parametrize("bits", range(1, 9))
def test_posterize_is_pillows(bits: int, channels: int, dtype: torch.dtype):
    images = eight_bit(channels)
    found = tonal.posterize(as_tensor(images, dtype), torch.full((7,), float(bits), dtype=dtype))
    np.testing.assert_array_equal(in_bytes(found), by_pillow(images, lambda image: ImageOps.posterize(image, bits)))


@each_dtype
@each_depth
@pytest.mark.parametrize("threshold", [0, 1, 77, 128, 203, 255, 256])
def test_solarize_is_pillows(threshold: int, channels: int, dtype: torch.dtype):
    images = eight_bit(channels)
    found = tonal.solarize(as_tensor(images, dtype), torch.full((7,), threshold, dtype=dtype) / 255)
    exact = by_pillow(images, lambda image: ImageOps.solarize(image, threshold))
    np.testing.assert_array_equal(in_bytes(found), exact)


@each_dtype
@each_depth
def test_equalize_is_pillows(channels: int, dtype: torch.dtype):
    images = eight_bit(channels)
    np.testing.assert_array_equal(
        in_bytes(tonal.equalize(as_tensor(images, dtype))), by_pillow(images, ImageOps.equalize)
    )


@pytest.mark.parametrize("size", [(1, 1), (4, 4), (16, 16), (32, 32), (64, 50)])
def test_equalize_is_pillows_at_any_number_of_pixels(size: tuple[int, int]):
    images = np.random.default_rng(1).integers(0, 256, (4, 3, *size)).astype(np.uint8)
    np.testing.assert_array_equal(in_bytes(tonal.equalize(as_tensor(images))), by_pillow(images, ImageOps.equalize))


@each_depth
def test_autocontrast_is_pillows_before_it_cuts_off_the_fraction(channels: int):
    images = eight_bit(channels)
    found = tonal.autocontrast(as_tensor(images, torch.float64)).numpy() * 255
    exact = by_pillow(images, ImageOps.autocontrast)
    # Pillow's own value may round just below a whole number, and is then cut off one too low
    gap = found - exact
    assert gap.min() > -1e-9
    assert gap.max() < 1 + 1e-9


@each_depth
@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("name", ENHANCERS)
def test_enhancers_are_pillows_up_to_its_rounding(name: str, factor: float, channels: int):
    ours, pillows = ENHANCERS[name]
    images = eight_bit(channels)
    found = ours(as_tensor(images), torch.full((7,), factor)).double().numpy() * 255
    exact = by_pillow(images, lambda image: pillows(image).enhance(factor))
    # it rounds the duller image, whose share is 1 − factor, and cuts off the fraction of the result
    assert np.abs(found - exact).max() < 1.01 + abs(1 - factor)


# ---- loops -------------------------------------------------------------------------------------------------------


def grey(picture: Picture) -> Picture:
    return picture[0] if len(picture) == 1 else np.tensordot(GREY, picture, 1)


def blurred(picture: Picture) -> Picture:
    result = picture.copy()
    for c, i, j in np.ndindex(*picture.shape):
        if 0 < i < picture.shape[1] - 1 and 0 < j < picture.shape[2] - 1:
            patch = picture[c, i - 1 : i + 2, j - 1 : j + 2]
            result[c, i, j] = (patch.sum() + 4 * picture[c, i, j]) / 13
    return result


def stretched(picture: Picture) -> Picture:
    result = picture.copy()
    for c, channel in enumerate(picture):
        low, high = channel.min(), channel.max()
        if high - low >= 1 / 255:
            result[c] = (channel - low) / (high - low)
    return result


def equalized(picture: Picture) -> Picture:
    result = np.rint(picture * 255)
    for c, channel in enumerate(result.astype(int)):
        count = [int((channel == v).sum()) for v in range(256)]
        last = max(v for v in range(256) if count[v])
        step = (channel.size - count[last]) // 255
        if step:
            table = [min(255, (step // 2 + sum(count[:v])) // step) for v in range(256)]
            result[c] = np.array(table)[channel]
    return result / 255


def dulled(picture: Picture, dull: Picture, factor: float) -> Picture:
    return np.clip(factor * picture + (1 - factor) * dull, 0, 1)


LOOPS: dict[str, Callable[[Picture, float], Picture]] = {
    "colour": lambda x, f: dulled(x, grey(x)[None], f),
    "contrast": lambda x, f: dulled(x, grey(x).mean()[None, None], f),
    "brightness": lambda x, f: dulled(x, np.zeros_like(x), f),
    "sharpness": lambda x, f: dulled(x, blurred(x), f),
    "autocontrast": lambda x, _: stretched(x),
    "equalize": lambda x, _: equalized(x),
    "posterize": lambda x, bits: np.floor(np.rint(x * 255) / 2 ** (8 - bits)) * 2 ** (8 - bits) / 255,
    "solarize": lambda x, threshold: np.where(x >= threshold, 1 - x, x),
}
STRENGTHS = {
    **dict.fromkeys(ENHANCERS, FACTORS),
    "posterize": [1.0, 3.0, 4.0, 7.0, 8.0],
    "solarize": [0, 0.3, 0.5, 1, 2],
}


def applied(name: str, images: Tensor, strength: Tensor) -> Tensor:
    operation = getattr(tonal, name)
    return operation(images) if name in ("autocontrast", "equalize") else operation(images, strength)


def random_images(channels: int, height: int = 9, width: int = 12) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.rand(5, channels, height, width, dtype=torch.float64, generator=generator) * 0.9 + 0.05


@each_depth
@pytest.mark.parametrize("size", [(9, 12), (2, 5), (3, 3), (20, 20)])
@pytest.mark.parametrize("name", LOOPS)
def test_each_operation_is_the_loop_with_its_own_strength_per_image(name: str, size: tuple[int, int], channels: int):
    images = random_images(channels, *size)
    strength = torch.tensor(STRENGTHS.get(name, [0.0] * 5), dtype=torch.float64)
    exact = [LOOPS[name](image, float(s)) for image, s in zip(images.numpy(), strength, strict=True)]
    torch.testing.assert_close(applied(name, images, strength), torch.from_numpy(np.stack(exact)), rtol=0, atol=1e-12)


# ---- identity, gradients, what it must not do ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ENHANCERS)
def test_a_factor_of_one_changes_no_bit(name: str):
    images = random_images(3).float()
    assert torch.equal(ENHANCERS[name][0](images, torch.ones(5)), images)


def test_the_others_at_their_identity():
    images = as_tensor(eight_bit())
    assert torch.equal(tonal.solarize(images, torch.full((7,), 1.001)), images)
    assert torch.equal(tonal.posterize(images, torch.full((7,), 8.0)), images)
    full = images.clone()
    full[..., 0, 0], full[..., 0, 1] = 0.0, 1.0
    torch.testing.assert_close(tonal.autocontrast(full), full, rtol=0, atol=1e-7)


def test_rounding_errors_are_not_stretched():
    flat = torch.full((1, 3, 8, 8), 0.6) + torch.rand(1, 3, 8, 8) * 1e-6
    torch.testing.assert_close(tonal.autocontrast(flat), flat, rtol=0, atol=3e-4)
    assert bool(tonal.autocontrast(torch.zeros(1, 3, 4, 4)).isfinite().all())


@each_depth
@pytest.mark.parametrize("name", [*ENHANCERS, "autocontrast"])
def test_gradients_of_smooth_operations_are_those_of_finite_differences(name: str, channels: int):
    images = (random_images(channels, 4, 5)[:2] * 0.5 + 0.2).requires_grad_()
    strength = torch.tensor([0.7, 1.2], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, s: applied(name, x, s) + 0.0 * s.sum(), (images, strength))


@pytest.mark.parametrize("name", LOOPS)
def test_the_input_is_left_alone_and_a_flat_image_has_finite_gradients(name: str):
    images = torch.full((5, 3, 6, 6), 0.5, requires_grad=True)
    before = images.detach().clone()
    result = applied(name, images, torch.tensor(STRENGTHS.get(name, [0.0] * 5), requires_grad=True))
    assert torch.equal(images, before)
    if result.requires_grad:
        result.sum().backward()
        assert images.grad is not None
        assert bool(images.grad.isfinite().all())
