"""Warps that join, mirror images, masks and boxes, against explicit matrices, loops and kornia."""

from __future__ import annotations

import itertools
import math
import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import optima
from optima.augment import Augmenter
from optima.transforms import rotate, scale, shear, translate
from optima.transforms.geometry import Padding, Reflection, Warp, centred, magnify, shifted, slant, turn
from tests.transforms.test_geometry import PADDINGS, expected, image, move
from tests.transforms.test_geometry import turn as turn_matrix

DOUBLE = torch.float64


def smooth(height: int = 41, width: int = 51, channels: int = 2) -> Tensor:
    """Pictures on which interpolation costs little."""
    y = torch.linspace(-1, 1, height, dtype=DOUBLE)[:, None]
    x = torch.linspace(-1, 1, width, dtype=DOUBLE)
    bumps = [torch.exp(-6 * ((x - 0.2 * c) ** 2 + (y + 0.15 * c) ** 2)) * (1 + 0.3 * x) for c in range(channels)]
    return torch.stack(bumps)[None]


def double(values: list) -> Tensor:
    return torch.tensor(values, dtype=DOUBLE)


def stretch(log_down: float, log_right: float) -> np.ndarray:
    return np.diag([math.exp(log_down), math.exp(log_right), 1.0])


def lean(sideways: float, downwards: float) -> np.ndarray:
    """On (row, column, 1): first columns move with rows, then rows with columns."""
    first = np.array([[1, 0, 0], [math.tan(sideways), 1, 0], [0, 0, 1.0]])
    then = np.array([[1, math.tan(downwards), 0], [0, 1, 0], [0, 0, 1.0]])
    return then @ first


# ---- each against its matrix -------------------------------------------------------------------------------------


@pytest.mark.parametrize("padding", PADDINGS)
def test_scaling_is_the_matrix(padding: Padding):
    logs = [(0.0, 0.0), (0.3, 0.3), (-0.4, -0.4), (0.5, -0.2)]
    pictures = image(5, 7, batch=len(logs))
    exact = expected(pictures, [stretch(down, right) for right, down in logs], padding)
    torch.testing.assert_close(scale(pictures, double(logs), padding=padding), exact, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("padding", PADDINGS)
def test_shearing_is_the_matrix(padding: Padding):
    angles = [(0.0, 0.0), (0.4, 0.0), (0.0, -0.3), (0.3, 0.5)]
    pictures = image(6, 5, batch=len(angles))
    exact = expected(pictures, [lean(sideways, downwards) for sideways, downwards in angles], padding)
    torch.testing.assert_close(shear(pictures, double(angles), padding=padding), exact, rtol=0.0, atol=1e-12)


def test_affine_is_its_parts_in_order():
    augment = optima.Affine(std=[10.0, 0.1, 0.1, 10.0, 0.1, 0.1])
    gamma = double([[0.3, 0.1, -0.2, 0.25, 0.05, -0.1], [-0.2, 0.0, 0.3, 0.0, 0.0, 0.0]])
    pictures = image(7, 9, batch=2)
    forwards = [
        move(down * 7, right * 9) @ turn_matrix(angle) @ lean(tilt, 0.0) @ stretch(height, width)
        for angle, width, height, tilt, right, down in gamma.tolist()
    ]
    moved = augment(pictures, replay={"affine": gamma}).x
    torch.testing.assert_close(moved, expected(pictures, forwards, "zeros"), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("padding", PADDINGS)
def test_a_crop_is_the_part_it_cuts_out(padding: Padding):
    pictures, sides = image(8, 6, batch=3), [0.5, 0.9, 1.0]
    places = [(0.0, 1.0), (0.3, 0.6), (0.2, 0.1)]
    forwards = [
        stretch(-math.log(side), -math.log(side))
        @ move(-(1 - side) * (down - 0.5) * 7, -(1 - side) * (right - 0.5) * 5)
        for side, (right, down) in zip(sides, places, strict=True)
    ]
    replay = {"log_side": double(sides).log(), "place": double([list(place) for place in places])}
    crop = optima.CropResize(std=0.1, padding=padding)(pictures, replay=replay).x
    torch.testing.assert_close(crop, expected(pictures, forwards, padding), rtol=0.0, atol=1e-12)
    assert float((crop[0, :, -1, 0] - pictures[0, :, -1, 0]).abs().max()) < 1e-12, "the corner stays the corner"


def test_a_crop_alone_never_meets_the_padding():
    crop = optima.CropResize(range=1.5)(torch.ones(200, 1, 8, 12)).x
    torch.testing.assert_close(crop, torch.ones_like(crop), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("transform", [scale, shear])
@pytest.mark.parametrize("padding", PADDINGS)
def test_gradients_are_those_of_finite_differences(transform: Any, padding: Padding):
    picture = image(5, 6, batch=2).requires_grad_()
    gamma = double([[0.123, -0.217], [0.061, 0.333]]).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, g: transform(x, g, padding=padding), (picture, gamma))


def test_every_parameter_of_a_warp_has_its_gradient():
    parts = {
        "turn": lambda g: centred(turn(g[:, 0]), "zeros"),
        "magnify": lambda g: centred(magnify(g), "zeros"),
        "slant": lambda g: centred(slant(g), "zeros"),
        "shift": lambda g: shifted(g, picture, "zeros"),
    }
    picture = image(5, 6, batch=2)
    for one, other in itertools.permutations(parts, 2):
        gamma = double([[0.123, -0.217], [0.061, 0.333]]).requires_grad_()

        def joined(g: Tensor, one: str = one, other: str = other) -> Tensor:
            both = parts[one](g).then(parts[other](g))
            assert both is not None
            return both(picture)

        assert torch.autograd.gradcheck(joined, gamma)


# ---- identity ------------------------------------------------------------------------------------------------------

MOVING = {
    "Rotate": (optima.Rotate(std=1.0), {"angle": ()}),
    "Translate": (optima.Translate(std=1.0), {"shift": (2,)}),
    "Scale": (optima.Scale(std=1.0), {"log_scale": ()}),
    "Shear": (optima.Shear(std=1.0), {"angle": (2,)}),
    "Affine": (optima.Affine(std=[1.0] * 6), {"affine": (6,)}),
    "CropResize": (optima.CropResize(std=1.0), {"log_side": (), "place": (2,)}),
    "Flip": (optima.Flip(0.5), {"flipped": ()}),
}


@pytest.mark.parametrize("name", MOVING)
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
@pytest.mark.parametrize("size", [(8, 8), (32, 32), (31, 48), (224, 160)])
def test_the_identity_returns_the_input_bitwise(name: str, dtype: torch.dtype, size: tuple[int, int]):
    augment, components = MOVING[name]
    pictures = image(*size, batch=3, channels=3).to(dtype)
    replay = {key: torch.zeros(3, *shape) for key, shape in components.items()}
    moved = augment(pictures, replay=replay).x
    assert torch.equal(moved, pictures)


def test_the_identity_keeps_the_slope_of_the_interpolation():
    pictures = smooth().float().expand(2, -1, -1, -1)
    weights = torch.rand(2, 2, 41, 51, generator=torch.Generator().manual_seed(0))
    slopes = []
    for read in (Warp.__call__, lambda warp, x: warp._read(x, "bilinear")):
        angle = torch.tensor([0.0, 0.2], requires_grad=True)
        moved = read(centred(turn(angle), "border"), pictures)
        slopes.append(torch.autograd.grad((moved * weights).sum(), angle)[0])
    assert float(slopes[1].abs().min()) > 0.1
    assert torch.equal(slopes[0], slopes[1])


# ---- neighbours join -----------------------------------------------------------------------------------------------


def counted(augment: Augmenter, x: Tensor, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Tensor, int]:
    """The view's x, and how many interpolations it took."""
    reads = []
    plain = torch.nn.functional.grid_sample
    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.functional, "grid_sample", lambda *a, **k: reads.append(1) or plain(*a, **k))
        return augment(x, **options).x, len(reads)


CHAIN = (
    lambda: optima.Rotate(std=8.0, mean=15.0),
    lambda: optima.Translate(std=0.1),
    lambda: optima.Flip(0.5),
    lambda: optima.Scale(std=0.2),
    lambda: optima.Shear(std=[10.0, 4.0]),
    lambda: optima.CropResize(std=0.1),
    lambda: optima.Affine(std=[5.0, 0.05, 0.05, 5.0, 0.03, 0.03]),
)


def test_neighbours_are_one_interpolation(monkeypatch: pytest.MonkeyPatch):
    augment = optima.Sequential(*(build() for build in CHAIN))
    _, reads = counted(augment, smooth().expand(4, -1, -1, -1), monkeypatch)
    assert reads == 1
    apart = optima.Sequential(optima.Rotate(std=5.0), optima.Shift(std=0.1), optima.Rotate(std=5.0))
    assert counted(apart, smooth(), monkeypatch)[1] == 2
    unlike = optima.Sequential(optima.Rotate(std=5.0), optima.Rotate(std=5.0, padding="border"))
    assert counted(unlike, smooth(), monkeypatch)[1] == 2
    nested = optima.Sequential(optima.Sequential(optima.Rotate(std=5.0)), optima.Sequential(optima.Scale(std=0.1)))
    assert counted(nested, smooth(), monkeypatch)[1] == 1


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_joined_is_one_after_another_in_the_right_order(order: tuple[int, ...]):
    builds = [CHAIN[0], CHAIN[1], CHAIN[4]]
    steps = [builds[place]() for place in order]
    pictures = smooth().expand(3, -1, -1, -1)
    joined = optima.Sequential(*steps)
    view = joined(pictures, generator=torch.Generator().manual_seed(3))
    one_by_one, backwards = pictures, pictures
    draws = {step: {k: v for k, v in view.gamma.items() if k.startswith(name)} for name, step in joined.steps()}

    def alone(step: Any, x: Tensor) -> Tensor:
        return step(x, replay={key.rpartition(".")[2]: value for key, value in draws[step].items()}).x

    for step in steps:
        one_by_one = alone(step, one_by_one)
    for step in reversed(steps):
        backwards = alone(step, backwards)
    inside = (..., slice(8, -8), slice(8, -8))
    assert float((view.x - one_by_one)[inside].abs().max()) < 0.02, "up to what a second interpolation smooths away"
    assert float((view.x - backwards)[inside].abs().max()) > 0.05, "the check must see the order"


def test_what_leaves_the_frame_and_comes_back_is_kept_by_a_joined_warp():
    pictures = smooth()
    there, back = optima.Translate(std=0.1), optima.Translate(std=0.1)
    replay = {"translate.shift": double([[0.6, 0.0]]), "translate_2.shift": double([[-0.6, 0.0]])}
    joined = optima.Sequential(there, back)(pictures, replay=replay).x
    torch.testing.assert_close(joined, pictures, rtol=0.0, atol=1e-12)


def test_joining_keeps_every_gradient():
    augment = optima.Sequential(
        *(
            optima.Rotate(std=optima.learn(5.0)),
            optima.Scale(std=optima.learn(0.1)),
            optima.Translate(range=optima.learn(0.1)),
        )
    )
    view = augment(smooth().expand(4, -1, -1, -1).float())
    (view.x.square() * torch.rand_like(view.x)).sum().backward()
    for name, parameter in augment.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs()) > 0, name


# ---- mirror images -------------------------------------------------------------------------------------------------


def test_a_flip_is_exact_and_by_row():
    pictures = image(5, 6, batch=4, channels=3)
    flags = torch.tensor([0.0, 1.0, 1.0, 0.0])
    for axis, dimension in (("horizontal", -1), ("vertical", -2)):
        flipped = optima.Flip(0.5, axis=axis)(pictures, replay={"flipped": flags}).x  # pyright: ignore[reportArgumentType]
        for row, flag in enumerate(flags):
            assert torch.equal(flipped[row], pictures[row].flip(dimension) if flag else pictures[row])


def test_two_flips_are_a_half_turn():
    pictures = image(5, 6)
    flip = Reflection(torch.tensor([[True, False]]))
    both = flip.then(Reflection(torch.tensor([[False, True]])))
    assert isinstance(both, Reflection)
    assert torch.equal(both(pictures), torch.rot90(pictures, 2, (2, 3)))


@pytest.mark.parametrize("first", [True, False])
def test_a_flip_joins_a_turn_on_either_side(first: bool):
    pictures = smooth()
    flip, warp = Reflection(torch.tensor([[True, False]])), centred(turn(double([0.4])), "zeros")
    joined = flip.then(warp) if first else warp.then(flip)
    assert isinstance(joined, Warp)
    apart = warp(flip(pictures)) if first else flip(warp(pictures))
    torch.testing.assert_close(joined(pictures), apart, rtol=0.0, atol=1e-12)


def test_a_relaxed_flip_blends():
    pictures = image(4, 4, batch=2)
    augment = optima.Flip(optima.learn(0.5), estimator="relaxed")
    blended = augment(pictures, replay={"flipped": torch.tensor([0.25, 1.0])}).x
    torch.testing.assert_close(blended[0], 0.75 * pictures[0] + 0.25 * pictures[0].flip(-1))
    assert torch.equal(blended[1], pictures[1].flip(-1))
    with pytest.raises(ValueError, match="Flip cannot keep mask= true"):
        augment(pictures, mask=torch.zeros(2, 4, 4, dtype=torch.int64))


def test_autocast_leaves_matrices_alone():
    affine = optima.Affine(std=[5.0, 0.05, 0.05, 5.0, 0.05, 0.05])
    augment = optima.Sequential(optima.Rotate(std=20.0), optima.Translate(std=0.1), affine)
    pictures, boxes = smooth(120, 160).float().expand(4, -1, -1, -1), torch.tensor([[[30.0, 20.0, 50.0, 40.0]]])
    view = augment(pictures, boxes=boxes.expand(4, 1, 4))
    with torch.autocast("cpu", torch.bfloat16):
        again = augment(pictures, boxes=boxes.expand(4, 1, 4), replay=view.gamma)
    assert torch.equal(again.x, view.x)
    assert view.boxes is not None
    assert again.boxes is not None
    assert torch.equal(again.boxes, view.boxes)


# ---- masks and boxes -----------------------------------------------------------------------------------------------


def everything() -> optima.Sequential:
    return optima.Sequential(*(build() for build in CHAIN), optima.Shift(std=0.1))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool, torch.float32])
def test_a_mask_moves_with_its_image(dtype: torch.dtype):
    # a picture that is its own mask: after the warp, both must say the same wherever interpolation does not blur
    disc = (smooth(channels=1) > 0.5).expand(16, -1, -1, -1)
    augment = optima.Sequential(*(build() for build in CHAIN))
    view = augment(disc.double(), mask=disc[:, 0].to(dtype))
    assert view.mask is not None
    assert view.mask.dtype == dtype
    clear = (view.x[:, 0] - 0.5).abs() > 0.499
    assert float(clear.double().mean()) > 0.8
    assert torch.equal(view.x[:, 0][clear] > 0.5, view.mask[clear].bool())
    assert bool(view.mask.bool().any())


def test_labels_are_never_blended():
    mask = torch.randint(0, 1000, (4, 20, 20), generator=torch.Generator().manual_seed(0))
    view = optima.Rotate(std=30.0)(torch.rand(4, 1, 20, 20), mask=mask)
    assert view.mask is not None
    assert set(view.mask.unique().tolist()) <= set(mask.unique().tolist()) | {0}
    still = optima.Shift(std=1.0)(torch.rand(4, 1, 20, 20), mask=mask).mask
    assert still is not None
    assert torch.equal(still, mask)


@pytest.mark.parametrize("samples", [1, 2])
def test_a_box_moves_with_what_is_in_it(samples: int):
    height, width = 60, 80
    pictures = torch.zeros(6, 1, height, width, dtype=DOUBLE)
    pictures[..., 20:40, 30:50] = 1.0
    boxes = torch.tensor([[30.0, 20.0, 50.0, 40.0]], dtype=DOUBLE).expand(6, 1, 4)
    view = optima.Sequential(*(build() for build in CHAIN))(pictures, boxes=boxes, samples=samples)
    assert view.boxes is not None
    for picture, box in zip(view.x[:, 0], view.boxes[:, 0], strict=True):
        lit = (picture > 0.5).nonzero()
        if not len(lit):
            continue
        (top, left), (bottom, right) = lit.amin(0).tolist(), (lit.amax(0) + 1).tolist()
        for edge, seen in zip(box.tolist(), (left, top, right, bottom), strict=True):
            assert abs(edge - seen) <= 1.6


def test_a_box_that_leaves_the_image_has_no_area():
    view = optima.Translate(std=0.1)(
        torch.rand(1, 1, 10, 10),
        boxes=torch.tensor([[[1.0, 1.0, 3.0, 3.0]]]),
        replay={"shift": torch.tensor([[2.0, 0.0]])},
    )
    assert view.boxes is not None
    assert view.boxes.tolist() == [[[10.0, 1.0, 10.0, 3.0]]]


@pytest.mark.parametrize("build", [lambda: optima.Mixup(0.4), lambda: optima.CutMix(1.0)])
def test_what_cannot_keep_a_mask_true_says_so(build):
    x, y = torch.rand(4, 3, 6, 6), torch.arange(4)
    with pytest.raises(ValueError, match="cannot keep mask= true to its image"):
        build()(x, y, mask=torch.zeros(4, 6, 6, dtype=torch.int64))
    with pytest.raises(ValueError, match="cannot keep boxes= true to its image"):
        build()(x, y, boxes=torch.zeros(4, 1, 4))


# ---- kornia --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kornia() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import kornia

        return kornia


def test_kornia_turns_and_moves_alike(kornia: ModuleType):
    # its shifts and centre are in pixels; align_corners=False keeps pixel centres at whole numbers
    pictures = smooth(21, 31)
    for angle in (10.0, -35.0, 170.0):
        theirs = kornia.geometry.transform.rotate(pictures, double([angle]), align_corners=False)
        ours = rotate(pictures, double([math.radians(angle)]))
        torch.testing.assert_close(ours, theirs, rtol=0.0, atol=1e-9)
    theirs = kornia.geometry.transform.translate(pictures, double([[3.1, -1.7]]), align_corners=False)
    ours = translate(pictures, double([[3.1 / 31, -1.7 / 21]]))
    torch.testing.assert_close(ours, theirs, rtol=0.0, atol=1e-9)


def test_kornia_scales_alike(kornia: ModuleType):
    pictures = smooth(21, 31)
    factor = double([[1.3, 0.8]])
    theirs = kornia.geometry.transform.scale(pictures, factor, align_corners=False)
    torch.testing.assert_close(scale(pictures, factor.log()), theirs, rtol=0.0, atol=1e-9)


def test_kornia_shears_alike(kornia: ModuleType):
    # it takes slopes, measured from the first pixel instead of the centre
    pictures, slope = smooth(21, 31), 0.3
    theirs = kornia.geometry.transform.shear(pictures, double([[slope, 0.0]]), align_corners=False)
    to_the_first = shifted(double([[slope * 10 / 31, 0.0]]), pictures, "zeros")
    joined = centred(slant(double([[math.atan(slope), 0.0]])), "zeros").then(to_the_first)
    assert joined is not None
    torch.testing.assert_close(joined(pictures), theirs, rtol=0.0, atol=1e-9)
