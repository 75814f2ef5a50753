"""The regression's numbers as tables for a terminal."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

ERRORS = {"train_mse": "train MSE", "test_mse": "test MSE", "truth_mse": "MSE to truth"}
BALANCES = {
    "std_settled": "settled σ",
    "balance.true_slope": "σ*: true slope",
    "balance.fitted_slope": "σ*: fitted slope",
    "balance.curvature": "σ*: exact",
    "noise": "noise s",
}


def errors_table(summary: dict[str, Any]) -> Table:
    """Mean ± standard error over seeds, beside the paper's test MSE."""
    runs = f"{len(summary['seeds'])} seeds of {summary['settings']['epochs']} epochs"
    title = f"Synthetic regression, {runs}: mean ± standard error"
    table = _table(title, [*ERRORS.values(), "test − none, paired", "σ", "paper: test MSE"])
    for name, method in summary["methods"].items():
        paper = summary["paper"].get(name)
        table.add_row(
            method["label"],
            *(plus_minus(method["overall"][column]) for column in ERRORS),
            "" if name == "none" else plus_minus(method["minus_none"]["test_mse"], sign=True),
            plus_minus(method["overall"]["std"]),
            f"{paper['test_mse']:.3f}" if paper else "",
        )
    return table


def balance_table(summary: dict[str, Any]) -> Table:
    """Where σ settled, against where the balance of the data's pull and the prior's puts it."""
    table = _table("Where σ settled, and where the balance of data and prior puts it", [*BALANCES.values(), "paper: σ"])
    for name, method in summary["methods"].items():
        if "std_settled" in method["overall"]:
            paper = summary["paper"].get(name)
            cells = (plus_minus(method["overall"].get(column), digits=4) for column in BALANCES)
            table.add_row(method["label"], *cells, f"{paper['std']:.4f}" if paper else "")
    return table


def plus_minus(value: dict[str, float | None] | None, *, digits: int = 3, sign: bool = False) -> str:
    """0.123 ± 0.004; without the error when there was one seed, or when it is zero; a dash for no value."""
    if value is None:
        return "–"
    mean, error = value["mean"], value["standard_error"]
    shown = f"{mean:{'+' if sign else ''}.{digits}f}"
    return f"{shown} ± {error:.{digits}f}" if error else shown


def _table(title: str, headings: list[str]) -> Table:
    """Columns narrow enough to fit 80 characters, where a cell then takes two lines."""
    table = Table(box=SIMPLE_HEAD, title=title, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("method", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", min_width=7)
    return table
