"""The ELBO as arithmetic: its scale, its bounds, its parts."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import optima
from optima import bayes, learn
from optima.augment import View
from optima.objective import elbo, log_marginal, marginalization_advantage
from optima.objective.elbo import jensen, naive

DOUBLE = torch.float64


def objective_on(log_lik: Tensor, *, num_data: int, **options):
    """An ELBO whose log-likelihood is exactly `log_lik`, (K, B): class 0 of a two-class output."""
    logit = log_lik.flatten()
    output = torch.stack([logit, torch.log1p(-logit.exp())], 1)
    view = View(torch.zeros(len(logit), 1), torch.zeros(len(logit), dtype=torch.int64), len(log_lik))
    return optima.ELBO(num_data=num_data, **options)(output, view)


def test_the_estimates_of_a_partition_average_to_the_full_elbo_exactly():
    log_lik = -torch.rand(12, dtype=DOUBLE)
    full = elbo(log_lik, 3.0, 0.7, num_data=12).value
    parts = [elbo(part, 3.0, 0.7, num_data=12).value for part in log_lik.split(4)]
    torch.testing.assert_close(torch.stack(parts).mean(), full, rtol=1e-15, atol=1e-14)


def test_repeating_a_batch_changes_nothing():
    log_lik = -torch.rand(5, dtype=DOUBLE)
    once, twice = (elbo(part, 3.0, 0.7, num_data=50).value for part in (log_lik, log_lik.repeat(2)))
    torch.testing.assert_close(once, twice, rtol=1e-15, atol=1e-14)


@settings(deadline=None, max_examples=50)
@given(slope=st.floats(-3, 3), offset=st.floats(-3, 3), num_data=st.integers(7, 10_000))
def test_the_elbo_is_affine_in_the_log_likelihood(slope: float, offset: float, num_data: int):
    log_lik = torch.linspace(-2, 0, 7, dtype=DOUBLE)
    moved = elbo(slope * log_lik + offset, 1.0, 2.0, num_data=num_data).value
    plain = elbo(log_lik, 1.0, 2.0, num_data=num_data).value
    torch.testing.assert_close(moved + 3.0, slope * (plain + 3.0) + offset * num_data, rtol=1e-9, atol=1e-8)


def test_the_betas_weigh_their_own_kl():
    terms = elbo(torch.zeros(3), 2.0, 5.0, num_data=3, beta_theta=0.5, beta_phi=0.1)
    assert float(terms.value) == pytest.approx(-1.5)
    assert (float(terms.kl_theta), float(terms.kl_phi)) == (2.0, 5.0)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10_000), draws=st.integers(1, 6), rows=st.integers(1, 5))
def test_the_bounds_are_ordered_and_the_advantage_is_their_gap(seed: int, draws: int, rows: int):
    log_lik = -3 * torch.rand((draws, rows), generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)
    gap = log_marginal(log_lik) - jensen(log_lik)
    assert (gap >= -1e-12).all()
    torch.testing.assert_close(marginalization_advantage(log_lik), gap.clamp(min=0))
    torch.testing.assert_close(naive(log_lik), draws * jensen(log_lik))
    if draws == 1:
        assert (marginalization_advantage(log_lik) == 0).all()


@pytest.mark.parametrize("bound", ["jensen", "marginal", "naive"])
def test_the_loss_is_minus_elbo_over_n_with_every_part_in_nats(bound):
    log_lik = -torch.rand((3, 4), dtype=DOUBLE) - 0.1
    loss = objective_on(log_lik, num_data=100, bound=bound)
    per_example = {"jensen": jensen, "marginal": log_marginal, "naive": naive}[bound](log_lik)
    torch.testing.assert_close(loss.data_fit, 100 * per_example.mean())
    torch.testing.assert_close(loss.elbo, loss.data_fit)
    torch.testing.assert_close(loss.value, -loss.elbo / 100)
    assert loss.advantage is not None
    torch.testing.assert_close(loss.advantage, marginalization_advantage(log_lik).mean())


def test_one_draw_has_no_advantage_to_show():
    assert objective_on(torch.tensor([[-0.5, -1.0]]), num_data=2).advantage is None


# ---- the KL's scale, whole steps -----------------------------------------------------------------------------------


class TwoBayesianLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = optima.BayesianLinear(3, 4, prior_std=0.5)
        self.second = optima.BayesianLinear(4, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


def quadrature_kl(loc: Tensor, std: Tensor, prior_std: float) -> float:
    """Σ KL(N(loc, std²) ‖ N(0, prior_std²)) by the trapezoidal rule."""
    points = torch.linspace(-10, 10, 4001, dtype=DOUBLE)
    weights = torch.exp(-0.5 * points**2)
    weights /= weights.sum()
    total = 0.0
    for m, s in zip(loc.flatten().double(), std.flatten().double(), strict=True):
        at = m + s * points
        log_q = -0.5 * points**2 - torch.log(s)
        log_p = -0.5 * (at / prior_std) ** 2 - math.log(prior_std)
        total += float((weights * (log_q - log_p)).sum())
    return total


def check_kl_is_summed_over_layers() -> None:
    model = TwoBayesianLayers()
    exact = 0.0
    for layer in (model.first, model.second):
        exact += quadrature_kl(layer.weight_loc.detach(), layer.weight_log_scale.detach().exp(), layer.prior_std)
        if layer.bias_loc is not None and layer.bias_log_scale is not None:
            exact += quadrature_kl(layer.bias_loc.detach(), layer.bias_log_scale.detach().exp(), layer.prior_std)
    assert float(bayes.kl_theta(model).detach()) == pytest.approx(exact, rel=1e-5)


def test_kl_theta_is_the_sum_over_layers_and_parameters():
    check_kl_is_summed_over_layers()


def test_a_kl_averaged_over_layers_is_caught(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        bayes,
        "kl_theta",
        lambda model: torch.stack([layer.kl() for layer in (model.first, model.second)]).mean(),
    )
    with pytest.raises(AssertionError):
        check_kl_is_summed_over_layers()


def check_kl_share(divisor_bug: float = 1.0) -> None:
    """The gradient of one step on q(φ)'s location: data term and KL in their true proportion, N = 50 and B = 10."""
    rows, num_data = 10, 50
    augment = optima.Shift(std=learn(0.5, prior=torch.distributions.LogNormal(0.3, 0.8))).double()
    x, y = torch.zeros(rows, 1, dtype=DOUBLE), torch.full((rows, 1), 0.4, dtype=DOUBLE)
    view = augment(x, y, generator=torch.Generator().manual_seed(0))
    objective = optima.ELBO(num_data=num_data, likelihood="gaussian", beta_phi=divisor_bug)
    loss = objective(view.x, view, augment=augment)
    loss.backward()
    # −∇ELBO/N by hand: x' = γ = std·ε, so ∂ℓ/∂loc = (y − γ) γ; KL of Normals on the log line
    gamma = view.gamma["shift"].detach()
    data = ((0.4 - gamma) * gamma).mean()
    kl = (math.log(0.5) - 0.3) / 0.8**2
    grad = augment.get_parameter("std.loc").grad
    assert grad is not None
    assert float(grad) == pytest.approx(float(-data) + kl / num_data, rel=1e-6)


def test_the_kl_is_divided_by_n_once():
    check_kl_share()


def test_a_kl_divided_by_the_batch_is_caught():
    with pytest.raises(AssertionError):
        check_kl_share(divisor_bug=50 / 10)  # what dividing by B instead of N amounts to
