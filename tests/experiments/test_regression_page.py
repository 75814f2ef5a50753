"""The numbers on the page of the regression are those of the JSON beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from optima.experiments.regression import METHODS, Settings, described
from optima.experiments.regression_table import plus_minus

FOLDER = Path(__file__).parents[2] / "docs" / "experiments"
BALANCES = ("std_settled", "balance.true_slope", "balance.fitted_slope", "balance.curvature")


@pytest.fixture(scope="module")
def page() -> str:
    return (FOLDER / "regression.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def summary() -> dict:
    return json.loads((FOLDER / "regression.json").read_text(encoding="utf-8"))


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |".replace("  ", " ").replace("-0.", "−0.")


def errors_row(name: str, summary: dict) -> str:
    method = summary["methods"][name]
    errors = [plus_minus(method["overall"][column]) for column in ("train_mse", "test_mse", "truth_mse")]
    differences = [
        "" if name == reference else plus_minus(method[f"minus_{reference}"]["test_mse"], sign=True)
        for reference in ("none", "fixed")
    ]
    paper = summary["paper"].get(name)
    return row(
        method["label"],
        *errors,
        *differences,
        plus_minus(method["overall"]["std"]),
        f"{paper['test_mse']:.3f}" if paper else "",
    )


def balance_row(name: str, summary: dict) -> str:
    method = summary["methods"][name]
    noise, *balances = (plus_minus(method["overall"][column], digits=4) for column in ("noise", *BALANCES))
    beta = f"{summary['settings']['methods'][name]['beta_phi']:g}"
    paper = summary["paper"].get(name)
    return row(method["label"], noise, beta, *balances, f"{paper['std']:.4f}" if paper else "")


def test_the_json_is_of_the_experiment_as_it_is_now(summary):
    assert summary["settings"] == described(Settings())
    assert len(summary["seeds"]) == 20
    assert {name: method["label"] for name, method in summary["methods"].items()} == {
        name: method.label for name, method in METHODS.items()
    }


@pytest.mark.parametrize("name", METHODS)
def test_the_table_of_errors(name, page, summary):
    assert errors_row(name, summary) in page.splitlines()


@pytest.mark.parametrize("name", [name for name in METHODS if name.startswith("learned")])
def test_the_table_of_balance_points(name, page, summary):
    assert balance_row(name, summary) in page.splitlines()


def test_the_counts_of_seeds(page, summary):
    methods = summary["methods"]
    lower = {name: method["minus_fixed"]["test_mse"]["seeds_lower"] for name, method in methods.items()}
    assert f"better on {lower['learned-batch-1']} of 20 seeds" in page
    assert f"worse than fixed 0.1 on {20 - lower['learned-batch-1']} of 20 seeds" in page
    helped = methods["fixed"]["minus_none"]["test_mse"]["seeds_lower"]
    assert f"beats no augmentation on {helped} of 20 seeds" in page
    collapsed = methods["learned-noise"]["verdicts"]["collapsed to no augmentation"]
    assert f"In {collapsed} of the 20 runs" in page
    as_low = [row["test_mse"] <= 0.072 for row in methods["learned-batch-1"]["per_seed"].values()]
    assert f"on {sum(as_low)} of our 20 data sets" in page
