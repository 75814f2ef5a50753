"""Blur against the definition written out, pixel by pixel, and against sampled Gaussians where those are wide."""

from __future__ import annotations

import math
import warnings
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from optima.transforms import blur as module
from optima.transforms.blur import blur, coverage


def images(batch: int = 3, channels: int = 2, height: int = 6, width: int = 7, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(batch, channels, height, width, dtype=torch.float64, generator=generator)


def widths(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture(scope="module")
def filters() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import kornia.filters
    return kornia.filters


@pytest.fixture(params=["banded", "dense"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to multiply, on images small enough to check: blocks of 2 rows, or the whole matrix."""
    if request.param == "banded":
        monkeypatch.setattr(module, "_BLOCK", 2)
    else:
        monkeypatch.setattr(module, "_reach", lambda width: None)
    return request.param


def below(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def mirrored(position: int, size: int) -> int:
    position %= 2 * size
    return min(position, 2 * size - 1 - position)


def blurred_line(line: np.ndarray, width: float) -> np.ndarray:
    """Pixel i: the mirrored line, each pixel weighted by a Gaussian's mass on it, out to 10 widths."""
    reach = math.ceil(10 * width) + 1
    result = np.zeros_like(line)
    for i in range(len(line)):
        for offset in range(-reach, reach + 1):
            weight = below((offset + 0.5) / width) - below((offset - 0.5) / width)
            result[i] += weight * line[mirrored(i + offset, len(line))]
    return result


def blurred(picture: np.ndarray, width: float) -> np.ndarray:
    if width == 0:
        return picture
    rows = np.apply_along_axis(blurred_line, -1, picture, width)
    return np.apply_along_axis(blurred_line, -2, rows, width)


@pytest.mark.parametrize(("height", "width"), [(6, 7), (7, 6), (5, 5), (1, 6), (1, 1), (40, 9)])
def test_blur_is_the_definition(height: int, width: int, either_way: str):
    sizes = [0.0, 0.3, 0.7, 1.3, 2.5]
    x = images(batch=len(sizes), height=height, width=width)
    exact = np.stack([blurred(picture, s) for picture, s in zip(x.numpy(), sizes, strict=True)])
    torch.testing.assert_close(blur(x, widths(*sizes)), torch.from_numpy(exact), rtol=0.0, atol=1e-12)


def test_the_band_is_used_and_is_the_whole(monkeypatch: pytest.MonkeyPatch):
    calls: list[int] = []
    product = module._banded_product

    def counted(matrix: Tensor, x: Tensor, reach: int) -> Tensor:
        calls.append(reach)
        return product(matrix, x, reach)

    monkeypatch.setattr(module, "_banded_product", counted)
    x, s = images(height=120, width=130), widths(0.2, 1.0, 2.0)
    fast = blur(x, s)
    assert calls == [18, 18]
    narrow = blur(x.float(), s.float())
    assert calls[2:] == [12, 12]
    monkeypatch.setattr(module, "_reach", lambda width: None)
    torch.testing.assert_close(fast, blur(x, s), rtol=0.0, atol=1e-14)
    torch.testing.assert_close(narrow, blur(x.float(), s.float()), rtol=0.0, atol=1e-6)
    assert len(calls) == 4


@pytest.mark.parametrize("pixels", [1, 2, 5, 32])
@pytest.mark.parametrize("width", [0.0, 0.01, 0.4, 3.0, 50.0, 1e4])
def test_rows_and_columns_sum_to_one(pixels: int, width: float):
    matrix = coverage(widths(width), pixels)[0]
    ones = torch.ones(pixels, dtype=torch.float64)
    torch.testing.assert_close(matrix.sum(0), ones, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(matrix.sum(1), ones, rtol=0.0, atol=1e-12)
    assert bool((matrix >= 0).all())


def test_an_image_keeps_its_mean_and_is_flat_in_the_end():
    x = images()
    torch.testing.assert_close(blur(x, widths(0.3, 1.0, 9.0)).mean((2, 3)), x.mean((2, 3)), rtol=0.0, atol=1e-12)
    flat = blur(x, widths(1e5, 1e5, 1e5))
    torch.testing.assert_close(flat, x.mean((2, 3), keepdim=True).expand_as(x), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("width", [0.0, 1e-30, 1e-3, 0.05])
def test_no_width_changes_no_bit(width: float, dtype: torch.dtype):
    for size in (8, 120):
        x = (images(height=size, width=size) * 5 - 1).to(dtype)
        assert torch.equal(blur(x, torch.full((3,), width)), x)


def test_gradients_are_those_of_finite_differences(either_way: str):
    x, s = images(batch=3, channels=2, height=5, width=4).requires_grad_(), widths(0.2, 0.6, 1.1).requires_grad_()
    assert torch.autograd.gradcheck(blur, (x, s))


def test_gradients_along_the_band_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch):
    x, s = images(height=90, width=80), widths(0.3, 0.8, 1.2)
    direction = torch.randn_like(x)
    gradients = []
    for reach in (module._reach, lambda width: None):
        monkeypatch.setattr(module, "_reach", reach)
        leaves = x.clone().requires_grad_(), s.clone().requires_grad_()
        gradients.append(torch.autograd.grad((blur(*leaves) * direction).sum(), leaves))
    for banded, dense in zip(*gradients, strict=True):
        torch.testing.assert_close(banded, dense, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_is_finite_and_vanishes_at_no_width(dtype: torch.dtype):
    s = torch.tensor([0.0, 1e-30, 1e-8, 1e-3, 0.02, 0.1], dtype=dtype, requires_grad=True)
    (blur(images(batch=6).to(dtype), s) ** 2).sum().backward()
    assert s.grad is not None
    assert bool(s.grad.isfinite().all())
    assert s.grad[:4].tolist() == [0.0] * 4
    assert abs(float(s.grad[4])) < 1e-100
    assert float(s.grad[5]) != 0.0


def test_every_image_has_its_own_width():
    x, s = images(batch=4, height=100, width=60), widths(0.0, 0.4, 1.0, 2.0)
    together, order = blur(x, s), torch.tensor([2, 0, 3, 1])
    for row in range(4):
        torch.testing.assert_close(blur(x[row : row + 1], s[row : row + 1])[0], together[row], rtol=0.0, atol=1e-14)
    assert torch.equal(blur(x[order], s[order]), together[order])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_layout_and_autocast(dtype: torch.dtype):
    for size in (8, 120):
        x, s = images(height=size, width=size).to(dtype), torch.tensor([0.3, 0.8, 1.5])
        assert blur(x, s).dtype == dtype
        assert torch.equal(blur(x, s), blur(x.float(), s).to(dtype))
        torch.testing.assert_close(blur(x.contiguous(memory_format=torch.channels_last), s), blur(x, s))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            within = blur(x, s)
        assert torch.equal(within, blur(x, s))


def test_no_images_are_no_trouble():
    assert blur(images(batch=0), widths()).shape == (0, 2, 6, 7)


def test_a_width_that_is_not_a_number_is_not_hidden():
    assert bool(blur(images(height=90, width=90), widths(1.0, math.nan, 1.0))[1].isnan().all())


def test_agrees_with_kornia_where_samples_of_a_gaussian_do(filters: ModuleType):
    # the mass on a pixel is that of a Gaussian of variance s² + 1/12, up to the fourth order; borders differ
    x, s = images(height=40, width=44), widths(2.0, 2.5, 3.0)
    wider = (s.square() + 1 / 12).sqrt().unsqueeze(1).expand(3, 2)
    theirs = filters.gaussian_blur2d(x, (33, 33), wider)
    inner = (..., slice(17, -17), slice(17, -17))
    torch.testing.assert_close(blur(x, s)[inner], theirs[inner], rtol=0.0, atol=2e-5)
    same = filters.gaussian_blur2d(x, (33, 33), s.unsqueeze(1).expand(3, 2))
    assert 1e-4 < float((blur(x, s) - same)[inner].abs().max()) < 1e-2
