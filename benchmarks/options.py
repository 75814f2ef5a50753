"""The options that both benchmarks have, and where their tables go."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.families import FAMILIES, Unmeasurable
from benchmarks.record import Record
from optima.files import write_whole

QUICK_ROUNDS = 3


def parser(description: str, *, rounds: int) -> argparse.ArgumentParser:
    """What both understand."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, help=f"readings of every contestant; {rounds}, or 3 with --quick")
    made.add_argument("--families", nargs="+", help="some of them only")
    made.add_argument("--quick", action="store_true", help="few rounds of the small batch: does it work?")
    made.add_argument("--fresh", action="store_true", help="forget what the file holds")
    made.add_argument("--output", type=Path, help="the JSON file")
    made.add_argument("--table", action="store_true", help="measure nothing; print the tables of the JSON file")
    made.add_argument("--write", type=Path, metavar="PAGE", help="with --table: put them between the page's marks")
    made.add_argument("--threads", nargs="+", type=int, help="each number in a process of its own; 1 and 2")
    made.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    made.set_defaults(full_rounds=rounds)
    return made


def settle(asked: argparse.Namespace, *, quick: Path, full: Path) -> None:
    """Fill in what was not said."""
    asked.rounds = asked.rounds or (QUICK_ROUNDS if asked.quick else asked.full_rounds)
    asked.families = asked.families or list(FAMILIES)
    unknown = sorted(set(asked.families) - set(FAMILIES))
    if unknown:
        raise SystemExit(f"no family {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
    asked.output = asked.output or (quick if asked.quick else full)
    for name, few, all in (("sizes", ["32"], ["32", "224"]), ("dtypes", ["float32"], ["float32", "bf16"])):
        if hasattr(asked, name):
            setattr(asked, name, getattr(asked, name) or (few if asked.quick else all))
    asked.threads = asked.threads or ([1] if asked.quick else [1, 2])


def per_thread(name: str, argv: list[str], threads: list[int]) -> int:
    """A process for each number of threads, so that every library in it starts with that many; how many failed."""
    again = [word for word in argv if word != "--fresh"]
    failed = 0
    for count in threads:
        variables = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(count))
        line = [sys.executable, "-m", f"benchmarks.{name}", *again, "--worker", str(count)]
        failed += subprocess.run(line, env={**os.environ, **variables}, check=False).returncode != 0  # noqa: S603
    return failed


def measured(record: Record, key: str, rounds: int, measure: Callable[[], dict[str, Any]]) -> bool:
    """Add a cell to the record, unless it is there, or the reason why there is none; false after a failure."""
    if record.has(key, rounds):
        return True
    try:
        record.keep(key, rounds, cell := measure())
    except Unmeasurable as reason:
        record.skip(key, str(reason))
        say(f"{key}: skipped, {reason}")
    except Exception as error:  # one that fails must not cost the others an hour
        record.skip(key, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
        traceback.print_exc()
        return False
    else:
        say(f"{key}: " + ", ".join(f"{name} {value['median']:.3g}" for name, value in cell["ms"].items()))
    return True


def command(name: str, argv: list[str]) -> str:
    """What was typed, without the folders of this machine."""
    words = [Path(word).name if "/" in word else word for word in argv]
    for option, kind in (("--torchvision-shim", "DIR"), ("--output", "FILE")):
        if option in words:
            words[words.index(option) + 1] = kind
    if "--worker" in words:
        del words[words.index("--worker") :]
    return " ".join([f"python -m benchmarks.{name}", *words])


def show(tables: str, page: Path | None, mark: str) -> None:
    """Print the tables, or replace what the page has between `<!-- begin table mark -->` and `<!-- end table -->`."""
    if page is None:
        say(tables)
        return
    text = page.read_text(encoding="utf-8")
    between = re.compile(rf"(<!-- begin table {mark} -->\n).*?(<!-- end table -->)", re.S)
    if not between.search(text):
        raise SystemExit(f"{page} has no <!-- begin table {mark} --> … <!-- end table -->")
    write_whole(page, between.sub(lambda found: f"{found[1]}\n{tables}\n{found[2]}", text))


def say(line: str) -> None:
    """One line of progress, at once."""
    print(line, flush=True)  # noqa: T201
