"""Transforms of integer token sequences."""

from torch import Tensor


def mask_tokens(tokens: Tensor, dropped: Tensor, mask_id: int) -> Tensor:
    """Replace the tokens where `dropped` is 1 by `mask_id`: both are (B, L)."""
    return tokens.masked_fill(dropped.bool(), mask_id)
