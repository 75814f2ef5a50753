"""Rotation and translation against an explicit 3×3 matrix, a loop over pixels and numpy's bilinear rule written out."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from optima.transforms import rotate, translate
from optima.transforms.geometry import Padding

PADDINGS: list[Padding] = ["zeros", "border", "reflection"]


def image(height: int, width: int, batch: int = 1, channels: int = 2, seed: int = 0) -> Tensor:
    return torch.rand(
        batch, channels, height, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


# ---- the reference: output pixel → input position by a 3×3 matrix, then bilinear ----------------------------------


def centred(height: int, width: int) -> np.ndarray:
    """From (row, column) to positions with the origin in the image's centre."""
    return np.array([[1, 0, -(height - 1) / 2], [0, 1, -(width - 1) / 2], [0, 0, 1.0]])


def turn(angle: float) -> np.ndarray:
    """Counter-clockwise as displayed, acting on (row, column, 1): rows grow downwards."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1.0]])


def move(down: float, right: float) -> np.ndarray:
    return np.array([[1, 0, down], [0, 1, right], [0, 0, 1.0]])


def folded(position: float, size: int, padding: str) -> float:
    """Where a position outside is read: as it is, at the nearest pixel, or mirrored at the border's edge."""
    if padding == "border":
        return min(max(position, 0.0), size - 1.0)
    if padding == "reflection":
        span = position + 0.5
        span = abs(span) % (2 * size)
        return min(max(min(span, 2 * size - span) - 0.5, 0.0), size - 1.0)
    return position


def warped(picture: np.ndarray, forward: np.ndarray, padding: str) -> np.ndarray:
    """One channel, each output pixel p read at forward⁻¹ p."""
    height, width = picture.shape
    origin = centred(height, width)
    backward = np.linalg.inv(origin) @ np.linalg.inv(forward) @ origin

    def pixel(row: int, column: int) -> float:
        return picture[row, column] if 0 <= row < height and 0 <= column < width else 0.0

    result = np.zeros_like(picture)
    for i in range(height):
        for j in range(width):
            row, column, _ = backward @ [i, j, 1.0]
            row, column = folded(row, height, padding), folded(column, width, padding)
            top, left = math.floor(row), math.floor(column)
            a, b = row - top, column - left
            result[i, j] = (
                (1 - a) * (1 - b) * pixel(top, left)
                + (1 - a) * b * pixel(top, left + 1)
                + a * (1 - b) * pixel(top + 1, left)
                + a * b * pixel(top + 1, left + 1)
            )
    return result


def expected(pictures: Tensor, forwards: list[np.ndarray], padding: str) -> Tensor:
    return torch.from_numpy(
        np.stack(
            [
                np.stack([warped(channel, forward, padding) for channel in picture])
                for picture, forward in zip(pictures.numpy(), forwards, strict=True)
            ]
        )
    )


SHAPES = [(5, 5), (5, 7), (7, 5), (4, 6), (1, 5)]


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize(("height", "width"), SHAPES)
def test_rotation_is_the_matrix(height: int, width: int, padding: Padding):
    angles = [0.0, 0.3, -1.1, math.pi / 2, 2.0, math.pi, -3.0]
    pictures = image(height, width, batch=len(angles))
    turned = rotate(pictures, torch.tensor(angles, dtype=torch.float64), padding=padding)
    exact = expected(pictures, [turn(angle) for angle in angles], padding)
    torch.testing.assert_close(turned, exact, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize(("height", "width"), SHAPES)
def test_translation_is_the_matrix(height: int, width: int, padding: Padding):
    shifts = torch.tensor([[0.0, 0.0], [0.2, 0.0], [0.0, 0.2], [-0.13, 0.31], [0.9, -0.7], [1.7, 0.0]]).double()
    pictures = image(height, width, batch=len(shifts))
    moved = translate(pictures, shifts, padding=padding)
    exact = expected(pictures, [move(float(y) * height, float(x) * width) for x, y in shifts], padding)
    torch.testing.assert_close(moved, exact, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("quarter", [-2, -1, 1, 2, 3])
@pytest.mark.parametrize("size", [4, 5])
def test_quarter_turns_are_exact_and_counter_clockwise(quarter: int, size: int):
    picture = image(size, size)
    turned = rotate(picture, torch.tensor([quarter * math.pi / 2], dtype=torch.float64))
    torch.testing.assert_close(turned, torch.rot90(picture, quarter, (2, 3)), rtol=0.0, atol=1e-12)


def test_a_pixel_on_the_right_moves_up():
    picture = torch.zeros(1, 1, 5, 5, dtype=torch.float64)
    picture[0, 0, 2, 4] = 1.0
    turned = rotate(picture, torch.tensor([math.pi / 2], dtype=torch.float64))
    assert float(turned[0, 0, 0, 2]) == pytest.approx(1.0)


def test_whole_pixels_move_right_and_down_exactly():
    picture = image(4, 8)
    moved = translate(picture, torch.tensor([[2 / 8, 1 / 4]], dtype=torch.float64))
    torch.testing.assert_close(moved[..., 1:, 2:], picture[..., :-1, :-2], rtol=0.0, atol=1e-12)
    assert float(moved[..., 0, :].abs().max()) < 1e-12
    assert float(moved[..., :2].abs().max()) < 1e-12


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize(("height", "width"), [(5, 5), (5, 7), (32, 32), (33, 64), (224, 160)])
def test_identity_changes_nothing(height: int, width: int, padding: Padding):
    picture = image(height, width)
    zero = torch.zeros(1, dtype=torch.float64)
    torch.testing.assert_close(rotate(picture, zero, padding=padding), picture, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(translate(picture, zero.expand(1, 2), padding=padding), picture, rtol=0.0, atol=1e-12)


def test_there_and_back_on_a_smooth_picture():
    # a small turn of a smooth picture is undone up to the curvature that interpolation smooths away
    y, x = torch.meshgrid(
        torch.linspace(-1, 1, 41, dtype=torch.float64), torch.linspace(-1, 1, 61, dtype=torch.float64), indexing="ij"
    )
    picture = torch.exp(-8 * (x**2 + (y - 0.2) ** 2))[None, None]
    angle = torch.tensor([0.4], dtype=torch.float64)
    back = rotate(rotate(picture, angle), -angle)
    assert float((back - picture)[..., 12:-12, 12:-12].abs().max()) < 0.02
    assert float((rotate(picture, angle) - picture).abs().max()) > 0.1


def in_unit_coordinates(picture: Tensor, angle: float) -> Tensor:
    """The planted bug: the turn written in coordinates that run from −1 to 1 along both axes."""
    inverse = torch.tensor([[[math.cos(angle), -math.sin(angle), 0], [math.sin(angle), math.cos(angle), 0]]]).double()
    grid = functional.affine_grid(inverse, list(picture.shape), align_corners=False)
    return functional.grid_sample(picture, grid, align_corners=False)


@pytest.mark.parametrize(("height", "width"), [(21, 21), (21, 41), (41, 21)])
def test_a_disc_stays_a_disc_when_the_image_is_not_square(height: int, width: int):
    y = torch.arange(height, dtype=torch.float64)[:, None] - (height - 1) / 2
    x = torch.arange(width, dtype=torch.float64) - (width - 1) / 2
    disc = torch.exp(-(x**2 + y**2) / 18)[None, None]
    for angle in (0.4, 1.0, math.pi / 4):
        turned = rotate(disc, torch.tensor([angle], dtype=torch.float64))
        # interpolation blurs by a quarter pixel's curvature, 0.25 · ½ · 1/9 · 2; a shear moves the flanks by pixels
        assert float((turned - disc).abs().max()) < 0.028
        if height != width:
            assert float((in_unit_coordinates(disc, angle) - disc).abs().max()) > 0.1, "the check must see a shear"


@pytest.mark.parametrize("padding", PADDINGS)
def test_gradients_are_those_of_finite_differences(padding: Padding):
    picture = image(5, 6, batch=2).requires_grad_()
    angle = torch.tensor([0.37, -1.21], dtype=torch.float64, requires_grad=True)
    shift = torch.tensor([[0.123, -0.217], [0.061, 0.333]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, a: rotate(x, a, padding=padding), (picture, angle))
    assert torch.autograd.gradcheck(lambda x, s: translate(x, s, padding=padding), (picture, shift))


@pytest.mark.parametrize(
    "warp",
    [
        lambda x, gamma: rotate(x, gamma[:, 0]),
        lambda x, gamma: translate(x, gamma),
    ],
    ids=["rotate", "translate"],
)
def test_every_example_has_its_own_warp(warp: Callable[[Tensor, Tensor], Tensor]):
    pictures, gamma = image(5, 7, batch=4), torch.tensor([[0.1, 0.2], [0.3, -0.1], [-0.2, 0.0], [1.0, 0.4]]).double()
    together = warp(pictures, gamma)
    for row in range(4):
        torch.testing.assert_close(
            warp(pictures[row : row + 1], gamma[row : row + 1]), together[row : row + 1], rtol=0.0, atol=1e-14
        )
    order = torch.tensor([2, 0, 3, 1])
    assert torch.equal(warp(pictures[order], gamma[order]), together[order])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_is_warped_in_float32(dtype: torch.dtype):
    pictures = image(64, 64).to(dtype)
    angle = torch.tensor([0.3])
    turned = rotate(pictures, angle)
    assert turned.dtype == dtype
    assert torch.equal(turned, rotate(pictures.float(), angle).to(dtype))
    assert translate(pictures, torch.tensor([[0.1, 0.1]])).dtype == dtype


def test_uniform_images_stay_uniform_inside_whatever_the_padding():
    flat = torch.ones(1, 1, 9, 9, dtype=torch.float64)
    angle = torch.tensor([0.5], dtype=torch.float64)
    for padding in ("border", "reflection"):
        torch.testing.assert_close(rotate(flat, angle, padding=padding), flat)
    turned = rotate(flat, angle)
    assert float(turned[0, 0, 0, 0]) == 0.0
    torch.testing.assert_close(turned[..., 2:7, 2:7], flat[..., 2:7, 2:7])
