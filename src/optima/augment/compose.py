"""Augmentations one after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor

from optima.augment.augmenter import Augmenter
from optima.augment.base import Augmentation
from optima.augment.view import View
from optima.posterior import Phi
from optima.streams import Noise


class Sequential(Augmenter):
    """Apply augmentations in order; each is a submodule named after its class, with a number when the class repeats.

    Example:
        >>> from optima import Rotate, Shift
        >>> [name for name, _ in Sequential(Rotate(std=5.0), Rotate(std=1.0)).leaves()]
        ['rotate', 'rotate_2']
    """

    def __init__(self, *augmentations: Augmenter):
        super().__init__()
        self._names = adopt(self, augmentations)

    def __len__(self) -> int:
        return len(self._names)

    def steps(self) -> Iterator[tuple[str, Augmenter]]:
        """The augmentations, named, in the order they are applied."""
        for name in self._names:
            yield name, getattr(self, name)

    def extend(self, view: View, noise: Noise, replay: Mapping[str, Tensor] | None, prefix: str) -> View:
        for name, augmentation in self.steps():
            view = augmentation.extend(view, noise.named(name), replay, f"{prefix}{name}.")
        return view

    def named_phi(self, prefix: str = "") -> Iterator[tuple[str, Phi]]:
        for name, augmentation in self.steps():
            yield from augmentation.named_phi(f"{prefix}{name}.")

    def leaves(self, prefix: str = "") -> Iterator[tuple[str, Augmentation]]:
        for name, augmentation in self.steps():
            yield from augmentation.leaves(f"{prefix}{name}.")


def adopt(owner: Augmenter, augmentations: Sequence[Augmenter], *, taken: Sequence[str] = ()) -> list[str]:
    """Make them submodules of `owner`, each named after its class, with a number when the class repeats."""
    kind = type(owner).__name__
    if not augmentations:
        raise ValueError(f"{kind} needs at least one augmentation")
    names: list[str] = []
    seen: set[int] = set()
    for augmentation in augmentations:
        if not isinstance(augmentation, Augmenter):
            raise TypeError(f"{kind} takes augmentations, got {type(augmentation).__name__}")
        leaves = {id(leaf) for _, leaf in augmentation.leaves()}
        if seen & leaves:
            raise ValueError("the same augmentation object appears twice; build a second one")
        seen |= leaves
        name = _free_name(type(augmentation).__name__.lower(), [*taken, *names])
        owner.add_module(name, augmentation)
        names.append(name)
    return names


def _free_name(base: str, names: Sequence[str]) -> str:
    taken = sum(name == base or name.startswith(f"{base}_") for name in names)
    return base if not taken else f"{base}_{taken + 1}"
