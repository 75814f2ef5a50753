"""Scores of predicted class probabilities (rows, classes) against class numbers (rows,)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def accuracy(probs: Float[Tensor, "rows classes"], labels: Int[Tensor, " rows"]) -> float:
    """Share of rows whose most probable class is the label; of equal probabilities the first class counts.

    Example:
        >>> accuracy(torch.tensor([[0.7, 0.3], [0.6, 0.4]]), torch.tensor([0, 1]))
        0.5
    """
    check_predictions(probs, labels)
    return float((probs.argmax(-1) == labels).double().mean())


def nll(probs: Float[Tensor, "rows classes"], labels: Int[Tensor, " rows"]) -> float:
    """Mean of −log p(label), in nats; infinite when a label has probability 0."""
    check_predictions(probs, labels)
    return float(-probs.double().gather(-1, labels.long().unsqueeze(-1)).log().mean())


def brier(probs: Float[Tensor, "rows classes"], labels: Int[Tensor, " rows"]) -> float:
    """Mean squared distance of the probabilities to the one-hot label, summed over classes: from 0 (best) to 2."""
    check_predictions(probs, labels)
    one_hot = torch.nn.functional.one_hot(labels.long(), probs.shape[-1])
    return float((probs.double() - one_hot).square().sum(-1).mean())


def check_predictions(probs: Tensor, labels: Tensor) -> None:
    """Raise unless these are probabilities and class numbers of the same rows."""
    for name, value in (("probs", probs), ("labels", labels)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
    if probs.ndim != 2 or len(probs) == 0:
        raise ValueError(f"probs must have shape (rows, classes) with at least one row, got {tuple(probs.shape)}")
    if labels.is_floating_point() or labels.shape != probs.shape[:1]:
        raise ValueError(
            f"labels must be {len(probs)} whole class numbers, got {labels.dtype} of shape {tuple(labels.shape)}"
        )
    if int(labels.min()) < 0 or int(labels.max()) >= probs.shape[1]:
        raise ValueError(f"labels must lie in 0…{probs.shape[1] - 1}, got {int(labels.min())}…{int(labels.max())}")
    total = probs.double().sum(-1)
    slack = max(1e-3, 4 * torch.finfo(probs.dtype).eps) if probs.is_floating_point() else 1e-3
    if bool((probs < 0).any()) or not bool(((total - 1).abs() < slack).all()):
        raise ValueError(
            "each row of probs must be a distribution; these do not sum to 1 (are they logits? use softmax)"
        )
