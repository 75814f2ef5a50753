"""An experiment's seeds as files: a finished seed is one JSON file, kept and not run again.

What is missing is run in several processes. A run that fails, or an interrupt, stops them at once and loses only the
seeds under way.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import closing, contextmanager
from itertools import product
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

from optima.files import write_whole

SCHEMA = 1

Run = Callable[[int, str], dict[str, Any]]
Numbers = Generator[tuple[int, str, dict[str, Any]], None, None]


class RunError(RuntimeError):
    """One run of an experiment failed; the message says which, and how."""


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a document as JSON, whole or not at all."""
    write_whole(path, json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """The document, or None where there is no readable one."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return document if isinstance(document, dict) else None


class SeedFiles:
    """The seeds of one experiment in one folder.

    Args:
        folder: made if missing.
        settings: what decides the numbers besides the seed; a file made with others is refused.
        force: run every seed again.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], *, force: bool = False):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.settings, self.force = folder, settings, force

    def path(self, seed: int) -> Path:
        """Where a seed's numbers are."""
        return self.folder / f"seed-{seed:03d}.json"

    def finished(self, seed: int) -> dict[str, Any] | None:
        """A seed's runs by name; None when it has to be run, because it is missing, half-written or forced."""
        document = None if self.force else read_json(self.path(seed))
        if document is None or "runs" not in document:
            return None
        if (document.get("schema"), document.get("settings")) != (SCHEMA, self.settings):
            raise ValueError(
                f"{self.path(seed)} was made with other settings; choose another --output,"
                " or pass --force to run it again"
            )
        return document["runs"]

    def keep(self, seed: int, runs: dict[str, Any]) -> None:
        """Write a finished seed."""
        write_json(self.path(seed), {"schema": SCHEMA, "seed": seed, "settings": self.settings, "runs": runs})

    def complete(
        self, seeds: Sequence[int], names: Sequence[str], run: Run, *, processes: int, tick: Callable[[int], None]
    ) -> dict[int, dict[str, Any]]:
        """Every seed's runs by name, running those that are missing.

        Raises a ValueError before anything is run where what is in the folder forbids it, and a RunError afterwards.

        Args:
            seeds: wanted.
            names: of one seed's runs.
            run: (seed, name) → numbers; goes to another process when there are several.
            processes: at most this many.
            tick: called with the number of runs just finished.
        """
        done = {seed: runs for seed in seeds if (runs := self.finished(seed)) is not None}
        tick(len(done) * len(names))
        missing = [seed for seed in seeds if seed not in done]
        under_way: dict[int, dict[str, Any]] = {seed: {} for seed in missing}
        # closed here: an interrupt outside the generator would leave its processes running
        with closing(_run_all(run, list(product(missing, names)), processes)) as finished:
            for seed, name, numbers in finished:
                under_way[seed][name] = numbers
                if len(under_way[seed]) == len(names):
                    done[seed] = {name: under_way[seed][name] for name in names}
                    with _naming(f"seed {seed}"):
                        self.keep(seed, done[seed])
                tick(1)
        return {seed: done[seed] for seed in seeds}


def _run_all(run: Run, jobs: list[tuple[int, str]], processes: int) -> Numbers:
    """Each job with its numbers, in the order they finish."""
    if min(processes, len(jobs)) <= 1:
        for seed, name in jobs:
            with _naming(f"{name}, seed {seed}"):
                numbers = run(seed, name)
            yield seed, name, numbers
        return
    # spawn: a forked copy of a process that has used torch's threads can hang
    pool = ProcessPoolExecutor(min(processes, len(jobs)), mp_context=get_context("spawn"))
    strangers = set(active_children())
    futures: dict[Future[dict[str, Any]], tuple[int, str]] = {}
    try:
        with _interrupts_ignored():
            futures.update((pool.submit(run, *job), job) for job in jobs)
        for future in as_completed(futures):
            seed, name = futures[future]
            with _naming(f"{name}, seed {seed}"):
                numbers = future.result()
            yield seed, name, numbers
    except BaseException:  # an interrupt, a run that failed, or a caller who wants no more
        for worker in set(active_children()) - strangers:
            worker.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _naming(run: str) -> Iterator[None]:
    """Say which run it was that failed; an error of the operating system names a file instead."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise RunError(f"{run}: {type(error).__name__}: {error}") from error


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Processes started in here ignore Ctrl-C for good, which a terminal sends to them as well: they are stopped by
    the one that started them, and have nothing to print about it."""
    if threading.current_thread() is not threading.main_thread():  # where Python lets nobody change a handler
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
