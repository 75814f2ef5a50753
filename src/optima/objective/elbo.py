r"""The augmented ELBO as arithmetic on tensors. Read this file first.

    ELBO = N/B · Σ_i ℓ_i  −  KL(q(θ) ‖ p(θ))  −  KL(q(φ) ‖ p(φ))                                   (Algorithms 1 and
    2, line 10)

ℓ_i is what example i says, given log p(yᵢ | T_{γ_ik}(xᵢ), θ) for K draws of γ: one of

    jensen      (1/K) Σ_k log p_ik            the paper's bound, the logarithm inside E_γ
    marginal    log (1/K) Σ_k p_ik            tighter, equal to it at K = 1
    naive       Σ_k log p_ik                  no bound: counts the example K times, as data augmentation usually does

Everything is in nats for the whole data set.
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from optima.augment.checks import can_look


class ElboTerms(NamedTuple):
    """The estimate and its parts, in nats, for all N examples."""

    value: Tensor
    log_lik: Tensor
    kl_theta: Tensor
    kl_phi: Tensor


def elbo(
    log_lik: Float[Tensor, " B"],
    kl_theta: Tensor | float,
    kl_phi: Tensor | float,
    num_data: int,
    *,
    beta_theta: float = 1.0,
    beta_phi: float = 1.0,
) -> ElboTerms:
    r"""N/B Σ ℓ_i − β_θ KL(q(θ) ‖ p(θ)) − β_φ KL(q(φ) ‖ p(φ)).

    A lower bound on log p(D) when both β are 1; a tempered objective otherwise. A minibatch gives an unbiased estimate.

    Args:
        log_lik: ℓ_i, shape (B,).
        kl_theta: KL(q(θ) ‖ p(θ)), in nats.
        kl_phi: KL(q(φ) ‖ p(φ)), in nats.
        num_data: N, at least B.
        beta_theta: weight of the first KL.
        beta_phi: weight of the second.

    Example:
        >>> elbo(torch.tensor([-1.0, -3.0]), 0.5, 0.25, num_data=10).value
        tensor(-20.7500)
    """
    _check_log_lik(log_lik)
    num_data = checked_num_data(num_data)
    if num_data < len(log_lik):
        raise ValueError(f"num_data is the number of training examples, {num_data}, but log_lik holds {len(log_lik)}")
    check_weight("beta_theta", beta_theta)
    check_weight("beta_phi", beta_phi)
    theta, phi = _one_number("kl_theta", kl_theta), _one_number("kl_phi", kl_phi)
    data = num_data * log_lik.mean()
    return ElboTerms(data - beta_theta * theta - beta_phi * phi, data, theta, phi)


def jensen(log_lik: Float[Tensor, "K B"]) -> Float[Tensor, " B"]:
    """E_γ[log p(y | T_γ(x), θ)] from K draws: their mean."""
    return _draws(log_lik).mean(0)


def log_marginal(log_lik: Float[Tensor, "K B"]) -> Float[Tensor, " B"]:
    """log E_γ[p(y | T_γ(x), θ)] from K draws: logsumexp_k log p_k − log K.

    Biased downwards for finite K, consistent as K grows.

    Example:
        >>> log_marginal(torch.zeros(4, 2))
        tensor([0., 0.])
    """
    return _draws(log_lik).logsumexp(0) - math.log(len(log_lik))


def naive(log_lik: Float[Tensor, "K B"]) -> Float[Tensor, " B"]:
    """Σ_k log p(y | T_{γ_k}(x), θ): K copies taken for K independent examples."""
    return _draws(log_lik).sum(0)


def marginalization_advantage(log_lik: Float[Tensor, "K B"]) -> Float[Tensor, " B"]:
    """Δ_φ = log E_γ p − E_γ log p ≥ 0, per example, from K draws. (K, B) → (B,); 0 when K = 1.

    Example:
        >>> marginalization_advantage(torch.zeros(4, 2))
        tensor([0., 0.])
    """
    return (log_marginal(log_lik) - jensen(log_lik)).clamp_min(0.0)


def checked_num_data(num_data: Any) -> int:
    """N, if it is a whole number from 1."""
    whole = isinstance(num_data, int | Integral) and not isinstance(num_data, bool)
    if not whole or num_data < 1:
        raise ValueError(f"num_data must be the number of training examples, a positive whole number, got {num_data!r}")
    return int(num_data)


def check_weight(name: str, weight: Any) -> None:
    """Raise unless a term can be weighed by this."""
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise TypeError(f"{name} must be a number, got {type(weight).__name__}")
    if not 0 <= weight < math.inf:
        raise ValueError(f"{name} must be finite and not negative, got {weight}")


def _check_log_lik(log_lik: Tensor) -> None:
    if not isinstance(log_lik, Tensor) or not log_lik.is_floating_point():
        came = log_lik.dtype if isinstance(log_lik, Tensor) else type(log_lik).__name__
        raise TypeError(f"log_lik must be a floating-point tensor, one value per example, got {came}")
    if log_lik.ndim != 1 or len(log_lik) == 0:
        raise ValueError(
            f"log_lik must hold one value per example, shape (B,), got {tuple(log_lik.shape)};"
            " average or marginalise the draws first"
        )
    if can_look(log_lik) and bool(log_lik.isnan().any()):
        where = log_lik.isnan().nonzero().flatten().tolist()
        raise ValueError(
            f"log_lik of {len(where)} of {len(log_lik)} examples is not a number (the first is example {where[0]})"
        )


def _one_number(name: str, value: Any) -> Tensor:
    """A KL as a tensor."""
    if not isinstance(value, Tensor | float | int):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    term = torch.as_tensor(value)
    if term.ndim:
        raise ValueError(f"{name} must be one number for the whole data set, got shape {tuple(term.shape)}")
    if can_look(term) and not bool(term.isfinite()):
        raise ValueError(f"{name} must be finite, got {float(term)}: what it is the KL of has diverged")
    return term


def _draws(log_lik: Tensor) -> Tensor:
    if not isinstance(log_lik, Tensor):
        raise TypeError(f"log_lik must be a tensor of shape (K, B), got {type(log_lik).__name__}")
    if log_lik.ndim != 2 or len(log_lik) == 0:
        raise ValueError(f"log_lik must hold K ≥ 1 draws per example, shape (K, B), got {tuple(log_lik.shape)}")
    return log_lik
