"""One image along a policy: each augmentation alone, under the posterior and under the prior; and all of them.

How it is laid out follows from the augmentation's γ, and not from its class:

    "gamma"      γ is one number: T_γ(x) at its quantiles.
    "size"       likewise, where its sign makes no difference: at the quantiles of |γ|.
    "norm"       γ is a few numbers: draws of it at the quantiles of its norm, chosen to point the same way.
    "cases"      γ is discrete: its likeliest values, with their probabilities.
    "branches"   γ decides what else is applied: a draw of each alternative, with their probabilities.
    "phi"        γ is large (noise), or discrete in part: one and the same noise, at the quantiles of φ.
    "draws"      likewise, where φ is known: different noise, by how much it changes the image.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor

from optima.augment.augmenter import Augmenter
from optima.augment.base import Augmentation
from optima.augment.choice import Maybe, OneOf
from optima.augment.compose import Sequential
from optima.posterior import LearnedPhi, Phi, PriorPhi
from optima.report.layouts import (
    Bench,
    Member,
    Tile,
    at_gamma,
    at_phi,
    at_size,
    branches,
    cases,
    is_even,
    labels_for,
    noises,
)
from optima.report.quantiles import dependence, is_discrete, levels, units

_MOST_NUMBERS = 6  # of a γ that is ordered by its norm

How = Literal["gamma", "size", "norm", "cases", "branches", "phi", "draws"]
_LAYOUTS: dict[How, Callable[[list[Member], Bench], list[list[Tile]]]] = {
    "gamma": at_gamma,
    "size": at_size,
    "norm": at_gamma,
    "cases": cases,
    "branches": branches,
    "phi": at_phi,
    "draws": noises,
}


class Strips(NamedTuple):
    """One augmentation, alone. `prior` is None where nothing about it was to be learned."""

    name: str
    family: str
    how: How
    units: dict[str, str]
    learned: list[Tile]
    prior: list[Tile] | None

    @property
    def unchanged(self) -> bool:
        """Whether every picture is the same."""
        tiles = [*self.learned, *(self.prior or [])]
        return len(tiles) > 1 and all(torch.equal(tile.image, tiles[0].image) for tile in tiles)


@torch.no_grad()
def strips(policy: Augmenter, image: Tensor, partner: Tensor, *, count: int, seed: int) -> list[Strips]:
    """Every augmentation of the policy that has a φ, in order.

    Args:
        policy: a learned policy; it is not changed, and its random stream does not move.
        image: (C, H, W), what is augmented.
        partner: (C, H, W), what mixing augmentations combine it with.
        count: how many quantiles.
        seed: of the draws.
    """
    bench = Bench(image, partner, levels(count), seed)
    learned, prior = (copy.deepcopy(each).train() for each in (policy, at_prior(policy)))
    pairs = zip(_members(learned), _members(prior), strict=True)
    return [_strips(member, before, bench) for member, before in pairs if member.leaf.domains]


@torch.no_grad()
def draws(policy: Augmenter, images: Tensor, *, count: int, seed: int) -> Tensor:
    """The whole policy, (count, N, C, H, W): random draws of φ and γ for each of the images (N, C, H, W)."""
    policy, generator = copy.deepcopy(policy).train(), torch.Generator().manual_seed(seed)
    return torch.stack([policy(images, labels_for(images), generator=generator).x for _ in range(count)])


def at_prior(policy: Augmenter) -> Augmenter:
    """A copy whose φ are drawn from their priors, as `policy.prior()`; a φ without one of its own keeps q(φ)."""

    def change(name: str, phi: Phi, domain: object) -> Phi:
        if isinstance(phi, LearnedPhi) and phi.prior is not None:
            return PriorPhi(phi.prior, phi.shape, phi.support)
        return phi

    return policy._with_phi(change)


def _members(policy: Augmenter) -> list[Member]:
    """Every leaf, and for one that is not a step of what it belongs to, what asks it."""
    found = []
    for name, leaf in policy.leaves():
        owner = policy.get_submodule(name.rpartition(".")[0])
        steps = dict(owner.steps()) if isinstance(owner, Sequential | OneOf | Maybe) else {}
        is_step = not steps or any(step is leaf for step in steps.values())
        found.append(Member(name, leaf) if is_step else Member(name, leaf, cast("Augmenter", owner), tuple(steps)))
    return found


def _strips(member: Member, prior: Member, bench: Bench) -> Strips:
    leaf = member.leaf
    learns = any(isinstance(phi, LearnedPhi) for _, phi in leaf.named_phi())
    how = "branches" if member.asked_by else _how(leaf, learns=learns)
    if how == "gamma" and is_even(leaf, bench):
        how = "size"
    tiles = _LAYOUTS[how]([member, prior] if learns else [member], bench)
    of_phi = {name: domain.unit for name, domain in leaf.domains.items()}
    named = of_phi if how in ("phi", "draws") else units(leaf)
    return Strips(member.name, type(leaf).__name__, how, named, tiles[0], tiles[1] if learns else None)


def _how(leaf: Augmentation, *, learns: bool) -> How:
    laws = leaf._mean_laws()
    discrete = [is_discrete(law) for law in laws.values()]
    size = sum(math.prod(law.batch_shape[1:] + law.event_shape) for law in laws.values())
    # a γ that is drawn in a way of the family's own is not all in p(γ | φ)
    elsewhere = set(leaf.domains) - set().union(*dependence(leaf).values())
    in_part = any(discrete) and not all(discrete)
    if leaf.gamma_per == "element" or size > _MOST_NUMBERS or in_part or elsewhere:
        return "phi" if learns else "draws"
    return "cases" if all(discrete) else "gamma" if size == 1 else "norm"
