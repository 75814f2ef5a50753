"""Transforms of integer token sequences."""

from jaxtyping import Int, Shaped
from torch import Tensor


def mask_tokens(tokens: Int[Tensor, "B L"], dropped: Shaped[Tensor, "B L"], mask_id: int) -> Int[Tensor, "B L"]:
    """Replace the tokens where `dropped` is 1 by `mask_id`: both are (B, L)."""
    return tokens.masked_fill(dropped.bool(), mask_id)
