"""Gradient ascent finds the strength that made the data from either side, and a planted bug keeps it from there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor

from optima import ELBO, Affine, Gaussian, learn, sampling
from optima.augment.affine import unit_rows
from optima.objective import loss
from tests.learning.ascent import ascend, learned_phi
from tests.learning.tasks import TASKS, Strength, emitted, linear, smooth

Posterior = Literal["point", "normal"]
SIDES = ["below", "above"]


def learned(name: str, start: Strength, posterior: Posterior = "point") -> Tensor:
    """φ after gradient ascent on log E_γ p, and for a point on that alone: its prior is left out."""
    task = TASKS[name]
    x, y, read, noise = task.data()
    augment = task.build(learn(start, posterior=posterior))
    objective = ELBO(len(x), Gaussian(noise=noise), bound="marginal", beta_phi=float(posterior == "normal"))
    ascend(augment, objective, read, (x, y), steps=100, batch=task.batch, samples=task.samples)
    return learned_phi(augment)


def check(name: str, side: str, posterior: Posterior = "point") -> None:
    """Raise AssertionError unless φ moved towards φ* and ended there."""
    given = TASKS[name].starts[SIDES.index(side)]
    truth, start = torch.tensor(TASKS[name].truth), torch.tensor(given)
    allowed = TASKS[name].tolerance * truth
    assert ((start - truth).abs() >= 1.5 * allowed).all(), "the start itself would nearly pass"
    phi = learned(name, given, posterior)
    assert ((phi - start) * (truth - start) > 0).all(), f"{phi.tolist()} is the wrong way from {given}"
    assert ((phi - truth).abs() <= allowed).all(), f"{phi.tolist()} from {given} for {truth.tolist()}"


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", TASKS)
def test_the_strength_that_made_the_data_is_found(name: str, side: str):
    check(name, side)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ["Shift", "Rotate range", "Flip"])
def test_a_normal_posterior_under_its_prior_finds_it_too(name: str, side: str):
    check(name, side, "normal")


# ---- a full covariance -----------------------------------------------------------------------------------------------

WIDTHS = [4.0, 0.05, 0.05, 4.0, 0.12, 0.12]


def coupled(last: float) -> list[float]:
    """Shifts to the right and downwards belong together, and nothing else does."""
    return [0.0] * 14 + [last]


def correlation(coupling: Tensor) -> float:
    """Of the two shifts, in Σ = L Lᵀ."""
    rows = unit_rows(coupling)
    return float((rows @ rows.T)[5, 4])


@pytest.mark.parametrize("start", [-0.75, 4.0])
def test_a_correlation_is_found_with_its_sign_and_its_size(start: float):
    x = smooth()
    read = linear(x)
    y, noise = emitted(Affine(WIDTHS, covariance="full", coupling=coupled(0.75)), read, x, 1.0)
    augment = Affine(WIDTHS, covariance="full", coupling=learn(coupled(start), posterior="point"))
    objective = ELBO(len(x), Gaussian(noise=noise), bound="marginal")
    ascend(augment, objective, read, (x, y), steps=100, batch=64, samples=64)
    found, truth = correlation(learned_phi(augment)), correlation(torch.tensor(coupled(0.75)))
    assert truth == pytest.approx(0.6)
    assert found == pytest.approx(truth, abs=0.12)
    assert abs(correlation(torch.tensor(coupled(start))) - truth) > 0.36


# ---- planted bugs ----------------------------------------------------------------------------------------------------


def detached_gamma(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = sampling.Pathwise.draw
    monkeypatch.setattr(
        sampling.Pathwise, "draw", lambda self, law, noise: sampling.Draw(draw(self, law, noise).value.detach(), None)
    )


def no_log_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = sampling.ScoreFunction.draw
    monkeypatch.setattr(
        sampling.ScoreFunction, "draw", lambda self, law, noise: sampling.Draw(draw(self, law, noise).value, None)
    )


PLANTED: list[tuple[Callable[[pytest.MonkeyPatch], None], str, Posterior]] = [
    (detached_gamma, "Shift", "point"),
    (detached_gamma, "Shift", "normal"),
    (detached_gamma, "Rotate std", "point"),
    (no_log_probability, "Flip", "point"),
    (no_log_probability, "Flip", "normal"),
    (no_log_probability, "Maybe", "point"),
]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("plant", "name", "posterior"), PLANTED)
def test_without_a_gradient_it_is_not_found(
    plant: Callable, name: str, posterior: Posterior, side: str, monkeypatch: pytest.MonkeyPatch
):
    plant(monkeypatch)
    monkeypatch.setattr(loss, "unreached", lambda value, augment: ())  # the objective itself would refuse
    with pytest.raises(AssertionError, match=" from "):
        check(name, side, posterior)
