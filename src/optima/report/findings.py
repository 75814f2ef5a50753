"""The demo's numbers, and what they say in words: the same for the terminal, the page and results.json."""

from __future__ import annotations

import platform
from typing import Any, NamedTuple

import numpy as np
import torch

from optima.augment.summary import Row
from optima.experiments.three_ways import DRAWS, GUESS, Comparison, Run
from optima.metrics import accuracy, ece, nll
from optima.version import __version__

SCHEMA = 1

CAVEAT = (
    "How to read the strengths: this objective averages log-probabilities over the augmentation (the Jensen bound), "
    "and most of the network's weights are points rather than distributions. Every distortion makes the training "
    "images harder to fit, so the bound leans towards weak augmentation, often weaker than held-out data would "
    "choose. Here too: at the default settings a fixed 10 degrees and 0.05 of the size, found afterwards by trying, "
    "has a lower mean NLL than all three. A narrow q(φ) is no evidence that little augmentation is best; held-out "
    "NLL is the judge."
)


class Scores(NamedTuple):
    """One method on the test images."""

    accuracy: float
    nll: float
    ece: float


class Difference(NamedTuple):
    """Mean NLL of one method minus another's, in nats per test image, and half the width of its 95 % interval."""

    mean: float
    half_width: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ± {self.half_width:.3f}".replace("-", "−")


def scores(comparison: Comparison) -> dict[str, Scores]:
    """Every method's scores."""
    labels = comparison.test.labels
    return {
        run.name: Scores(accuracy(run.probs, labels), nll(run.probs, labels), ece(run.probs, labels))
        for run in comparison.runs
    }


def nll_difference(run: Run, other: Run, labels: torch.Tensor) -> Difference:
    """How much worse `run` predicts than `other`, image by image."""
    log_p, log_p_other = (r.probs.double()[torch.arange(len(labels)), labels].log() for r in (run, other))
    gap = log_p_other - log_p
    return Difference(float(gap.mean()), 1.96 * float(gap.std()) / len(gap) ** 0.5)


def differences(comparison: Comparison) -> dict[str, Difference]:
    """Learned minus each other method."""
    *others, learned = comparison.runs
    return {other.name: nll_difference(learned, other, comparison.test.labels) for other in others}


def findings(comparison: Comparison) -> list[str]:
    """What the numbers say: the best method, how sure that is, and each φ with its verdict."""
    return [_best(comparison), *(_strength(row) for row in comparison.learned_rows())]


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Everything measured, ready for `json.dumps`."""
    scored = scores(comparison)
    return {
        "schema": SCHEMA,
        "kind": "optima demo",
        "seed": comparison.seed,
        "epochs": comparison.epochs,
        "train_images": len(comparison.train.labels),
        "test_images": len(comparison.test.labels),
        "theta_draws": DRAWS,
        "methods": {run.name: {**scored[run.name]._asdict(), "seconds": run.seconds} for run in comparison.runs},
        "strengths": [{**row._asdict(), "start": GUESS[row.name]} for row in comparison.learned_rows()],
        "nll_learned_minus": {name: gap._asdict() for name, gap in differences(comparison).items()},
        "findings": findings(comparison),
        "versions": {
            "optima": __version__,
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }


def _best(comparison: Comparison) -> str:
    scored = scores(comparison)
    best = min(scored, key=lambda name: scored[name].nll)
    listed = ", ".join(f"{name} {value.nll:.3f}" for name, value in scored.items())
    gaps = differences(comparison)
    compared = "; ".join(f"minus {name} {gap}, {_word(gap)}" for name, gap in gaps.items())
    return (
        f"By held-out NLL the best of the three here is {best} ({listed}). Learned, in nats per image: {compared}. "
        "The ± are 95 % intervals over the test images of this one run; another seed moves all of these numbers."
    )


def _word(gap: Difference) -> str:
    if abs(gap.mean) <= gap.half_width:
        return "no clear difference"
    return "better" if gap.mean < 0 else "worse"


def _strength(row: Row) -> str:
    return (
        f"{row.name} started at the guess of {GUESS[row.name]:g} {row.unit} and ended at {row.mean:.2g} "
        f"(90 % interval {row.low:.2g} … {row.high:.2g}). Verdict: {row.verdict}; {row.evidence}."
    )
