"""Ctrl-C in a real `optima reproduce` with several processes: all of it stops, and what is finished is kept."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from optima.experiments.regression import METHODS

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a process group cannot be interrupted there")

# two processes on any machine, and runs that end at once or never
SCRIPT = """
import os
from optima.cli import main
from optima.experiments import regression_study
from tests.experiments import endless
os.cpu_count = lambda: 2
regression_study._numbers = endless.numbers
main()
"""
PATIENCE = 100_000  # characters of a progress bar, and
GIVE_UP = 60  # seconds: only a test that fails waits so long


def started(folder: Path) -> subprocess.Popen[str]:
    """The command in a process group of its own, with the progress bar of a terminal on its standard error."""
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "reproduce", "regression", "--seeds", "2", "--output", str(folder)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )


def wait_for(stream: IO[str], runs: int) -> str:
    """What the progress bar has written until it shows so many finished runs."""
    seen = ""
    while (character := stream.read(1)) and len(seen) < PATIENCE:
        seen += character
        if re.search(rf"(?<!\d){runs}/{2 * len(METHODS)}\D$", seen[-20:]):
            return seen
    raise AssertionError(f"it never showed {runs} finished runs: …{seen[-500:]}")


def everybody(process: subprocess.Popen[str]) -> None:
    """As a terminal does it."""
    os.killpg(process.pid, signal.SIGINT)


def the_first(process: subprocess.Popen[str]) -> None:
    """As another program does it."""
    process.send_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("interrupt", "runs"),
    [
        pytest.param(everybody, len(METHODS), id="the group, at work"),
        pytest.param(the_first, len(METHODS), id="the parent, at work"),
        pytest.param(everybody, 0, id="the group, while it starts"),
    ],
)
def test_an_interrupt_stops_everything_and_keeps_what_is_finished(
    interrupt: Callable[[subprocess.Popen[str]], None], runs: int, tmp_path: Path
):
    process = started(tmp_path)
    try:
        assert process.stderr is not None
        seen = wait_for(process.stderr, runs)
        interrupt(process)
        # the pipes end when the last process that holds them has ended, so this waits for the workers too
        out, err = process.communicate(timeout=GIVE_UP)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in seen + err
    assert "Error" not in seen + err
    assert [path.name for path in tmp_path.iterdir()] == (["seed-000.json"] if runs else [])
    if runs:
        assert json.loads((tmp_path / "seed-000.json").read_text())["runs"].keys() == METHODS.keys()
