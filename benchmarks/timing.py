"""Wall-clock times of contestants that take turns, so that a slow spell of the machine falls on all of them."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping

import numpy as np

Action = Callable[[], object]

LEAST_MS = 3.0  # one reading lasts at least this long: quick contestants are called several times


def interleaved(contestants: Mapping[str, Action], rounds: int) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Milliseconds per call, one reading per round of every contestant, and the calls in one reading.

    Each is called once or more beforehand. The order moves on by one every round, so that nobody always follows the
    one that leaves the caches cold.
    """
    calls = {name: _calls(action) for name, action in contestants.items()}
    times: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    for round in range(rounds):
        first = round % len(names)
        gc.collect()
        for name in names[first:] + names[:first]:
            times[name].append(milliseconds(contestants[name], calls[name]))
    return times, calls


def milliseconds(action: Action, calls: int = 1) -> float:
    """The time of one call, from `calls` of them in a row; the collector of cycles waits."""
    gc.disable()
    try:
        start = time.perf_counter()
        for _ in range(calls):
            action()
        return 1e3 * (time.perf_counter() - start) / calls
    finally:
        gc.enable()


def quartiles(values: list[float]) -> dict[str, float]:
    """Median and quartiles, to five significant digits."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return {"median": _short(middle), "q1": _short(low), "q3": _short(high)}


def _calls(action: Action) -> int:
    action()
    # the second call: the first one allocates, and fills caches of its own
    return max(1, math.ceil(LEAST_MS / max(milliseconds(action), 1e-4)))


def _short(value: float) -> float:
    return float(f"{value:.5g}")
