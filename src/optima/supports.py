"""Where a hyperparameter may live, and the map from the real line to there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
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
    """

    support: Constraint
    unit: str = ""
    off: float | None = None
    prior_scale: float = 1.0
    allows_off: bool = True


def bijection_of(support: Constraint) -> Any:
    """The map from the real line to the support: torch's own, but a plain exponential for the positive numbers.

    torch 2.13 gives `positive` exp followed by an affine map that does nothing, so that no LogNormal would be
    recognised as sharing it.
    """
    return ExpTransform() if support is constraints.positive else biject_to(support)


def choose_support(name: str, support: Constraint | None, prior: Distribution | None, domain: Domain) -> Constraint:
    """Where φ lives: the given support, else the domain's, narrowed to the prior's where that is smaller."""
    if support is not None:
        if not _contains(domain.support, support):
            raise ValueError(f"{name}: support {words(support)} must lie within {words(domain.support)}")
        return support
    if prior is None:
        return domain.support
    prior_support = prior.support
    if prior_support is None or _contains(prior_support, domain.support):
        return domain.support
    if _contains(domain.support, prior_support):
        return prior_support
    raise ValueError(
        f"{name}: the prior {type(prior).__name__} lives on {words(prior_support)}, which does not fit"
        f" {words(domain.support)}; give a prior on that set, or support="
    )


def _contains(outer: Constraint, inner: Constraint) -> bool:
    """Whether `outer` holds a grid of points spread over `inner`."""
    if isinstance(inner, constraints.independent):
        inner = inner.base_constraint
    if isinstance(outer, constraints.independent):
        outer = outer.base_constraint
    bijection = bijection_of(inner)
    points = torch.linspace(-9.0, 9.0, 37, dtype=torch.float64)
    if bijection.domain.event_dim:
        points = points.unsqueeze(-1).expand(-1, 2)
        return type(outer) is type(inner) or bool(outer.check(bijection(points)).all())
    if outer.event_dim:
        return False
    return bool(outer.check(bijection(points)).all())


def words(support: Constraint) -> str:
    """A constraint as a reader knows it."""
    if isinstance(support, constraints.interval):
        return f"({float(support.lower_bound):g}, {float(support.upper_bound):g})"
    if isinstance(support, constraints.greater_than):
        return f"({float(support.lower_bound):g}, ∞)"
    known = {"Real": "the real line", "Simplex": "the simplex"}
    return known.get(type(support).__name__.lstrip("_"), str(support))
