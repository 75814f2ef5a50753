"""The balance point: closed forms, and where the library's own training comes to rest."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

import optima
from optima import learn
from optima.experiments.balance import balance_std, curvature, mean_squared_slope

X = torch.tensor([[-1.3], [0.2], [0.9]], dtype=torch.float64)
Y = torch.tensor([[0.4], [-2.0], [1.1]], dtype=torch.float64)


def line(x: Tensor) -> Tensor:
    return 1.7 * x - 0.3


def square(x: Tensor) -> Tensor:
    return x.square()


def test_a_line_pulls_with_its_squared_slope():
    assert curvature(line, X, Y, mean=0.1, std=0.4) == pytest.approx(1.7**2, rel=1e-12)
    assert mean_squared_slope(line, X, mean=0.1, std=0.4) == pytest.approx(1.7**2, rel=1e-12)


def test_a_parabola_pulls_with_slope_and_residual():
    mean, std = 0.1, 0.4
    centre = (X + mean).square()
    slope = 4 * (centre + std**2)
    residual_times_curvature = 2 * (Y - centre - std**2)
    assert mean_squared_slope(square, X, mean=mean, std=std) == pytest.approx(float(slope.mean()), rel=1e-12)
    expected = float((slope - residual_times_curvature).mean())
    assert curvature(square, X, Y, mean=mean, std=std) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("noise", "num_data", "beta_phi"), [(0.5, 50, 1.0), (0.2, 50, 5.0), (0.7, 10, 50.0)])
def test_the_balance_minimises_the_negative_elbo(noise, num_data, beta_phi):
    std = torch.logspace(-3, 0, 20_001, dtype=torch.float64)
    gamma_kl = kl_divergence(Normal(torch.zeros_like(std), std), Normal(0.0, 0.2))
    residual = 0.6  # of every point; it does not depend on σ
    data_term = num_data * (residual**2 + 1.7**2 * std.square()) / (2 * noise**2)
    best = float(std[(data_term + beta_phi * gamma_kl).argmin()])
    found = balance_std(1.7**2, prior_std=0.2, noise=noise, num_data=num_data, beta_phi=beta_phi)
    assert found == pytest.approx(best, rel=4e-4)


def test_no_balance_where_the_data_wants_ever_more():
    assert balance_std(-1.0, prior_std=0.2, noise=0.1, num_data=50, beta_phi=1.0) is None


def test_training_comes_to_rest_at_the_balance():
    """A frozen line, so that only σ moves. Forgetting β would put the balance 40 % lower."""
    x = torch.linspace(-1, 1, 20).unsqueeze(1)
    model = nn.Linear(1, 1).requires_grad_(False)
    model.weight.fill_(2.0)
    augment = optima.Shift(std=learn(0.1, posterior="point"), prior_gamma=Normal(0.0, 0.2))
    objective = optima.ELBO(20, optima.Gaussian(noise=0.5), beta_phi=4.0)
    optimizer = torch.optim.Adam(augment.parameters(), lr=2e-2)
    std = dict(augment.named_phi())["std"]
    visited = []
    for _ in range(300):
        view = augment(x, model(x), samples=64)
        loss = objective(model(view.x), view, augment=augment)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        visited.append(std.summary().mean.item())
    expected = balance_std(4.0, prior_std=0.2, noise=0.5, num_data=20, beta_phi=4.0)
    assert expected is not None
    forgotten = balance_std(4.0, prior_std=0.2, noise=0.5, num_data=20, beta_phi=1.0)
    assert forgotten is not None
    assert forgotten < 0.6 * expected
    assert sum(visited[-100:]) / 100 == pytest.approx(expected, rel=0.02)
