r"""The predictive distribution E_q(θ)[ p(y | x, θ) ], and over γ as well when an augmentation is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from optima.augment.augmenter import Augmenter
from optima.augment.checks import check_generator
from optima.bayes.layers import BayesianLinear
from optima.likelihoods import Likelihood, as_likelihood

Mean = Callable[[Tensor], Tensor]


class Call(NamedTuple):
    """One call of a Bayesian layer."""

    layer: BayesianLinear
    features: Tensor
    output: Tensor


@torch.no_grad()
def predict(
    model: nn.Module,
    x: Tensor,
    *,
    samples: int = 100,
    augment: Augmenter | None = None,
    likelihood: str | Likelihood = "categorical",
    generator: torch.Generator | None = None,
) -> Tensor:
    """Average the model's *probabilities* (never its logits) over draws of θ, and of γ when `augment` is given.

    When the model's output is that of a Bayesian last layer, all draws of θ cost one pass through the rest of the
    model. Augmentations that mix examples say nothing about a single input and are left out.

    Args:
        model: put into eval mode while predicting, and back afterwards.
        x: (B, …).
        samples: draws of θ; with `augment`, each goes with its own draw of γ.
        augment: marginalise over γ at the posterior of φ: the model that the ELBO is about.
        likelihood: gives the meaning of the output: class probabilities, label probabilities, or values.
        generator: source of the draws.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch module, got {type(model).__name__}")
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor with one row per example, got {type(x).__name__}")
    if augment is not None and not isinstance(augment, Augmenter):
        raise TypeError(f"augment must be an augmentation or a Sequential of them, got {type(augment).__name__}")
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    check_generator(generator, x)
    mean = as_likelihood(likelihood).mean
    with _eval(model):
        if augment is None:
            return _over_theta(model, x, samples, mean, generator)
        draws = (_over_theta(model, augment.draw_inputs(x, generator), 1, mean, generator) for _ in range(samples))
        return sum(draws, start=torch.zeros(())) / samples


def _over_theta(model: nn.Module, x: Tensor, samples: int, mean: Mean, generator: torch.Generator | None) -> Tensor:
    layers = [module for module in model.modules() if isinstance(module, BayesianLinear)]
    if not layers:
        return mean(model(x))
    with _recorded(layers) as calls:
        output = model(x)
    if len(calls) == 1 and calls[0].output is output:
        head = calls[0]
        draws = (mean(head.layer.draw(head.features, 1, generator).squeeze(0)) for _ in range(samples))
    else:
        draws = (mean(_sampled(model, x, layers, generator)) for _ in range(samples))
    return sum(draws, start=torch.zeros(())) / samples


def _sampled(model: nn.Module, x: Tensor, layers: list[BayesianLinear], generator: torch.Generator | None) -> Tensor:
    """One pass with every Bayesian layer drawing its output."""

    def draw(layer: nn.Module, inputs: tuple[Tensor, ...], _: Tensor) -> Tensor:
        return cast("BayesianLinear", layer).draw(inputs[0], 1, generator).squeeze(0)

    with _hooked(layers, draw):
        return model(x)


@contextmanager
def _recorded(layers: list[BayesianLinear]) -> Iterator[list[Call]]:
    """Collect every call of a Bayesian layer."""
    calls: list[Call] = []

    def record(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        calls.append(Call(cast("BayesianLinear", layer), inputs[0], output))

    with _hooked(layers, record):
        yield calls


@contextmanager
def _hooked(layers: list[BayesianLinear], hook: Callable[..., Tensor | None]) -> Iterator[None]:
    handles = [layer.register_forward_hook(hook) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _eval(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
