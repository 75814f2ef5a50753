"""`OneOf` and `Maybe` among augmentations that mix examples: every choice and every gate enumerated, to rounding."""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import optima
from optima import learn
from optima.augment import View, branches
from optima.augment.view import Score
from optima.posterior import LearnedPhi
from tests.objective.gates import Gate
from tests.reference import GivenNoise

X = torch.tensor([[0.5], [-1.0]], dtype=torch.float64)
Y = torch.tensor([[0.1], [0.7]], dtype=torch.float64)
ROWS = 2
P, Q, PROBS = 0.35, 0.6, (0.3, 0.3, 0.4)
PICK = (0.15, 0.45, 0.8)  # uniforms that pick each branch, whatever small step the probabilities take
SHARES = torch.tensor([0.7, 1.9], dtype=torch.float64)


def build() -> optima.Sequential:
    """A gate whose draws the mixing spreads, a choice between mixing, a second gate and a shift, and a third gate."""
    return optima.Sequential(
        Gate(learn(P, posterior="point")),
        optima.OneOf(
            optima.Mixup(alpha=0.8),
            Gate(learn(P, posterior="point")),
            optima.Shift(std=learn(0.4, posterior="point")),
            probs=learn(list(PROBS), posterior="point"),
        ),
        optima.Maybe(optima.Shift(std=0.0, mean=0.7), learn(Q, posterior="point")),
    ).double()


class Outcome(tuple):
    """What was drawn: (first gates, branches, second gates, whether), each one number per row."""


def outcomes() -> list[Outcome]:
    bits = list(itertools.product((0, 1), repeat=ROWS))
    # rows that did not choose the second gate do not depend on it, so one state of it is enough there
    return [
        Outcome((gates, picks, seconds, on))
        for gates in bits
        for picks in itertools.product(range(3), repeat=ROWS)
        for seconds in bits
        for on in bits
        if all(pick == 1 or not second for pick, second in zip(picks, seconds, strict=True))
    ]


def probability(outcome: Outcome, p: float, probs: tuple[float, ...], second: float, q: float) -> float:
    """Of this outcome."""
    gates, picks, seconds, on = outcome
    total = math.prod(p if gate else 1 - p for gate in gates) * math.prod(probs[pick] for pick in picks)
    total *= math.prod((second if gate else 1 - second) for gate, pick in zip(seconds, picks, strict=True) if pick == 1)
    return total * math.prod(q if one else 1 - q for one in on)


def noise_for(outcome: Outcome) -> GivenNoise:
    gates, picks, seconds, on = outcome

    def opening(flags: tuple[int, ...]) -> Tensor:
        return torch.tensor([0.0 if flag else 1.0 - 1e-12 for flag in flags], dtype=torch.float64)

    return GivenNoise(
        {
            "gate.open": opening(gates),
            "oneof.choice.branch": torch.tensor([PICK[pick] for pick in picks], dtype=torch.float64),
            "oneof.gate.open": opening(seconds),
            "oneof.shift.shift": torch.tensor([0.2, -1.1], dtype=torch.float64),
            "oneof.mixup.partner": torch.arange(ROWS, dtype=torch.float64),
            "oneof.mixup.lam.one.gamma": SHARES,
            "oneof.mixup.lam.zero.gamma": SHARES.flip(0),
            "oneof.mixup.lam.one.uniform": SHARES / 3,
            "oneof.mixup.lam.zero.uniform": SHARES.flip(0) / 4,
            "maybe.choice.on": opening(on),
            "maybe.shift.shift": torch.zeros(ROWS, dtype=torch.float64),
        }
    )


def step(augment: optima.Sequential, outcome: Outcome) -> Tensor:
    view = augment.extend(View(X, Y), noise_for(outcome), None, "").settled()
    objective = optima.ELBO(num_data=ROWS, likelihood="gaussian", beta_phi=0.0)
    objective._reached[augment] = 1
    return -objective(torch.tanh(2 * view.x) + view.x**2, view, augment=augment).value


def chances(augment: optima.Sequential, outcome: Outcome) -> float:
    values: dict[str, Any] = {name: phi.summary().mean.tolist() for name, phi in augment.named_phi()}
    q = values["maybe.choice.p"]
    return probability(outcome, values["gate.p"], tuple(values["oneof.choice.probs"]), values["oneof.gate.p"], q)


@cache  # the planted bugs are in the gradient alone
def expected(name: str, element: int, shift: float) -> float:
    augment = build()
    with torch.no_grad():
        phi = dict(augment.named_phi())[name]
        assert isinstance(phi, LearnedPhi)
        phi.loc.view(-1)[element] += shift
        return sum(chances(augment, outcome) * float(step(augment, outcome)) for outcome in outcomes())


def check(*names: str) -> None:
    """Raise AssertionError unless each of these gets the gradient of the expectation."""
    augment = build()
    for outcome in outcomes():
        (chances(augment, outcome) * step(augment, outcome)).backward()
    for name, phi in augment.named_phi():
        if not isinstance(phi, LearnedPhi) or name not in names:
            continue
        assert phi.loc.grad is not None
        for element, gradient in enumerate(phi.loc.grad.view(-1).tolist()):
            exact = (expected(name, element, 1e-5) - expected(name, element, -1e-5)) / 2e-5
            assert abs(exact) > 1e-4
            assert abs(gradient - exact) < 1e-6 + 1e-5 * abs(exact), f"{name}: {gradient} for {exact}"


def test_the_gradient_is_that_of_the_expectation():
    check("gate.p", "oneof.choice.probs", "oneof.gate.p", "oneof.shift.std", "maybe.choice.p")


def no_credit_through_the_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "_through", lambda before, views, chosen: before.scores)


def baseline_depends_on_its_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Score, "sources", lambda self: self.reach)


def no_credit_for_a_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Score, "where", lambda self, rows: Score(self.log_prob * 0.0))


@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (no_credit_through_the_branches, "gate.p"),
        (baseline_depends_on_its_choice, "oneof.choice.probs"),
        (no_credit_for_a_branch, "oneof.gate.p"),
    ],
)
def test_a_planted_bug_is_caught(plant, name: str, monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check(name)
