"""What an augmentation returns, and the targets it can carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

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
        possible: the same, whether it might have, had the rows chosen other branches; None where that is `reach`. A
            baseline must go by this one: it may not depend on the choice that it is the baseline of.
    """

    log_prob: Tensor
    reach: Tensor | None = None
    possible: Tensor | None = None

    def owed(self) -> Tensor:
        """Σ log p(γ | φ) over the draws that each row depends on, each counted once, (rows,)."""
        return self.log_prob if self.reach is None else torch.where(self.reach, self.log_prob, 0.0).sum(1)

    def sources(self) -> Tensor | None:
        """Which rows' draws each row might depend on; None where on its own alone."""
        return self.reach if self.possible is None else self.possible

    def mixed(self, partner: Tensor) -> Score:
        """After every row has been combined with another."""
        rows = len(partner)
        reach = torch.eye(rows, dtype=torch.bool, device=partner.device) if self.reach is None else self.reach
        possible = None if self.possible is None else self.possible | self.possible[partner]
        return Score(self.log_prob, reach | reach[partner], possible)

    def where(self, rows: Tensor) -> Score:
        """For rows (rows,) alone; the others do not depend on these draws, though they might have."""
        if self.reach is None:
            return Score(torch.where(rows, self.log_prob, 0.0))
        return Score(self.log_prob, self.reach & rows.unsqueeze(1), self.sources())

    def through(self, needs: Tensor, might_need: Tensor) -> Score:
        """For rows made from the rows that `needs` says, and that might have needed others, (rows, rows) both."""
        return Score(self.log_prob, _chained(needs, self.reach), _chained(might_need, self.sources()))

    @classmethod
    def shared(cls, log_prob: Tensor, leader: Tensor) -> Score:
        """Of draws that several rows share: row i depends on the one made for row leader[i]."""
        rows = torch.arange(len(leader), device=leader.device)
        return cls(log_prob, leader.unsqueeze(1) == rows)


def _chained(needs: Tensor, reach: Tensor | None) -> Tensor:
    return needs if reach is None else (needs.float() @ reach.float()) > 0


class Learners(NamedTuple):
    """The rows whose γ teach φ, when not all do.

    Args:
        rows: their numbers.
        others: the numbers of the rest.
        loudness: how many times over each of them counts, so that the expectation is that of all.
    """

    rows: Tensor
    others: Tensor
    loudness: float

    def louder(self, gamma: Tensor) -> Tensor:
        """The same γ, whose gradient counts so many times."""
        if not gamma.requires_grad:
            return gamma
        twin = gamma.view_as(gamma)
        twin.register_hook(lambda gradient: gradient * self.loudness)
        return twin


@dataclass(frozen=True)
class View:
    """An augmented batch: K draws of γ for each of B examples, the draws outermost, K·B rows.

    With `clean`, the batch as it was comes first, (1 + K)·B rows, and the target is that of those first B rows.

    Args:
        x: (K·B, …).
        target: labels with K·B rows, a `MixedTarget`, or None.
        samples: K.
        gamma: the named draws of γ; feed them back as `replay`.
        phi: the named draws of φ, (B, …) each.
        scores: the draws that the score function must credit; none when every draw is pathwise.
        mask: labels of the pixels, (K·B, H, W), moved as the image is.
        boxes: (K·B, n, 4), left, top, right and bottom in pixels, moved as the image is.
        clean: the batch as it was comes before the draws.
        idle: where φ are named whose augmentation no row of this batch has met.
        learners: the rows whose γ teach φ; None when all do.
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
    boxes: Tensor | None = None
    clean: bool = False
    idle: tuple[str, ...] = ()
    learners: Learners | None = field(default=None, repr=False)
    single: bool = False
    pending: tuple[Operator, ...] = field(default=(), repr=False)

    @property
    def examples(self) -> int:
        """B, the number of examples before augmentation."""
        return len(self.x) // (self.samples + self.clean)

    @property
    def log_prob(self) -> Tensor | None:
        """Σ log p(γ | φ) over the draws that a row of x depends on and that the score function must credit, (K·B,)."""
        return torch.stack([score.owed() for score in self.scores]).sum(0) if self.scores else None

    @property
    def sources(self) -> Tensor | None:
        """(K·B, K·B), whether row i might depend on such draws of row j; None when each row on its own alone."""
        reaches = [score.sources() for score in self.scores]
        reaches = [reach for reach in reaches if reach is not None]
        return torch.stack(reaches).any(0) if reaches else None

    def scored(self, log_prob: Tensor | None, leader: Tensor | None = None) -> View:
        """The view with more draws to be credited, one per row, or one per `leader` for all rows that it leads."""
        if log_prob is None:
            return self
        if leader is not None:
            return replace(self, scores=(*self.scores, Score.shared(log_prob, leader)))
        if self.scores and self.scores[-1].reach is None:
            *before, last = self.scores
            return replace(self, scores=(*before, Score(last.log_prob + log_prob)))
        return replace(self, scores=(*self.scores, Score(log_prob)))

    def followed_by(self, operator: Operator) -> View:
        """The view with one more transform, joined to the one before it where that is possible."""
        if self.pending and (joined := self.pending[-1].then(operator)) is not None:
            return replace(self, pending=(*self.pending[:-1], joined))
        return replace(self, pending=(*self.pending, operator))

    def probed(self, *, mark: bool) -> View:
        """The view as one of several branches meets it: nothing drawn yet, and if wanted a mark on every row, whose
        reach will say which rows each row has been made from."""
        if not mark:
            return replace(self, gamma={}, phi={}, scores=(), idle=())
        rows = len(self.x)
        probe = Score(torch.zeros(rows, device=self.x.device), torch.eye(rows, dtype=torch.bool, device=self.x.device))
        return replace(self, gamma={}, phi={}, scores=(probe,), idle=())

    def cut(self, index: Tensor) -> View:
        """Some of the rows, given by number; draws and targets stay whole."""
        mask = None if self.mask is None else self.mask.index_select(0, index)
        boxes = None if self.boxes is None else self.boxes.index_select(0, index)
        pending = tuple(operator.rows(index) for operator in self.pending)
        return replace(self, x=self.x.index_select(0, index), mask=mask, boxes=boxes, pending=pending)

    def settled(self) -> View:
        """The view with every transform applied; x keeps its type and memory format."""
        if self.learners is not None and self.pending and torch.is_grad_enabled():
            return self._settled_apart(self.learners)
        x, mask, boxes = self.x, self.mask, self.boxes
        for operator in self.pending:
            x = like(operator(x), self.x)
            mask = mask if mask is None else operator.on_mask(mask)
            boxes = boxes if boxes is None else operator.on_boxes(boxes, *x.shape[-2:])
        return replace(self, x=x, mask=mask, boxes=boxes, pending=())

    def _settled_apart(self, learners: Learners) -> View:
        """The learners' rows with a gradient and the others without, which costs neither their time nor their memory
        on the way back."""
        alone = replace(self, learners=None)
        taught = alone.cut(learners.rows).settled()
        with torch.no_grad():
            other = alone.cut(learners.others).settled()

        def joined(one: Any, rest: Any) -> Any:
            if one is None:
                return None
            whole = torch.empty((len(self.x), *one.shape[1:]), dtype=one.dtype, device=one.device)
            return whole.index_copy_(0, learners.others, rest).index_copy_(0, learners.rows, one)

        x = like(joined(taught.x, other.x), self.x)
        masks, boxes = joined(taught.mask, other.mask), joined(taught.boxes, other.boxes)
        return replace(self, x=x, mask=masks, boxes=boxes, pending=())

    def finished(self) -> View:
        """The settled view, with boxes cut at the border; a box that has left the image has no area."""
        view = self.settled()
        if view.boxes is None:
            return view
        height, width = view.x.shape[-2:]
        ends = view.boxes.new_tensor([width, height, width, height])
        return replace(view, boxes=torch.minimum(view.boxes.clamp_min(0.0), ends))

    def after(self, x: Tensor, target: Target | None) -> View:
        """The view behind the batch that it was made from."""
        return replace(self, x=torch.cat([x, self.x]), target=target, clean=True)


def like(x: Tensor, original: Tensor) -> Tensor:
    """x in the type and the memory format of the original."""
    x = x.to(original.dtype)
    if x.ndim == original.ndim == 4 and original.is_contiguous(memory_format=torch.channels_last):
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


def repeated(
    x: Tensor, y: Target | None, samples: int, mask: Tensor | None = None, boxes: Tensor | None = None
) -> View:
    """The batch `samples` times over, before anything is done to it."""
    if samples == 1:
        return View(x, y, mask=mask, boxes=boxes)
    if isinstance(y, MixedTarget):
        labels = tuple(label.repeat(samples, *[1] * (label.ndim - 1)) for label in y.labels)
        y = MixedTarget(labels, y.weights.repeat(samples, 1))
    elif y is not None:
        y = _again(y, samples)
    return View(like(_again(x, samples), x), y, samples, mask=_again(mask, samples), boxes=_again(boxes, samples))


def _again(rows: Any, times: int) -> Any:
    return None if rows is None else rows.repeat(times, *[1] * (rows.ndim - 1))
