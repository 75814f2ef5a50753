"""Every sampler has the right law and the right pathwise gradient."""

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
    LogNormal,
    Normal,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
    StudentT,
    Uniform,
)

from optima.sampling import rsample, sample
from tests.reference import GivenNoise, assert_close, assert_unbiased, gauss_hermite, gauss_legendre, gradient_of

N = 400_000


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def leaf(*values: float) -> list[torch.Tensor]:
    return [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in values]


def ks_pvalue(draws: torch.Tensor, law) -> float:
    return float(stats.kstest(draws.numpy(), law.cdf).pvalue)


# ---- exact: noise replaced by quadrature nodes ---------------------------------------------------------------------


def test_normal_gradient_is_exact():
    loc, scale = leaf(0.3, 0.7)
    nodes, weights = gauss_hermite(32)
    value = rsample(Normal(loc, scale), (32,), noise=GivenNoise({"": nodes}))
    (weights * value**4).sum().backward()
    # E γ⁴ = μ⁴ + 6 μ²σ² + 3 σ⁴
    assert_close(gradient_of(loc), 4 * 0.3**3 + 12 * 0.3 * 0.49, rtol=1e-12)
    assert_close(gradient_of(scale), 12 * 0.09 * 0.7 + 12 * 0.7**3, rtol=1e-12)


def test_uniform_gradient_is_exact():
    low, high = leaf(-0.5, 1.5)
    nodes, weights = gauss_legendre(16)
    value = rsample(Uniform(low, high), (16,), noise=GivenNoise({"": nodes}))
    (weights * value**3).sum().backward()
    # E γ³ = (h⁴ − l⁴) / (4 (h − l))
    a, b = -0.5, 1.5
    assert_close(gradient_of(low), (-4 * a**3 * (b - a) + (b**4 - a**4)) / (4 * (b - a) ** 2), rtol=1e-12)
    assert_close(gradient_of(high), (4 * b**3 * (b - a) - (b**4 - a**4)) / (4 * (b - a) ** 2), rtol=1e-12)


def test_lognormal_gradient_is_exact():
    loc, scale = leaf(-0.2, 0.5)
    nodes, weights = gauss_hermite(48)
    value = rsample(LogNormal(loc, scale), (48,), noise=GivenNoise({"": nodes}))
    (weights * value**2).sum().backward()
    moment = torch.tensor(2 * -0.2 + 2 * 0.25, dtype=torch.float64).exp()  # E γ² = exp(2μ + 2σ²)
    assert_close(gradient_of(loc), 2 * moment, rtol=1e-10)
    assert_close(gradient_of(scale), 4 * 0.5 * moment, rtol=1e-10)


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_relaxed_bernoulli_gradient_is_that_of_the_relaxed_expectation(temperature: float):
    # E over a uniform u as the trapezoidal rule in its logit, which converges exponentially
    points = torch.linspace(-34.0, 34.0, 681, dtype=torch.float64)
    nodes = torch.sigmoid(points)
    weights = nodes * torch.sigmoid(-points) * 0.1

    def expectation(logit: torch.Tensor) -> torch.Tensor:
        law = RelaxedBernoulli(torch.tensor(temperature, dtype=torch.float64), logits=logit)
        return (weights * rsample(law, (681,), noise=GivenNoise({"": nodes})).square()).sum()

    (logit,) = leaf(0.4)
    expectation(logit).backward()

    # reference: σ((l + log u − log(1−u)) / t)² written out, and a central difference
    def written_out(value: float) -> torch.Tensor:
        return (weights * torch.sigmoid((value + points) / temperature) ** 2).sum()

    assert_close(gradient_of(logit), (written_out(0.4 + 1e-5) - written_out(0.4 - 1e-5)) / 2e-5, rtol=1e-6)


def test_relaxed_categorical_gradient_is_that_of_the_relaxed_expectation():
    logits = torch.tensor([0.2, -0.5, 0.9], dtype=torch.float64, requires_grad=True)
    score = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    law = RelaxedOneHotCategorical(torch.tensor(0.7, dtype=torch.float64), logits=logits.expand(N, 3))
    value = rsample(law, noise=seeded())
    grads = torch.autograd.grad((value @ score).square().sum(), law.base_dist.logits)[0]  # pyright: ignore

    uniform = torch.rand((N, 3), dtype=torch.float64, generator=seeded(1)).clamp(1e-12, 1 - 1e-12)
    gumbel = -torch.log(-torch.log(uniform))

    def paired(index: int) -> torch.Tensor:
        step = torch.zeros(3, dtype=torch.float64)
        step[index] = 1e-4
        up, down = (((logits.detach() + s + gumbel) / 0.7).softmax(-1) @ score for s in (step, -step))
        return (up.square() - down.square()) / 2e-4

    for index in range(3):
        reference = paired(index)
        assert_unbiased(grads[:, index] - reference + 3.0, 3.0, detect=0.02)


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


def beta_gradients(alpha: float, beta: float, function) -> torch.Tensor:
    """d f(λ) / dα and / dβ for N independent draws."""
    a = torch.full((N,), alpha, dtype=torch.float64, requires_grad=True)
    b = torch.full((N,), beta, dtype=torch.float64, requires_grad=True)
    value = rsample(Beta(a, b), noise=seeded())
    return torch.stack(torch.autograd.grad(function(value).sum(), (a, b)), 1)


@pytest.mark.parametrize(("alpha", "beta"), [(0.1, 0.1), (0.3, 2.0), (1.0, 1.0), (5.0, 3.0), (100.0, 100.0)])
def test_beta_gradient_is_unbiased(alpha: float, beta: float):
    total = alpha + beta
    exact = torch.tensor([beta, -alpha], dtype=torch.float64) / total**2  # of E λ = α / (α + β)
    assert_unbiased(beta_gradients(alpha, beta, lambda lam: lam), exact, detect=0.05 if alpha < 0.2 else 0.02)


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


@pytest.mark.parametrize("concentration", [(0.2, 0.5, 1.0), (2.0, 1.0, 4.0), (100.0, 50.0, 80.0)])
def test_dirichlet_gradient_is_unbiased(concentration: tuple[float, ...]):
    score = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    c = torch.tensor(concentration, dtype=torch.float64).expand(N, 3).clone().requires_grad_()
    value = rsample(Dirichlet(c), noise=seeded())
    torch.testing.assert_close(value.detach().sum(-1), torch.ones(N, dtype=torch.float64))
    (grads,) = torch.autograd.grad((value @ score).sum(), c)
    exact_c = torch.tensor(concentration, dtype=torch.float64, requires_grad=True)
    (exact,) = torch.autograd.grad((exact_c / exact_c.sum()) @ score, exact_c)
    assert_unbiased(grads, exact, detect=0.05)


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
