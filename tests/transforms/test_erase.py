"""Erasing against a loop over pixels, with each pixel's covered area found by subdivision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from optima.transforms import erase as module
from optima.transforms.erase import Fill, erase

FILLS: list[Fill] = [0.0, 0.7, "mean"]


def images(batch: int = 4, channels: int = 3, height: int = 4, width: int = 6, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(batch, channels, height, width, dtype=torch.float64, generator=generator)


# inside; over a corner, on whole pixels; nothing; everything and more
CENTRES = torch.tensor([[0.41, 0.53], [1.0, 0.25], [0.3, 0.9], [0.5, 0.5]], dtype=torch.float64)
SIDES = torch.tensor([[0.33, 0.61], [0.5, 0.5], [0.0, 0.0], [2.0, 2.0]], dtype=torch.float64)


def covered(centre: Tensor, sides: Tensor, row: int, column: int, height: int, width: int) -> float:
    """The share of one pixel that lies in the box."""
    overlap = 1.0
    for middle, side, at, size in ((centre[0], sides[0], column, width), (centre[1], sides[1], row, height)):
        low, high = float(middle - side / 2) * size, float(middle + side / 2) * size
        overlap *= max(0.0, min(high, at + 1) - max(low, at))
    return overlap


def erased(picture: np.ndarray, centre: Tensor, sides: Tensor, value: Fill) -> np.ndarray:
    channels, height, width = picture.shape
    result = np.zeros_like(picture)
    for c in range(channels):
        fill = picture[c].mean() if value == "mean" else value
        for i in range(height):
            for j in range(width):
                share = covered(centre, sides, i, j, height, width)
                result[c, i, j] = (1 - share) * picture[c, i, j] + share * fill
    return result


@pytest.mark.parametrize("value", FILLS)
def test_erasing_is_a_loop_over_pixels(value: Fill):
    x = images()
    rows = zip(x.numpy(), CENTRES, SIDES, strict=True)
    exact = np.stack([erased(picture, centre, sides, value) for picture, centre, sides in rows])
    torch.testing.assert_close(erase(x, CENTRES, SIDES, value), torch.from_numpy(exact), rtol=0.0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("value", FILLS)
def test_a_box_of_no_size_changes_no_bit(value: Fill, dtype: torch.dtype):
    x = (images() * 5 - 1).to(dtype)
    assert torch.equal(erase(x, CENTRES.float(), torch.zeros(4, 2), value), x)


@pytest.mark.parametrize("value", FILLS)
def test_a_box_over_everything_leaves_nothing(value: Fill):
    x = images()
    flat = x.mean((2, 3), keepdim=True).expand_as(x) if value == "mean" else torch.full_like(x, value)
    torch.testing.assert_close(erase(x, CENTRES, torch.full_like(SIDES, 2.0), value), flat, rtol=0.0, atol=1e-15)


def test_what_is_gone_is_the_area_of_the_box():
    white = torch.ones(1, 1, 7, 9, dtype=torch.float64)
    for centre, sides, area in (((0.43, 0.61), (0.3, 0.2), 0.06), ((0.0, 0.5), (0.3, 0.2), 0.03)):
        left = erase(white, torch.tensor([centre]).double(), torch.tensor([sides]).double())
        assert float(left.mean()) == pytest.approx(1 - area)


@pytest.mark.parametrize("value", FILLS)
def test_gradients_are_those_of_finite_differences(value: Fill):
    x, centre = images(batch=2).requires_grad_(), CENTRES[:2].clone()
    centre[1] = torch.tensor([0.93, 0.21])
    sides = torch.tensor([[0.33, 0.61], [0.47, 0.29]], dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, c, s: erase(x, c, s, value), (x, centre.requires_grad_(), sides))


def test_whole_pixels_would_not_pass(monkeypatch: pytest.MonkeyPatch):
    cover = module.cover_box

    def rounded(*given: object) -> tuple[Tensor, Tensor]:
        rows, columns = cover(*given)  # pyright: ignore
        return rows.round(), columns.round()

    monkeypatch.setattr(module, "cover_box", rounded)
    with pytest.raises(AssertionError):
        test_erasing_is_a_loop_over_pixels(0.0)


def test_every_image_has_its_own_box():
    x, order = images(), torch.tensor([2, 0, 3, 1])
    assert torch.equal(erase(x[order], CENTRES[order], SIDES[order], "mean"), erase(x, CENTRES, SIDES, "mean")[order])


def test_no_images_are_no_trouble():
    assert erase(images()[:0], CENTRES[:0], SIDES[:0], "mean").shape == (0, 3, 4, 6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_is_erased_in_float32(dtype: torch.dtype):
    x, centre, sides = images().to(dtype), CENTRES.float(), SIDES.float()
    assert erase(x, centre, sides, 0.7).dtype == dtype
    assert torch.equal(erase(x, centre, sides, 0.7), erase(x.float(), centre, sides, 0.7).to(dtype))
