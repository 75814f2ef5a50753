"""The whole regression experiment: run or resume its seeds, then write regression.json."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from optima.experiments.regression import METHODS, Settings, described
from optima.experiments.regression_run import run
from optima.experiments.regression_summary import summarise
from optima.experiments.seed_files import SeedFiles, read_json, write_json

RESULT = "regression.json"


def study(
    folder: Path,
    seeds: Sequence[int],
    settings: Settings,
    *,
    force: bool = False,
    processes: int = 1,
    tick: Callable[[int], None] = lambda count: None,
) -> dict[str, Any]:
    """The summary over `seeds`, also written to `folder`.

    Args:
        folder: holds one file per finished seed, and the result.
        seeds: wanted.
        settings: of every run.
        force: run finished seeds again and overwrite a result with more seeds.
        processes: runs at a time.
        tick: called with the number of runs just finished.
    """
    files = SeedFiles(folder, described(settings), force=force)
    if not force:
        _refuse_to_lose_seeds(folder, seeds)
    runs = files.complete(seeds, list(METHODS), partial(_numbers, settings), processes=processes, tick=tick)
    summary = summarise(runs, settings)
    write_json(folder / RESULT, summary)
    return summary


def _numbers(settings: Settings, seed: int, name: str) -> dict[str, Any]:
    return run(seed, name, settings)


def _refuse_to_lose_seeds(folder: Path, seeds: Sequence[int]) -> None:
    earlier = (read_json(folder / RESULT) or {}).get("seeds", [])
    if lost := set(earlier) - set(seeds):
        raise ValueError(
            f"{folder / RESULT} holds {len(earlier)} seeds, {len(lost)} of which were not asked for now;"
            f" ask for --seeds {max(earlier) + 1}, choose another --output, or pass --force"
        )
