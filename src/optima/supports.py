"""Where a hyperparameter may live, and the map from the real line to there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, biject_to, constraints
from torch.distributions.constraints import Constraint
from torch.distributions.transforms import ExpTransform


@dataclass(frozen=True)
class Domain:
    """What an augmentation knows about one of its hyperparameters.

    Args:
        support: the values φ may take while it is learned.
        unit: for people.
        off: the value that means no augmentation, if there is one.
        prior_scale: spread of the default prior on the unconstrained line.
        allows_off: whether `off` may be given as a fixed value although it lies on the support's edge.
        shapes: the shapes φ may have.
        labels: what its elements are called, where it is a vector.
    """

    support: Constraint
    unit: str = ""
    off: float | None = None
    prior_scale: float = 1.0
    allows_off: bool = True
    shapes: tuple[tuple[int, ...], ...] = ((),)
    labels: tuple[str, ...] = ()


def bijection_of(support: Constraint) -> Any:
    """The map from the real line to the support: torch's own, but a plain exponential for the positive numbers.

    torch 2.13 gives `positive` exp followed by an affine map that does nothing, so that no LogNormal would be
    recognised as sharing it.
    """
    return ExpTransform() if same_support(support, constraints.positive) else biject_to(support)


def same_support(one: Constraint, other: Constraint) -> bool:
    """Whether two constraints are the same set; torch compares them by identity, which a copy does not keep."""
    return type(one) is type(other) and str(vars(one)) == str(vars(other))


def bounds(support: Constraint) -> tuple[Any, Any] | None:
    """Lower and upper end of an interval of numbers, open or closed; None for any other set."""
    if isinstance(support, constraints.independent):
        return bounds(support.base_constraint)
    if same_support(support, constraints.real):
        return -math.inf, math.inf
    low, high = getattr(support, "lower_bound", None), getattr(support, "upper_bound", None)
    if (low is None and high is None) or support.is_discrete:
        return None
    return (-math.inf if low is None else low), (math.inf if high is None else high)


def choose_support(name: str, support: Constraint | None, prior: Distribution | None, domain: Domain) -> Constraint:
    """Where φ lives: the given support, else what the domain and the prior have in common."""
    if support is not None:
        if not contains(domain.support, support):
            raise ValueError(f"{name}: support {words(support)} must lie within {words(domain.support)}")
        if prior is not None and not contains(_support_of(name, prior), support):
            raise ValueError(
                f"{name}: support {words(support)} must lie within the prior's, {words(_support_of(name, prior))}:"
                " beyond it the KL would be infinite"
            )
        return support
    if prior is None:
        return domain.support
    common = _intersection(domain.support, _support_of(name, prior))
    if common is None:
        raise ValueError(
            f"{name}: the prior {type(prior).__name__} lives on {words(_support_of(name, prior))}, which does not fit"
            f" {words(domain.support)}; give a prior on that set, or support="
        )
    return common


def strictly_inside(support: Constraint, value: Tensor) -> bool:
    """Whether a value is off the edges, where the map to the real line would be infinite or torch would clamp it."""
    ends = bounds(support)
    if ends is None:
        return bool((value > 0).all()) if isinstance(support, type(constraints.simplex)) else True
    return bool(((value > ends[0]) & (value < ends[1])).all())


def _support_of(name: str, prior: Distribution) -> Constraint:
    support = prior.support
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    if support is None or support.is_discrete:
        raise ValueError(
            f"{name}: the prior {type(prior).__name__} is over whole numbers; a hyperparameter needs a continuous prior"
        )
    return support


def _intersection(one: Constraint, other: Constraint) -> Constraint | None:
    """The set both have in common, as one of them where possible."""
    if contains(other, one):
        return one
    if contains(one, other):
        return other
    first, second = bounds(one), bounds(other)
    if first is None or second is None:
        return None
    low, high = (torch.as_tensor(end) for end in (first[0], first[1]))
    low, high = torch.maximum(low, torch.as_tensor(second[0])), torch.minimum(high, torch.as_tensor(second[1]))
    if not bool((low < high).all()) or not bool((low.isfinite() & high.isfinite()).all()):
        return None
    return constraints.interval(low, high)


def contains(outer: Constraint, inner: Constraint) -> bool:
    """Whether every point of `inner` is in `outer`, ends aside."""
    first, second = bounds(outer), bounds(inner)
    if first is None or second is None:
        return type(outer) is type(inner)
    pairs = [[torch.as_tensor(end, dtype=torch.float64) for end in ends] for ends in (first, second)]
    (outer_low, outer_high), (inner_low, inner_high) = pairs
    return bool((outer_low <= inner_low).all()) and bool((inner_high <= outer_high).all())


def words(support: Constraint) -> str:
    """A constraint as a reader knows it."""
    ends = bounds(support)
    if same_support(support, constraints.real):
        return "the real line"
    if ends is None:
        return {"Simplex": "the simplex"}.get(type(support).__name__.lstrip("_"), str(support))
    low, high = (torch.as_tensor(end, dtype=torch.float64) for end in ends)
    texts = [f"{end:g}" if end.ndim == 0 else str(end.tolist()) for end in (low, high)]
    return f"({texts[0]}, {texts[1]})".replace("inf", "∞")
