"""Additive transforms of signals."""

from jaxtyping import Float
from torch import Tensor


def per_example(gamma: Float[Tensor, " B"], like: Tensor) -> Tensor:
    """One number per example, shaped to broadcast over that example's elements."""
    return gamma.view(-1, *[1] * (like.ndim - 1))


def shift(x: Float[Tensor, "B *rest"], amount: Float[Tensor, " B"]) -> Float[Tensor, "B *rest"]:
    """x + γ, one γ per example: x is (B, …), amount is (B,)."""
    return x + per_example(amount, x)


def add_noise(x: Float[Tensor, "B *rest"], noise: Float[Tensor, "B *rest"]) -> Float[Tensor, "B *rest"]:
    """x + γ, one γ per element: both are (B, …)."""
    return x + noise
