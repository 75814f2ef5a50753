r"""KL(p(γ | φ) ‖ p₀(γ)), where torch has a closed form and where it has none."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Distribution

from optima.distributions import kl, map_tensors
from optima.sampling import rsample
from optima.streams import Noise
from optima.supports import bounds


def kl_to_prior(law: Distribution, prior: Distribution, noise: Noise) -> Tensor:
    """KL(law ‖ prior) per row: closed form where torch knows one, else one draw per row.

    The draw is unbiased up to rounding: a Beta(α, α) with α below 0.1 has mass closer to 1 than float64 can say.
    """
    try:
        return kl(law, prior)
    except NotImplementedError:
        precise = map_tensors(law, _widest)
        value = rsample(precise, noise=noise)
        limits = torch.finfo(value.dtype)
        value = _inwards(value, precise, limits.tiny**0.5, 8 * limits.eps)
        log_p = prior.log_prob(value)
        # torch rounds some densities to nothing well before the edge, Kumaraswamy's from 1e-8 on
        further = prior.log_prob(_inwards(value, precise, limits.eps**0.5, limits.eps**0.5))
        return precise.log_prob(value) - torch.where(log_p.isfinite(), log_p, further)


def _widest(tensor: Tensor) -> Tensor:
    """float64 where the device has it."""
    return tensor if tensor.device.type == "mps" or not tensor.is_floating_point() else tensor.double()


def _inwards(value: Tensor, law: Distribution, from_low: float, from_high: float) -> Tensor:
    """A draw that rounded onto an edge of its support, where a density may be infinite, moved off it."""
    ends = None if law.support is None else bounds(law.support)
    if ends is None:
        return value
    low, high = (torch.as_tensor(end, dtype=value.dtype, device=value.device) for end in ends)
    step = 8 * torch.finfo(value.dtype).eps
    above = torch.where(low.isfinite(), low + (step * low.abs()).clamp_min(from_low), low)
    below = torch.where(high.isfinite(), high - from_high * high.abs().clamp_min(step), high)
    return value.clamp(above, below)
