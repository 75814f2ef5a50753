"""What every test gets: shapes checked at run time, and a forked and seeded global generator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from jaxtyping import install_import_hook

# before the first import of optima: the annotated shapes are then checked at every call
install_import_hook(["optima.objective", "optima.transforms", "optima.metrics"], "beartype.beartype")


@pytest.fixture(autouse=True)
def _own_randomness() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
