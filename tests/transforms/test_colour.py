"""The maps of colours against loops over pixels, against one another joined, and against kornia where it has them."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from optima.transforms.colour import GREY, ColourMap, PowerMap
from optima.transforms.operators import Operator, Plain

KINDS = ["brightness", "contrast", "saturation", "hue"]


def images(batch: int = 4, channels: int = 3, height: int = 4, width: int = 5, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(batch, channels, height, width, dtype=torch.float64, generator=generator)


def strengths(batch: int = 4, seed: int = 1) -> Tensor:
    return torch.randn(batch, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 0.5


def one(kind: str, gamma: Tensor) -> Operator:
    """The map of that kind on its own."""
    return PowerMap(gamma) if kind == "gamma" else replace(ColourMap(), **{kind: gamma})  # pyright: ignore


@pytest.fixture(scope="module")
def enhance() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import kornia.enhance
    return kornia.enhance


# ---- the references: one pixel at a time -------------------------------------------------------------------------


def grey_of(pixel: np.ndarray) -> float:
    return float(pixel @ GREY) if len(pixel) == 3 else float(pixel.mean())


def turned(pixel: np.ndarray, angle: float) -> np.ndarray:
    """Through Y, I and Q, with the chroma axes of the standard: I and Q are V and U turned by 33°."""
    red, _, blue = pixel
    luma = grey_of(pixel)
    u, v = 0.492 * (blue - luma), 0.877 * (red - luma)
    tilt = math.radians(33)
    i, q = v * math.cos(tilt) - u * math.sin(tilt), v * math.sin(tilt) + u * math.cos(tilt)
    i, q = i * math.cos(angle) + q * math.sin(angle), q * math.cos(angle) - i * math.sin(angle)
    u, v = q * math.cos(tilt) - i * math.sin(tilt), i * math.cos(tilt) + q * math.sin(tilt)
    red, blue = luma + v / 0.877, luma + u / 0.492
    return np.array([red, (luma - GREY[0] * red - GREY[2] * blue) / GREY[1], blue])


def mapped(kind: str, picture: np.ndarray, gamma: float) -> np.ndarray:
    """One image (C, H, W), pixel by pixel."""
    _, height, width = picture.shape
    factor = math.exp(gamma)
    places = list(itertools.product(range(height), range(width)))
    mean = sum(grey_of(picture[:, i, j]) for i, j in places) / len(places)
    result = np.zeros_like(picture)
    for i, j in places:
        pixel = picture[:, i, j]
        result[:, i, j] = {
            "brightness": lambda pixel=pixel: factor * pixel,
            "contrast": lambda pixel=pixel: mean + factor * (pixel - mean),
            "saturation": lambda pixel=pixel: grey_of(pixel) + factor * (pixel - grey_of(pixel)),
            "hue": lambda pixel=pixel: turned(pixel, gamma),
            "gamma": lambda pixel=pixel: np.array([v**factor if v > 0 else v for v in pixel]),
        }[kind]()
    return result


def expected(kind: str, x: Tensor, gamma: Tensor) -> Tensor:
    rows = [mapped(kind, image, float(g)) for image, g in zip(x.numpy(), gamma, strict=True)]
    return torch.from_numpy(np.stack(rows))


@pytest.mark.parametrize("kind", [*KINDS, "gamma"])
def test_each_map_is_a_loop_over_pixels(kind: str):
    x, gamma = images() - 0.2, strengths()
    torch.testing.assert_close(one(kind, gamma)(x), expected(kind, x, gamma), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize("kind", ["brightness", "contrast", "gamma"])
def test_any_number_of_channels(kind: str, channels: int):
    x, gamma = images(channels=channels), strengths()
    torch.testing.assert_close(one(kind, gamma)(x), expected(kind, x, gamma), rtol=0.0, atol=1e-12)


def test_hue_is_the_published_yiq_to_its_digits():
    to_yiq = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]]).double()
    angle = 0.7
    turn = torch.tensor(
        [[1, 0, 0], [0, math.cos(angle), math.sin(angle)], [0, -math.sin(angle), math.cos(angle)]]
    ).double()
    matrix = torch.linalg.inv(to_yiq) @ turn @ to_yiq
    x = images(batch=1)
    exact = torch.einsum("ij,bjhw->bihw", matrix, x)
    torch.testing.assert_close(ColourMap(hue=torch.tensor([angle]).double())(x), exact, rtol=0.0, atol=4e-3)


def test_hue_turns_red_towards_yellow_and_keeps_grey():
    red = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64).view(1, 3, 1, 1)
    after = ColourMap(hue=torch.tensor([0.3], dtype=torch.float64))(red).flatten()
    assert after[1] > 0.05 > after[2]
    x = images()
    weights = torch.tensor(GREY, dtype=torch.float64)
    kept = [torch.einsum("c,bchw->bhw", weights, each) for each in (x, ColourMap(hue=strengths())(x))]
    torch.testing.assert_close(kept[1], kept[0], rtol=0.0, atol=1e-14)
    full = torch.full((4,), 2 * math.pi, dtype=torch.float64)
    torch.testing.assert_close(ColourMap(hue=full)(x), x, rtol=0.0, atol=1e-14)


# ---- joined ------------------------------------------------------------------------------------------------------


def one_after_another(operators: list[Operator], x: Tensor) -> Tensor:
    for operator in operators:
        x = operator(x)
    return x


def joined(operators: list[Operator]) -> Operator:
    whole = operators[0]
    for operator in operators[1:]:
        after = whole.then(operator)
        assert after is not None
        whole = after
    return whole


CHAINS = [chain for length in (2, 3, 4) for chain in itertools.permutations(KINDS, length)]
CHAINS += [("contrast", "brightness", "contrast"), ("hue", "contrast", "hue", "saturation", "brightness", "contrast")]


@pytest.mark.parametrize("chain", CHAINS, ids="-".join)
def test_joined_is_one_after_another(chain: tuple[str, ...]):
    x = images() - 0.2
    operators = [one(kind, strengths(seed=seed)) for seed, kind in enumerate(chain)]
    torch.testing.assert_close(joined(operators)(x), one_after_another(operators, x), rtol=0.0, atol=1e-12)
    single = [one(kind, strengths(seed=seed).float()) for seed, kind in enumerate(chain)]
    torch.testing.assert_close(joined(single)(x.float()).double(), joined(operators)(x), rtol=0.0, atol=2e-6)


def test_powers_join_in_their_exponents():
    x, operators = images() - 0.2, [PowerMap(strengths(seed=seed)) for seed in range(3)]
    torch.testing.assert_close(joined(list(operators))(x), one_after_another(list(operators), x), rtol=0.0, atol=1e-12)


def test_the_order_of_linear_maps_does_not_matter_and_that_of_the_others_does():
    x = images()
    contrast, brightness, power = (one(kind, strengths(seed=2)) for kind in ("contrast", "brightness", "gamma"))
    forth, back = one_after_another([contrast, brightness], x), one_after_another([brightness, contrast], x)
    torch.testing.assert_close(forth, back, rtol=0.0, atol=1e-14)
    clipped = ColourMap(brightness=strengths(seed=2), clip=(0.0, 0.8))
    for other in (power, clipped):
        forth, back = one_after_another([contrast, other], x), one_after_another([other, contrast], x)
        assert float((forth - back).abs().max()) > 0.05


def test_a_clip_ends_a_chain_and_may_close_one():
    x, gamma = images(), strengths()
    free, clipped = ColourMap(brightness=gamma), ColourMap(contrast=gamma, clip=(0.1, 0.9))
    closed = free.then(clipped)
    assert closed is not None
    torch.testing.assert_close(closed(x), clipped(free(x)), rtol=0.0, atol=1e-14)
    assert float(closed(x).min()) == 0.1
    assert float(closed(x).max()) == 0.9
    assert clipped.then(free) is None
    assert PowerMap(gamma, clip=(0.0, 1.0)).then(PowerMap(gamma)) is None
    power = PowerMap(gamma).then(PowerMap(gamma, clip=(0.1, 0.9)))
    assert power is not None
    torch.testing.assert_close(power(x), x.pow((2 * gamma).exp().view(-1, 1, 1, 1)).clamp(0.1, 0.9))


def test_what_is_not_of_a_kind_does_not_join():
    colours, power, plain = ColourMap(hue=strengths()), PowerMap(strengths()), Plain(lambda x, gamma: x, {})
    for first, second in itertools.permutations([colours, power, plain], 2):
        assert first.then(second) is None


def mean_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: contrast after brightness about the mean that the image had before it."""

    def offset(self: ColourMap, x: Tensor, grey: Tensor) -> Tensor:
        assert self.contrast is not None
        weights = torch.tensor(GREY, dtype=x.dtype)
        return (1.0 - self.contrast.exp()) * (x.mean((2, 3)) * weights).sum(1)

    monkeypatch.setattr(ColourMap, "_offset", offset)


def test_a_mean_that_is_not_that_of_the_changed_image_is_seen(monkeypatch: pytest.MonkeyPatch):
    mean_forgotten(monkeypatch)
    test_each_map_is_a_loop_over_pixels("contrast")
    with pytest.raises(AssertionError):
        test_joined_is_one_after_another(("brightness", "contrast"))


# ---- identity, rows, types ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [*KINDS, "gamma"])
def test_no_change_changes_no_bit(kind: str, dtype: torch.dtype):
    x = (images(batch=3, height=33, width=31) * 5 - 1).to(dtype)
    x[0, 0, 0, :3] = torch.tensor([0.0, 1e-7, -1e-7])
    assert torch.equal(one(kind, torch.zeros(3))(x), x)


def test_no_change_of_all_at_once_changes_no_bit():
    x = images().float() * 5 - 1
    assert torch.equal(joined([one(kind, torch.zeros(4)) for kind in KINDS])(x), x)


@pytest.mark.parametrize("kind", [*KINDS, "gamma"])
def test_rows_are_those_rows(kind: str):
    x, index = images(), torch.tensor([2, 0, 2])
    operator = one(kind, strengths())
    torch.testing.assert_close(operator.rows(index)(x[index]), operator(x)[index], rtol=0.0, atol=1e-14)
    none = torch.tensor([], dtype=torch.int64)
    assert operator.rows(none)(x[none]).shape == (0, 3, 4, 5)
    clipped = joined([operator, PowerMap(strengths(), (0.2, 0.8)) if kind == "gamma" else ColourMap(clip=(0.2, 0.8))])
    torch.testing.assert_close(clipped.rows(index)(x[index]), clipped(x)[index], rtol=0.0, atol=1e-14)


@pytest.mark.parametrize("kind", [*KINDS, "gamma"])
def test_every_image_has_its_own(kind: str):
    x, operator = images(), one(kind, strengths())
    changed = x.clone()
    changed[1] = changed[1].flip(-1) ** 2
    same = (operator(changed) == operator(x)).flatten(1).all(1)
    assert same.tolist() == [True, False, True, True]


@pytest.mark.parametrize("kind", [*KINDS, "gamma"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_is_mapped_in_float32(kind: str, dtype: torch.dtype):
    x, operator = images().to(dtype), one(kind, strengths().float())
    assert operator(x).dtype == dtype
    assert torch.equal(operator(x), operator(x.float()).to(dtype))


@pytest.mark.parametrize("kind", [*KINDS, "gamma"])
def test_layout_and_autocast_do_not_matter(kind: str):
    x, operator = images().float(), one(kind, strengths().float())
    torch.testing.assert_close(
        operator(x.contiguous(memory_format=torch.channels_last)), operator(x), rtol=0, atol=1e-6
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(operator(x), operator(x.clone()))
        within = operator(x)
    assert torch.equal(within, operator(x))


def test_labels_and_boxes_stay():
    mask, boxes = torch.randint(3, (4, 4, 5)), torch.rand(4, 2, 4)
    for operator in (ColourMap(hue=strengths()), PowerMap(strengths())):
        assert operator.on_mask(mask) is mask
        assert operator.on_boxes(boxes, 4, 5) is boxes


# ---- gradients ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS, "gamma"])
def test_gradients_are_those_of_finite_differences(kind: str):
    x = (images(batch=2, height=2, width=3) - 0.3).requires_grad_()
    gamma = strengths(batch=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, gamma: one(kind, gamma)(x), (x, gamma))


def test_gradients_of_all_at_once():
    x = images(batch=2, height=2, width=3).requires_grad_()
    gamma = [strengths(batch=2, seed=seed).requires_grad_() for seed in range(4)]
    assert torch.autograd.gradcheck(lambda x, *gamma: ColourMap(*gamma)(x), (x, *gamma))
    assert torch.autograd.gradgradcheck(lambda x, *gamma: ColourMap(*gamma)(x), (x, *gamma))


@pytest.mark.parametrize("exponent", [-1.5, 0.0, 1.5])
def test_a_power_of_nothing_has_finite_gradients(exponent: float):
    x = torch.tensor([0.0, -0.5, 1e-30, 1.0]).view(1, 1, 2, 2).requires_grad_()
    gamma = torch.tensor([exponent], requires_grad=True)
    y = PowerMap(gamma)(x)
    y.sum().backward()
    assert y.flatten()[:2].tolist() == [0.0, -0.5]
    assert x.grad is not None
    assert gamma.grad is not None
    assert bool(x.grad.isfinite().all())
    assert bool(gamma.grad.isfinite().all())
    assert x.grad.flatten()[:2].tolist() == [1.0, 1.0]


# ---- kornia ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda gamma: ColourMap(brightness=gamma, clip=(0.0, 1.0)), "adjust_brightness_accumulative"),
        (lambda gamma: ColourMap(contrast=gamma, clip=(0.0, 1.0)), "adjust_contrast_with_mean_subtraction"),
        (lambda gamma: ColourMap(saturation=gamma, clip=(0.0, 1.0)), "adjust_saturation_with_gray_subtraction"),
        (lambda gamma: PowerMap(gamma, clip=(0.0, 1.0)), "adjust_gamma"),
    ],
    ids=["brightness", "contrast", "saturation", "gamma"],
)
def test_agrees_with_kornia(build: Callable[[Tensor], Operator], name: str, enhance: ModuleType):
    x, gamma = images(height=9, width=7), strengths()
    torch.testing.assert_close(build(gamma)(x), getattr(enhance, name)(x, gamma.exp()), rtol=0.0, atol=1e-12)
