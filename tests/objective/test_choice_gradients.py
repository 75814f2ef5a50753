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
P, Q, R, PROBS = 0.35, 0.6, 0.55, (0.3, 0.3, 0.4)
PICK = (0.15, 0.45, 0.8)  # uniforms that pick each branch, whatever small step the probabilities take
SHARES = torch.tensor([0.7, 1.9], dtype=torch.float64)


def build() -> optima.Sequential:
    """A gate whose draws the mixing spreads, a choice between mixing, a second gate and a shift, and a third gate."""
    return optima.Sequential(
        Gate(learn(P, posterior="point")),
        optima.OneOf(
            optima.Maybe(optima.Mixup(alpha=0.8), learn(R, posterior="point")),
            Gate(learn(P, posterior="point")),
            optima.Shift(std=learn(0.4, posterior="point")),
            probs=learn(list(PROBS), posterior="point"),
        ),
        optima.Maybe(optima.Shift(std=0.0, mean=0.7), learn(Q, posterior="point")),
    ).double()


class Outcome(tuple):
    """What was drawn, one number per row each: first gates, branches, whether mixed, second gates, whether shifted."""


def outcomes() -> list[Outcome]:
    bits = list(itertools.product((0, 1), repeat=ROWS))
    # rows that did not choose a branch do not depend on what it draws, so one state of that is enough there
    return [
        Outcome((gates, picks, mixed, seconds, on))
        for gates in bits
        for picks in itertools.product(range(3), repeat=ROWS)
        for mixed in bits
        for seconds in bits
        for on in bits
        if all(pick == 0 or not one for pick, one in zip(picks, mixed, strict=True))
        and all(pick == 1 or not second for pick, second in zip(picks, seconds, strict=True))
    ]


def probability(outcome: Outcome, p: float, probs: tuple[float, ...], r: float, second: float, q: float) -> float:
    """Of this outcome."""
    gates, picks, mixed, seconds, on = outcome
    total = math.prod(p if gate else 1 - p for gate in gates) * math.prod(probs[pick] for pick in picks)
    total *= math.prod((second if gate else 1 - second) for gate, pick in zip(seconds, picks, strict=True) if pick == 1)
    total *= math.prod(r if one else 1 - r for one, pick in zip(mixed, picks, strict=True) if pick == 0)
    return total * math.prod(q if one else 1 - q for one in on)


def noise_for(outcome: Outcome) -> GivenNoise:
    gates, picks, mixed, seconds, on = outcome

    def opening(flags: tuple[int, ...]) -> Tensor:
        return torch.tensor([0.0 if flag else 1.0 - 1e-12 for flag in flags], dtype=torch.float64)

    return GivenNoise(
        {
            "gate.open": opening(gates),
            "oneof.choice.branch": torch.tensor([PICK[pick] for pick in picks], dtype=torch.float64),
            "oneof.gate.open": opening(seconds),
            "oneof.shift.shift": torch.tensor([0.2, -1.1], dtype=torch.float64),
            "oneof.maybe.mixup.partner": torch.arange(ROWS, dtype=torch.float64),
            "oneof.maybe.mixup.lam.one.gamma": SHARES,
            "oneof.maybe.mixup.lam.zero.gamma": SHARES.flip(0),
            "oneof.maybe.mixup.lam.one.uniform": SHARES / 3,
            "oneof.maybe.mixup.lam.zero.uniform": SHARES.flip(0) / 4,
            "oneof.maybe.choice.on": opening(mixed),
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
    q, r = values["maybe.choice.p"], values["oneof.maybe.choice.p"]
    return probability(outcome, values["gate.p"], tuple(values["oneof.choice.probs"]), r, values["oneof.gate.p"], q)


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
    check("gate.p", "oneof.choice.probs", "oneof.maybe.choice.p", "oneof.gate.p", "oneof.shift.std", "maybe.choice.p")


def no_credit_through_the_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branches, "_through", lambda before, views, chosen: before.scores)


def baseline_depends_on_its_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Score, "sources", lambda self: self.reach)


def baseline_depends_on_a_choice_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Score.through
    monkeypatch.setattr(Score, "through", lambda self, needs, might_need: plain(self, needs, needs))


def no_credit_for_a_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Score, "where", lambda self, rows: Score(self.log_prob * 0.0))


@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (no_credit_through_the_branches, "gate.p"),
        (baseline_depends_on_its_choice, "oneof.choice.probs"),
        (baseline_depends_on_a_choice_inside, "oneof.maybe.choice.p"),
        (no_credit_for_a_branch, "oneof.gate.p"),
    ],
)
def test_a_planted_bug_is_caught(plant, name: str, monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check(name)
