"""Calibration: does a confidence of 80 % mean right in 80 % of the cases?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from optima.metrics.scores import check_predictions


@dataclass(frozen=True)
class ReliabilityBins:
    """Per bin of confidence: how many rows, their mean confidence and their accuracy (0 where empty)."""

    edges: Tensor
    count: Tensor
    confidence: Tensor
    accuracy: Tensor


def reliability(probs: Tensor, labels: Tensor, *, bins: int = 10) -> ReliabilityBins:
    """Bin rows by the confidence of the predicted class, into equal bins (0, 1/n], …, ((n−1)/n, 1].

    A confidence on an edge belongs to the bin below it, so that 1.0 is in the last bin.
    """
    check_predictions(probs, labels)
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    confidence, predicted = probs.double().max(-1)
    edges = torch.arange(bins + 1, dtype=torch.float64) / bins
    # the edge as the probabilities' own type sees it: 0.3 in float32 is not 0.3 in float64
    inner = edges[1:-1].to(probs.dtype).double().to(confidence.device)
    index = torch.bucketize(confidence, inner)
    count = torch.bincount(index, minlength=bins).double()
    filled = count.clamp(min=1)
    mean_confidence = torch.bincount(index, confidence, bins) / filled
    mean_accuracy = torch.bincount(index, (predicted == labels).double(), bins) / filled
    return ReliabilityBins(edges, count, mean_confidence, mean_accuracy)


def ece(probs: Tensor, labels: Tensor, *, bins: int = 10) -> float:
    """Expected calibration error: Σ_bins share · |accuracy − confidence|, over equal-width bins of confidence.

    Example:
        >>> ece(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
        0.5
    """
    table = reliability(probs, labels, bins=bins)
    share = table.count / table.count.sum()
    return float((share * (table.accuracy - table.confidence).abs()).sum())
