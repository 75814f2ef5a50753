"""How good and how honest the probabilities are."""

from optima.metrics.calibration import ReliabilityBins, ece, reliability
from optima.metrics.scores import accuracy, brier, nll

__all__ = ["ReliabilityBins", "accuracy", "brier", "ece", "nll", "reliability"]
