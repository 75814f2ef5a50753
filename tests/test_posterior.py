"""q(φ), p(φ) and their KL, against scipy: densities, quantiles and quadrature that share nothing with the library."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor
from torch.distributions import (
    Beta,
    Dirichlet,
    Distribution,
    Exponential,
    Gamma,
    HalfNormal,
    Independent,
    LogNormal,
    MultivariateNormal,
    Normal,
    StudentT,
    TransformedDistribution,
    Uniform,
    biject_to,
    constraints,
    transforms,
)
from torch.distributions.constraints import Constraint

from optima import Rotate, Shift, TokenDropout, Translate, learn
from optima.intervals import summarise
from optima.posterior import FixedPhi, LearnedPhi, PriorPhi
from optima.sampling import as_noise
from optima.streams import Noise
from optima.supports import Domain
from tests.reference import assert_unbiased

CPU = torch.device("cpu")


def noise(seed: int = 0) -> Noise:
    return as_noise(torch.Generator().manual_seed(seed))


def build(init: Any, *, within: Constraint = constraints.positive, **options: Any) -> LearnedPhi:
    return LearnedPhi("test", learn(init, **options), Domain(within))


def draws(phi: LearnedPhi | FixedPhi | PriorPhi, count: int) -> Tensor:
    return phi.draw(count, dtype=torch.float64, device=CPU, noise=noise()).detach()


def logit_normal(loc: float, scale: float, width: float = 1.0) -> Callable[[float], float]:
    """The log-density of width · σ(u), u Normal, by the change of variables."""

    def log_pdf(x: float) -> float:
        t = x / width
        return float(stats.norm.logpdf(math.log(t / (1 - t)), loc, scale)) - math.log(t * (1 - t) * width)

    return log_pdf


def quadrature_kl(log_q: Callable, log_p: Callable, low: float, high: float, points: list[float]) -> float:
    """∫ q log(q/p) over the constrained space."""

    def integrand(x: float) -> float:
        value = log_q(x)
        return math.exp(value) * (value - log_p(x)) if value > -700 else 0.0

    # epsabs bounds the error far below any standard error used here
    return integrate.quad(integrand, low, high, points=points, limit=500, epsabs=1e-8, epsrel=1e-8)[0]


@dataclass(frozen=True)
class Case:
    """A learned φ, log q as scipy has it, log p as scipy has it, and where q has its mass."""

    phi: Callable[[], LearnedPhi]
    log_q: Callable[[float], float]
    log_p: Callable[[float], float]
    low: float
    high: float

    def exact(self) -> float:
        width = self.high - self.low
        points = [self.low + width * t for t in (0.01, 0.03, 0.1, 0.3, 0.6)]
        return quadrature_kl(self.log_q, self.log_p, self.low, self.high, points)


def logit(p: float) -> float:
    return math.log(p / (1 - p))


ESTIMATED = {
    "Gamma on positive": Case(
        lambda: build(2.0, prior=Gamma(3.0, 2.0), scale=0.5),
        lambda x: float(stats.lognorm.logpdf(x, 0.5, scale=2.0)),
        lambda x: float(stats.gamma.logpdf(x, 3.0, scale=0.5)),
        1e-3,
        60.0,
    ),
    "Exponential on positive": Case(
        lambda: build(0.7, prior=Exponential(2.0), scale=0.4),
        lambda x: float(stats.lognorm.logpdf(x, 0.4, scale=0.7)),
        lambda x: float(stats.expon.logpdf(x, scale=0.5)),
        1e-3,
        20.0,
    ),
    "HalfNormal on positive": Case(
        lambda: build(1.5, prior=HalfNormal(0.8), scale=0.3),
        lambda x: float(stats.lognorm.logpdf(x, 0.3, scale=1.5)),
        lambda x: float(stats.halfnorm.logpdf(x, scale=0.8)),
        1e-2,
        20.0,
    ),
    "Beta on the unit interval": Case(
        lambda: build(0.3, within=constraints.unit_interval, prior=Beta(2.0, 5.0), scale=0.6),
        logit_normal(logit(0.3), 0.6),
        lambda x: float(stats.beta.logpdf(x, 2.0, 5.0)),
        1e-6,
        1 - 1e-6,
    ),
    "Normal on (0, 0.5)": Case(
        lambda: build(
            0.1,
            within=constraints.unit_interval,
            support=constraints.interval(0.0, 0.5),
            prior=Normal(0.3, 0.1),
            scale=0.5,
        ),
        logit_normal(logit(0.2), 0.5, width=0.5),
        lambda x: float(stats.truncnorm.logpdf(x, -3.0, 2.0, loc=0.3, scale=0.1)),
        1e-6,
        0.5 - 1e-6,
    ),
    "Uniform on (0, 2)": Case(
        lambda: build(0.5, prior=Uniform(0.0, 2.0), scale=0.7),
        logit_normal(logit(0.25), 0.7, width=2.0),
        lambda x: float(stats.uniform.logpdf(x, 0.0, 2.0)),
        1e-6,
        2 - 1e-6,
    ),
    "StudentT on the real line": Case(
        lambda: build(0.5, within=constraints.real, prior=StudentT(4.0, 0.0, 1.0), scale=0.7),
        lambda x: float(stats.norm.logpdf(x, 0.5, 0.7)),
        lambda x: float(stats.t.logpdf(x, 4.0)),
        -10.0,
        10.0,
    ),
}

CLOSED = {
    "default on positive": Case(
        lambda: build(2.0, scale=0.5),
        lambda x: float(stats.lognorm.logpdf(x, 0.5, scale=2.0)),
        lambda x: float(stats.lognorm.logpdf(x, 1.0, scale=2.0)),
        1e-3,
        60.0,
    ),
    "LogNormal on positive": Case(
        lambda: build(2.0, prior=LogNormal(-1.0, 2.0), scale=0.5),
        lambda x: float(stats.lognorm.logpdf(x, 0.5, scale=2.0)),
        lambda x: float(stats.lognorm.logpdf(x, 2.0, scale=math.exp(-1.0))),
        1e-3,
        60.0,
    ),
    "Normal on the real line": Case(
        lambda: build(0.5, within=constraints.real, prior=Normal(-1.0, 2.0), scale=0.7),
        lambda x: float(stats.norm.logpdf(x, 0.5, 0.7)),
        lambda x: float(stats.norm.logpdf(x, -1.0, 2.0)),
        -10.0,
        10.0,
    ),
    "default on (0, 0.5)": Case(
        lambda: build(0.1, within=constraints.unit_interval, support=constraints.interval(0.0, 0.5), scale=0.5),
        logit_normal(logit(0.2), 0.5, width=0.5),
        logit_normal(logit(0.2), 1.0, width=0.5),
        1e-6,
        0.5 - 1e-6,
    ),
}


def estimates(phi: LearnedPhi, repeats: int = 400, each: int = 2048) -> Tensor:
    """Independent KL estimates."""
    with torch.no_grad():
        return torch.stack([phi.kl(noise(seed), draws=each) for seed in range(repeats)]).double()


# ---- KL --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLOSED)
def test_closed_form_kl_is_the_integral(name: str):
    phi, exact = CLOSED[name].phi(), CLOSED[name].exact()
    assert phi.closed_form
    assert float(phi.kl().detach()) == pytest.approx(exact, rel=2e-6)


@pytest.mark.parametrize("name", ESTIMATED)
def test_estimated_kl_is_unbiased(name: str):
    phi, exact = ESTIMATED[name].phi(), ESTIMATED[name].exact()
    assert not phi.closed_form
    # 800,000 draws: a bias of 5 % would show as at least 8 standard errors
    assert_unbiased(estimates(phi), exact, detect=0.05)


@pytest.mark.parametrize("name", ["Gamma on positive", "Beta on the unit interval", "Uniform on (0, 2)"])
def test_a_missing_log_det_is_caught(name: str, monkeypatch: pytest.MonkeyPatch):
    def flat(self: object, x: Tensor, y: Tensor) -> Tensor:
        return torch.zeros_like(x)

    for kind in (transforms.ExpTransform, transforms.SigmoidTransform, transforms.ComposeTransform):
        monkeypatch.setattr(kind, "log_abs_det_jacobian", flat)
    with pytest.raises(AssertionError, match="biased"):
        assert_unbiased(estimates(ESTIMATED[name].phi()), ESTIMATED[name].exact(), detect=0.05)


def test_the_estimate_has_the_gradient_of_the_integral():
    # d/d(loc) and d/d(log_scale) by central differences of the quadrature
    def exact(loc: float, log_scale: float) -> float:
        scale = math.exp(log_scale)
        return quadrature_kl(
            lambda x: float(stats.lognorm.logpdf(x, scale, scale=math.exp(loc))),
            lambda x: float(stats.gamma.logpdf(x, 3.0, scale=0.5)),
            1e-3,
            80.0,
            [0.3, 1.0, 2.0, 5.0, 15.0],
        )

    loc, log_scale, h = math.log(3.0), math.log(0.5), 1e-3
    reference = torch.tensor(
        [
            (exact(loc + h, log_scale) - exact(loc - h, log_scale)) / (2 * h),
            (exact(loc, log_scale + h) - exact(loc, log_scale - h)) / (2 * h),
        ],
        dtype=torch.float64,
    )
    phi = build(3.0, prior=Gamma(3.0, 2.0), scale=0.5)
    parameters = [phi.loc, phi.log_scale]
    gradients = [torch.stack(torch.autograd.grad(phi.kl(noise(s), draws=2048), parameters)) for s in range(400)]
    assert_unbiased(torch.stack(gradients).double(), reference, detect=0.08)


@pytest.mark.parametrize("name", CLOSED)
def test_kl_is_zero_only_where_q_is_the_prior(name: str):
    phi = CLOSED[name].phi()
    assert phi.prior is not None
    base = phi.prior if isinstance(phi.prior, Normal) else phi.prior.base_dist  # pyright: ignore
    with torch.no_grad():
        phi.loc.copy_(base.loc)
        phi.log_scale.copy_(base.scale.log())  # pyright: ignore
        assert float(phi.kl().detach()) == pytest.approx(0.0, abs=1e-6)
        phi.loc.add_(0.1 * base.scale)
        assert float(phi.kl().detach()) == pytest.approx(0.5 * 0.1**2, rel=1e-2)
        phi.loc.copy_(base.loc)
        phi.log_scale.add_(0.1)  # pyright: ignore
        assert float(phi.kl().detach()) == pytest.approx(0.5 * (math.exp(0.2) - 1) - 0.1, rel=1e-2)


def test_kl_of_a_vector_is_the_sum_over_its_elements():
    both = build([0.5, 2.0], prior=LogNormal(0.0, 1.0), scale=0.4)
    apart = [build(value, prior=LogNormal(0.0, 1.0), scale=0.4) for value in (0.5, 2.0)]
    assert both.kl().shape == ()
    torch.testing.assert_close(both.kl(), apart[0].kl() + apart[1].kl())
    loose = build([0.5, 2.0], prior=Gamma(3.0, 2.0), scale=0.4)
    exact = sum(
        quadrature_kl(
            lambda x, at=at: float(stats.lognorm.logpdf(x, 0.4, scale=at)),
            lambda x: float(stats.gamma.logpdf(x, 3.0, scale=0.5)),
            1e-3,
            30.0,
            [0.1, 0.5, 1.0, 2.0, 5.0],
        )
        for at in (0.5, 2.0)
    )
    assert_unbiased(estimates(loose), exact, detect=0.05)


def test_kl_on_a_simplex_is_the_integral():
    # with two classes stick-breaking is σ(u), so that q is logit-normal and Dirichlet(2, 3) is Beta(2, 3)
    phi = LearnedPhi("w", learn([0.3, 0.7], prior=Dirichlet(torch.tensor([2.0, 3.0])), scale=0.6), SIMPLEX)
    exact = quadrature_kl(
        logit_normal(logit(0.3), 0.6), lambda x: float(stats.beta.logpdf(x, 2.0, 3.0)), 1e-6, 1 - 1e-6, [0.1, 0.3, 0.6]
    )
    assert_unbiased(estimates(phi), exact, detect=0.05)


SIMPLEX = Domain(constraints.simplex)


def test_a_simplex_is_drawn_and_its_default_prior_treats_all_alike():
    phi = LearnedPhi("w", learn([0.5, 0.3, 0.2], scale=0.4), SIMPLEX)
    assert phi.loc.shape == (2,)
    assert phi.shape == (3,)
    prior = phi.p_phi()
    assert isinstance(prior, Dirichlet)
    torch.testing.assert_close(prior.mean, torch.tensor([0.5, 0.3, 0.2]))
    even = LearnedPhi("w", learn([0.25] * 4), SIMPLEX).p_phi()
    assert isinstance(even, Dirichlet)
    assert even.concentration.tolist() == [1.0] * 4
    weights = draws(phi, 1000)
    assert weights.shape == (1000, 3)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1000, dtype=torch.float64))
    assert (weights > 0).all()
    torch.testing.assert_close(phi.from_noise(torch.zeros(2)).detach(), torch.tensor([0.5, 0.3, 0.2]))


@pytest.mark.parametrize(
    ("phi", "exact"),
    [
        (lambda: build(2.0, prior=Gamma(3.0, 2.0), posterior="point"), stats.gamma.logpdf(2.0, 3.0, scale=0.5)),
        (
            lambda: build(
                0.0596,
                within=constraints.unit_interval,
                support=constraints.interval(0.0, 0.5),
                prior=Normal(0.1, 0.1),
                posterior="point",
            ),
            stats.norm.logpdf(0.0596, 0.1, 0.1),
        ),
        (
            lambda: build([0.5, 2.0], prior=LogNormal(0.0, 1.0), posterior="point"),
            stats.lognorm.logpdf([0.5, 2.0], 1.0).sum(),
        ),
        (lambda: build(2.0, posterior="point"), stats.lognorm.logpdf(2.0, 1.0, scale=2.0)),
    ],
)
def test_a_point_posterior_costs_minus_log_p(phi: Callable[[], LearnedPhi], exact: float):
    point = phi()
    assert point.log_scale is None
    assert float(point.kl().detach()) == pytest.approx(-exact, rel=1e-5)
    summary = point.summary()
    assert torch.equal(summary.mean, summary.low)
    assert torch.equal(summary.mean, summary.high)


def test_a_point_without_a_prior_of_its_own_costs_nothing():
    phi = LearnedPhi("test", learn(2.0, posterior="point"), Domain(constraints.positive), flat_prior=True)
    assert float(phi.kl().detach()) == 0.0
    with pytest.raises(TypeError, match="prior is on γ"):
        phi.p_phi()
    with pytest.raises(TypeError, match="no density"):
        phi.q_phi()


def test_excess_of_a_distribution_is_its_kl():
    # mean and deviation of log φ under Gamma(3, 2): the best a LogNormal can do
    best = build(1.258, prior=Gamma(3.0, 2.0), scale=0.628)
    assert 0 < best.excess() < 0.08
    phi, exact = ESTIMATED["Gamma on positive"].phi(), ESTIMATED["Gamma on positive"].exact()
    assert phi.excess() == pytest.approx(exact, abs=0.09)  # 5 standard errors
    assert phi.excess() == phi.excess()


def test_excess_of_a_point_is_the_drop_below_the_mode():
    def point(at: float) -> LearnedPhi:
        return build(at, prior=Gamma(3.0, 2.0), posterior="point")

    assert point(1.0).excess() == pytest.approx(0.0, abs=1e-4)
    drop = stats.gamma.logpdf(1.0, 3.0, scale=0.5) - stats.gamma.logpdf(8.0, 3.0, scale=0.5)
    assert point(8.0).excess() == pytest.approx(drop, rel=1e-4)


def test_excess_of_a_point_is_measured_inside_its_own_support():
    # the density of Normal(−1, 1) falls on the positive numbers: a φ near 0 is at the best place there is
    assert build(1e-3, prior=Normal(-1.0, 1.0), posterior="point").excess() == pytest.approx(0.0, abs=0.01)


def test_excess_of_a_point_on_a_simplex_is_the_drop_below_the_mode():
    spec = learn([0.5, 0.3, 0.2], prior=Dirichlet(torch.full((3,), 2.0)), posterior="point")
    exact = stats.dirichlet.logpdf([1 / 3] * 3, [2.0] * 3) - stats.dirichlet.logpdf([0.5, 0.3, 0.2], [2.0] * 3)
    assert LearnedPhi("w", spec, SIMPLEX).excess() == pytest.approx(exact, rel=1e-3)


def test_a_prior_that_reaches_beyond_the_support_counts_only_inside_it():
    # Normal(0.1, 0.1) has 16 % of its mass below 0; this q is the nearest to the part inside, moved by nothing
    phi = build(
        0.113,
        within=constraints.unit_interval,
        support=constraints.interval(0.0, 0.5),
        prior=Normal(0.1, 0.1),
        scale=0.957,
    )
    exact = quadrature_kl(
        logit_normal(logit(0.226), 0.957, width=0.5),
        lambda x: float(stats.truncnorm.logpdf(x, -1.0, 4.0, loc=0.1, scale=0.1)),
        1e-6,
        0.5 - 1e-6,
        [0.1, 0.3],
    )
    assert exact < 0.1
    assert phi.excess() == pytest.approx(exact, abs=0.05)


# ---- draws and summaries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phi", "exact"),
    [
        (lambda: build(2.0, scale=0.5), lambda u: stats.lognorm.ppf(u, 0.5, scale=2.0)),
        (lambda: build(-3.0, within=constraints.real, scale=2.0), lambda u: stats.norm.ppf(u, -3.0, 2.0)),
        (
            lambda: build(0.1, within=constraints.unit_interval, support=constraints.interval(0.0, 0.5), scale=0.5),
            lambda u: 0.5 / (1 + np.exp(-stats.norm.ppf(u, logit(0.2), 0.5))),
        ),
        (
            lambda: build(7.0, support=constraints.greater_than(5.0), scale=0.5),
            lambda u: 5 + stats.lognorm.ppf(u, 0.5, scale=2.0),
        ),
    ],
)
def test_a_draw_is_the_quantile_of_its_noise(phi: Callable[[], LearnedPhi], exact: Callable):
    u = np.array([0.001, 0.05, 0.3, 0.5, 0.9, 0.999])
    learned = phi()
    values = learned.from_noise(torch.tensor(stats.norm.ppf(u)))
    np.testing.assert_allclose(values.detach().numpy(), exact(u), rtol=2e-6)
    low, high = exact(np.array([0.05, 0.95]))
    summary = learned.summary()
    assert float(summary.low) == pytest.approx(low, rel=1e-5)
    assert float(summary.high) == pytest.approx(high, rel=1e-5)
    mean = integrate.quad(exact, 0, 1, limit=500)[0]
    assert float(summary.mean) == pytest.approx(mean, rel=1e-4)


def test_draws_follow_q():
    phi = build(2.0, scale=0.5)
    u = draws(phi, 200_000).log()
    # at 200,000 draws a loc off by 1 % or a scale off by 2 % is 8 standard errors out
    assert_unbiased(u, math.log(2.0), detect=0.02)
    assert_unbiased((u - math.log(2.0)).square(), 0.25, detect=0.03)


def test_vector_phi_is_drawn_elementwise():
    phi = build([0.1, 10.0], scale=0.5)
    values = draws(phi, 50_000)
    assert values.shape == (50_000, 2)
    assert_unbiased(values.log(), torch.tensor([0.1, 10.0], dtype=torch.float64).log(), detect=0.02)
    assert abs(float(torch.corrcoef(values.log().T)[0, 1])) < 5 / math.sqrt(50_000)
    assert phi.summary().mean.shape == (2,)


@pytest.mark.parametrize(
    ("prior", "exact"),
    [
        (LogNormal(0.3, 0.5), stats.lognorm(0.5, scale=math.exp(0.3))),
        (Normal(1.0, 2.0), stats.norm(1.0, 2.0)),
        (Gamma(3.0, 2.0), stats.gamma(3.0, scale=0.5)),
        (Beta(2.0, 5.0), stats.beta(2.0, 5.0)),
        (Uniform(1.0, 3.0), stats.uniform(1.0, 2.0)),
    ],
)
def test_summary_of_a_prior_is_scipys(prior: Distribution, exact: Any):
    summary = summarise(prior)
    # 20,000 draws where there is no closed form: 5 standard errors of a mean and of two quantiles
    spread = exact.std() / math.sqrt(20_000)
    assert float(summary.mean) == pytest.approx(exact.mean(), abs=5 * spread)
    for value, share in ((summary.low, 0.05), (summary.high, 0.95)):
        error = math.sqrt(0.05 * 0.95 / 20_000) / exact.pdf(exact.ppf(share))
        assert float(value) == pytest.approx(exact.ppf(share), abs=5 * error)


@pytest.mark.parametrize(
    "prior",
    [
        TransformedDistribution(Normal(0.0, 1.0), [transforms.ExpTransform(), transforms.AffineTransform(0.0, -1.0)]),
        TransformedDistribution(Normal(0.0, 1.0), [transforms.AbsTransform()]),
    ],
)
def test_summary_of_a_falling_or_folded_map_is_an_interval(prior: Distribution):
    summary = summarise(prior)
    assert float(summary.low) < float(summary.mean) < float(summary.high)


def test_fixed_phi_is_a_number_without_kl():
    phi = FixedPhi("test", [0.1, 0.2], Domain(constraints.positive))
    assert torch.equal(draws(phi, 3), torch.tensor([[0.1, 0.2]]).double().expand(3, 2))
    assert float(phi.kl().detach()) == 0.0
    assert not list(phi.parameters())


def test_off_is_allowed_as_a_fixed_value_only_where_declared():
    zero = Domain(constraints.positive, off=0.0)
    assert float(FixedPhi("test", 0.0, zero).value) == 0.0
    with pytest.raises(ValueError, match=r"must lie in \(0, ∞\), got 0.0"):
        FixedPhi("test", 0.0, Domain(constraints.positive, off=0.0, allows_off=False))


def test_prior_phi_is_drawn_from_the_prior():
    phi = PriorPhi(Gamma(3.0, 2.0), torch.Size())
    values = draws(phi, 100_000)
    assert_unbiased(values, 1.5, detect=0.03)
    assert_unbiased((values - 1.5).square(), 0.75, detect=0.06)
    assert float(phi.kl().detach()) == 0.0


def test_prior_phi_of_a_vector_is_drawn_elementwise():
    phi = PriorPhi(LogNormal(0.0, 1.0), torch.Size([2]))
    values = draws(phi, 1000)
    assert values.shape == (1000, 2)
    assert abs(float(torch.corrcoef(values.log().T)[0, 1])) < 5 / math.sqrt(1000)
    assert phi.summary().mean.shape == (2,)


def test_a_policy_at_its_prior_stays_in_the_support():
    dropout = TokenDropout(learn(0.1, support=constraints.interval(0.0, 0.5), prior=Normal(0.1, 0.1)), mask_id=1)
    p = dropout.prior()(torch.ones(5000, 2, dtype=torch.long)).phi["p"]
    assert float(p.min()) >= 0.0
    assert float(p.max()) <= 0.5


# ---- supports --------------------------------------------------------------------------------------------------


def test_a_prior_with_hardly_any_mass_in_the_support_is_refused():
    with pytest.raises(ValueError, match=r"only 1e-09 of its mass in \(6, 7\)"):
        PriorPhi(Normal(0.0, 1.0), torch.Size(), constraints.interval(6.0, 7.0))
    with pytest.raises(ValueError, match="only 1e-09 of its mass"):
        build(6.5, within=constraints.interval(6.0, 7.0), prior=Normal(0.0, 1.0))


def test_a_prior_with_little_mass_in_the_support_is_cut_to_it():
    phi = PriorPhi(Normal(0.0, 1.0), torch.Size(), constraints.interval(2.0, 3.0))  # 2 % of its mass
    assert 2 <= float(draws(phi, 5000).min()) <= float(draws(phi, 5000).max()) <= 3


@pytest.mark.parametrize(
    ("prior", "within", "low", "high"),
    [
        (Beta(2.0, 2.0), constraints.positive, 0.0, 1.0),
        (Uniform(0.1, 0.9), constraints.positive, 0.1, 0.9),
        (Gamma(2.0, 2.0), constraints.positive, 0.0, math.inf),
        (LogNormal(0.0, 1.0), constraints.positive, 0.0, math.inf),
        (Normal(0.0, 1.0), constraints.unit_interval, 0.0, 1.0),
        (Normal(0.0, 1.0), constraints.real, -math.inf, math.inf),
        (Uniform(-2.0, 2.0), constraints.real, -2.0, 2.0),
        (Beta(2.0, 2.0), constraints.real, 0.0, 1.0),
        pytest.param(
            Uniform(-45.0, 45.0),
            constraints.real,
            -45.0,
            45.0,
            id="wide",
        ),
        pytest.param(
            Uniform(0.0, 10_000.0),
            constraints.positive,
            0.0,
            10_000.0,
            id="very wide",
        ),
    ],
)
def test_the_support_is_where_both_prior_and_family_live(
    prior: Distribution, within: Constraint, low: float, high: float
):
    phi = build(0.5, within=within, prior=prior)
    far = phi.from_noise(torch.tensor([-1e4, 1e4], dtype=torch.float64)).detach()
    assert float(far[0]) == pytest.approx(low, abs=1e-6) if math.isfinite(low) else float(far[0]) < -900
    assert float(far[1]) == pytest.approx(high, rel=1e-6) if math.isfinite(high) else float(far[1]) > 900


def test_an_explicit_support_wins_over_the_priors():
    phi = build(0.2, within=constraints.positive, support=constraints.unit_interval, prior=LogNormal(0.0, 1.0))
    assert phi.support is constraints.unit_interval
    assert not phi.closed_form


def test_a_vector_uniform_prior_bounds_each_element():
    prior = Uniform(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 3.0]))
    phi = build([0.5, 2.0], prior=prior)
    far = phi.from_noise(torch.full((2,), 300.0)).detach()
    torch.testing.assert_close(far, torch.tensor([1.0, 3.0]))


def test_a_prior_given_as_the_supports_own_bijection_has_a_closed_form():
    support = constraints.interval(0.0, 0.5)
    prior = TransformedDistribution(Normal(-1.0, 0.7), [biject_to(support)])
    phi = build(0.1, within=constraints.unit_interval, support=support, prior=prior, scale=0.5)
    assert phi.closed_form
    exact = quadrature_kl(
        logit_normal(logit(0.2), 0.5, width=0.5), logit_normal(-1.0, 0.7, width=0.5), 1e-6, 0.5 - 1e-6, [0.02, 0.1, 0.3]
    )
    assert float(phi.kl().detach()) == pytest.approx(exact, rel=1e-5)


# ---- as part of an augmentation --------------------------------------------------------------------------------


def test_phi_is_drawn_per_example_or_per_batch_and_shared_by_the_draws_of_gamma():
    x = torch.zeros(6, 1)

    def shifts(phi_draws: Any) -> Tensor:
        # with hardly any spread of its own, γ is φ
        augment = Shift(std=1e-6, mean=learn(0.0, scale=1.0), phi_draws=phi_draws)
        view = augment(x, samples=3)
        assert view.phi["mean"].shape == (6,)
        return view.gamma["shift"].detach().reshape(3, 6)

    each, once = shifts("example"), shifts("batch")
    assert float((each - each[0]).abs().max()) < 1e-4
    assert len(each[0].round(decimals=3).unique()) == 6
    assert float((once - once[0, 0]).abs().max()) < 1e-4


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda phi: pickle.loads(pickle.dumps(phi))], ids=["copy", "pickle"])  # noqa: S301
@pytest.mark.parametrize("name", CLOSED | ESTIMATED)
def test_a_copy_is_the_same_phi(name: str, twin: Callable[[LearnedPhi], LearnedPhi]):
    phi = (CLOSED | ESTIMATED)[name].phi()
    other = twin(phi)
    assert torch.equal(phi.kl(noise()), other.kl(noise()))
    assert torch.equal(draws(phi, 5), draws(other, 5))
    assert other.closed_form == phi.closed_form


def test_half_precision_never_reaches_phi_or_its_kl():
    augment = Rotate(std=learn(10.0, prior=Gamma(2.0, 0.2)), mean=learn(1.0)).bfloat16()
    view = augment(torch.zeros(2, 1, 4, 4, dtype=torch.bfloat16))
    assert view.phi["std"].dtype == torch.float32
    assert augment.kl().dtype == torch.float32
    augment.kl().backward()
    assert all(bool(p.grad.isfinite()) for p in augment.parameters() if p.grad is not None)


def test_a_learned_phi_on_the_real_line_builds_again_and_again():
    # torch keeps one identity transform for all: a first φ must not spoil it for the second
    kls = [float(Shift(std=1.0, mean=learn(0.5)).kl().detach()) for _ in range(3)]
    assert kls == pytest.approx([0.5 * (0.01 - 1) - math.log(0.1)] * 3, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_phi_does_not_follow_its_module_into_half_precision(dtype: torch.dtype):
    learner = torch.nn.ModuleList([torch.nn.Linear(2, 2), Shift(std=learn(0.3))]).to(dtype)
    assert learner[0].weight.dtype == dtype  # pyright: ignore
    assert {parameter.dtype for parameter in learner[1].parameters()} == {torch.float32}
    assert learner.double()[1].std.loc.dtype == torch.float64  # pyright: ignore


def test_phi_prints_what_it_is():
    text = repr(Shift(std=learn(0.3), mean=2.0))
    assert "mean=0.30" in text
    assert "prior=" in text
    assert "2.0" in text


def standard_deviation(policy: Translate) -> Any:
    return dict(policy.named_phi())["std"]


def draws_of(policy: Translate) -> Tensor:
    return standard_deviation(policy).draw(4000, dtype=torch.float32, device=torch.device("cpu"), noise=as_noise(None))


def test_a_prior_over_a_vector_is_cut_to_the_support_like_one_per_element():
    joint = Independent(Normal(torch.tensor([0.1, 0.1]), torch.tensor([0.2, 0.2])), 1)
    policies = [Translate(std=learn([0.1, 0.2], prior=prior)) for prior in (joint, Normal(0.1, 0.2))]
    noise = (as_noise(torch.Generator().manual_seed(0)) for _ in policies)
    one, two = (float(standard_deviation(p).kl(n).detach()) for p, n in zip(policies, noise, strict=True))
    assert one == pytest.approx(two, abs=1e-4)
    assert all(float(draws_of(policy.prior()).min()) > 0 for policy in policies)


def test_elements_that_belong_together_are_drawn_again_together():
    # whoever replaced one element alone would break what ties the two
    prior = MultivariateNormal(torch.zeros(2), torch.tensor([[1.0, 0.999], [0.999, 1.0]]))
    phi = draws_of(Translate(std=learn([0.5, 0.5], prior=prior)).prior())
    assert float(phi.min()) > 0
    assert float(torch.corrcoef(phi.T)[0, 1]) > 0.98
