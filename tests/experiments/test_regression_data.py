"""The regression's data against closed forms and quadrature."""

from __future__ import annotations

import math

import pytest
import torch

from optima.experiments.regression_data import draw_dataset, noise_std, observe, true_squared_slope, truth
from tests.reference import assert_unbiased, gauss_legendre


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("x", [0.0, 0.8, math.pi / 2, -2.0])
def test_the_noise_has_its_mean_and_variance_at_every_x(x):
    points = torch.full((400_000,), x, dtype=torch.float32)
    residual = (observe(points, generator()) - truth(points)).double()
    variance = 0.2**2 + 0.15**2 * math.sin(x) ** 2
    assert abs(float(residual.mean())) < 5 * math.sqrt(variance / len(points))
    assert_unbiased(residual.square(), variance, detect=0.02)


def test_every_point_has_its_own_noise():
    """ε' drawn once for all would make the residuals at sin x = 1 share it: correlation 0.36."""
    pairs = observe(torch.full((100_000, 2), math.pi / 2), generator()) - truth(torch.tensor(math.pi / 2))
    assert abs(float(torch.corrcoef(pairs.T)[0, 1])) < 5 / math.sqrt(100_000)


def test_closed_forms_agree_with_quadrature():
    nodes, weights = gauss_legendre(80)
    x = (6 * nodes - 3).requires_grad_()
    (slope,) = torch.autograd.grad(truth(x).sum(), x)
    assert true_squared_slope() == pytest.approx(float(weights @ slope.square()), rel=1e-12)
    variance = 0.2**2 + 0.15**2 * x.detach().sin().square()
    assert noise_std() == pytest.approx(math.sqrt(float(weights @ variance)), rel=1e-12)


def test_training_inputs_are_uniform_and_test_inputs_evenly_spaced():
    x = torch.cat([draw_dataset(generator(seed)).x for seed in range(200)]).double()
    assert len(x) == 200 * 50
    assert -3 <= float(x.min()) < -2.99
    assert 2.99 < float(x.max()) <= 3
    assert_unbiased(x.square(), torch.tensor([3.0]), detect=0.1)
    data = draw_dataset(generator())
    spacing = data.x_test.diff(dim=0)
    assert data.x_test.shape == data.y_test.shape == (1000, 1)
    torch.testing.assert_close(spacing, torch.full_like(spacing, 6 / 999), rtol=0, atol=1e-6)
    assert torch.equal(data.f_test, truth(data.x_test))


def test_a_generator_decides_everything():
    first, again, other = (draw_dataset(generator(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.x, other.x)
    assert not torch.equal(first.y_test, other.y_test)
