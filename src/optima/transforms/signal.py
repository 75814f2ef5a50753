"""Additive transforms of signals."""

from torch import Tensor


def per_example(gamma: Tensor, like: Tensor) -> Tensor:
    """One number per example, shaped to broadcast over that example's elements."""
    return gamma.view(-1, *[1] * (like.ndim - 1))


def shift(x: Tensor, amount: Tensor) -> Tensor:
    """x + γ, one γ per example: x is (B, …), amount is (B,)."""
    return x + per_example(amount, x)


def add_noise(x: Tensor, noise: Tensor) -> Tensor:
    """x + γ, one γ per element: both are (B, …)."""
    return x + noise
