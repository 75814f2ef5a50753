"""`optima reproduce NAME`: an experiment of the paper, run again."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from optima.cli.output import MOST_EPOCHS, checked_folder, checked_range, usage, writing

SEEDS = {"small": 3, "full": 20}
EXPERIMENTS = ("regression",)
EPOCHS = 3000
MOST_SEEDS = 10_000
WIDE = 160


def reproduce(
    name: str = typer.Argument(help=f"Which experiment: {', '.join(EXPERIMENTS)}."),
    scale: str = typer.Option("full", help="small (3 seeds) or full (20 seeds); otherwise the same."),
    seeds: int | None = typer.Option(None, help="Number of seeds, instead of the scale's."),
    epochs: int = typer.Option(EPOCHS, help="Epochs of every run; the paper's number unless given."),
    output: str | None = typer.Option(None, help="Folder for the results; runs/reproduce/NAME unless given."),
    force: bool = typer.Option(False, "--force", help="Run finished seeds again and overwrite earlier results."),
    as_json: bool = typer.Option(False, "--json", help="Print the results as JSON instead of tables."),
) -> None:
    """Run one of the paper's experiments: a table, a figure, and every number as JSON.

    A finished seed is kept in the output folder and not run again.
    """
    with usage():
        count = _checked(name, scale, seeds, epochs)
        folder = checked_folder(f"runs/reproduce/{name}" if output is None else output)
    with writing(folder):
        summary = _run(folder, count, epochs, force=force)
        drawn = _draw(summary, folder)
    if as_json:
        print(json.dumps(summary, ensure_ascii=False, allow_nan=False))
    else:
        _show(summary, [folder / f"{name}.json", *drawn])


def _checked(name: str, scale: str, seeds: int | None, epochs: int) -> int:
    """The number of seeds, or a ValueError for the first argument that is wrong."""
    if name not in EXPERIMENTS:
        raise ValueError(f"unknown experiment {name!r}; expected one of: {', '.join(EXPERIMENTS)}")
    if scale not in SEEDS:
        raise ValueError(f"--scale must be one of {', '.join(SEEDS)}, got {scale!r}")
    count = SEEDS[scale] if seeds is None else seeds
    checked_range("--seeds", count, 1, MOST_SEEDS)
    checked_range("--epochs", epochs, 1, MOST_EPOCHS)
    return count


def _run(folder: Path, count: int, epochs: int, *, force: bool) -> dict[str, Any]:
    """The experiment's summary, with a progress bar where a person is watching."""
    from optima.experiments.regression import METHODS, Settings
    from optima.experiments.regression_study import study

    # a ValueError is the study's refusal of what is in the folder; of a run that fails it raises another error
    with usage(ValueError), _progress() as progress:
        task = progress.add_task(f"{count} seeds × {len(METHODS)} methods", total=count * len(METHODS))
        return study(
            folder,
            range(count),
            Settings(epochs=epochs),
            force=force,
            processes=os.cpu_count() or 1,
            tick=lambda finished: progress.advance(task, finished),
        )


def _progress() -> Progress:
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal)


def _draw(summary: dict[str, Any], folder: Path) -> list[Path]:
    """The figures' paths; none, and a line that says why, where matplotlib cannot be imported."""
    try:
        from optima.experiments.regression_figure import draw
    except Exception as error:  # a broken installation raises more than ImportError
        reason = str(error).partition("\n")[0]
        print(f"no figure: {reason}; pip install matplotlib", file=sys.stderr)
        return []
    return draw(summary, folder)


def _show(summary: dict[str, Any], written: list[Path]) -> None:
    from optima.experiments.regression_table import balance_table, errors_table

    # where nobody watches there is no width to respect
    console = Console(width=None if sys.stdout.isatty() else WIDE)
    for table in (errors_table(summary), balance_table(summary)):
        console.print(table)
    for path in written:
        print(path)
