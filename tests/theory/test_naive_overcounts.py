"""K naive copies multiply the data's share of a conjugate posterior's precision by K; the marginalised likelihood
does not.

y_i = θ + ε_i with ε ~ N(0, s²), prior θ ~ N(0, τ²), inputs shifted by γ ~ N(0, σ²): y_i | θ, γ ~ N(θ (x_i + γ), s²)
with x_i = 1. The curvature of each objective at θ is what a Laplace approximation calls the data's precision.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import optima
from optima.augment import View

N, NOISE = 6, 0.7
Y = torch.tensor([1.1, 0.8, 1.3, 0.6, 1.0, 1.2], dtype=torch.float64).unsqueeze(1)


def data_precision(bound, copies: int) -> float:
    """−∂²/∂θ² of the data term, N points, at copies with no spread (σ → 0)."""

    def data_term(theta: Tensor) -> Tensor:
        x = torch.ones(N * copies, 1, dtype=torch.float64)
        view = View(x, Y.repeat(copies, 1), copies)
        objective = optima.ELBO(num_data=N, likelihood=optima.Gaussian(noise=NOISE), bound=bound)
        return -objective(theta * x, view).value * N

    theta = torch.tensor(0.9, dtype=torch.float64)
    curvature: Any = torch.autograd.functional.hessian(data_term, theta)
    return -float(curvature)


@pytest.mark.parametrize("copies", [1, 2, 5, 10])
def test_naive_copies_multiply_the_precision_by_k(copies: int):
    assert data_precision("naive", copies) == pytest.approx(copies * N / NOISE**2, rel=1e-6)


@pytest.mark.parametrize("bound", ["jensen", "marginal"])
@pytest.mark.parametrize("copies", [1, 2, 5, 10])
def test_the_marginalised_likelihood_counts_every_example_once(bound, copies: int):
    assert data_precision(bound, copies) == pytest.approx(N / NOISE**2, rel=1e-6)
