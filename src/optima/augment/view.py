"""What an augmentation returns, and the targets it can carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor


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


@dataclass(frozen=True)
class View:
    """An augmented batch: K draws of γ for each of B examples, the draws outermost, K·B rows.

    Args:
        x: (K·B, …).
        target: labels with K·B rows, a `MixedTarget`, or None.
        samples: K.
        gamma: the named draws of γ; feed them back as `replay`.
        phi: the named draws of φ, (B, …) each.
        log_prob: Σ log p(γ | φ) over the draws that each row of x depends on and that the score function must credit,
            (K·B,); None when every draw is pathwise.
        sources: (B, B), whether row i depends on such draws of row j; None when each row depends on its own alone.
            Kept for K = 1.
    """

    x: Tensor
    target: Target | None = None
    samples: int = 1
    gamma: Mapping[str, Tensor] = field(default_factory=dict)
    phi: Mapping[str, Tensor] = field(default_factory=dict)
    log_prob: Tensor | None = None
    sources: Tensor | None = None

    @property
    def examples(self) -> int:
        """B, the number of examples before augmentation."""
        return len(self.x) // self.samples


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
    if view.log_prob is None:
        return view
    log_prob = view.log_prob + view.log_prob[partner]
    if view.samples > 1:
        return replace(view, log_prob=log_prob)
    own = torch.eye(len(partner), dtype=torch.bool, device=partner.device) if view.sources is None else view.sources
    return replace(view, log_prob=log_prob, sources=own | own[partner])


def repeated(x: Tensor, y: Target | None, samples: int) -> View:
    """The batch `samples` times over, before anything is done to it."""
    if samples == 1:
        return View(x, y)
    rows = x.repeat(samples, *[1] * (x.ndim - 1))
    if x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last):
        rows = rows.contiguous(memory_format=torch.channels_last)
    if isinstance(y, MixedTarget):
        labels = tuple(label.repeat(samples, *[1] * (label.ndim - 1)) for label in y.labels)
        return View(rows, MixedTarget(labels, y.weights.repeat(samples, 1)), samples)
    return View(rows, y if y is None else y.repeat(samples, *[1] * (y.ndim - 1)), samples)
