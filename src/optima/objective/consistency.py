"""AugMix's consistency term (Hendrycks et al., 2020)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor


def jensen_shannon(logits: Float[Tensor, "V B C"]) -> Float[Tensor, " B"]:
    r"""Divergence of V predictions from their mean, in nats: (1/V) Σ_v KL(p_v ‖ p̄), between 0 and log V.

    Args:
        logits: (V, B, C), V views of each of B examples.

    Example:
        >>> jensen_shannon(torch.tensor([[[100.0, 0.0]], [[0.0, 100.0]]]))  # log 2
        tensor([0.6931])
    """
    log_p = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    log_mean = log_p.logsumexp(0) - math.log(len(logits))
    return (log_p.exp() * (log_p - log_mean)).sum(-1).mean(0).clamp_min(0.0)
