"""Proposition 1: log E e^f − E f ≤ L²σ²/2, with equality for linear f and Gaussian γ; and where it fails as written."""

from __future__ import annotations

import math

import pytest
import torch

from optima.objective import marginalization_advantage
from tests.reference import gauss_hermite


def exact_gap(f, sigma: float) -> float:
    """log E e^{f(γ)} − E f(γ), γ ~ N(0, σ²)."""
    nodes, weights = gauss_hermite(120)
    values = f(sigma * nodes)
    return float((weights.log() + values).logsumexp(0) - (weights * values).sum())


@pytest.mark.parametrize(("slope", "sigma"), [(0.5, 1.0), (2.0, 0.3), (-1.5, 0.8)])
def test_the_gap_of_a_linear_f_is_the_bound(slope: float, sigma: float):
    assert exact_gap(lambda g: slope * g, sigma) == pytest.approx(slope**2 * sigma**2 / 2, rel=1e-9)


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0, 2.0])
def test_a_lipschitz_f_stays_below_the_bound_for_gaussian_gamma(sigma: float):
    gap = exact_gap(lambda g: torch.sin(1.5 * g) - 0.3 * torch.tanh(g), sigma)
    lipschitz = 1.5 + 0.3
    assert 0 < gap <= lipschitz**2 * sigma**2 / 2


def test_for_other_sub_gaussian_gamma_the_bound_can_fail():
    """γ ∈ {−1, 0, 1} with chances (q/2, 1−q, q/2), f = L|γ|: a Lipschitz function of γ with a larger proxy than γ's."""
    q = 0.05
    slopes = torch.linspace(0.01, 40, 40_000, dtype=torch.float64)
    # the sharp variance proxy of γ: the smallest σ² with log E e^{sγ} ≤ s²σ²/2 for all s
    proxy = (2 * torch.log(1 - q + q * torch.cosh(slopes)) / slopes**2).max()
    gap = torch.log(1 - q + q * slopes.exp()) - q * slopes
    excess = gap / (slopes**2 * proxy / 2)
    assert 1.1 < float(excess.max()) < 1.2


def test_the_estimated_advantage_approaches_the_gap():
    generator = torch.Generator().manual_seed(0)
    gamma = 0.7 * torch.randn((4096, 64), generator=generator, dtype=torch.float64)
    estimate = marginalization_advantage(1.2 * gamma)
    stderr = estimate.std() / math.sqrt(len(estimate))
    assert abs(float(estimate.mean()) - 1.2**2 * 0.49 / 2) < 5 * float(stderr) + 0.01
