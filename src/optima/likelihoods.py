r"""log p(y | output), one number per row, for hard, soft and mixed targets.

A soft target is a distribution over classes, t; its log-likelihood is Σ_c t_c log p_c. A `MixedTarget` is the soft
target Σ_m w_m onehot(y_m).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.distributions import constraints
from torch.nn import functional

from optima.augment.checks import can_look, check_mixed, check_sums
from optima.augment.view import MixedTarget, Target
from optima.posterior import FixedPhi, Learn, LearnedPhi, Number, Phi
from optima.streams import Stream
from optima.supports import Domain


class Likelihood(nn.Module, ABC):
    """p(y | output)."""

    @abstractmethod
    def log_lik(self, output: Tensor, target: Target) -> Tensor:
        """log p(y | output), shape (rows,)."""

    @abstractmethod
    def mean(self, output: Tensor) -> Tensor:
        """E[y | output]: class probabilities, or the predicted value."""

    def kl(self) -> Tensor:
        """KL of the likelihood's own parameters; 0 unless it learns any."""
        return torch.zeros(())


class Categorical(Likelihood):
    r"""One of C classes; the output holds logits (rows, C).

    Targets: class numbers (rows,), probabilities (rows, C), or a `MixedTarget`.

    Args:
        subtract_floor: add the target's own entropy, which turns the cross-entropy of a soft target into −KL(t ‖ p).
            The cross-entropy of a soft target cannot fall below that entropy whatever the model does, so that a
            learned Mixup would otherwise be paid for mixing less. Hard targets have no entropy and do not change.

    Example:
        >>> Categorical().log_lik(torch.zeros(1, 2), torch.tensor([1]))
        tensor([-0.6931])
    """

    def __init__(self, *, subtract_floor: bool = False):
        super().__init__()
        self.subtract_floor = subtract_floor

    def log_lik(self, output: Tensor, target: Target) -> Tensor:
        _check_logits(output)
        log_p = _at_least_float32(output).log_softmax(-1)
        if isinstance(target, MixedTarget):
            return self._mixed(log_p, target)
        if target.is_floating_point():
            _check_probabilities(target, log_p)
            value = (target * log_p).sum(-1)
            return value + _entropy(target) if self.subtract_floor else value
        return log_p.gather(-1, _checked_labels(target, log_p).unsqueeze(-1)).squeeze(-1)

    def mean(self, output: Tensor) -> Tensor:
        _check_logits(output)
        return _at_least_float32(output).softmax(-1)

    def _mixed(self, log_p: Tensor, target: MixedTarget) -> Tensor:
        check_mixed(target, len(log_p))
        labels = torch.stack([_checked_labels(label, log_p) for label in target.labels], 1)
        value = (target.weights * log_p.gather(-1, labels)).sum(-1)
        if not self.subtract_floor:
            return value
        # weights of equal labels belong together: an image mixed with another of its own class has a hard label
        soft = torch.zeros_like(log_p, dtype=target.weights.dtype).scatter_add(-1, labels, target.weights)
        return value + _entropy(soft)


class Bernoulli(Likelihood):
    """Several independent yes/no labels; the output holds logits (rows, labels), and the targets lie in [0, 1]."""

    def log_lik(self, output: Tensor, target: Target) -> Tensor:
        logits = _at_least_float32(output)
        soft = _interpolated(target).to(logits.dtype)
        if soft.shape != logits.shape:
            raise ValueError(f"targets must have the logits' shape {tuple(logits.shape)}, got {tuple(soft.shape)}")
        _check_range(soft, "a Bernoulli target")
        value = -functional.binary_cross_entropy_with_logits(logits, soft, reduction="none")
        return value.flatten(1).sum(1) if value.ndim > 1 else value

    def mean(self, output: Tensor) -> Tensor:
        return _at_least_float32(output).sigmoid()


class Gaussian(Likelihood):
    r"""y = output + ε, ε ~ Normal(0, noise²) in every dimension.

    A `MixedTarget`, or a mixture of numeric targets, is the interpolated value.

    Args:
        noise: standard deviation; a number fixes it, `learn(0.5)` learns it (its KL counts with θ's).
    """

    def __init__(self, noise: Number | Learn = 1.0):
        super().__init__()
        domain = Domain(constraints.positive, unit="of the target", allows_off=False)
        self.noise: Phi = (
            LearnedPhi("Gaussian(noise=…)", noise, domain)
            if isinstance(noise, Learn)
            else FixedPhi("Gaussian(noise=…)", noise, domain)
        )
        if self.noise.shape != ():
            raise ValueError(f"noise must be one number, got shape {tuple(self.noise.shape)}")
        self.stream = Stream()

    def log_lik(self, output: Tensor, target: Target) -> Tensor:
        mean = _at_least_float32(output)
        value = _interpolated(target).to(mean.dtype)
        if value.shape != mean.shape:
            raise ValueError(
                f"targets must have the output's shape {tuple(mean.shape)}, got {tuple(value.shape)};"
                " (rows, 1) against (rows,) would broadcast to every pair"
            )
        noise = self.noise.draw(
            1, dtype=mean.dtype, device=mean.device, noise=self.stream.noise("noise"), watch=False
        ).squeeze(0)
        density = -0.5 * ((value - mean) / noise).square() - noise.log() - 0.5 * math.log(2 * math.pi)
        return density.flatten(1).sum(1) if density.ndim > 1 else density

    def mean(self, output: Tensor) -> Tensor:
        return _at_least_float32(output)

    def get_extra_state(self) -> Tensor:
        return self.stream.state()

    def set_extra_state(self, state: Tensor) -> None:
        self.stream = Stream.from_state(state)

    def kl(self) -> Tensor:
        return self.noise.kl(self.stream.noise("kl"))


LIKELIHOODS: dict[str, type[Likelihood]] = {"categorical": Categorical, "bernoulli": Bernoulli, "gaussian": Gaussian}


def as_likelihood(likelihood: str | Likelihood) -> Likelihood:
    """A likelihood, or the default one of that name."""
    if isinstance(likelihood, Likelihood):
        return likelihood
    if likelihood not in LIKELIHOODS:
        raise ValueError(f"likelihood must be one of {sorted(LIKELIHOODS)} or a Likelihood, got {likelihood!r}")
    return LIKELIHOODS[likelihood]()


def _at_least_float32(output: Tensor) -> Tensor:
    return output.to(torch.promote_types(output.dtype, torch.float32))


def _check_logits(output: Tensor) -> None:
    if output.ndim != 2 or output.shape[1] < 2:
        raise ValueError(
            "a categorical likelihood needs logits of shape (rows, classes) with two classes or more, got"
            f' {tuple(output.shape)}; for values use likelihood="gaussian", for one yes or no "bernoulli"'
        )


def _interpolated(target: Target) -> Tensor:
    if not isinstance(target, MixedTarget):
        return target
    check_mixed(target, len(target.weights))
    weights = target.weights
    shape = (-1, *[1] * (target.labels[0].ndim - 1))
    parts = [w.view(shape) * label for w, label in zip(weights.unbind(1), target.labels, strict=True)]
    return torch.stack(parts).sum(0)


def _entropy(soft: Tensor) -> Tensor:
    """Σ −t log t, with a derivative of 0 rather than ∞ at t = 0."""
    safe = torch.where(soft > 0, soft, 1.0)
    return -(safe * safe.log()).sum(-1)


def _checked_labels(labels: Tensor, log_p: Tensor) -> Tensor:
    rows, classes = log_p.shape
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(
            f"class labels must be whole numbers, got {labels.dtype}; use y.long(), or probabilities (rows, {classes})"
        )
    if labels.shape != (rows,):
        raise ValueError(
            f"class labels must have shape ({rows},), one per row of the output, got {tuple(labels.shape)}"
        )
    if can_look(labels):  # elsewhere `gather` itself refuses
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= classes:
            raise ValueError(f"class labels must lie in 0…{classes - 1}, the output's classes; got {low}…{high}")
    return labels.long()


def _check_probabilities(target: Tensor, log_p: Tensor) -> None:
    if target.shape != log_p.shape:
        raise ValueError(
            f"floating-point targets are class probabilities and must have the logits' shape {tuple(log_p.shape)},"
            f" got {tuple(target.shape)}; for class numbers use y.long()"
        )
    _check_range(target, "a class probability")
    if can_look(target):
        check_sums(target, "class probabilities", '; for several labels per row use likelihood="bernoulli"')


def _check_range(target: Tensor, what: str) -> None:
    if can_look(target):
        low, high = float(target.detach().min()), float(target.detach().max())
        if not (low >= 0 and high <= 1 + 1e-4):
            raise ValueError(f"{what} must lie in [0, 1], got {low:g}…{high:g}")
