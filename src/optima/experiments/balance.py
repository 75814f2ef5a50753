r"""Where the strength of a Gaussian shift comes to rest: the data's pull against the prior's.

For γ ~ N(μ, σ²), a Gaussian likelihood of noise s and the prior N(0, τ²) on γ, the objective depends on σ through

    −ELBO(σ) = N D(σ) / s² + β [ (σ² + μ²) / 2τ² − log σ ] + const
        D(σ) = mean_i E_z[ ½ (y_i − f(x_i + μ + σz))² ],   z ~ N(0, 1)

Its derivative vanishes where

    1/σ² = 1/τ² + N C / (β s²),    C = D'(σ) / σ = E[f'² − (y − f) f'']   (the second equality is Stein's lemma)

Where f is linear over the width of γ, or fits y, the second term goes and C is E[f'(x)²], the mean squared slope.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

Function = Callable[[Tensor], Tensor]


def balance_std(curvature: float, *, prior_std: float, noise: float, num_data: int, beta_phi: float) -> float | None:
    """σ at which the data and the prior pull equally hard.

    None where they never do, because the data pulls σ up harder than the prior holds it back.

    Example:
        >>> balance_std(0.0, prior_std=0.2, noise=1.0, num_data=50, beta_phi=1.0)
        0.2
    """
    precision = prior_std**-2 + num_data * curvature / (beta_phi * noise**2)
    return precision**-0.5 if precision > 0 else None


def curvature(function: Function, x: Tensor, y: Tensor, *, mean: float, std: float) -> float:
    """C = D'(σ) / σ, by quadrature over γ.

    Args:
        function: f, elementwise over rows.
        x: (rows, 1).
        y: (rows, 1).
        mean: μ.
        std: σ, positive.
    """
    sigma = torch.tensor(std, dtype=x.dtype, requires_grad=True)
    nodes, weights = _gauss_hermite(x.dtype)
    residual = y - function((x + mean + sigma * nodes).reshape(-1, 1)).view(len(x), -1)
    spread = 0.5 * (residual.square() @ weights).mean()
    (slope,) = torch.autograd.grad(spread, sigma)
    return float(slope) / std


def mean_squared_slope(function: Function, x: Tensor, *, mean: float, std: float) -> float:
    """E[f'(x + γ)²], by quadrature over γ ~ N(μ, σ²)."""
    nodes, weights = _gauss_hermite(x.dtype)
    points = (x + mean + std * nodes).reshape(-1, 1).requires_grad_()
    (slope,) = torch.autograd.grad(function(points).sum(), points)
    return float((slope.view(len(x), -1).square() @ weights).mean())


def _gauss_hermite(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Nodes and weights of an expectation over N(0, 1)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(32)
    return torch.tensor(nodes, dtype=dtype), torch.tensor(weights / math.sqrt(2 * math.pi), dtype=dtype)
