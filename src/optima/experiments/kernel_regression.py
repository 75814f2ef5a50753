r"""What the augmented squared error asks for, whatever the network.

For γ ~ N(μ, σ²) the loss E_γ Σ_i (y_i − f(x_i + γ))² is smallest, over all functions f, for the kernel regression

    f*(x) = Σ_i w_i(x) y_i,    w_i(x) ∝ exp(−(x − x_i − μ)² / 2σ²)                (Nadaraya 1964; Watson 1964)

since at each x it is a weighted mean square of y_i − f(x). So σ is a bandwidth: too narrow follows the noise, too wide
flattens the peaks and the ends. A network that cannot follow the noise, or is not trained long enough to, is smoother.
"""

from __future__ import annotations

from torch import Tensor


def kernel_regression(x: Tensor, y: Tensor, points: Tensor, *, mean: float, std: float) -> Tensor:
    """f* at `points`.

    Args:
        x: training inputs, (rows, 1).
        y: training targets, (rows, 1).
        points: (points, 1).
        mean: μ.
        std: σ, positive.

    Example:
        >>> import torch
        >>> x, y = torch.tensor([[-1.0], [1.0]]), torch.tensor([[0.0], [2.0]])
        >>> kernel_regression(x, y, torch.tensor([[0.0]]), mean=0.0, std=0.5)
        tensor([[1.]])
    """
    distance = points - mean - x.T
    return (-distance.square() / (2 * std**2)).softmax(1) @ y
