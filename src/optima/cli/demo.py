"""`optima demo`: the bundled digits, three ways; a table and a page in under a minute."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column, Table

from optima.cli.output import MOST_EPOCHS, checked_folder, checked_range, usage, writing

if TYPE_CHECKING:
    from optima.experiments.three_ways import Comparison, Epoch

EPOCHS = 120
REPORT, RESULTS, POLICY = "report.html", "results.json", "policy"
WRITTEN = (REPORT, RESULTS, f"{POLICY}.json", f"{POLICY}.safetensors")


def demo(
    seed: int = typer.Option(0, help="Decides the training images, the initial weights and every draw."),
    epochs: int = typer.Option(EPOCHS, help="Passes over the training images."),
    output: str = typer.Option("runs/demo", help="Folder for report.html, results.json and the learned policy."),
    force: bool = typer.Option(False, "--force", help="Overwrite an earlier demo in that folder."),
    as_json: bool = typer.Option(False, "--json", help="Print the results as JSON instead of tables."),
) -> None:
    """Train a small CNN on 300 bundled digits three ways (none, fixed, learned): a table and report.html."""
    with usage():
        folder = _checked(seed, epochs, output, force=force)
    from optima.experiments.three_ways import compare
    from optima.report.findings import as_json as document_of

    with _progress(epochs) as on_epoch:
        comparison = compare(seed, epochs, on_epoch)
    document = document_of(comparison)
    page = _page(comparison)
    with writing(folder):
        _write(comparison, document, page, folder)
    if as_json:
        print(json.dumps(document, allow_nan=False))
    else:
        _show(document, folder, page is not None)


def _checked(seed: int, epochs: int, output: str, *, force: bool) -> Path:
    """The folder to write to, or an error for the first thing that would make the run fail, before it starts."""
    if not 0 <= seed < 2**63:
        raise ValueError(f"--seed must be a whole number from 0 to 2^63 - 1, got {seed}")
    checked_range("--epochs", epochs, 1, MOST_EPOCHS)
    folder = checked_folder(output)
    existing = [folder / name for name in WRITTEN if (folder / name).exists()]
    if existing and not force:
        raise FileExistsError(f"{existing[0]} exists; pass --force to overwrite it, or choose another --output")
    if folders := [path for path in existing if path.is_dir()]:
        raise FileExistsError(f"{folders[0]} is a folder; choose another --output")
    return folder


@contextmanager
def _progress(epochs: int) -> Iterator[Callable[[str, Epoch], None]]:
    """A bar per method on the terminal, with the ELBO's parts and every φ; nothing where nobody is watching."""
    from optima.experiments.three_ways import METHODS

    console = Console(stderr=True)
    state = TextColumn("{task.fields[state]}", table_column=Column(ratio=1))
    columns = (TextColumn("{task.description:>7}"), BarColumn(bar_width=16), MofNCompleteColumn(), state)
    with Progress(*columns, console=console, expand=True, disable=not console.is_terminal) as progress:
        tasks = {name: progress.add_task(name, total=epochs, state="") for name in METHODS}
        yield lambda name, epoch: _advance(progress, tasks[name], epoch)


def _advance(progress: Progress, task: TaskID, epoch: Epoch) -> None:
    parts = [f"ELBO {epoch.elbo:.0f}", f"NLL {epoch.nll:.3f}", f"KL θ {epoch.kl_theta:.0f}"]
    if epoch.phi:
        parts.append(f"KL φ {epoch.kl_phi:.1f}")
    parts += [f"{name} {phi.median:.3g}" for name, phi in epoch.phi.items()]
    progress.update(task, advance=1, state="  ".join(parts))


def _page(comparison: Comparison) -> str | None:
    """The page; None, and a line that says why, where matplotlib cannot be imported."""
    try:
        from optima.report.demo import demo_page
    except Exception as error:  # a broken installation raises more than ImportError
        print(f"no {REPORT}: {error}; pip install matplotlib", file=sys.stderr)
        return None
    return demo_page(comparison)


def _write(comparison: Comparison, document: dict[str, Any], page: str | None, output: Path) -> None:
    import optima
    from optima.files import write_whole

    output.mkdir(parents=True, exist_ok=True)
    optima.save(comparison.runs[-1].augment, output / POLICY)
    write_whole(output / RESULTS, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    if page is not None:
        write_whole(output / REPORT, page)


def _show(document: dict[str, Any], output: Path, has_page: bool) -> None:
    from optima.report.findings import CAVEAT

    # where nobody watches there is no width to respect
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False, markup=False)
    for table in (_scores(document), _strengths(document)):
        console.print(table)
    for sentence in (*document["findings"], CAVEAT):
        console.print(f"\n{sentence}")
    print()
    for name in WRITTEN if has_page else WRITTEN[1:]:
        print(output / name)


def _scores(document: dict[str, Any]) -> Table:
    title = "{train_images} training digits, {test_images} test digits, seed {seed}".format_map(document)
    numbers = (Column(name, justify="right") for name in ("accuracy", "NLL", "ECE", "seconds"))
    table = Table("method", *numbers, title=title, title_justify="left")
    for name, row in document["methods"].items():
        accuracy, nll, ece, seconds = (row[key] for key in ("accuracy", "nll", "ece", "seconds"))
        table.add_row(name, f"{100 * accuracy:.2f} %", f"{nll:.3f}", f"{ece:.3f}", f"{seconds:.1f}")
    return table


def _strengths(document: dict[str, Any]) -> Table:
    table = Table("φ", "unit", "prior mean (90 %)", "posterior mean (90 %)", "verdict")
    for row in document["strengths"]:
        posterior = f"{row['mean']:.3g} ({row['low']:.3g} … {row['high']:.3g})"
        table.add_row(row["name"], row["unit"], row["prior"], posterior, row["verdict"])
    return table
