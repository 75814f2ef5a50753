"""`torch.compile(fullgraph=True)` of augment + model + objective equals eager.

In a process of its own: the shape checks that `conftest` installs cannot be traced.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.compiled_step import CASES


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_compiled_step_is_the_eager_step(case: str):
    command = [sys.executable, "-m", "tests.compiled_step", case]
    run = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
