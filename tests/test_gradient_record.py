"""The record of the data's gradient: block-wise t-statistics, their false alarms and their power."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from optima.gradient_record import FIRST_BLOCK, GradientRecord

HEARD = 4.0


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Thousands of tiny operations, each of which would wait for a second thread on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def record(gradients: Tensor) -> GradientRecord:
    """A record of steps in the rows; an element's steps are the ascent, so they are fed in with the loss's sign."""
    watched = GradientRecord(gradients.shape[1:])
    for gradient in gradients:
        watched.add(-gradient[None])
    return watched


def blocks(values: np.ndarray) -> list[np.ndarray]:
    """Steps cut into blocks of 32, 64, 128, …; the last may be unfinished."""
    parts, start, length = [], 0, FIRST_BLOCK
    while start < len(values):
        parts.append(values[start : start + length])
        start, length = start + length, 2 * length
    return parts


def t_statistic(values: np.ndarray) -> float:
    """Student's t, plain or after Hall's correction for skewness, whichever says less."""
    n, skew = len(values), float(stats.skew(values))
    ratio = float(values.mean() / values.std(ddof=1))
    t = math.sqrt(n) * ratio
    hall = math.sqrt(n) * (ratio + skew * ratio**2 / 3 + skew**2 * ratio**3 / 27 + skew / (6 * n))
    return 0.0 if t * hall <= 0 else min(t, hall, key=abs)


def most_extreme(values: np.ndarray) -> float:
    """By its definition; an unfinished block counts once it is as long as the first."""
    parts = blocks(values)
    complete = [part for k, part in enumerate(parts) if len(part) == FIRST_BLOCK * 2**k]
    last = parts[-1]
    counted = complete if len(complete) == len(parts) or len(last) < FIRST_BLOCK else [*complete, last]
    return max((t_statistic(part) for part in counted), key=abs, default=0.0)


@pytest.mark.parametrize("steps", [16, 31, 32, 33, 48, 95, 96, 97, 150, 224, 500, 1000])
def test_the_statistic_is_numpys_on_every_block(steps: int):
    gradients = 0.3 * normal(steps, 2, seed=steps) + torch.tensor([0.1, -0.02])
    expected = torch.tensor([most_extreme(column) for column in gradients.T.numpy()], dtype=torch.float64)
    torch.testing.assert_close(record(gradients).z(), expected, rtol=1e-10, atol=1e-10)


def test_draws_of_one_step_are_summed_and_the_sign_is_ascent():
    one, two = GradientRecord(torch.Size()), GradientRecord(torch.Size())
    for row in normal(40, 6) + 0.5:
        one.add(row)
        two.add(row.sum()[None])
    torch.testing.assert_close(one.z(), two.z())
    assert float(one.z()) < 0, "a loss that rises with φ pushes it down"


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 65536.0, 1e12])
def test_the_statistic_does_not_see_the_scale_of_the_loss(scale: float):
    gradients = normal(300, 3) + 0.1
    torch.testing.assert_close(record(scale * gradients).z(), record(gradients).z(), rtol=1e-9, atol=1e-12)


def test_false_alarms_of_pure_noise_are_rare():
    # Five blocks at |t| ≥ 4 give 8e-4 by Student's tables: 3.2 of 4,000 runs. Thirteen or more would be 5 deviations
    # out.
    steps, runs = sum(FIRST_BLOCK * 2**k for k in range(5)), 4000
    gradients = normal(steps, runs)
    assert 0 < int((record(gradients).z().abs() >= HEARD).sum()) < 13
    # planted: blocks that do not grow look 31 times
    fixed = gradients.reshape(-1, FIRST_BLOCK, runs)
    looks = fixed.mean(1) / (fixed.std(1) / math.sqrt(FIRST_BLOCK))
    assert int((looks.abs().amax(0) >= HEARD).sum()) > 13


def test_false_alarms_of_skewed_noise_are_rare():
    # γ² − 1, what a spread's gradient looks like for one example per step
    runs, steps = 4000, sum(FIRST_BLOCK * 2**k for k in range(4))
    watched = GradientRecord(torch.Size([runs]))
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        watched.add(torch.randn(1, runs, generator=generator, dtype=torch.float64).square() - 1)
    assert int((watched.z().abs() >= HEARD).sum()) < 13


def test_a_faint_steady_push_is_heard():
    # 0.08 standard deviations per step: in the block of 8192 steps z is 0.08 √8192 = 7.2 ± 1, so 4 is missed once in
    # 1000
    gradients = normal(sum(FIRST_BLOCK * 2**k for k in range(9)), 200) + 0.08
    z = record(gradients).z()
    assert float((z >= HEARD).double().mean()) > 0.97
    early = record(gradients[:96]).z()
    assert float((early.abs() >= HEARD).double().mean()) < 0.05, "too faint for the first blocks"


def test_a_short_early_push_is_remembered():
    # one standard deviation for 32 steps: z = 5.7 ± 1.2, then a thousand steps of nothing
    push = torch.cat([normal(32, 200) + 1.0, normal(1000, 200, seed=1)])
    z = record(push).z()
    assert float((z >= HEARD).double().mean()) > 0.85
    overall = push.mean(0) / (push.std(0) / math.sqrt(len(push)))
    assert float((overall >= HEARD).double().mean()) < 0.05, "one statistic over the whole run would have lost it"


def test_steps_that_are_not_finite_are_survived():
    gradients = normal(200, 2) + 0.4
    spoiled = gradients.clone()
    spoiled[10, 0] = float("nan")
    spoiled[50] = float("inf")
    spoiled[120, 1] = -float("inf")
    watched = record(spoiled)
    assert int(watched.steps) == 200
    assert bool(watched.z().isfinite().all())
    torch.testing.assert_close(watched.z(), record(gradients).z(), rtol=0.15, atol=0.0)


def test_no_gradient_at_all_is_no_evidence():
    watched = record(torch.zeros(100, 2, dtype=torch.float64))
    assert torch.equal(watched.z(), torch.zeros(2, dtype=torch.float64))


@pytest.mark.parametrize("value", [0.1, -3.0])
def test_a_gradient_without_spread_is_beyond_doubt(value: float):
    z = record(torch.full((40, 1), value, dtype=torch.float64)).z()
    assert math.copysign(1.0, float(z)) == math.copysign(1.0, value)
    assert abs(float(z)) > 1e6


def test_a_few_steps_say_nothing():
    assert float(record(torch.ones(FIRST_BLOCK // 2 - 1, 1).double()).z()) == 0.0


def test_a_copy_and_a_checkpoint_carry_on():
    gradients = normal(300, 2) + 0.1
    first = record(gradients[:130])
    twin = copy.deepcopy(first)
    loaded = GradientRecord(torch.Size([2]))
    loaded.load_state_dict(first.state_dict())
    for watched in (first, twin, loaded):
        for gradient in gradients[130:]:
            watched.add(-gradient[None])
    assert torch.equal(first.z(), record(gradients).z())
    assert torch.equal(first.z(), twin.z())
    assert torch.equal(first.z(), loaded.z())


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bfloat16,
        torch.float16,
        torch.float32,
    ],
)
def test_a_module_in_low_precision_keeps_its_record_exact(dtype: torch.dtype):
    # weaker than a dtype: what matters is that the statistic is still the statistic
    gradients = normal(2000, 1) + 0.05
    watched = GradientRecord(torch.Size([1])).to(dtype)
    for gradient in gradients:
        watched.add(-gradient[None])
    torch.testing.assert_close(watched.z().double(), record(gradients).z(), rtol=1e-3, atol=0.0)
