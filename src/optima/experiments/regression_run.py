"""One run of the regression: a method on a seed's data, trained and measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

import optima
from optima.experiments.balance import balance_std, curvature, mean_squared_slope
from optima.experiments.regression import METHODS, PRIOR_STD, Fit, Method, Settings, train
from optima.experiments.regression_data import Dataset, draw_dataset, true_squared_slope

AVERAGED_DRAWS = 100
FIT_EVERY = 5


def dataset_of(seed: int) -> Dataset:
    """A seed's data; initial weights and noise come from the odd numbers, so that no two share a generator."""
    return draw_dataset(torch.Generator().manual_seed(2 * seed))


def run(seed: int, name: str, settings: Settings) -> dict[str, Any]:
    """Train one method on one seed's data and measure it.

    Every method gets the same data, initial weights and stream of noise from a seed.
    """
    started = time.process_time()
    data = dataset_of(seed)
    with _one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(2 * seed + 1)
        fit = train(METHODS[name], data, settings)
        learns = fit.augment.learns()
        return {
            **_errors(fit, data, seed),
            **fit.phi(),
            **(_evidence(METHODS[name], fit, data) if learns else {}),
            "cpu_seconds": time.process_time() - started,
            "fit": fit.model(data.x_test[::FIT_EVERY]).flatten().tolist(),
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


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums in one order, whatever the machine; matrices this small gain nothing from more threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
