"""Mixup and CutMix: every target, every way to share a draw, and a label that says exactly what is in the picture."""

from __future__ import annotations

import math
from typing import Any, Literal, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats
from torch import Tensor

import optima
from optima import CutMix, Mixup, learn
from optima.augment import MixedTarget, mixing
from optima.transforms import boxes
from optima.transforms.boxes import box_of_share, cover_axis, cover_box
from optima.transforms.mixing import mix, paste
from tests.reference import GivenNoise, assert_close, spread_uniforms

Mode = Literal["elem", "pair", "batch"]
MODES: list[Mode] = ["elem", "pair", "batch"]
DOUBLE = torch.float64


def unit_pictures(rows: int, height: int = 7, width: int = 10) -> Tensor:
    """Picture i is 1 in channel i and 0 elsewhere, so that a mixture's channel means say what is in it."""
    return torch.eye(rows)[:, :, None, None].expand(rows, rows, height, width)


def weights_of(target: MixedTarget, rows: int) -> Tensor:
    """The weight of every label, (rows, labels)."""
    dense = torch.zeros(len(target.weights), rows)
    for labels, weight in zip(target.labels, target.weights.unbind(1), strict=True):
        dense[torch.arange(len(dense)), labels] += weight.detach()
    return dense


# ---- the label says what is in the picture ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rows", [2, 3, 5, 8])
@pytest.mark.parametrize("kind", ["mixup", "exact", "whole"])
def test_the_label_is_the_share_of_the_picture(kind: str, mode: Mode, rows: int):
    build = {
        "mixup": lambda: Mixup(1.0, mode=mode),
        "exact": lambda: CutMix(1.0, mode=mode),
        "whole": lambda: CutMix(1.0, mode=mode, boxes="whole"),
    }[kind]
    view = build()(unit_pictures(rows), torch.arange(rows), samples=3)
    assert isinstance(view.target, MixedTarget)
    torch.testing.assert_close(view.x.mean((2, 3)), weights_of(view.target, rows), rtol=0.0, atol=1e-6)
    own = view.x.flatten(2).mean(2)[torch.arange(3 * rows), torch.arange(rows).repeat(3)]
    assert bool((own < 1.0 - 1e-6).any()), "nothing was mixed"


SOFT = torch.tensor([[0.7, 0.3], [0.1, 0.9], [0.5, 0.5]])
TARGETS = {
    "whole numbers": torch.tensor([0, 1, 1]),
    "one-hot": torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]),
    "soft": SOFT,
    "several labels": torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 1.0]]),
    "whole numbers, several labels": torch.tensor([[1, 1], [0, 0], [0, 1]]),
    "mixed already": MixedTarget((torch.tensor([0, 1, 1]), torch.tensor([1, 1, 0])), SOFT),
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("build", [lambda: Mixup(1.0), lambda: CutMix(1.0)])
def test_targets_of_every_kind_are_mixed_as_the_images_are(build, name: str):
    augment = build()
    x, target = torch.rand(3, 2, 6, 6), TARGETS[name]
    view = augment(x, target)
    if isinstance(augment, Mixup):
        own = view.gamma["lam"]
    else:
        plain = augment(x, torch.arange(3), replay=view.gamma).target
        assert isinstance(plain, MixedTarget)
        own = plain.weights[:, 0]
    partner = view.gamma["partner"]

    def dense(target: object, rows: int) -> Tensor:
        if isinstance(target, MixedTarget):
            parts = zip(target.labels, target.weights.unbind(1), strict=True)
            return cast("Tensor", sum(weight.view(rows, -1) * dense(labels, rows) for labels, weight in parts))
        target = cast("Tensor", target)
        return torch.eye(2)[target] if target.ndim == 1 else target.float()

    before = dense(target, 3)
    expected = own[:, None] * before + (1 - own[:, None]) * before[partner]
    torch.testing.assert_close(dense(view.target, 3), expected, rtol=0.0, atol=1e-6)


# ---- boxes -----------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(low=st.floats(-0.5, 1.5), side=st.floats(0.0, 1.5), pixels=st.integers(1, 12))
def test_an_axis_is_covered_by_the_length_that_falls_on_each_pixel(low: float, side: float, pixels: int):
    high = low + side
    exact = [max(0.0, min((k + 1) / pixels, high) - max(k / pixels, low)) * pixels for k in range(pixels)]
    covered = cover_axis(torch.tensor([low], dtype=DOUBLE), torch.tensor([high], dtype=DOUBLE), pixels)
    torch.testing.assert_close(covered[0], torch.tensor(exact, dtype=DOUBLE), rtol=0.0, atol=1e-12)


def test_the_area_is_exact_wherever_the_box_lies():
    generator = torch.Generator().manual_seed(0)
    centre = torch.rand(200, 2, dtype=DOUBLE, generator=generator)
    share = torch.rand(200, dtype=DOUBLE, generator=generator)
    sides = box_of_share(share)
    for height, width in ((4, 4), (7, 5), (1, 9)):
        rows, columns = cover_box(centre, sides, height, width)
        low, high = (centre - sides / 2).clamp(0, 1), (centre + sides / 2).clamp(0, 1)
        torch.testing.assert_close(rows.mean(1) * columns.mean(1), (high - low).prod(1), rtol=0.0, atol=1e-12)


def test_whole_boxes_are_those_of_a_loop():
    # the published recipe on a picture of 9 × 12, for many λ and centres
    generator = torch.Generator().manual_seed(0)
    lam, centre = torch.rand(300, generator=generator), torch.rand(300, 2, generator=generator)
    augment = CutMix(1.0, boxes="whole")
    x = torch.stack([torch.zeros(1, 9, 12), torch.ones(1, 9, 12)]).repeat(150, 1, 1, 1)
    partner = torch.arange(300) ^ 1
    view = augment(x, torch.arange(300), replay={"lam": lam, "partner": partner, "centre": centre})
    assert isinstance(view.target, MixedTarget)
    for row in range(300):
        cut = math.sqrt(1 - float(lam[row]))
        across, down = int(12 * cut) // 2, int(9 * cut) // 2
        column, line = int(centre[row, 0] * 12), int(centre[row, 1] * 9)
        left, right = max(column - across, 0), min(column + across, 12)
        top, bottom = max(line - down, 0), min(line + down, 9)
        expected = x[row].clone()
        expected[:, top:bottom, left:right] = x[partner[row], :, top:bottom, left:right]
        torch.testing.assert_close(view.x[row], expected, rtol=0.0, atol=2e-6)
        kept = 1 - (right - left) * (bottom - top) / (9 * 12)
        assert float(view.target.weights[row, 0]) == pytest.approx(kept, abs=1e-6)


def test_a_whole_box_asks_for_the_score_function():
    assert CutMix(learn(1.0), boxes="whole").estimator == optima.sampling.ScoreFunction()
    with pytest.raises(ValueError, match="a box of whole pixels moves in steps"):
        CutMix(learn(1.0), boxes="whole", estimator="pathwise")


# ---- transforms ------------------------------------------------------------------------------------------------------


def test_gradients_are_those_of_finite_differences():
    x = torch.rand(3, 2, 5, 6, dtype=DOUBLE).requires_grad_()
    partner = torch.tensor([1, 2, 0])
    lam = torch.tensor([0.23, 0.61, 0.87], dtype=DOUBLE, requires_grad=True)
    centre = torch.tensor([[0.31, 0.47], [0.05, 0.93], [0.71, 0.52]], dtype=DOUBLE)

    def cut(x: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
        rows, columns = cover_box(centre, box_of_share(1 - lam), 5, 6)
        return paste(x, partner, rows, columns), rows.mean(1) * columns.mean(1)

    assert torch.autograd.gradcheck(cut, (x, lam))
    assert torch.autograd.gradcheck(lambda x, lam: mix(x, partner, lam), (x, lam))


@pytest.mark.parametrize("alpha", [1e-4, 1e-2, 1.0, 100.0])
@pytest.mark.parametrize("build", [Mixup, CutMix])
def test_the_gradient_is_finite_at_every_concentration(build, alpha: float):
    augment = build(learn(alpha))
    view = augment(torch.rand(64, 1, 6, 6), torch.arange(64))
    assert isinstance(view.target, MixedTarget)
    assert bool(view.x.isfinite().all())
    (view.x.square().sum() + view.target.weights[:, 0].square().sum()).backward()
    gradient = augment.alpha.loc.grad
    assert gradient is not None
    assert bool(gradient.isfinite())


# ---- the expected gradient of α --------------------------------------------------------------------------------------

ALPHA = 0.7


def value_of(kept: float) -> float:
    """What a picture of ones on which zeros are pasted is worth, when this share of it is kept."""
    return (kept - 0.6) ** 2


def expected_value(alpha: float, place: float) -> float:
    """E over λ of the value, for a box centred there on both axes."""

    def kept(lam: float) -> float:
        half = math.sqrt(1 - lam) / 2
        return 1 - (min(place + half, 1.0) - max(place - half, 0.0)) ** 2

    law: Any = stats.beta(alpha, alpha)

    # in u = logit λ the density has no poles
    def integrand(u: float) -> float:
        lam = 1 / (1 + math.exp(-u))
        return value_of(kept(lam)) * law.pdf(lam) * lam * (1 - lam)

    return integrate.quad(integrand, -30, 30, limit=200)[0]


def cutmix_gradient(estimator: str) -> Tensor:
    """∂/∂log α of the expectation, over noise that fills space evenly."""
    place, points = 0.4, spread_uniforms(4, 18)
    rows = len(points)
    log_alpha = torch.tensor(math.log(ALPHA), dtype=DOUBLE, requires_grad=True)
    alpha = log_alpha.exp().expand(rows)
    quantiles = torch.tensor(special.gammaincinv(ALPHA + 1, points[:, :2].numpy()))
    noise = {"one.gamma": quantiles[:, 0], "zero.gamma": quantiles[:, 1]}
    noise |= {"one.uniform": points[:, 2], "zero.uniform": points[:, 3]}
    law = torch.distributions.Beta(alpha, alpha, validate_args=False)
    lam, log_prob = optima.sampling.ESTIMATORS[estimator].draw(law, GivenNoise(noise))
    centre = torch.full((rows, 2), place, dtype=DOUBLE)
    rows_in, columns_in = mixing.cover_box(centre, mixing.box_of_share(1 - lam), 6, 6)
    kept = 1 - rows_in.mean(1) * columns_in.mean(1)
    value = (kept - 0.6) ** 2
    surrogate = value if log_prob is None else (value.detach() - expected_value(ALPHA, place)) * log_prob
    return torch.autograd.grad(surrogate.mean(), log_alpha)[0]


def check_cutmix(estimator: str) -> None:
    step = 1e-4
    exact = (expected_value(ALPHA * math.exp(step), 0.4) - expected_value(ALPHA * math.exp(-step), 0.4)) / (2 * step)
    assert_close(cutmix_gradient(estimator), exact, rtol=0.015)


@pytest.mark.parametrize("estimator", ["pathwise", "score_function"])
def test_cutmix_gradient(estimator: str):
    check_cutmix(estimator)


def test_a_box_of_whole_pixels_under_the_pathwise_estimator_is_caught(monkeypatch: pytest.MonkeyPatch):
    def snapped(low: Tensor, high: Tensor, pixels: int) -> Tensor:
        def rounded(edge: Tensor) -> Tensor:
            return edge + ((edge * pixels).round() / pixels - edge).detach()  # straight through

        return cover_axis(rounded(low), rounded(high), pixels)

    monkeypatch.setattr(boxes, "cover_axis", snapped)
    with pytest.raises(AssertionError, match="not close"):
        check_cutmix("pathwise")
