"""AugMix's chains against a loop over images, chains and steps, geometry by 3×3 matrices and a loop over pixels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from optima.transforms import augmix as module
from optima.transforms.augmix import DISCONTINUOUS, GEOMETRIC, OPERATIONS, UNLEVELLED, augmix
from optima.transforms.geometry import Padding
from tests.transforms.test_tonal import LOOPS, Picture

TONAL = {name: "colour" if name == "color" else name for name in OPERATIONS if name not in GEOMETRIC}
SMOOTH = [name for name in OPERATIONS if name not in DISCONTINUOUS]

Gamma = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def images(batch: int, channels: int = 3, height: int = 6, width: int = 8, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(batch, channels, height, width, dtype=torch.float64, generator=generator)


def random_gamma(batch: int, width: int = 3, seed: int = 0, names: list[str] | None = None) -> Gamma:
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.tensor([OPERATIONS.index(name) for name in names or OPERATIONS])
    weights = torch.rand(batch, width, dtype=torch.float64, generator=generator)
    level = (0.1 + 9.8 * torch.rand(batch, width, 3, dtype=torch.float64, generator=generator)).clone()
    operation = chosen[torch.randint(len(chosen), (batch, width, 3), generator=generator)]
    moving = torch.isin(operation, torch.tensor([OPERATIONS.index(name) for name in GEOMETRIC]))
    minus = torch.rand(batch, width, 3, generator=generator) < 0.5
    return (
        weights / weights.sum(1, keepdim=True),
        torch.rand(batch, dtype=torch.float64, generator=generator),
        torch.randint(1, 4, (batch, width), generator=generator),
        operation,
        torch.where(moving & minus, -level, level),
    )


def one_step(name: str, level: Tensor) -> Gamma:
    """A single chain of one operation, unblended."""
    rows = len(level)
    operation = torch.full((rows, 1, 3), OPERATIONS.index(name))
    ones = torch.ones(rows, 1, dtype=level.dtype)
    return ones, ones[:, 0], torch.ones(rows, 1, dtype=torch.long), operation, level.view(-1, 1, 1).expand(-1, 1, 3)


# ---- the loop ----------------------------------------------------------------------------------------------------


def forward(name: str, level: float, height: int, width: int) -> np.ndarray:
    """Where a point goes, (x, y, 1) measured from the left upper corner of the image, y downwards."""
    if name == "rotate":
        c, s = math.cos(math.radians(3 * level)), math.sin(math.radians(3 * level))
        centre = np.array([[1, 0, width / 2], [0, 1, height / 2], [0, 0, 1]])
        return centre @ np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]]) @ np.linalg.inv(centre)
    across, down = (level / 30 * width, 0) if name == "translate_x" else (0, level / 30 * height)
    if name.startswith("translate"):
        return np.array([[1, 0, across], [0, 1, down], [0, 0, 1]])
    slope = 0.03 * level
    return np.array(
        [[1, -slope, 0], [0, 1, 0], [0, 0, 1]] if name == "shear_x" else [[1, 0, 0], [-slope, 1, 0], [0, 0, 1]]
    )


def warped(picture: Picture, matrix: np.ndarray, border: bool) -> Picture:
    _, height, width = picture.shape
    result = np.zeros_like(picture)
    back = np.linalg.inv(matrix)
    for i, j in np.ndindex(height, width):
        x, y, _ = back @ [j + 0.5, i + 0.5, 1]
        x, y = x - 0.5, y - 0.5
        if border:
            x, y = min(max(x, 0), width - 1), min(max(y, 0), height - 1)
        left, top = math.floor(x), math.floor(y)
        for row, column in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
            if 0 <= row < height and 0 <= column < width:
                result[:, i, j] += (1 - abs(x - column)) * (1 - abs(y - row)) * picture[:, row, column]
    return result


def strength(name: str, level: float) -> float:
    if name == "posterize":
        return 4 - int(level * 0.4)
    return 1 - level / 10 if name == "solarize" else 0.1 + 0.18 * level


def chained(picture: Picture, names: list[str], levels: list[float], border: bool) -> Picture:
    pending: np.ndarray | None = None
    for name, level in zip([*names, ""], [*levels, 0.0], strict=True):
        if name in GEOMETRIC:
            matrix = forward(name, level, *picture.shape[1:])
            pending = matrix if pending is None else matrix @ pending
            continue
        if pending is not None:
            picture, pending = warped(picture, pending, border), None
        if name and not (name == "color" and len(picture) == 1):
            picture = LOOPS[TONAL[name]](picture, strength(name, level))
    return picture


def looped(pictures: Tensor, gamma: Gamma, border: bool) -> Tensor:
    weights, blend, depth, operation, level = (part.numpy() for part in gamma)
    results = []
    for row, picture in enumerate(pictures.numpy()):
        mixed = np.zeros_like(picture)
        for chain in range(weights.shape[1]):
            steps = range(depth[row, chain])
            names = [OPERATIONS[operation[row, chain, step]] for step in steps]
            mixed += weights[row, chain] * chained(picture, names, [level[row, chain, step] for step in steps], border)
        results.append((1 - blend[row]) * picture + blend[row] * mixed)
    return torch.from_numpy(np.stack(results))


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize(("channels", "width"), [(3, 3), (1, 2), (3, 1)])
def test_it_is_the_loop(channels: int, width: int, padding: Padding):
    pictures, gamma = images(40, channels), random_gamma(40, width)
    found = augmix(pictures, *gamma, padding=padding)
    torch.testing.assert_close(found, looped(pictures, gamma, padding == "border"), rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_is_the_loop(name: str):
    levels = torch.tensor([0.1, 0.5, 2.4, 5.0, 7.7, 9.9], dtype=torch.float64)
    levels = torch.cat([levels, -levels]) if name in GEOMETRIC else levels
    pictures, gamma = images(len(levels)), one_step(name, levels)
    torch.testing.assert_close(augmix(pictures, *gamma), looped(pictures, gamma, False), rtol=0.0, atol=1e-12)


# PIL writes where an output pixel is read: (x, y) from (a x + b y + c, d x + e y + f)
AFFINE = {
    "shear_x": lambda level, size: (1, 0.03 * level, 0, 0, 1, 0),
    "shear_y": lambda level, size: (1, 0, 0, 0.03 * level, 1, 0),
    "translate_x": lambda level, size: (1, 0, -level / 30 * size, 0, 1, 0),
    "translate_y": lambda level, size: (1, 0, 0, 0, 1, -level / 30 * size),
}


@pytest.mark.parametrize("level", [-8.0, -1.3, 0.4, 5.0])
@pytest.mark.parametrize("name", GEOMETRIC)
def test_geometry_is_pillows_inside_the_image(name: str, level: float):
    position = np.linspace(0, 3, 40)
    picture = np.uint8(120 + 100 * np.sin(position[:, None]) * np.cos(1.3 * position))
    image = Image.fromarray(picture)
    if name == "rotate":
        exact = image.rotate(3 * level, resample=Image.Resampling.BILINEAR)
    else:
        exact = image.transform((40, 40), Image.Transform.AFFINE, AFFINE[name](level, 40), Image.Resampling.BILINEAR)
    x = torch.from_numpy(picture / 255)[None, None]
    found = augmix(x, *one_step(name, torch.tensor([level], dtype=torch.float64)))[0, 0].numpy() * 255
    inside = np.asarray(exact) > 0
    inside[:2] = inside[-2:] = inside[:, :2] = inside[:, -2:] = False
    for axis, move in ((0, 1), (0, -1), (1, 1), (1, -1)):  # Pillow does not blend its border with what lies beyond it
        inside &= np.roll(np.asarray(exact) > 0, move, axis)
    assert inside.mean() > 0.4
    assert np.abs(found - np.asarray(exact))[inside].max() < 1.01  # Pillow cuts off the fraction


# ---- identity, gradients, batches --------------------------------------------------------------------------------


def test_no_blend_changes_no_bit():
    pictures = images(8).float()
    weights, blend, depth, operation, level = random_gamma(8)
    assert torch.equal(augmix(pictures, weights, torch.zeros_like(blend), depth, operation, level), pictures)


@pytest.mark.parametrize("name", GEOMETRIC)
def test_geometry_at_a_level_of_nothing(name: str):
    pictures = images(4)
    still = augmix(pictures, *one_step(name, torch.zeros(4, dtype=torch.float64)))
    torch.testing.assert_close(still, pictures, rtol=0.0, atol=1e-12)


def test_steps_that_are_not_taken_do_not_matter():
    pictures = images(30)
    weights, blend, depth, operation, level = random_gamma(30)
    beyond = torch.arange(3) >= depth.unsqueeze(-1)
    other = random_gamma(30, seed=1)
    changed = torch.where(beyond, other[3], operation), torch.where(beyond, other[4], level)
    one, two = (augmix(pictures, weights, blend, depth, *parts) for parts in ((operation, level), changed))
    assert torch.equal(one, two)


def test_neighbouring_warps_are_one_and_a_picture_moved_out_comes_back():
    pictures = images(1) * 0.5 + 0.5
    operation = torch.tensor([[[OPERATIONS.index("translate_x")] * 2 + [0]]])
    level = torch.tensor([[[6.2, -6.2, 1.0]]], dtype=torch.float64)
    ones = torch.ones(1, 1, dtype=torch.float64)
    back = augmix(pictures, ones, ones[0], torch.tensor([[2]]), operation, level)
    torch.testing.assert_close(back, pictures, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("names", [SMOOTH, list(GEOMETRIC), ["rotate", "autocontrast", "sharpness", "color"]])
def test_gradients_of_smooth_chains_are_those_of_finite_differences(names: list[str]):
    pictures = (images(2, height=3, width=4, seed=2) * 0.5 + 0.2).requires_grad_()
    weights, blend, depth, operation, level = random_gamma(2, 2, seed=5, names=names)
    level = (level * 0.3).requires_grad_()

    def output(x: Tensor, w: Tensor, m: Tensor, at: Tensor) -> Tensor:
        return augmix(x, w, m, depth, operation, at, padding="border")

    inputs = (pictures, weights.requires_grad_(), blend.requires_grad_(), level)
    assert torch.autograd.gradcheck(output, inputs)


@pytest.mark.parametrize("name", sorted({*DISCONTINUOUS, *UNLEVELLED}))
def test_no_gradient_reaches_a_level_that_jumps_or_is_not_used(name: str):
    level = torch.tensor([2.2, 7.1], dtype=torch.float64, requires_grad=True)
    pictures = images(2).requires_grad_()
    augmix(pictures, *one_step(name, level)).sum().backward()
    assert level.grad is None or not bool(level.grad.any())


@pytest.mark.parametrize("in_hand", [1, 500, 3000])
def test_how_many_are_in_hand_changes_nothing(in_hand: int, monkeypatch: pytest.MonkeyPatch):
    pictures, gamma = images(11), random_gamma(11)
    whole = augmix(pictures, *gamma)
    monkeypatch.setitem(module._IN_HAND, "cpu", in_hand)
    torch.testing.assert_close(augmix(pictures, *gamma), whole, rtol=0.0, atol=1e-14)


def test_with_and_without_a_graph_it_is_the_same_and_the_input_is_left_alone():
    pictures, (weights, blend, depth, operation, level) = images(20), random_gamma(20)
    before = pictures.clone()
    plain = augmix(pictures, weights, blend, depth, operation, level)
    assert torch.equal(pictures, before)
    tracked = augmix(pictures.clone().requires_grad_(), weights, blend, depth, operation, level.requires_grad_())
    assert torch.equal(tracked, plain)
    assert torch.equal(pictures, before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_is_computed_in_float32(dtype: torch.dtype):
    pictures, gamma = (
        images(12).to(dtype),
        tuple(part.float() if part.is_floating_point() else part for part in random_gamma(12)),
    )
    found = augmix(pictures, *gamma)
    assert found.dtype == dtype
    assert torch.equal(found, augmix(pictures.float(), *gamma).to(dtype))


def test_values_stay_between_zero_and_one():
    found = augmix(images(200), *random_gamma(200))
    assert float(found.min()) >= 0.0
    assert float(found.max()) <= 1.0 + 1e-12
