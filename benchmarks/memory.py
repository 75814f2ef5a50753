"""Peak memory of a piece of work on the CPU, from what torch's profiler says of every allocation and release.

The resident size of the process would not do: an allocator keeps what it was given back, so that it says how much was
needed at some time since the start, in pages, and not by which step.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

MEBIBYTE = 2**20


def peak(work: Callable[[], object]) -> int:
    """Bytes of tensors alive at once, at most, beyond those alive before; whatever torch allocates, temporaries too."""
    seen = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
    with _silent():
        seen.start()
    work()
    with _silent():
        seen.stop()
    alive = most = 0
    found = seen.profiler
    if found is None or found.kineto_results is None:
        raise RuntimeError("torch's profiler recorded nothing")
    events: list[Any] = [event for event in found.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        alive += event.nbytes()  # negative for a release
        most = max(most, alive)
    return most


def held(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of some tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)


def check() -> None:
    """Raise unless a known amount of work is measured right."""

    def three_mebibytes() -> None:
        first = torch.empty(MEBIBYTE, dtype=torch.uint8)
        second = torch.empty(2 * MEBIBYTE, dtype=torch.uint8)
        del first
        third = torch.empty(MEBIBYTE // 2, dtype=torch.uint8)
        del second, third

    found = peak(three_mebibytes)
    if found != 3 * MEBIBYTE:
        raise RuntimeError(f"this torch's profiler reports {found} bytes where {3 * MEBIBYTE} were alive")


@contextmanager
def _silent() -> Iterator[None]:
    """Without the lines that the profiler's library writes to the standard error whenever it starts and stops."""
    sys.stderr.flush()
    error = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(error, 2)
        os.close(nowhere)
        os.close(error)
