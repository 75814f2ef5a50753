"""What the seeds say together: means, standard errors, paired differences, and the curves of the figures."""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

import optima
from optima.experiments.kernel_regression import kernel_regression
from optima.experiments.regression import METHODS, Settings, described
from optima.experiments.regression_data import noise_std, true_squared_slope
from optima.experiments.regression_run import dataset_of

PAPER = {
    "none": {"train_mse": 0.02120, "test_mse": 0.10176},
    "fixed": {"train_mse": 0.03905, "test_mse": 0.07412},
    "naive-average": {"train_mse": 0.03929, "test_mse": 0.07346},
    "learned-batch-1": {"train_mse": 0.04699, "test_mse": 0.07177, "std": 0.1794},
}
COMPARED = ("test_mse", "truth_mse")
CURVES = ("fit", "trace")

Runs = Mapping[int, Mapping[str, Any]]


def summarise(runs: Runs, settings: Settings) -> dict[str, Any]:
    """The contents of regression.json: per method every seed's numbers and what they amount to."""
    seeds = list(runs)
    return {
        "schema": 1,
        "experiment": "regression",
        "command": f"optima reproduce regression --seeds {len(seeds)} --epochs {settings.epochs}",
        "versions": _versions(),
        "settings": described(settings),
        "seeds": seeds,
        "cpu_seconds": _short(sum(numbers["cpu_seconds"] for run in runs.values() for numbers in run.values())),
        "closed_form": {"noise_std": _short(noise_std()), "true_squared_slope": _short(true_squared_slope())},
        "paper": PAPER,
        "methods": {name: _method(name, runs) for name in METHODS},
        "curves": _curves(runs),
    }


def mean_and_error(values: list[float]) -> dict[str, float | None]:
    """Mean and its standard error; one value has no error."""
    # differences from the first value, so that the error of equal values is exactly 0
    error = float(np.std(np.subtract(values, values[0]), ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None
    return {"mean": _short(float(np.mean(values))), "standard_error": error if error is None else _short(error)}


def _method(name: str, runs: Runs) -> dict[str, Any]:
    per_seed = {str(seed): _numbers({**run[name], **_kernel(seed, run[name])}) for seed, run in runs.items()}
    columns = _columns(per_seed.values())
    return {
        "label": METHODS[name].label,
        "overall": {column: mean_and_error(values) for column, values in columns.items()},
        "minus_none": {metric: _paired(metric, name, "none", runs) for metric in COMPARED},
        "minus_fixed": {metric: _paired(metric, name, "fixed", runs) for metric in COMPARED},
        "verdicts": dict(Counter(row["verdict"] for row in per_seed.values() if "verdict" in row)),
        "per_seed": per_seed,
    }


def _kernel(seed: int, run: Mapping[str, Any]) -> dict[str, float]:
    """Test error of what the loss asks for at this run's σ, however flexible the network; none without augmentation."""
    if run["std"] == 0:
        return {}
    data = dataset_of(seed)
    best = kernel_regression(data.x, data.y, data.x_test, mean=run["mean"], std=run["std"])
    return {"kernel_test_mse": float((best - data.y_test).square().mean())}


def _paired(metric: str, name: str, reference: str, runs: Runs) -> dict[str, float | None]:
    """This method minus the reference on the same data, initial weights and noise."""
    differences = [run[name][metric] - run[reference][metric] for run in runs.values()]
    return {**mean_and_error(differences), "seeds_lower": sum(difference < 0 for difference in differences)}


def _numbers(run: Mapping[str, Any]) -> dict[str, Any]:
    """One run without its curves, its nested numbers named with a dot."""
    flat: dict[str, Any] = {}
    for key, value in run.items():
        if isinstance(value, Mapping) and key not in CURVES:
            flat |= {f"{key}.{part}": number for part, number in value.items()}
        elif key not in CURVES:
            flat[key] = value
    return {key: _short(value) if isinstance(value, float) else value for key, value in flat.items()}


def _columns(rows: Any) -> dict[str, list[float]]:
    """The columns that hold a number in every row."""
    rows = list(rows)
    names = [name for name in rows[0] if all(isinstance(row[name], float) for row in rows)]
    return {name: [row[name] for row in rows] for name in names}


def _curves(runs: Runs) -> dict[str, Any]:
    """One seed's fits, and the learned methods' traces over all seeds."""
    first = next(iter(runs))
    return {
        "fit_seed": first,
        "fit": {name: [_short(value, 4) for value in run["fit"]] for name, run in runs[first].items()},
        "trace": {
            name: _trace([run[name]["trace"] for run in runs.values()])
            for name in METHODS
            if name.startswith("learned")
        },
    }


def _trace(traces: list[Mapping[str, list[float]]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds of every traced quantity."""
    out: dict[str, Any] = {"epoch": traces[0]["epoch"]}
    for name in ("std", "mean", "elbo"):
        stacked = np.array([trace[name] for trace in traces])
        out[name] = {
            "mean": [_short(value, 4) for value in stacked.mean(0).tolist()],
            "deviation": [_short(value, 4) for value in stacked.std(0).tolist()],
        }
    return out


def _versions() -> dict[str, str]:
    return {
        "optima": optima.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def _short(value: float, digits: int = 6) -> float:
    return float(f"{value:.{digits}g}")
