"""The minimiser of the augmented loss against least squares on a grid."""

from __future__ import annotations

import torch

from optima.experiments.kernel_regression import kernel_regression
from tests.reference import gauss_hermite

X = torch.tensor([[-0.8], [-0.1], [0.3], [1.2]], dtype=torch.float64)
Y = torch.tensor([[1.0], [-2.0], [0.5], [0.7]], dtype=torch.float64)


def augmented_loss(change: float, centre: float, *, mean: float = 0.1, std: float = 0.3) -> float:
    """E_γ Σ (y − f(x + γ))² for f = f* + change · a bump at `centre`."""
    nodes, weights = gauss_hermite(200)
    points = (X + mean + std * nodes).reshape(-1, 1)
    bump = change * (-(points - centre).square() / 0.08).exp()
    f = (kernel_regression(X, Y, points, mean=mean, std=std) + bump).view(len(X), -1)
    return float(((Y - f).square() @ weights).sum())


def test_no_other_function_has_a_smaller_augmented_loss():
    for centre in (-1.0, -0.4, 0.2, 0.7, 1.5):
        lower, best, upper = (augmented_loss(change, centre) for change in (-0.01, 0.0, 0.01))
        assert best < min(lower, upper)
        # a parabola in the change, with its minimum at 0: the first derivative vanishes
        assert abs(upper - lower) < 1e-4 * (upper + lower - 2 * best)


def test_the_limits_are_the_nearest_target_and_the_mean():
    points = torch.tensor([[-0.75], [0.25], [5.0]], dtype=torch.float64)
    nearest = kernel_regression(X, Y, points, mean=0.0, std=0.01)
    torch.testing.assert_close(nearest, torch.tensor([[1.0], [0.5], [0.7]], dtype=torch.float64))
    widest = kernel_regression(X, Y, points, mean=0.0, std=1e6)
    torch.testing.assert_close(widest, Y.mean().expand(3, 1), rtol=1e-9, atol=1e-9)
