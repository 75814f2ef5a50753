"""Mean and 90 % interval of a distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, TransformedDistribution

from optima.sampling import sample

_DRAWS = 20_000


class Summary(NamedTuple):
    """Mean and central 90 % interval, in the constrained space."""

    mean: Tensor
    low: Tensor
    high: Tensor


@torch.no_grad()
def summarise(distribution: Distribution) -> Summary:
    """Mean and 90 % interval: exact quantiles where φ is a monotone map of a Normal, else from fixed draws."""
    normal = _as_normal(distribution)
    if normal is not None:
        loc, scale, push = normal
        nodes, weights = np.polynomial.hermite_e.hermegauss(64)
        points = torch.as_tensor(nodes, dtype=loc.dtype, device=loc.device).view(-1, *[1] * loc.ndim)
        values = push(loc + scale * points)
        mean = torch.tensordot(torch.as_tensor(weights / weights.sum(), dtype=loc.dtype, device=loc.device), values, 1)
        return Summary(mean, push(loc - 1.6448536 * scale), push(loc + 1.6448536 * scale))
    draws = sample(distribution, (_DRAWS,), noise=torch.Generator().manual_seed(0)).double()
    low, high = torch.quantile(draws, torch.tensor([0.05, 0.95], dtype=torch.float64), dim=0)
    return Summary(draws.mean(0).float(), low.float(), high.float())


def _as_normal(distribution: Distribution) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]] | None:
    """(loc, scale, T) when the distribution is T of a Normal and T acts elementwise."""
    if isinstance(distribution, Normal):
        return distribution.loc, distribution.scale, lambda u: u
    if isinstance(distribution, TransformedDistribution) and isinstance(distribution.base_dist, Normal):
        transforms = distribution.transforms

        def push(u: Any) -> Any:
            for transform in transforms:
                u = transform(u)
            return u

        return distribution.base_dist.loc, distribution.base_dist.scale, push
    return None
