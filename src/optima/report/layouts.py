"""The layouts of `optima.report.strips`: which γ are shown, and T_γ applied to the image."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from optima.augment.augmenter import Augmenter
from optima.augment.base import Augmentation
from optima.posterior import FixedPhi
from optima.report.quantiles import (
    Named,
    as_drawn,
    at_levels,
    draw_gamma,
    draw_phi,
    flat,
    in_units,
    likeliest,
    prior_of_gamma,
    units,
)
from optima.sampling import as_noise

MOST_CASES = 10
_TRIES = 64  # draws, of which the one in the middle is shown
_NOISES = 16  # likewise, where they are made one by one


class Tile(NamedTuple):
    """One picture (C, H, W), where it stands, the γ (or φ) that made it in its strip's units, and its name if any."""

    image: Tensor
    place: str
    amount: dict[str, list[float]]
    name: str = ""


class Bench(NamedTuple):
    """What an augmentation is tried on: the image, a partner for those that mix, the levels and the seed."""

    image: Tensor
    partner: Tensor
    levels: list[float]
    seed: int

    def generator(self) -> torch.Generator:
        """A new one at the seed."""
        return torch.Generator().manual_seed(self.seed)

    def rows(self, count: int) -> Tensor:
        """The image `count` times, then the partner as often."""
        return torch.stack([self.image] * count + [self.partner] * count)


class Member(NamedTuple):
    """An augmentation of a policy and its name there.

    Args:
        name: as `leaves` gives it.
        leaf: the augmentation.
        asked_by: for one that is no step itself but decides which step is taken, whose steps they are.
        steps: their names.
    """

    name: str
    leaf: Augmentation
    asked_by: Augmenter | None = None
    steps: tuple[str, ...] = ()


def at_gamma(members: list[Member], bench: Bench) -> list[list[Tile]]:
    """T_γ(x) at the quantiles of γ or of its norm."""
    return _at_levels(members, _draws(members, bench), bench)


def at_size(members: list[Member], bench: Bench) -> list[list[Tile]]:
    """T_γ(x) at the quantiles of |γ|, where its sign makes no difference."""
    drawn = _draws(members, bench)
    return _at_levels(members, [{name: value.abs() for name, value in each.items()} for each in drawn], bench)


def is_even(leaf: Augmentation, bench: Bench) -> bool:
    """Whether γ, one number that can be negative, does the same to the image whatever its sign."""
    ((name, value),) = draw_gamma(leaf, bench.generator())[1].items()
    if not bool((value < 0).any()):
        return False
    size = value.abs().median()
    gamma = {name: torch.stack([size, -size]).view(2, *value.shape[1:])}
    one, other = _applied(leaf, gamma, gamma, ["", ""], bench)
    return torch.allclose(one.image, other.image, atol=1e-6)


def _draws(members: list[Member], bench: Bench) -> list[Named]:
    drawn = [draw_gamma(member.leaf, bench.generator())[1] for member in members]
    if len(drawn) == 2:
        drawn[1] |= prior_of_gamma(members[0].leaf, drawn[0], bench.generator())
    return drawn


def _at_levels(members: list[Member], drawn: list[Named], bench: Bench) -> list[list[Tile]]:
    places = [percent(level) for level in bench.levels]
    chosen = at_levels(drawn, bench.levels)
    return [_applied(member.leaf, g, g, places, bench) for member, g in zip(members, chosen, strict=True)]


def cases(members: list[Member], bench: Bench) -> list[list[Tile]]:
    """T_γ(x) for each value of a discrete γ."""
    laws, drawn = zip(*(draw_gamma(member.leaf, bench.generator()) for member in members), strict=True)
    values, chances = likeliest(laws, drawn, MOST_CASES)
    return [
        _applied(member.leaf, as_drawn(member.leaf, law, values), values, [percent(p) for p in chance], bench)
        for member, law, chance in zip(members, laws, chances, strict=True)
    ]


def branches(members: list[Member], bench: Bench) -> list[list[Tile]]:
    """What the owner does after each decision: of 64 draws the one that changes the image by the median amount."""
    laws, drawn = zip(*(draw_gamma(member.leaf, bench.generator()) for member in members), strict=True)
    values, chances = likeliest(laws, drawn, MOST_CASES)
    found = []
    for member, law, chance in zip(members, laws, chances, strict=True):
        decisions, tiles = as_drawn(member.leaf, law, values), []
        for row, p in enumerate(chance):
            picture = _after(member, {name: value[row] for name, value in decisions.items()}, bench)
            amount = {name: value[row].double().flatten().tolist() for name, value in values.items()}
            tiles.append(Tile(picture, percent(p), amount, _step_name(member, amount)))
        found.append(tiles)
    return found


def at_phi(members: list[Member], bench: Bench) -> list[list[Tile]]:
    """The same noise at the quantiles of φ, or of its norm: of 16 the one with the median change of the image."""
    drawn = [draw_phi(member.leaf, as_noise(bench.generator())) for member in members]
    found, chosen = [], at_levels(drawn, bench.levels)
    tries = _by_change(members[0].leaf, {name: each.mean(0) for name, each in drawn[0].items()}, bench)
    noise = tries[len(tries) // 2]
    for member, phi in zip(members, chosen, strict=True):
        rows = [{name: value[row] for name, value in phi.items()} for row in range(len(bench.levels))]
        found.append([_at(member.leaf, row, percent(p), noise) for row, p in zip(rows, bench.levels, strict=True)])
    return found


def noises(members: list[Member], bench: Bench) -> list[list[Tile]]:
    """Where φ is known: of 16 draws, ordered by how much they change the image, those at the levels."""
    phi = {name: each.summary().mean for name, each in members[0].leaf.named_phi()}
    tries = _by_change(members[0].leaf, phi, bench)
    chosen = [tries[round(level * (len(tries) - 1))] for level in bench.levels]
    return [[_at(members[0].leaf, phi, percent(p), each) for p, each in zip(bench.levels, chosen, strict=True)]]


def _by_change(leaf: Augmentation, phi: Mapping[str, Tensor], bench: Bench) -> list[Bench]:
    """The bench with other seeds, in the order of how much the image changes."""
    tries = [bench._replace(seed=bench.seed + index) for index in range(_NOISES)]
    return sorted(tries, key=lambda each: float((_at(leaf, phi, "", each).image - bench.image).abs().mean()))


# ---- applying γ --------------------------------------------------------------------------------------------------


def _applied(leaf: Augmentation, gamma: Named, shown: Named, places: list[str], bench: Bench) -> list[Tile]:
    """T_γ(x) for every row of γ; what φ has no say in, such as a partner or a place, is the same for all of them."""
    count = len(places)
    replay = {name: torch.cat([value, value]) for name, value in gamma.items()}
    replay |= {name: value.expand(2 * count, *value.shape[1:]) for name, value in _middle(leaf, bench).items()}
    pictures = _replayed(leaf, replay, bench, count)
    named = units(leaf)
    amounts = [{name: in_units(value[row], named[name]) for name, value in shown.items()} for row in range(count)]
    return [Tile(*each) for each in zip(pictures, places, amounts, strict=True)]


def _after(member: Member, decision: Named, bench: Bench) -> Tensor:
    owner, prefix = member.asked_by or member.leaf, member.name.rpartition(".")[2]
    x = bench.rows(_TRIES)
    gamma = dict(owner(x, labels_for(x), generator=bench.generator()).gamma)
    gamma |= {f"{prefix}.{name}": value.expand(len(x), *value.shape) for name, value in decision.items()}
    pictures = _replayed(owner, gamma, bench, _TRIES)
    change = (pictures - bench.image).abs().flatten(1).mean(1)
    return pictures[int(change.argsort()[_TRIES // 2])]


def _at(leaf: Augmentation, phi: Mapping[str, Tensor], place: str, bench: Bench) -> Tile:
    """A draw of γ for that φ, applied."""
    fixed = copy.deepcopy(leaf)
    for name, value in phi.items():
        setattr(fixed, name, FixedPhi(name, value, leaf.domains[name]))
    x = bench.rows(1)
    gamma = fixed(x, labels_for(x), generator=bench.generator()).gamma
    amount = {name: value.double().flatten().tolist() for name, value in phi.items()}
    return Tile(_replayed(fixed, gamma, bench, 1)[0], place, amount)


def _replayed(augment: Augmenter, gamma: Mapping[str, Tensor], bench: Bench, count: int) -> Tensor:
    """The image under the first `count` γ, (count, C, H, W), each mixed with the partner where anything is mixed."""
    swap = torch.arange(2 * count).roll(count)
    replay = {name: swap if name.rpartition(".")[2] == "partner" else value for name, value in gamma.items()}
    if "partner" in getattr(augment, "components", ()):
        replay["partner"] = swap
    x = bench.rows(count)
    return augment(x, labels_for(x), replay=replay).x[:count]


def _middle(leaf: Augmentation, bench: Bench) -> Named:
    """The components of γ that do not depend on φ, (1, …) each: of 64 draws the one closest to their medians."""
    x = bench.rows(_TRIES // 2)
    known = {*leaf._mean_laws(), "partner"}
    drawn = leaf(x, labels_for(x), generator=bench.generator()).gamma
    free = {name: value for name, value in drawn.items() if name not in known}
    if not free:
        return {}
    table = flat(free)
    row = int((table - table.median(0).values).abs().sum(1).argmin())
    return {name: value[row : row + 1] for name, value in free.items()}


def _step_name(member: Member, amount: Mapping[str, list[float]]) -> str:
    """What a decision leads to, where it is the number of a step, or 0 for none and then the number."""
    (numbers,) = amount.values()
    names = member.steps if len(member.steps) > 1 else ("as it is", *member.steps)
    return names[int(numbers[0])] if len(numbers) == 1 and int(numbers[0]) < len(names) else ""


def labels_for(x: Tensor) -> Tensor:
    """Labels, which augmentations that mix insist on."""
    return torch.zeros(len(x), dtype=torch.long)


def percent(share: float) -> str:
    """A probability for people.

    Example:
        >>> percent(0.05)
        '5 %'
    """
    return f"{100 * share:.3g} %"
