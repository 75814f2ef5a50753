"""Mean and 90 % interval of a distribution."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal, TransformedDistribution
from torch.distributions.constraints import Constraint

from optima.distributions import map_tensors, tensors_of
from optima.sampling import sample
from optima.supports import bounds, contains

_DRAWS = 20_000


class Summary(NamedTuple):
    """Mean and central 90 % interval, in the constrained space."""

    mean: Tensor
    low: Tensor
    high: Tensor


@torch.no_grad()
def summarise(distribution: Distribution, support: Constraint | None = None) -> Summary:
    """Mean and 90 % interval: exact quantiles where φ is a monotone map of a Normal, else from fixed draws.

    Args:
        distribution: over one number, or over independent ones.
        support: leave out what lies beyond it.
    """
    normal = _as_normal(distribution)
    if normal is not None and (support is None or log_mass(distribution, support) == 0.0):
        loc, scale, push = normal
        nodes, weights = (part.to(loc) for part in _gauss_hermite())
        mean = torch.tensordot(weights, push(loc + scale * nodes.view(-1, *[1] * loc.ndim)), 1)
        ends = push(loc - 1.6448536 * scale), push(loc + 1.6448536 * scale)
        return Summary(mean, torch.minimum(*ends), torch.maximum(*ends))
    draws = _fixed_draws(distribution)
    if support is not None:
        draws = draws.masked_fill(~support.check(draws), torch.nan) if support.event_dim == 0 else draws
    low, high = draws.nanquantile(torch.tensor([0.05, 0.95], dtype=torch.float64), dim=0)
    device = next((tensor.device for tensor in tensors_of(distribution)), draws.device)
    return Summary(*(part.float().to(device) for part in (draws.nanmean(0), low, high)))


def _fixed_draws(distribution: Distribution) -> Tensor:
    """The same draws wherever the distribution lives: made on the CPU, from a generator of their own."""
    there = map_tensors(distribution, lambda tensor: tensor.cpu())
    return sample(there, (_DRAWS,), noise=torch.Generator().manual_seed(0)).double()


def log_mass(distribution: Distribution, support: Constraint) -> float:
    """log of the probability inside an interval, summed over elements; 0 where the distribution does not leave it."""
    return float(mass(distribution, support).log().sum())


@torch.no_grad()
def mass(distribution: Distribution, support: Constraint) -> Tensor:
    """The probability inside an interval, per element; 1 where the distribution does not leave it."""
    ends, own = bounds(support), distribution.support
    if ends is None or own is None or bounds(own) is None or contains(support, own):
        return torch.ones((), dtype=torch.float64)
    low, high = (torch.as_tensor(end, dtype=torch.float64) for end in ends)
    if isinstance(distribution, Independent):
        return mass(distribution.base_dist, support)
    try:
        inside = distribution.cdf(high) - distribution.cdf(low)
    except NotImplementedError:
        draws = _fixed_draws(distribution)
        inside = ((draws >= low) & (draws <= high)).flatten(draws.ndim - len(distribution.event_shape)).all(-1)
        inside = inside.double().mean(0)
    return torch.as_tensor(inside)


@cache
def _gauss_hermite() -> tuple[Tensor, Tensor]:
    """Nodes and weights of the mean over a standard normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    return torch.as_tensor(nodes), torch.as_tensor(weights / weights.sum())


def _as_normal(distribution: Distribution) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]] | None:
    """(loc, scale, T) when the distribution is T of a Normal and T acts elementwise."""
    if isinstance(distribution, Normal):
        return distribution.loc, distribution.scale, lambda u: u
    if isinstance(distribution, TransformedDistribution) and isinstance(distribution.base_dist, Normal):
        transforms = distribution.transforms
        if not all(transform.bijective for transform in transforms):
            return None

        def push(u: Any) -> Any:
            for transform in transforms:
                u = transform(u)
            return u

        return distribution.base_dist.loc, distribution.base_dist.scale, push
    return None
