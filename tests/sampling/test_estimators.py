"""Every estimator on every law it serves: the expected gradient against a closed form, and planted bugs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Beta,
    Categorical,
    Dirichlet,
    Distribution,
    Gamma,
    Independent,
    LogNormal,
    Normal,
    TransformedDistribution,
    Uniform,
)
from torch.distributions.transforms import AffineTransform

from optima import sampling
from optima.sampling import Draw, Estimator, Pathwise, Relaxed, ScoreFunction, StraightThrough
from optima.streams import Noise
from tests.reference import (
    GivenNoise,
    assert_close,
    assert_unbiased,
    gauss_hermite,
    gauss_legendre,
    spread_uniforms,
)

DOUBLE = torch.float64
ROWS = 400_000


def gradients(estimator: Estimator, law: Callable[[Tensor], Distribution], value: list[float], noise, f) -> Tensor:
    """d E f(γ) / d(parameters), one estimate per row: what a training step would add up."""
    rows = len(next(iter(noise.values.values()))) if isinstance(noise, GivenNoise) else ROWS
    parameters = torch.tensor(value, dtype=DOUBLE).expand(rows, len(value)).clone().requires_grad_()
    draw = estimator.draw(law(parameters), noise)
    cost = f(draw.value)
    surrogate = cost if draw.log_prob is None else cost + cost.detach() * (draw.log_prob - draw.log_prob.detach())
    if not surrogate.requires_grad:
        return torch.zeros_like(parameters)
    return torch.autograd.grad(surrogate.sum(), parameters)[0]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


# ---- noise replaced by nodes: exact --------------------------------------------------------------------------------


class Exact(NamedTuple):
    """A law whose noise can be enumerated.

    Args:
        law: from parameters (rows, n).
        value: of the parameters.
        nodes: noise by name.
        weights: of the nodes.
        f: a function of γ, (rows,).
        mean: E f in closed form, from the parameters (n,).
    """

    law: Callable[[Tensor], Distribution]
    value: list[float]
    nodes: dict[str, Tensor]
    weights: Tensor
    f: Callable[[Tensor], Tensor]
    mean: Callable[[Tensor], Tensor]


HERMITE, HERMITE_WEIGHTS = gauss_hermite(48)
LEGENDRE, LEGENDRE_WEIGHTS = gauss_legendre(24)
CLASSES = torch.tensor([0.2, 0.3, 0.5], dtype=DOUBLE)
COST = torch.tensor([1.0, -2.0, 4.0], dtype=DOUBLE)

GAUSSIAN = {
    "Normal": Exact(
        lambda p: Normal(p[:, 0], p[:, 1]),
        [0.3, 0.7],
        {"": HERMITE},
        HERMITE_WEIGHTS,
        lambda g: g**4,
        lambda p: p[0] ** 4 + 6 * p[0] ** 2 * p[1] ** 2 + 3 * p[1] ** 4,
    ),
    "LogNormal": Exact(
        lambda p: LogNormal(p[:, 0], p[:, 1]),
        [-0.2, 0.5],
        {"": HERMITE},
        HERMITE_WEIGHTS,
        lambda g: g**2,
        lambda p: (2 * p[0] + 2 * p[1] ** 2).exp(),
    ),
    "two Normals": Exact(
        lambda p: Independent(Normal(p[:, :2], p[:, 2:]), 1),
        [0.3, -0.4, 0.7, 0.5],
        {"": torch.stack([part.flatten() for part in torch.meshgrid(HERMITE, HERMITE, indexing="ij")], 1)},
        torch.outer(HERMITE_WEIGHTS, HERMITE_WEIGHTS).flatten(),
        lambda g: g[:, 0] * g[:, 1] ** 2,
        lambda p: p[0] * (p[1] ** 2 + p[3] ** 2),
    ),
}
UNIFORM = Exact(
    lambda p: Uniform(p[:, 0], p[:, 1]),
    [-0.5, 1.5],
    {"": LEGENDRE},
    LEGENDRE_WEIGHTS,
    lambda g: g**3,
    lambda p: (p[1] ** 4 - p[0] ** 4) / (4 * (p[1] - p[0])),
)
# one node inside each outcome, weighted by its probability
DISCRETE = {
    "Bernoulli": Exact(
        lambda p: Bernoulli(p[:, 0]),
        [0.3],
        {"": torch.tensor([0.1, 0.9], dtype=DOUBLE)},
        torch.tensor([0.3, 0.7], dtype=DOUBLE),
        lambda g: 2 * g**2 - 3 * g + 1,
        lambda p: (1 - p[0]) * 1 + p[0] * 0,
    ),
    "Categorical": Exact(
        lambda p: Categorical(probs=p),
        CLASSES.tolist(),
        {"": torch.tensor([0.1, 0.4, 0.9], dtype=DOUBLE)},
        CLASSES,
        lambda g: COST[g.long()],
        lambda p: (p / p.sum()) @ COST,
    ),
}


def check_exact(case: Exact, estimator: Estimator) -> None:
    """Raise AssertionError unless the weighted gradient is the derivative of the mean, to rounding."""
    parameters = torch.tensor(case.value, dtype=DOUBLE, requires_grad=True)
    (exact,) = torch.autograd.grad(case.mean(parameters), parameters)
    found = case.weights @ gradients(estimator, case.law, case.value, GivenNoise(case.nodes), case.f)
    torch.testing.assert_close(found, exact, rtol=1e-9, atol=1e-12)


SCORED = {**GAUSSIAN, **DISCRETE}
PATHS = {**GAUSSIAN, "Uniform": UNIFORM}


@pytest.mark.parametrize("name", PATHS)
def test_the_pathwise_gradient_is_exact(name: str):
    check_exact(PATHS[name], Pathwise())


@pytest.mark.parametrize("name", SCORED)
def test_the_score_function_is_exact(name: str):
    check_exact(SCORED[name], ScoreFunction())


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("name", SCORED)
def test_a_score_function_without_its_whole_log_probability_is_caught(name, share, monkeypatch: pytest.MonkeyPatch):
    draw = ScoreFunction.draw

    def partly(self: ScoreFunction, law: Distribution, noise: Noise) -> Draw:
        value, log_prob = draw(self, law, noise)
        assert log_prob is not None
        return Draw(value, share * log_prob)

    monkeypatch.setattr(ScoreFunction, "draw", partly)
    with pytest.raises(AssertionError):
        check_exact(SCORED[name], ScoreFunction())


@pytest.mark.parametrize("name", PATHS)
def test_a_draw_that_is_only_sampled_is_caught(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampling, "rsample", sampling.sample)
    with pytest.raises(AssertionError):
        check_exact(PATHS[name], Pathwise())


# ---- Beta and Dirichlet: noise at evenly spread points -------------------------------------------------------------

RTOL = 0.015  # a bias of 2 % does not pass
SHARES = torch.tensor([1.0, 2.0, 5.0], dtype=DOUBLE)


class Concentrated(NamedTuple):
    """A law of concentrations p, with a function of γ and its mean in closed form."""

    law: Callable[[Tensor], Distribution]
    f: Callable[[Tensor], Tensor]
    mean: Callable[[Tensor], Tensor]


BETA = Concentrated(
    lambda p: Beta(p[:, 0], p[:, 1]),
    torch.square,
    lambda p: p[0] * (p[0] + 1) / (p.sum() * (p.sum() + 1)),
)
DIRICHLET = Concentrated(
    lambda p: Dirichlet(p),
    lambda g: g.square() @ SHARES,
    lambda p: (p * (p + 1)) @ SHARES / (p.sum() * (p.sum() + 1)),
)


def concentration_noise(value: list[float], *, log2_rows: int) -> GivenNoise:
    """The uniforms and Gamma(α + 1) draws of every concentration, as quantiles of evenly spread points."""
    points = spread_uniforms(2 * len(value), log2_rows)
    uniform, quantile = points[:, : len(value)], points[:, len(value) :]
    gamma = torch.stack([torch.tensor(stats.gamma.ppf(quantile[:, i], a + 1)) for i, a in enumerate(value)], 1)
    beta = {}
    if len(value) == 2:
        for i, name in enumerate(("one", "zero")):
            beta |= {f"{name}.uniform": uniform[:, i], f"{name}.gamma": gamma[:, i]}
    return GivenNoise({"uniform": uniform, "gamma": gamma, **beta})


def check_concentrated(case: Concentrated, estimator: Estimator, value: list[float]) -> None:
    """Raise AssertionError unless the mean gradient is the derivative of the mean."""
    parameters = torch.tensor(value, dtype=DOUBLE, requires_grad=True)
    mean = case.mean(parameters)
    (exact,) = torch.autograd.grad(mean, parameters)
    baseline = mean.item()  # a constant: leaves the expectation alone and takes variance away
    noise = concentration_noise(value, log2_rows=19)
    found = gradients(estimator, case.law, value, noise, lambda g: case.f(g) - baseline)
    assert_close(found.mean(0), exact, rtol=RTOL)


SPREAD = {
    "Beta 0.3, 2": (BETA, [0.3, 2.0]),
    "Beta 1, 1.2": (BETA, [1.0, 1.2]),
    "Beta 5, 3": (BETA, [5.0, 3.0]),
    "Beta 100, 70": (BETA, [100.0, 70.0]),
    "Dirichlet 0.2, 0.5, 1": (DIRICHLET, [0.2, 0.5, 1.0]),
    "Dirichlet 2, 1, 4": (DIRICHLET, [2.0, 1.0, 4.0]),
    "Dirichlet 100, 50, 80": (DIRICHLET, [100.0, 50.0, 80.0]),
}
CORNERS = {
    "Beta 0.01, 0.03": (BETA, [1e-2, 3e-2]),
    "Beta 1e-4, 3e-4": (BETA, [1e-4, 3e-4]),
    "Dirichlet 0.01, 0.02, 0.05": (DIRICHLET, [1e-2, 2e-2, 5e-2]),
    "Dirichlet 1e-4, 2e-4, 5e-4": (DIRICHLET, [1e-4, 2e-4, 5e-4]),
}
SCORED_CONCENTRATIONS = {**SPREAD, **CORNERS}


@pytest.mark.parametrize("name", SPREAD)
def test_the_pathwise_gradient_of_concentrations(name: str):
    case, value = SPREAD[name]
    check_concentrated(case, Pathwise(), value)


@pytest.mark.parametrize("name", SCORED_CONCENTRATIONS)
def test_the_score_function_of_concentrations(name: str):
    case, value = SCORED_CONCENTRATIONS[name]
    check_concentrated(case, ScoreFunction(), value)


@pytest.mark.parametrize("name", ["Beta 0.3, 2", "Dirichlet 2, 1, 4"])
def test_log_gammas_without_their_implicit_gradient_are_caught(name: str, monkeypatch: pytest.MonkeyPatch):
    """Planted: the Gamma(α + 1) part taken for a constant."""

    def half(concentration: Tensor, noise: Noise) -> Tensor:
        draw = noise.named("gamma").gamma(concentration.detach() + 1.0)
        shape, like = concentration.shape, {"dtype": concentration.dtype, "device": concentration.device}
        return draw.log() + torch.log1p(-noise.named("uniform").uniform(shape, **like)) / concentration

    monkeypatch.setattr(sampling, "log_gamma", half)
    case, value = SPREAD[name]
    with pytest.raises(AssertionError):
        check_concentrated(case, Pathwise(), value)


@pytest.mark.parametrize("c", [1e-4, 1e-3, 1e-2, 0.1])
def test_the_pathwise_gradient_near_the_corners(c: float):
    """E Σ w_i γ_i² under Dirichlet(c, c, c): nearly all draws are corners, so the noise is placed where it matters.

    −log U_i / c is exponential of rate c, the least of the three is of rate 3c, and the two excesses over it are again
    of rate c, since an exponential has no memory. Half of the excesses are of rate ¼ instead, close enough to an edge
    of the simplex to have a gradient, and reweighted. The sampler itself is the library's.
    """
    points = spread_uniforms(8, 17)
    rate = torch.where(points[:, :2] < 0.5, 0.25, c)
    excess = -torch.log1p(-points[:, 2:4]) / rate
    weights = (2 / (1 + 0.25 / c * torch.exp(-excess * (0.25 - c)))).prod(1)
    gamma = torch.tensor(stats.gamma.ppf(points[:, 4:7], c + 1))
    least = -torch.log1p(-points[:, 7:]) / (3 * c)
    times = torch.cat([least, least + excess], 1)
    # whoever has the least time: the three of them in turn
    noise = GivenNoise(
        {
            "uniform": -torch.expm1(-c * torch.cat([times.roll(turn, 1) for turn in range(3)])),
            "gamma": gamma.repeat(3, 1),
        }
    )
    found = gradients(Pathwise(), DIRICHLET.law, [c] * 3, noise, DIRICHLET.f)
    parameters = torch.full((3,), c, dtype=DOUBLE, requires_grad=True)
    (exact,) = torch.autograd.grad(DIRICHLET.mean(parameters), parameters)
    assert_close((found * weights.repeat(3)[:, None]).mean(0), exact, rtol=RTOL)


# ---- relaxed and straight-through ----------------------------------------------------------------------------------

TEMPERATURE = 0.7
# E over a uniform as the trapezoidal rule in its logit, which converges exponentially
LOGITS = torch.linspace(-34.0, 34.0, 681, dtype=DOUBLE)
UNIFORMS, UNIFORM_WEIGHTS = torch.sigmoid(LOGITS), torch.sigmoid(LOGITS) * torch.sigmoid(-LOGITS) * 0.1


def soft_expectation(p: float, temperature: float, f: Callable[[Tensor], Tensor]) -> float:
    """E f of the relaxed Bernoulli, written out."""
    logit = torch.log(torch.tensor(p / (1 - p), dtype=DOUBLE))
    return float(UNIFORM_WEIGHTS @ f(torch.sigmoid((logit + LOGITS) / temperature)))


def quadratic(g: Tensor) -> Tensor:
    return 2 * g**2 - 3 * g + 1


def relaxed_bernoulli(estimator: Estimator) -> Tensor:
    found = gradients(estimator, lambda p: Bernoulli(p[:, 0]), [0.3], GivenNoise({"": UNIFORMS}), quadratic)
    return (UNIFORM_WEIGHTS @ found)[0]


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_relaxed_has_the_gradient_of_the_relaxed_bernoulli(temperature: float):
    up, down = (soft_expectation(0.3 + step, temperature, quadratic) for step in (1e-6, -1e-6))
    assert_close(relaxed_bernoulli(Relaxed(temperature)), (up - down) / 2e-6, rtol=1e-6)


def test_straight_through_is_hard_forwards_and_biased_backwards():
    """Its gradient is E f'(hard) ∂soft/∂p, which is neither the exact one, −1, nor the relaxed one."""
    law = Bernoulli(torch.full((ROWS,), 0.3, dtype=DOUBLE))
    values = StraightThrough(TEMPERATURE).draw(law, sampling.as_noise(seeded())).value
    assert set(values.unique().tolist()) == {0.0, 1.0}
    assert_unbiased(values, 0.3, detect=0.05)
    # written out: hard = 1 where the logit of u is above −logit p; ∂soft/∂p = soft(1−soft) / (T p(1−p))
    shifted = torch.log(torch.tensor(0.3 / 0.7, dtype=DOUBLE)) + LOGITS
    soft = torch.sigmoid(shifted / TEMPERATURE)
    slope = 4 * (shifted > 0).to(DOUBLE) - 3
    expected = UNIFORM_WEIGHTS @ (slope * soft * (1 - soft) / (TEMPERATURE * 0.3 * 0.7))
    found = relaxed_bernoulli(StraightThrough(TEMPERATURE))
    assert_close(found, expected, rtol=1e-7)
    exact, relaxed = -1.0, relaxed_bernoulli(Relaxed(TEMPERATURE))
    assert abs(float(found) - exact) > 0.1
    assert abs(float(found) - float(relaxed)) > 0.1


def soft_categorical(estimator: Estimator, rows: int = ROWS) -> Tensor:
    law = lambda p: Categorical(probs=p)  # noqa: E731
    return gradients(estimator, law, CLASSES.tolist(), sampling.as_noise(seeded()), lambda g: (g @ COST).square())


def test_relaxed_has_the_gradient_of_the_relaxed_categorical():
    """Against central differences of the softmax written out, on the same Gumbel noise."""
    found = soft_categorical(Relaxed(TEMPERATURE)).mean(0)
    limits = torch.finfo(DOUBLE)
    uniform = torch.rand((ROWS, 3), generator=seeded(), dtype=DOUBLE).clamp(limits.tiny, 1 - limits.eps)
    gumbel = -torch.log(-torch.log(uniform))

    def mean(p: Tensor) -> Tensor:
        return (((p / p.sum()).log() + gumbel).div(TEMPERATURE).softmax(-1) @ COST).square().mean()

    steps = 1e-6 * torch.eye(3, dtype=DOUBLE)
    exact = torch.stack([(mean(CLASSES + step) - mean(CLASSES - step)) / 2e-6 for step in steps])
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-5)


def test_straight_through_gives_whole_classes_at_their_frequencies():
    law = Categorical(probs=CLASSES.expand(ROWS, 3))
    values = StraightThrough(TEMPERATURE).draw(law, sampling.as_noise(seeded())).value
    assert torch.equal(values.round(), values)
    assert_unbiased(values, CLASSES, detect=0.05)


# ---- which estimator serves which law ------------------------------------------------------------------------------

LAWS: dict[str, Distribution] = {
    "Normal": Normal(0.0, 1.0),
    "Uniform": Uniform(0.0, 1.0),
    "LogNormal": LogNormal(0.0, 1.0),
    "Beta": Beta(1.0, 1.0),
    "Dirichlet": Dirichlet(torch.ones(3)),
    "Bernoulli": Bernoulli(0.5),
    "Categorical": Categorical(torch.ones(3)),
}
SERVES = {
    "pathwise": {"Normal", "Uniform", "LogNormal", "Beta", "Dirichlet"},
    "score_function": {"Normal", "LogNormal", "Beta", "Dirichlet", "Bernoulli", "Categorical"},
    "relaxed": {"Bernoulli", "Categorical"},
    "straight_through": {"Bernoulli", "Categorical"},
}


@pytest.mark.parametrize(("estimator", "law"), list(itertools.product(SERVES, LAWS)))
def test_every_estimator_serves_its_laws_and_says_why_not_the_others(estimator: str, law: str):
    problem = sampling.ESTIMATORS[estimator].misfit(LAWS[law])
    assert (problem is None) == (law in SERVES[estimator])
    assert problem is None or law in problem


# ---- wrapped laws ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.05, 0.2, 1.0])
def test_the_score_of_a_wrapped_beta_stays_finite(alpha: float):
    """A draw that rounds to 0 or 1 has an infinite density; the density of its logit does not."""
    a = torch.full((4000,), alpha, requires_grad=True)
    scaled = TransformedDistribution(Beta(a, a), [AffineTransform(-1.0, 2.0)], validate_args=False)
    grouped = Independent(Beta(a.unsqueeze(1), a.unsqueeze(1), validate_args=False), 1)
    for law in (scaled, grouped):
        draw = ScoreFunction().draw(law, sampling.as_noise(seeded()))
        assert draw.log_prob is not None
        assert draw.log_prob.shape == (4000,)
        (gradient,) = torch.autograd.grad(draw.log_prob.sum(), a)
        assert gradient.isfinite().all()
        # E ∇ log p = 0, in units of its own spread
        assert abs(float(gradient.mean() / gradient.std())) < 5 / math.sqrt(4000)


def test_a_support_that_a_transform_moves_is_refused():
    r = torch.tensor(2.0, requires_grad=True)
    law = TransformedDistribution(Beta(torch.ones(8), torch.ones(8)), [AffineTransform(0.0, r)])
    assert "moves with φ" in str(ScoreFunction().misfit(law))
    full = TransformedDistribution(Normal(torch.zeros(8), torch.ones(8)), [AffineTransform(0.0, r)])
    assert ScoreFunction().misfit(full) is None
    still = TransformedDistribution(Beta(torch.ones(8), torch.ones(8)), [AffineTransform(0.0, r.detach())])
    assert ScoreFunction().misfit(still) is None


def test_no_draw_seeds_an_accelerator(monkeypatch: pytest.MonkeyPatch):
    """torch.manual_seed would: then a summary would reset the dropout of a model on a GPU."""
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: pytest.fail("the accelerator was seeded"))
    before = torch.get_rng_state()
    one, two = (sampling.sample(Gamma(2.0, 1.0), (4,), noise=seeded()) for _ in range(2))
    assert torch.equal(one, two)
    assert torch.equal(before, torch.get_rng_state())
