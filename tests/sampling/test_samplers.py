"""Every sampler has the right law, its gradient stays finite, and it follows its source of noise."""

from __future__ import annotations

import pytest
import torch
from scipy import stats
from torch.distributions import (
    Bernoulli,
    Beta,
    Categorical,
    Dirichlet,
    Gamma,
    Independent,
    Normal,
    StudentT,
)

from optima.sampling import rsample, sample
from tests.reference import GivenNoise, assert_close, assert_unbiased

N = 400_000


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def leaf(*values: float) -> list[torch.Tensor]:
    return [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in values]


def ks_pvalue(draws: torch.Tensor, law) -> float:
    return float(stats.kstest(draws.numpy(), law.cdf).pvalue)


# ---- Beta and Dirichlet --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.02, 0.2, 1.0, 5.0, 100.0])
def test_beta_has_the_right_law(alpha: float):
    draws = sample(Beta(torch.tensor(alpha, dtype=torch.float64), 1.5), (20_000,), noise=seeded())
    assert ks_pvalue(draws, stats.beta(alpha, 1.5)) > 1e-4


@pytest.mark.parametrize("alpha", [1e-4, 1e-3, 1e-2])
def test_a_beta_of_tiny_concentration_is_a_coin(alpha: float):
    draws = sample(Beta(torch.tensor(alpha), torch.tensor(alpha)), (N,), noise=seeded())
    variance = 0.25 / (2 * alpha + 1)
    assert_unbiased((draws.double() - 0.5) ** 2, variance, detect=0.02)
    assert draws.isfinite().all()


@pytest.mark.parametrize("alpha", [1e-4, 1e-3, 1e-2, 0.1])
def test_beta_gradient_at_small_concentrations(alpha: float):
    """E λ(1−λ) = α / (2 (2α+1)) under Beta(α, α): nearly all draws are 0 or 1, so the noise is drawn where it matters.

    With E₁, E₀ exponential, log λ/(1−λ) depends on E₁ − E₀ ~ Laplace(1) on the scale α; it is drawn from a
    Laplace(4α) instead and reweighted. The sampler itself is the library's.
    """
    rows, wide = 2 * N, 4 * alpha
    sign = torch.where(torch.rand(rows, generator=seeded(2)) < 0.5, -1.0, 1.0).double()
    size = torch.empty(rows, dtype=torch.float64).exponential_(generator=seeded(3)) * wide
    difference = sign * size
    weights = wide * torch.exp(-size + size / wide)
    smaller = torch.empty(rows, dtype=torch.float64).exponential_(2.0, generator=seeded(4))
    noise = {
        "one.uniform": -torch.expm1(-(difference.clamp(min=0) + smaller)),
        "zero.uniform": -torch.expm1(-((-difference).clamp(min=0) + smaller)),
        "one.gamma": torch.ops.aten._standard_gamma(
            torch.full((rows,), 1 + alpha, dtype=torch.float64), generator=seeded(5)
        ),
        "zero.gamma": torch.ops.aten._standard_gamma(
            torch.full((rows,), 1 + alpha, dtype=torch.float64), generator=seeded(6)
        ),
    }
    a = torch.full((rows,), alpha, dtype=torch.float64, requires_grad=True)
    value = rsample(Beta(a, a), noise=GivenNoise(noise))
    (gradient,) = torch.autograd.grad((value * (1 - value)).sum(), a)
    assert_unbiased(gradient, 0.5 / (2 * alpha + 1) ** 2, weights=weights, detect=0.02)


@pytest.mark.parametrize("alpha", [1e-4, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_beta_and_its_gradient_stay_finite(alpha: float, dtype: torch.dtype):
    a = torch.full((50_000,), alpha, dtype=dtype, requires_grad=True)
    value = rsample(Beta(a, a), noise=seeded())
    value.sum().backward()
    assert value.isfinite().all()
    assert a.grad is not None
    assert a.grad.isfinite().all()
    assert ((value >= 0) & (value <= 1)).all()


def test_dirichlet_of_tiny_concentration_is_a_corner():
    c = torch.full((N, 3), 1e-4, requires_grad=True)
    value = rsample(Dirichlet(c), noise=seeded())
    value.square().sum().backward()
    assert_unbiased(value.detach().double()[:, 0], 1 / 3, detect=0.02)
    assert value.max(-1).values.mean() > 0.999
    assert c.grad is not None
    assert c.grad.isfinite().all()


# ---- discrete ------------------------------------------------------------------------------------------------------


def test_bernoulli_and_categorical_frequencies():
    law = Bernoulli(torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64))
    assert_unbiased(sample(law, (N,), noise=seeded()), law.probs, detect=0.05)
    classes = sample(Categorical(torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)), (N,), noise=seeded())
    assert_unbiased(torch.nn.functional.one_hot(classes).double(), torch.tensor([0.2, 0.3, 0.5]), detect=0.05)


def test_categorical_never_leaves_its_classes_when_probabilities_round_below_one():
    probs = torch.full((7,), 1 / 7, dtype=torch.float32)
    top = torch.full((1,), 1.0 - 2**-24)
    assert int(sample(Categorical(probs), (1,), noise=GivenNoise({"": top}))) == 6


def test_a_discrete_law_has_no_pathwise_draw():
    with pytest.raises(TypeError, match="no rsample, so φ would get no gradient"):
        rsample(Bernoulli(torch.tensor(0.3)))


# ---- composition and other families --------------------------------------------------------------------------------


def test_independent_and_unknown_families_follow_their_generator_and_leave_the_global_stream():
    before = torch.random.get_rng_state()
    for law in (Independent(Normal(torch.zeros(3), torch.ones(3)), 1), StudentT(5.0), Gamma(2.0, 1.0)):
        first, again, other = (sample(law, (4,), noise=seeded(seed)) for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_family_without_its_own_sampler_keeps_its_gradient():
    (rate,) = leaf(2.0)
    draws = rsample(Gamma(torch.tensor(3.0, dtype=torch.float64), rate), (N,), noise=seeded())
    (gradient,) = torch.autograd.grad(draws.mean(), rate)
    assert_close(gradient, -draws.detach().mean() / 2.0, rtol=1e-9)  # γ = G(3) / rate draw by draw
