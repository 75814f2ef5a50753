r"""The paper's synthetic regression. Read `train` first: it is the whole method.

A mean squared error is a Gaussian likelihood of noise √½, since then −log p = (y − f)² + const. The paper's loss,
mean squared error + KL / B, is therefore −ELBO / N at that noise and `beta_phi = N / B`. Steps here are full batches
whatever B is: B only weighs the KL.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributions import Normal

import optima
from optima import learn
from optima.experiments.regression_data import NUM_DATA, Dataset, noise_std
from optima.objective.loss import Bound

PRIOR_STD = 0.2
MSE_NOISE = math.sqrt(0.5)
TRACE_POINTS = 100


@dataclass(frozen=True)
class Settings:
    """What the paper leaves open, and its number of epochs."""

    epochs: int = 3000
    hidden: int = 64
    lr: float = 1e-3
    lr_phi: float = 1e-2


@dataclass(frozen=True)
class Method:
    """One way to augment.

    Args:
        label: for the table.
        shift: makes the augmentation.
        likelihood: makes the likelihood.
        beta_phi: weight of the KL on φ.
        samples: K.
        bound: what the K draws are taken for.
    """

    label: str
    shift: Callable[[], optima.Shift]
    likelihood: Callable[[], optima.Gaussian] = lambda: optima.Gaussian(noise=MSE_NOISE)
    beta_phi: float = 1.0
    samples: int = 1
    bound: Bound = "jensen"


def fixed(std: float) -> Callable[[], optima.Shift]:
    """x' = x + γ, γ ~ N(0, std²)."""
    return lambda: optima.Shift(std=std)


def learned() -> optima.Shift:
    """x' = x + γ, γ ~ N(μ, σ²), with μ and σ learned and the prior N(0, 0.2²) on γ."""
    return optima.Shift(
        std=learn(0.1, posterior="point"), mean=learn(0.0, posterior="point"), prior_gamma=Normal(0.0, PRIOR_STD)
    )


METHODS = {
    "none": Method("none", fixed(0.0)),
    "fixed": Method("fixed σ = 0.1", fixed(0.1)),
    "naive-average": Method("naive K = 5, averaged", fixed(0.1), samples=5),
    "naive-copies": Method("naive K = 5, copies", fixed(0.1), samples=5, bound="naive"),
    "learned-batch-1": Method("learned, MSE + KL", learned, beta_phi=NUM_DATA / 1),
    "learned-batch-10": Method("learned, MSE + KL/10", learned, beta_phi=NUM_DATA / 10),
    "learned-batch-50": Method("learned, MSE + KL/50", learned, beta_phi=NUM_DATA / 50),
    "learned-true-noise": Method("learned, true noise", learned, lambda: optima.Gaussian(noise=noise_std())),
    "learned-noise": Method("learned, noise too", learned, lambda: optima.Gaussian(noise=learn(noise_std()))),
    "fixed-0.02": Method("fixed σ = 0.02", fixed(0.02)),
    "fixed-0.05": Method("fixed σ = 0.05", fixed(0.05)),
    "fixed-0.18": Method("fixed σ = 0.18", fixed(0.18)),
}


class Fit(NamedTuple):
    """A trained model and what was trained with it."""

    model: nn.Module
    augment: optima.Shift
    likelihood: optima.Gaussian
    trace: dict[str, list[float]]

    def phi(self) -> dict[str, float]:
        """σ, μ and the likelihood's noise, as they are now."""
        values = dict(self.augment.named_phi(), noise=self.likelihood.noise)
        return {name: phi.summary().mean.item() for name, phi in values.items()}

    def record(self, epoch: int, elbo: float) -> None:
        """Append to the trace."""
        for name, value in {"epoch": epoch, "elbo": elbo, **self.phi()}.items():
            self.trace.setdefault(name, []).append(value)


def network(hidden: int) -> nn.Sequential:
    """One input, two hidden layers, one output."""
    return nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))


def train(method: Method, data: Dataset, settings: Settings) -> Fit:
    """Algorithm 2 of the paper, with one full batch per epoch."""
    fit = Fit(network(settings.hidden), method.shift(), method.likelihood(), {})
    model, augment = fit.model, fit.augment
    objective = optima.ELBO(len(data.x), fit.likelihood, beta_phi=method.beta_phi, bound=method.bound)
    optimizer = torch.optim.Adam(
        [
            {"params": model.parameters(), "lr": settings.lr},
            {"params": [*augment.parameters(), *objective.parameters()], "lr": settings.lr_phi},
        ]
    )
    trace_every = max(1, settings.epochs // TRACE_POINTS)
    for epoch in range(1, settings.epochs + 1):
        view = augment(data.x, data.y, samples=method.samples)
        loss = objective(model(view.x), view, augment=augment)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % trace_every == 0:
            fit.record(epoch, float(loss.elbo))
    return fit


def described(settings: Settings) -> dict[str, Any]:
    """Everything that decides the numbers besides the seed, as plain data."""
    methods = {
        name: {"beta_phi": method.beta_phi, "samples": method.samples, "bound": method.bound}
        for name, method in METHODS.items()
    }
    return {**asdict(settings), "prior_std": PRIOR_STD, "num_data": NUM_DATA, "methods": methods}
