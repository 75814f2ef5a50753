r"""Surrogates: scalars per example whose value is ℓ_i and whose gradient is right for every φ in the pipeline.

A draw of γ reaches the objective in one of two ways, and a pipeline may mix them freely:

    pathwise          ℓ depends on φ through γ = g(φ, noise); autograd already has the gradient
    score function    γ is a plain number; the gradient is E[ (ℓ − b) ∇ log p(γ | φ) ], for any b that does not depend
    on γ

    ∇ E[ℓ] = E[ ∇ℓ  +  Σ_k (signal_k) ∇ log p(γ_k | φ) ]

The second term is added as signal · (log p − stop(log p)), which is 0 in value. A relaxed or straight-through draw
looks pathwise here; its bias is that of its sampler (`optima.sampling`).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def pathwise(value: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """ℓ itself: unbiased when every γ is reparameterised and T is continuous in γ. Lowest variance."""
    return value


def score_function(
    value: Float[Tensor, " B"], signal: Float[Tensor, "K B"], log_prob: Float[Tensor, "K B"]
) -> Float[Tensor, " B"]:
    """ℓ plus a term of value 0 whose gradient is Σ_k signal_k ∇ log p(γ_k | φ).

    Unbiased for any γ and any T, as long as `signal` is ℓ minus something that does not depend on γ_k. Variance grows
    with the number of discrete choices per example.

    Args:
        value: ℓ_i, (B,).
        signal: (K, B), treated as constant.
        log_prob: log p(γ_ik | φ), (K, B).
    """
    return value + (signal.detach() * (log_prob - log_prob.detach())).sum(0)


def leave_one_out_draws(log_lik: Float[Tensor, "K B"]) -> Float[Tensor, "K B"]:
    """For each draw the mean of the example's other draws, which do not depend on it: (K, B) → (K, B), K ≥ 2."""
    draws = len(log_lik)
    return (log_lik.sum(0) - log_lik) / (draws - 1)


def leave_one_out_batch(
    log_lik: Float[Tensor, " B"], sources: Bool[Tensor, "B B"] | None = None
) -> Float[Tensor, " B"]:
    """For each example the mean over the others that share no draw of γ with it, (B,) → (B,); 0 where there are none.

    Args:
        log_lik: (B,).
        sources: (B, B), which rows' draws each row depends on; None when each depends on its own.
    """
    rows = len(log_lik)
    if sources is None:
        return (log_lik.sum() - log_lik) / max(rows - 1, 1) * (rows > 1)
    reach = sources.to(log_lik.dtype)
    apart = (reach @ reach.T == 0).to(log_lik.dtype)
    return (apart @ log_lik) / apart.sum(1).clamp(min=1)


def marginal_signal(log_lik: Float[Tensor, "K B"]) -> Float[Tensor, "K B"]:
    """log (1/K) Σ_j p_j minus the same over the other draws, (K, B) → (K, B): each draw's share of the bound (VIMCO).

    The leave-one-out bound is the baseline of Mnih & Rezende (2016), with the mean of the other probabilities in the
    held-out place. Needs K ≥ 2.
    """
    draws = len(log_lik)
    full = log_lik.logsumexp(0) - math.log(draws)
    off_diagonal = torch.eye(draws, dtype=torch.bool, device=log_lik.device).unsqueeze(-1)
    others = log_lik.unsqueeze(0).masked_fill(off_diagonal, -math.inf).logsumexp(1) - math.log(draws - 1)
    return full - others
