"""Means, errors and paired differences against hand-made runs; the figures hold what the summary says."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from optima.experiments.regression import METHODS, Settings
from optima.experiments.regression_summary import mean_and_error, summarise
from optima.experiments.regression_table import balance_table, errors_table, plus_minus

TEST_MSE = {"none": (0.10, 0.30, 0.20), "fixed": (0.08, 0.29, 0.14)}


def made_up(name: str, seed: int) -> dict:
    trace = {"epoch": [1, 2], "std": [0.1, 0.2 + seed], "mean": [0.0, 0.0], "elbo": [-3.0, -2.0]}
    numbers = {
        "train_mse": 0.1,
        "test_mse": TEST_MSE.get(name, (0.5, 0.5, 0.5))[seed],
        "truth_mse": 0.3,
        "std": 0.0 if name == "none" else 0.1,
        "mean": 0.0,
        "noise": 0.7,
        "cpu_seconds": 2.0,
        "fit": [0.25] * 200,
        "trace": trace,
    }
    if name.startswith("learned"):
        balance = {"true_slope": 0.18, "fitted_slope": 0.17, "curvature": None if seed == 1 else 0.16}
        numbers |= {"std_settled": 0.1, "balance": balance, "verdict": "moved by the data"}
    return numbers


def summary_of(seeds: int) -> dict:
    runs = {seed: {name: made_up(name, seed) for name in METHODS} for seed in range(seeds)}
    return summarise(runs, Settings())


def test_mean_and_standard_error_by_hand():
    assert mean_and_error([1.0, 2.0, 6.0]) == {
        "mean": 3.0,
        "standard_error": pytest.approx(math.sqrt(7 / 3), rel=1e-5),
    }
    assert mean_and_error([2.5]) == {"mean": 2.5, "standard_error": None}


def test_differences_are_paired_by_seed():
    fixed = summary_of(3)["methods"]["fixed"]
    # −0.02, −0.01, −0.06: unpaired, the error would be four times as large
    assert fixed["minus_none"]["test_mse"]["mean"] == pytest.approx(-0.03)
    assert fixed["minus_none"]["test_mse"]["standard_error"] == pytest.approx(math.sqrt(0.0007 / 3), rel=1e-5)
    assert fixed["minus_none"]["test_mse"]["seeds_lower"] == 3
    assert fixed["minus_fixed"]["test_mse"] == {"mean": 0.0, "standard_error": 0.0, "seeds_lower": 0}
    assert fixed["per_seed"]["2"]["test_mse"] == 0.14


def test_equal_values_have_no_error_and_no_augmentation_no_kernel():
    methods = summary_of(3)["methods"]
    assert mean_and_error([0.1791] * 3)["standard_error"] == 0
    assert "kernel_test_mse" not in methods["none"]["overall"]
    assert 0.05 < methods["fixed"]["overall"]["kernel_test_mse"]["mean"] < 0.2


def test_the_summary_is_json_that_reads_back_the_same():
    summary = summary_of(3)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary["cpu_seconds"] == 3 * len(METHODS) * 2.0
    assert summary["methods"]["learned-noise"]["verdicts"] == {"moved by the data": 3}
    assert summary["methods"]["fixed"]["verdicts"] == {}
    assert summary["command"] == "optima reproduce regression --seeds 3 --epochs 3000"
    assert summary["curves"]["trace"]["learned-noise"]["std"]["mean"] == [0.1, 1.2]
    assert set(summary["curves"]["trace"]) == {name for name in METHODS if name.startswith("learned")}


def test_tables_have_a_row_per_method_and_show_what_is_missing():
    summary = summary_of(2)
    assert errors_table(summary).row_count == len(METHODS)
    table = balance_table(summary)
    assert table.row_count == 5
    exact = next(column for column in table.columns if column.header == "σ*: exact")
    assert set(exact.cells) == {"–"}  # not every seed has a balance point, so there is no honest mean


@pytest.mark.parametrize(
    ("value", "shown"),
    [({"mean": 0.0716, "standard_error": 0.0024}, "0.072 ± 0.002"), ({"mean": 0.1, "standard_error": None}, "0.100")],
)
def test_plus_minus(value, shown):
    assert plus_minus(value) == shown


def test_figures_show_the_summarys_curves(tmp_path):
    pytest.importorskip("matplotlib")
    from optima.experiments.regression_figure import balance_figure, draw, paper_figure

    summary = summary_of(3)
    written = draw(summary, tmp_path)
    assert sorted(path.name for path in written) == sorted(path.name for path in tmp_path.iterdir())
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
    fits, std, _, elbo = paper_figure(summary).axes
    fit = next(line for line in fits.lines if line.get_label() == "none")
    assert set(np.asarray(fit.get_ydata())) == {0.25}
    traced = next(line for line in std.lines if line.get_label() == "MSE + KL")
    assert list(np.asarray(traced.get_ydata())) == [0.1, 1.2]
    assert elbo.get_xlabel() == "epoch"
    predicted, exact = balance_figure(summary).axes
    assert [len(np.asarray(axes.lines[0].get_xdata())) for axes in (predicted, exact)] == [3, 2]
