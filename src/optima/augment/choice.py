r"""Which augmentation, and whether: `OneOf` and `Maybe`, whose probabilities are φ as well.

Each owns a leaf without a T of its own, `Which` or `Whether`, that draws the choice; the branches draw their γ for
every row, and are applied to the rows that chose them. A row's choice is credited by the score function unless a
relaxed estimator is asked for, which blends all branches instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, constraints

from optima.augment.augmenter import Augmenter
from optima.augment.base import Augmentation
from optima.augment.branches import blended, selected
from optima.augment.compose import adopt
from optima.augment.view import View
from optima.posterior import Learn, Number, Phi
from optima.sampling import Relaxed, ScoreFunction, StraightThrough
from optima.streams import Noise


class Which(Augmentation):
    """The choice of `OneOf`: γ ~ Categorical(probs), the number of a branch, or one weight per branch if relaxed."""

    shown_as = "OneOf"
    default_estimator = "score_function"
    estimators = (ScoreFunction, Relaxed, StraightThrough)
    keeps_masks = True

    def __init__(self, probs: Number | Learn, **options: Any):
        super().__init__(**options)
        given = probs.init if isinstance(probs, Learn) else probs
        shape = tuple(torch.as_tensor(given).shape) if isinstance(given, list | tuple | Tensor | np.ndarray) else ()
        if len(shape) != 1:
            raise ValueError(f"OneOf(probs=…) takes a list of probabilities, one for each augmentation, got {given!r}")
        self.add_phi("probs", probs, support=constraints.simplex, unit="of the images", shapes=(shape,))

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"branch": Categorical(probs=phi["probs"], validate_args=False)}

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        return x

    def check(self, view: View) -> None:
        """Any batch can make a choice."""

    def _check_shapes(self, gamma: dict[str, Tensor], x: Tensor) -> None:
        super()._check_shapes(gamma, x)
        count = next(phi.shape[0] for _, phi in self.named_phi())
        if isinstance(self.estimator, ScoreFunction):
            _check_whole("branch", gamma["branch"], count)


class Whether(Augmentation):
    """The choice of `Maybe`: γ ~ Bernoulli(p), or a number between 0 and 1 if relaxed."""

    shown_as = "Maybe"
    default_estimator = "score_function"
    estimators = (ScoreFunction, Relaxed, StraightThrough)
    keeps_masks = True

    def __init__(self, p: Number | Learn, **options: Any):
        super().__init__(**options)
        self.add_phi("p", p, support=constraints.unit_interval, unit="of the images", off=0.0)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"on": Bernoulli(probs=phi["p"], validate_args=False)}

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        return x

    def check(self, view: View) -> None:
        """Any batch can make a choice."""

    def _check_shapes(self, gamma: dict[str, Tensor], x: Tensor) -> None:
        super()._check_shapes(gamma, x)
        if isinstance(self.estimator, ScoreFunction):
            _check_whole("on", gamma["on"], 2)


def _check_whole(name: str, value: Tensor, count: int) -> None:
    """Raise unless a replayed choice is one that there is; a row of any other would be lost."""
    if not torch.compiler.is_compiling() and not bool(((value == value.long()) & (value >= 0) & (value < count)).all()):
        raise ValueError(f"replay: {name} must hold whole numbers from 0 to {count - 1}, got {value.tolist()}")


class OneOf(Augmenter):
    r"""Apply one of several augmentations to each example, drawn with learned or given probabilities.

    Args:
        *augmentations: the branches.
        probs: their probabilities, which must sum to 1; `learn([...])` to learn them. The default is even.
        **options: `estimator`, `phi_draws` and `prior_gamma` of the choice; "relaxed" blends the branches' images.

    Example:
        >>> from optima import Rotate, Translate, learn
        >>> [name for name, _ in OneOf(Rotate(std=5.0), Translate(std=0.1), probs=learn([0.5, 0.5])).named_phi()]
        ['choice.probs', 'rotate.std', 'rotate.mean', 'translate.std']
    """

    mixes: bool

    def __init__(self, *augmentations: Augmenter, probs: Number | Learn | None = None, **options: Any):
        super().__init__()
        self._names = adopt(self, augmentations, taken=["choice"])
        count = len(augmentations)
        self.choice = Which([1 / count] * count if probs is None else probs, **options)
        if (given := next(phi.shape[0] for _, phi in self.choice.named_phi())) != count:
            raise ValueError(f"OneOf has {count} augmentations and {given} probabilities; give one for each")
        self.choice.domains["probs"] = replace(self.choice.domains["probs"], labels=tuple(self._names))
        note_mixing(self)

    def steps(self) -> Iterator[tuple[str, Augmenter]]:
        """The branches, named, in the order of their probabilities."""
        for name in self._names:
            yield name, getattr(self, name)

    def extend(self, view: View, noise: Noise, replay: Mapping[str, Tensor] | None, prefix: str) -> View:
        before, view = _choose(self.choice, view, noise, replay, prefix)
        branches = [(f"{prefix}{name}.", step) for name, step in self.steps()]
        start = before.probed(mark=self.mixes)
        views = [step.extend(start, noise.named(_last(at)), replay, at) for at, step in branches]
        choice = view.gamma[f"{prefix}choice.branch"]
        return _joined(view, before, views, choice, [at for at, _ in branches], mixes=self.mixes)

    def named_phi(self, prefix: str = "") -> Iterator[tuple[str, Phi]]:
        yield from self.choice.named_phi(f"{prefix}choice.")
        for name, step in self.steps():
            yield from step.named_phi(f"{prefix}{name}.")

    def leaves(self, prefix: str = "") -> Iterator[tuple[str, Augmentation]]:
        yield from self.choice.leaves(f"{prefix}choice.")
        for name, step in self.steps():
            yield from step.leaves(f"{prefix}{name}.")


class Maybe(Augmenter):
    r"""Apply an augmentation to each example with probability p, learned or given, and else leave it as it is.

    Args:
        augmentation: what may be applied.
        p: the probability.
        **options: `estimator`, `phi_draws` and `prior_gamma` of the choice; "relaxed" blends the two images.
    """

    mixes: bool

    def __init__(self, augmentation: Augmenter, p: Number | Learn = 0.5, **options: Any):
        super().__init__()
        self._names = adopt(self, [augmentation], taken=["choice"])
        self.choice = Whether(p, **options)
        note_mixing(self)

    def steps(self) -> Iterator[tuple[str, Augmenter]]:
        """The one augmentation, named."""
        for name in self._names:
            yield name, getattr(self, name)

    def extend(self, view: View, noise: Noise, replay: Mapping[str, Tensor] | None, prefix: str) -> View:
        before, view = _choose(self.choice, view, noise, replay, prefix)
        (name, step) = next(self.steps())
        at = f"{prefix}{name}."
        start = before.probed(mark=self.mixes)
        branch = step.extend(start, noise.named(name), replay, at)
        on = view.gamma[f"{prefix}choice.on"]
        choice = on.long() if isinstance(self.choice.estimator, ScoreFunction) else torch.stack([1.0 - on, on], 1)
        return _joined(view, before, [start, branch], choice, ["", at], mixes=self.mixes)

    def named_phi(self, prefix: str = "") -> Iterator[tuple[str, Phi]]:
        yield from self.choice.named_phi(f"{prefix}choice.")
        for name, step in self.steps():
            yield from step.named_phi(f"{prefix}{name}.")

    def leaves(self, prefix: str = "") -> Iterator[tuple[str, Augmentation]]:
        yield from self.choice.leaves(f"{prefix}choice.")
        for name, step in self.steps():
            yield from step.leaves(f"{prefix}{name}.")


def note_mixing(owner: OneOf | Maybe) -> None:
    """Say whether a branch combines rows; raise where a blend of the branches would then have no meaning."""
    mixing = [type(leaf).__name__ for _, leaf in owner.leaves() if leaf.mixes]
    owner.mixes = bool(mixing)
    if mixing and not isinstance(owner.choice.estimator, ScoreFunction):
        raise ValueError(
            f"{type(owner).__name__}: a relaxed choice blends its branches, and the labels of {', '.join(mixing)}"
            ' cannot be blended; use estimator="score_function"'
        )


def _choose(
    choice: Augmentation, view: View, noise: Noise, replay: Mapping[str, Tensor] | None, prefix: str
) -> tuple[View, View]:
    """The view as the branches meet it, and the same with the choice drawn, which alone it still has to credit."""
    before = replace(view.settled(), learners=None)  # a row's branch has a gradient only if every row has one
    relaxed = not isinstance(choice.estimator, ScoreFunction)
    if relaxed and (view.mask is not None or view.boxes is not None):
        raise ValueError(
            'a relaxed choice blends images, which moves no mask and no box; use estimator="score_function"'
        )
    chosen = choice.extend(replace(before, scores=()), noise.named("choice"), replay, f"{prefix}choice.")
    return before, replace(chosen, pending=())


def _joined(
    view: View, before: View, views: Sequence[View], choice: Tensor, prefixes: Sequence[str], *, mixes: bool
) -> View:
    """The view after the branches, with what they drew."""
    gamma, phi = dict(view.gamma), dict(view.phi)
    for branch in views:
        gamma |= branch.gamma
        phi |= branch.phi
    view = replace(view, gamma=gamma, phi=phi)
    if choice.is_floating_point():
        return blended(view, before, views, choice)
    chosen = [choice == number for number in range(len(views))]
    missed = [at for at, rows in zip(prefixes, chosen, strict=True) if at and not bool(rows.any())]
    within = [at for branch in views for at in branch.idle]
    return replace(selected(view, before, views, chosen, mixes=mixes), idle=(*view.idle, *missed, *within))


def _last(prefix: str) -> str:
    return prefix.removesuffix(".").rpartition(".")[2]
