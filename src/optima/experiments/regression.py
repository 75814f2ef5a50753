r"""The paper's synthetic regression. Read `train` first: it is the whole method.

A mean squared error is a Gaussian likelihood of noise √½, since then −log p = (y − f)² + const. The paper's loss, mean squared error + KL / B,
is therefore −ELBO / N at that noise and `beta_phi = N / B`. Steps here are full batches whatever B is: B only weighs the KL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributions import Normal

import optima
from optima import learn
from optima.experiments.balance import balance_std, curvature, mean_squared_slope
from optima.experiments.regression_data import NUM_DATA, Dataset, draw_dataset, noise_std, true_squared_slope
from optima.objective.loss import Bound

PRIOR_STD = 0.2
MSE_NOISE = math.sqrt(0.5)
AVERAGED_DRAWS = 100
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
    "naive-average": Method("naive K = 5, loss averaged", fixed(0.1), samples=5),
    "naive-copies": Method("naive K = 5, copies counted", fixed(0.1), samples=5, bound="naive"),
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
        return {name: float(phi.summary().mean) for name, phi in values.items()}

    def record(self, epoch: int, elbo: float) -> None:
        """Append to the trace."""
        for name, value in {"epoch": epoch, "elbo": elbo, **self.phi()}.items():
            self.trace.setdefault(name, []).append(value)


def network(hidden: int) -> nn.Sequential:
    """One input, two hidden layers, one output."""
    return nn.Sequential(
        nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
    )


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


def run(seed: int, name: str, settings: Settings) -> dict[str, Any]:
    """Train one method on one seed's data and measure it. Every method gets the seed's data, initial weights and stream of noise."""
    data = draw_dataset(torch.Generator().manual_seed(2 * seed))
    with _one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(2 * seed + 1)
        fit = train(METHODS[name], data, settings)
        learns = fit.augment.learns()
        return {
            **_errors(fit, data, seed),
            **fit.phi(),
            **(_evidence(METHODS[name], fit, data) if learns else {}),
            "fit": fit.model(data.x_test[::5]).flatten().tolist(),
            "trace": fit.trace,
        }


def _errors(fit: Fit, data: Dataset, seed: int) -> dict[str, float]:
    with torch.no_grad():
        prediction = fit.model(data.x_test)
        train_mse = (fit.model(data.x) - data.y).square().mean()
    averaged = optima.predict(
        fit.model,
        data.x_test,
        samples=AVERAGED_DRAWS,
        augment=fit.augment,
        likelihood=fit.likelihood,
        generator=torch.Generator().manual_seed(seed),
    )
    return {
        "train_mse": float(train_mse),
        "test_mse": float((prediction - data.y_test).square().mean()),
        "truth_mse": float((prediction - data.f_test).square().mean()),
        "test_mse_averaged": float((averaged - data.y_test).square().mean()),
    }


def _evidence(method: Method, fit: Fit, data: Dataset) -> dict[str, Any]:
    """Where σ settled, and where three forms of the balance say it should."""
    phi = fit.phi()
    window = fit.trace["std"][-max(1, len(fit.trace["std"]) // 10) :]
    settled = sum(window) / len(window)
    at_rest = {"mean": phi["mean"], "std": settled}
    pulls = {
        "true_slope": true_squared_slope(),
        "fitted_slope": mean_squared_slope(fit.model, data.x, **at_rest),
        "curvature": curvature(fit.model, data.x, data.y, **at_rest),
    }
    terms = {"prior_std": PRIOR_STD, "noise": phi["noise"], "num_data": len(data.x), "beta_phi": method.beta_phi}
    return {
        "std_settled": settled,
        "pull": pulls,
        "balance": {name: balance_std(pull, **terms) for name, pull in pulls.items()},
        "verdict": fit.augment.summary().rows[0].verdict,
    }


def described(settings: Settings) -> dict[str, Any]:
    """Everything that decides the numbers besides the seed, as plain data."""
    methods = {
        name: {"label": m.label, "beta_phi": m.beta_phi, "samples": m.samples, "bound": m.bound}
        for name, m in METHODS.items()
    }
    return {**asdict(settings), "prior_std": PRIOR_STD, "num_data": NUM_DATA, "methods": methods}


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums in one order, whatever the machine; matrices this small gain nothing from more threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
