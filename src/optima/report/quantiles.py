r"""Which φ and γ of an augmentation to look at, found from many draws of

    p(γ) = E_{q(φ)} p(γ | φ)

and in what unit to name them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.nn import functional

from optima.augment.base import Augmentation
from optima.distributions import tensors_of
from optima.posterior import LearnedPhi
from optima.sampling import as_noise, sample
from optima.streams import Noise

DRAWS = 16_384
_WINDOW = 64  # 1/64 of the draws on either side of a quantile of the norm may stand for it

Laws = dict[str, Distribution]
Named = dict[str, Tensor]


def levels(count: int) -> list[float]:
    """`count` probabilities, evenly spread but for the ends, which are 5 % and 95 %.

    Example:
        >>> levels(5)
        [0.05, 0.25, 0.5, 0.75, 0.95]
    """
    return [min(0.95, max(0.05, index / (count - 1))) for index in range(count)] if count > 1 else [0.5]


# ---- draws -------------------------------------------------------------------------------------------------------


def draw_phi(leaf: Augmentation, noise: Noise) -> Named:
    """Draws of φ, (16384, …) each."""
    options = {"dtype": torch.float32, "device": torch.device("cpu"), "noise": noise, "watch": False}
    return {name: phi.draw(DRAWS, **options) for name, phi in leaf.named_phi()}


def draw_gamma(leaf: Augmentation, generator: torch.Generator) -> tuple[Laws, Named]:
    """p(γ | φ) for as many draws of φ, and a draw of γ from each: together they are draws of p(γ)."""
    noise = as_noise(generator)  # one for both: two of one seed would give γ the same noise as φ
    laws = leaf.p_gamma(draw_phi(leaf, noise))
    return laws, {name: sample(law, noise=noise) for name, law in laws.items()}


def prior_of_gamma(leaf: Augmentation, gamma: Mapping[str, Tensor], generator: torch.Generator) -> Named:
    """Draws from `prior_gamma`, in the shape of `gamma`; none unless a φ goes without a prior of its own for it."""
    if not any(isinstance(phi, LearnedPhi) and phi.prior is None for _, phi in leaf.named_phi()):
        return {}
    drawn = {}
    for name, prior in leaf._priors_of_gamma(leaf._mean_laws()).items():
        own = len(prior.batch_shape) + len(prior.event_shape)
        shape = gamma[name].shape
        drawn[name] = sample(prior, shape[: len(shape) - own], noise=generator).expand(shape)
    return drawn


# ---- choices -----------------------------------------------------------------------------------------------------


def at_levels(draws: Sequence[Mapping[str, Tensor]], probabilities: Sequence[float]) -> list[Named]:
    """For each set of draws, one of them per level: at that quantile of the number, or of the norm of several numbers.

    Numbers that never change do not count. The norm takes each of the others in units of its root mean square over all
    the sets, and of the draws close to the quantile it is the one closest to the direction (1, 1, …) that is taken.
    """
    tables = [flat(each) for each in draws]
    together = torch.cat(tables)
    moves = together.amax(0) > together.amin(0)
    unit = together.square().mean(0).sqrt()
    rows = [_rows((table / unit)[:, moves], probabilities) for table in tables]
    return [{name: value[row] for name, value in each.items()} for each, row in zip(draws, rows, strict=True)]


def _rows(table: Tensor, probabilities: Sequence[float]) -> list[int]:
    last = len(table) - 1
    if table.shape[1] < 2:
        order = table.sum(1).argsort()
        return [int(order[round(level * last)]) for level in probabilities]
    norm = table.norm(dim=1)
    order, towards = norm.argsort(), table.sum(1) / norm.clamp_min(1e-12)
    rows = []
    for level in probabilities:
        middle, half = round(level * last), len(table) // _WINDOW
        near = order[max(0, middle - half) : middle + half + 1]
        rows.append(int(near[towards[near].argmax()]))
    return rows


def likeliest(laws: Sequence[Laws], draws: Sequence[Named], most: int) -> tuple[Named, list[list[float]]]:
    """The values of a discrete γ, in order, and for each set of laws their probabilities."""
    rows = torch.unique(torch.cat([flat(each) for each in draws]), dim=0)
    parts = rows.split([math.prod(value.shape[1:]) for value in draws[0].values()], 1)
    like = zip(draws[0].items(), parts, strict=True)
    values = {name: part.reshape(len(rows), *value.shape[1:]).to(value) for (name, value), part in like}
    chances = torch.stack([_probabilities(each, values) for each in laws])
    kept = chances.sum(0).argsort(descending=True)[:most].sort().values
    return {name: value[kept] for name, value in values.items()}, chances[:, kept].tolist()


def _probabilities(laws: Laws, values: Named) -> Tensor:
    """E over φ of the probability of each value."""
    found = []
    for row in range(len(next(iter(values.values())))):
        log_p = [
            law.log_prob(values[name][row].expand(law.batch_shape + law.event_shape)) for name, law in laws.items()
        ]
        found.append(torch.stack([part.reshape(len(part), -1).sum(1) for part in log_p]).sum(0).exp().mean())
    return torch.stack(found)


def as_drawn(leaf: Augmentation, laws: Laws, values: Named) -> Named:
    """A discrete γ in the shape that the leaf's estimator draws: relaxed class numbers are rows of shares."""
    shaped = {}
    for name, value in values.items():
        shape, hard = leaf.estimator.shape(laws[name]), laws[name].batch_shape + laws[name].event_shape
        shaped[name] = value if shape == hard else functional.one_hot(value.long(), shape[-1]).float()
    return shaped


def flat(parts: Mapping[str, Tensor]) -> Tensor:
    """All numbers of a row side by side, (rows, numbers)."""
    return torch.cat([value.reshape(len(value), -1) for value in parts.values()], 1).double()


# ---- units -------------------------------------------------------------------------------------------------------


def units(leaf: Augmentation) -> dict[str, str]:
    """The unit of each component of γ: that of the φ its law depends on, where they agree; none for discrete ones."""
    found = {}
    laws, moves = leaf._mean_laws(), dependence(leaf)
    for name, law in laws.items():
        named = {leaf.domains[phi].unit for phi in moves[name]} - {""}
        found[name] = named.pop() if len(named) == 1 and not is_discrete(law) else ""
    return found


def in_units(value: Tensor, unit: str) -> list[float]:
    """One γ as numbers of that unit: angles are recorded in radians. The units of several numbers have commas."""
    numbers = value.double().flatten().tolist()
    each = unit.split(", ") if ", " in unit else [unit] * len(numbers)
    return [math.degrees(number) if unit == "degrees" else number for number, unit in zip(numbers, each, strict=True)]


def dependence(leaf: Augmentation) -> dict[str, set[str]]:
    """For each component of γ the φ that move its law."""
    phi = {name: torch.stack([each.summary().mean] * 2) for name, each in leaf.named_phi()}
    laws = leaf.p_gamma(phi)
    found: dict[str, set[str]] = {name: set() for name in laws}
    for name, value in phi.items():
        moved = leaf.p_gamma({**phi, name: torch.where(value == 0, 1e-3, 0.99 * value)})
        for component, law in laws.items():
            pairs = itertools.zip_longest(tensors_of(law), tensors_of(moved[component]))
            if not all(torch.equal(one, other) for one, other in pairs):
                found[component].add(name)
    return found


def is_discrete(law: Distribution) -> bool:
    """Whether draws of it are whole numbers."""
    return law.support is not None and law.support.is_discrete
