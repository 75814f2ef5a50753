"""`import optima` is light: nothing optional comes with it, and nothing global changes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = [
    "transformers",
    "torchvision",
    "matplotlib",
    "lightning",
    "scipy",
    "accelerate",
    "pandas",
    "sklearn",
    "PIL",
    "typer",
    "rich",
    "datasets",
    "optuna",
]


def child(code: str) -> str:
    """What a fresh interpreter prints, with warnings as errors."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def loaded() -> tuple[set[str], set[str]]:
    """The modules after `import torch`, and after `import optima` as well."""
    code = "import sys, json, torch; a = list(sys.modules); import optima; print(json.dumps([a, list(sys.modules)]))"
    before, after = json.loads(child(code))
    return set(before), set(after)


def test_nothing_optional_is_imported(loaded: tuple[set[str], set[str]]):
    before, after = loaded
    assert {"optima", "optima.augment.policy", "safetensors"} <= after
    added = {name.partition(".")[0] for name in after - before}
    assert not added & set(HEAVY)


def test_the_command_line_is_not_imported(loaded: tuple[set[str], set[str]]):
    assert not [name for name in loaded[1] if name.startswith("optima.cli")]


def test_importing_changes_nothing_global():
    watched = """
import json, logging, warnings, torch
def state():
    return [
        str(torch.get_default_dtype()),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        torch.distributions.Distribution._validate_args,
        torch.get_rng_state().tolist(),
        [str(f) for f in warnings.filters],
        logging.getLogger().level,
        len(logging.getLogger().handlers),
        logging.getLogger("torch").level,
        torch.are_deterministic_algorithms_enabled(),
    ]
import torch._dynamo  # what torch itself loads when an operator is registered is not ours
before = state()
import optima
after = state()
print(json.dumps([i for i, (a, b) in enumerate(zip(before, after)) if a != b]))
"""
    assert json.loads(child(watched)) == []


def test_every_public_name_is_there():
    code = "import optima; print([n for n in optima.__all__ if not hasattr(optima, n)], len(optima.__all__))"
    missing, count = child(code).rsplit(maxsplit=1)
    assert missing == "[]"
    assert int(count) <= 40
