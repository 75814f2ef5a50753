"""Transforms that combine two examples."""

from jaxtyping import Float, Int
from torch import Tensor

from optima.transforms.signal import per_example


def mix(x: Float[Tensor, "B *rest"], partner: Int[Tensor, " B"], lam: Float[Tensor, " B"]) -> Float[Tensor, "B *rest"]:
    """λ x + (1 − λ) x[partner]: x is (B, …), partner (B,) holds row numbers, lam (B,) the share kept of x itself."""
    share = per_example(lam, x)
    return x * share + x[partner] * (1.0 - share)
