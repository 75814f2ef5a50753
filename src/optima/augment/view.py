"""What an augmentation returns, and the targets it can carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from optima.transforms.operators import Operator


@dataclass(frozen=True)
class MixedTarget:
    """Several hard labels per example, each with a weight.

    Args:
        labels: one tensor of labels per component, each (rows, …).
        weights: (rows, components), summing to 1 over components.
    """

    labels: tuple[Tensor, ...]
    weights: Tensor


Target = Tensor | MixedTarget


class Score(NamedTuple):
    """Draws that the score function must credit.

    Args:
        log_prob: log p(γ | φ) of the draws made for each row, (rows,).
        reach: (rows, rows), whether row i depends on the draws made for row j; None while each depends on its own.
    """

    log_prob: Tensor
    reach: Tensor | None = None

    def owed(self) -> Tensor:
        """Σ log p(γ | φ) over the draws that each row depends on, each counted once, (rows,)."""
        return self.log_prob if self.reach is None else torch.where(self.reach, self.log_prob, 0.0).sum(1)

    def mixed(self, partner: Tensor) -> Score:
        """After every row has been combined with another."""
        rows = len(partner)
        reach = torch.eye(rows, dtype=torch.bool, device=partner.device) if self.reach is None else self.reach
        return Score(self.log_prob, reach | reach[partner])


@dataclass(frozen=True)
class View:
    """An augmented batch: K draws of γ for each of B examples, the draws outermost, K·B rows.

    Args:
        x: (K·B, …).
        target: labels with K·B rows, a `MixedTarget`, or None.
        samples: K.
        gamma: the named draws of γ; feed them back as `replay`.
        phi: the named draws of φ, (B, …) each.
        scores: the draws that the score function must credit; none when every draw is pathwise.
        mask: labels of the pixels, (K·B, H, W), moved as the image is.
        single: rows are unrelated inputs to be predicted, so nothing is mixed.
        pending: transforms that have not been applied yet, because the next one may join them; none in a view that an
            augmentation returns.
    """

    x: Tensor
    target: Target | None = None
    samples: int = 1
    gamma: Mapping[str, Tensor] = field(default_factory=dict)
    phi: Mapping[str, Tensor] = field(default_factory=dict)
    scores: tuple[Score, ...] = ()
    mask: Tensor | None = None
    single: bool = False
    pending: tuple[Operator, ...] = field(default=(), repr=False)

    @property
    def examples(self) -> int:
        """B, the number of examples before augmentation."""
        return len(self.x) // self.samples

    @property
    def log_prob(self) -> Tensor | None:
        """Σ log p(γ | φ) over the draws that a row of x depends on and that the score function must credit, (K·B,)."""
        return torch.stack([score.owed() for score in self.scores]).sum(0) if self.scores else None

    @property
    def sources(self) -> Tensor | None:
        """(K·B, K·B), whether row i depends on such draws of row j; None when each row depends on its own alone."""
        reaches = [score.reach for score in self.scores if score.reach is not None]
        return torch.stack(reaches).any(0) if reaches else None

    def scored(self, log_prob: Tensor | None) -> View:
        """The view with more draws to be credited, one per row."""
        if log_prob is None:
            return self
        if self.scores and self.scores[-1].reach is None:
            *before, last = self.scores
            return replace(self, scores=(*before, Score(last.log_prob + log_prob)))
        return replace(self, scores=(*self.scores, Score(log_prob)))

    def followed_by(self, operator: Operator) -> View:
        """The view with one more transform, joined to the one before it where that is possible."""
        if self.pending and (joined := self.pending[-1].then(operator)) is not None:
            return replace(self, pending=(*self.pending[:-1], joined))
        return replace(self, pending=(*self.pending, operator))

    def settled(self) -> View:
        """The view with every transform applied; x keeps its type and memory format."""
        x, mask = self.x, self.mask
        for operator in self.pending:
            x = like(operator(x), self.x)
            mask = mask if mask is None else operator.on_mask(mask)
        return replace(self, x=x, mask=mask, pending=())


def like(x: Tensor, original: Tensor) -> Tensor:
    """x in the type and the memory format of the original."""
    x = x.to(original.dtype)
    if original.ndim == 4 and original.is_contiguous(memory_format=torch.channels_last):
        return x.contiguous(memory_format=torch.channels_last)
    return x


def mix_targets(target: Target, partner: Tensor, weight: Tensor) -> Target:
    """The target of a row that is `weight` itself and 1 − `weight` its partner.

    Soft and numeric targets are interpolated; integer labels are kept apart with their weights.
    """
    rest = 1.0 - weight
    if isinstance(target, MixedTarget):
        labels = (*target.labels, *(label[partner] for label in target.labels))
        weights = torch.cat([target.weights * weight[:, None], target.weights[partner] * rest[:, None]], 1)
        return MixedTarget(labels, weights)
    if not target.is_floating_point():
        return MixedTarget((target, target[partner]), torch.stack([weight, rest], 1))
    share = weight.view(-1, *[1] * (target.ndim - 1)).to(target.dtype)
    return share * target + (1.0 - share) * target[partner]


def credit_partners(view: View, partner: Tensor) -> View:
    """Rows now depend on their partners too: so do the draws that the score function must credit."""
    return replace(view, scores=tuple(score.mixed(partner) for score in view.scores))


def repeated(x: Tensor, y: Target | None, samples: int, mask: Tensor | None = None) -> View:
    """The batch `samples` times over, before anything is done to it."""
    if samples == 1:
        return View(x, y, mask=mask)
    rows = like(_again(x, samples), x)
    mask = mask if mask is None else _again(mask, samples)
    if isinstance(y, MixedTarget):
        labels = tuple(_again(label, samples) for label in y.labels)
        return View(rows, MixedTarget(labels, _again(y.weights, samples)), samples, mask=mask)
    return View(rows, y if y is None else _again(y, samples), samples, mask=mask)


def _again(rows: Tensor, times: int) -> Tensor:
    return rows.repeat(times, *[1] * (rows.ndim - 1))
