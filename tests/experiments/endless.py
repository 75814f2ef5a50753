"""Runs for worker processes to have under way: those of seed 0 are done at once, the others never end."""

from __future__ import annotations

import threading
from typing import Any


def numbers(settings: object, seed: int, name: str) -> dict[str, Any]:
    """As `regression_study._numbers`."""
    if seed:
        threading.Event().wait()
    return {"name": name}
