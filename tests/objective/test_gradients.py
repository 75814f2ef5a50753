"""The expected gradient that reaches every φ is that of the expected objective, and planted bugs do not pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import optima
from optima import sampling
from optima.augment.view import View
from optima.posterior import LearnedPhi
from tests.objective.cases import CASES as PLAIN_CASES
from tests.objective.cases import Case
from tests.objective.cases_colour import COLOUR_CASES
from tests.reference import GivenNoise

CASES = PLAIN_CASES | COLOUR_CASES
RTOL = 0.015  # a bias of 2 % does not pass

EVERY = [(name, estimator) for name, case in CASES.items() for estimator in case.estimators]


def library_gradient(case: Case, estimator: str, *, check_reach: bool = True) -> dict[str, Tensor | None]:
    """Gradient of the data term, per example, as a training step would get it."""
    augment = case.build(estimator).double()
    columns = case.columns(seed=0)
    rows = len(next(iter(columns.values())))
    x = case.x.expand(rows, *case.x.shape)
    target = torch.full((rows,), case.target, dtype=torch.float64)
    view = augment.extend(View(x, target), GivenNoise(columns), None, "").settled()
    objective = optima.ELBO(num_data=rows, likelihood=optima.Gaussian(noise=1.0), beta_phi=0.0)
    if not check_reach:
        objective._reached[augment] = 1
    loss = objective(case.read(view.x), view, augment=augment)
    loss.backward()
    return {name: None if p.grad is None else -p.grad for name, p in augment.named_parameters()}


def check(case: Case, estimator: str, **options: bool) -> None:
    """Raise AssertionError unless the gradient is that of the expectation."""
    exact = case.exact_gradient()
    for name, gradient in library_gradient(case, estimator, **options).items():
        assert gradient is not None, f"{name} gets no gradient"
        assert exact[name].abs() > 1e-3, f"the case says nothing about {name}"
        assert abs(gradient - exact[name]) <= RTOL * abs(exact[name]), f"{name}: {gradient} for {exact[name]}"


@pytest.mark.parametrize(("name", "estimator"), EVERY)
def test_every_phi_gets_the_gradient_of_the_expectation(name: str, estimator: str):
    check(CASES[name], estimator)


# ---- planted bugs --------------------------------------------------------------------------------------------------


def log_variance_for_log_std(monkeypatch: pytest.MonkeyPatch) -> None:
    def unconstrained(self: LearnedPhi, noise: Tensor) -> Tensor:
        assert self.log_scale is not None
        return self.loc + (0.5 * self.log_scale).exp() * noise

    monkeypatch.setattr(LearnedPhi, "_unconstrained", unconstrained)


def detached_gamma(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = sampling.Pathwise.draw
    monkeypatch.setattr(
        sampling.Pathwise, "draw", lambda self, law, noise: sampling.Draw(draw(self, law, noise).value.detach(), None)
    )


def sample_for_rsample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sampling.Pathwise, "draw", lambda self, law, noise: sampling.Draw(sampling.sample(law, noise=noise), None)
    )


def no_log_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = sampling.ScoreFunction.draw
    monkeypatch.setattr(
        sampling.ScoreFunction, "draw", lambda self, law, noise: sampling.Draw(draw(self, law, noise).value, None)
    )


def half_log_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    scored = sampling._scored
    monkeypatch.setattr(sampling, "_scored", lambda law, noise: (scored(law, noise)[0], 0.5 * scored(law, noise)[1]))


PLANTED = [
    (log_variance_for_log_std, "Shift", "pathwise"),
    (log_variance_for_log_std, "Rotate std", "score_function"),
    (detached_gamma, "Shift", "pathwise"),
    (detached_gamma, "Rotate range", "pathwise"),
    (sample_for_rsample, "GaussianNoise", "pathwise"),
    (sample_for_rsample, "Translate std", "pathwise"),
    (no_log_probability, "Shift", "score_function"),
    (no_log_probability, "Rotate std", "score_function"),
    (half_log_probability, "GaussianNoise", "score_function"),
]


@pytest.mark.parametrize(("plant", "name", "estimator"), PLANTED)
def test_a_planted_bug_is_caught(plant: Callable, name: str, estimator: str, monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError)):
        check(CASES[name], estimator, check_reach=False)


@pytest.mark.parametrize("plant", [detached_gamma, sample_for_rsample])
def test_the_objective_itself_refuses_a_phi_that_the_data_cannot_reach(plant, monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)
    with pytest.raises(ValueError, match="the data cannot move std, mean"):
        library_gradient(CASES["Shift"], "pathwise")


def test_the_score_function_refuses_a_support_that_moves():
    with pytest.raises(ValueError, match="support of Uniform moves with φ"):
        optima.Rotate(range=optima.learn(10.0), estimator="score_function")
