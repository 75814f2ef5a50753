"""Transforms that combine two examples."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from optima.transforms.signal import per_example


def mix(x: Float[Tensor, "B *rest"], partner: Int[Tensor, " B"], lam: Float[Tensor, " B"]) -> Float[Tensor, "B *rest"]:
    """λ x + (1 − λ) x[partner]: x is (B, …), partner (B,) holds row numbers, lam (B,) the share kept of x itself."""
    precise = torch.promote_types(x.dtype, lam.dtype)
    own = x.to(precise)
    # lerp is exact at both ends, and one pass
    return torch.lerp(own.index_select(0, partner), own, per_example(lam, x).to(precise))


def paste(
    x: Float[Tensor, "B C H W"],
    partner: Int[Tensor, " B"],
    rows: Float[Tensor, "B H"],
    columns: Float[Tensor, "B W"],
) -> Float[Tensor, "B C H W"]:
    """x outside a box and x[partner] inside: a pixel is of x[partner] by the share rows ⊗ columns of it in the box."""
    precise = torch.promote_types(x.dtype, rows.dtype)
    own = x.to(precise)
    inside = (rows.unsqueeze(2) * columns.unsqueeze(1)).unsqueeze(1).to(precise)
    return torch.lerp(own, own.index_select(0, partner), inside)
