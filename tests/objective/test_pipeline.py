"""One pipeline of score-function, pathwise and example-mixing augmentations: every gate enumerated, to rounding."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Distribution, constraints

import optima
from optima import learn
from optima.augment import View, base
from optima.objective import estimators
from optima.posterior import LearnedPhi
from tests.reference import GivenNoise


class Gate(optima.Augmentation):
    """Multiply an example by γ ~ Bernoulli(p)."""

    default_estimator = "score_function"

    def __init__(self, p, **options):
        super().__init__(**options)
        self.add_phi("p", p, support=constraints.unit_interval, off=1.0)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"open": Bernoulli(phi["p"], validate_args=False)}

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        return x * (0.3 + gamma["open"].view(-1, 1))


X = torch.tensor([[0.5], [-1.0], [2.0], [0.8]], dtype=torch.float64)
Y = torch.tensor([[0.1], [0.7], [-0.4], [1.2]], dtype=torch.float64)
PARTNERS = torch.tensor([2, 3, 1, 0])
P, STD, ALPHA = 0.35, 0.4, 0.8


def build() -> optima.Sequential:
    return optima.Sequential(
        Gate(learn(P, posterior="point")),
        optima.Shift(std=learn(STD, posterior="point")),
        optima.Mixup(alpha=ALPHA),
        Gate(learn(P, posterior="point")),
    ).double()


def noise_for(gates: tuple[int, ...]) -> GivenNoise:
    """Fixed continuous noise, the given partners, and uniforms that open exactly the given gates of both layers."""
    uniforms = torch.tensor([0.0 if gate else 1.0 - 1e-12 for gate in gates], dtype=torch.float64)
    order = torch.empty(4, dtype=torch.float64)
    order[PARTNERS] = torch.arange(4, dtype=torch.float64) / 4  # argsort(order) = PARTNERS
    ones = torch.tensor([0.7, 1.9, 0.4, 1.1], dtype=torch.float64)
    return GivenNoise(
        {
            "gate.open": uniforms[:4],
            "gate_2.open": uniforms[4:],
            "shift.shift": torch.tensor([0.2, -1.1, 0.6, 1.4], dtype=torch.float64),
            "mixup.partner": order,
            "mixup.lam.one.gamma": ones,
            "mixup.lam.zero.gamma": ones.flip(0),
            "mixup.lam.one.uniform": ones / 3,
            "mixup.lam.zero.uniform": ones.flip(0) / 4,
        }
    )


def step(augment: optima.Sequential, gates: tuple[int, ...]) -> Tensor:
    """−value of the objective per example: Σ ℓ / B with its gradient."""
    view = augment.extend(View(X, Y), noise_for(gates), None, "").settled()
    objective = optima.ELBO(num_data=4, likelihood="gaussian", beta_phi=0.0)
    return -objective(torch.tanh(2 * view.x) + view.x**2, view, augment=augment).value


def probability(gates: tuple[int, ...], p_first: float, p_second: float) -> float:
    chances = [p_first if gate else 1 - p_first for gate in gates[:4]]
    chances += [p_second if gate else 1 - p_second for gate in gates[4:]]
    return float(torch.tensor(chances, dtype=torch.float64).prod())


@cache  # the planted bugs are in the gradient alone
def expected(**shifted: float) -> float:
    """E over all 2⁸ gates, at unconstrained values moved by `shifted`."""
    augment = build()
    with torch.no_grad():
        for name, phi in augment.named_phi():
            if isinstance(phi, LearnedPhi):
                phi.loc.add_(shifted.get(name.replace(".", "_"), 0.0))
        values = {name: float(phi.summary().mean) for name, phi in augment.named_phi()}
        return sum(
            probability(gates, values["gate.p"], values["gate_2.p"]) * float(step(augment, gates))
            for gates in itertools.product((0, 1), repeat=8)
        )


def check() -> None:
    augment = build()
    for gates in itertools.product((0, 1), repeat=8):
        (probability(gates, P, P) * step(augment, gates)).backward()
    for name, phi in augment.named_phi():
        if not isinstance(phi, LearnedPhi):
            continue
        key = name.replace(".", "_")
        exact = (expected(**{key: 1e-5}) - expected(**{key: -1e-5})) / 2e-5
        assert abs(exact) > 1e-3
        assert phi.loc.grad is not None
        assert abs(float(phi.loc.grad) - exact) < 1e-6 + 1e-5 * abs(exact), f"{name}: {float(phi.loc.grad)} for {exact}"


def test_the_surrogate_is_right_for_a_mixture_of_estimators():
    check()


def no_credit_for_partners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "credit_partners", lambda view, partner: view)


def baseline_forgets_that_partners_share_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    credited = base.credit_partners
    monkeypatch.setattr(base, "credit_partners", lambda view, partner: replace(credited(view, partner), sources=None))


def baseline_includes_the_row_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimators, "leave_one_out_batch", lambda log_lik, sources=None: log_lik.mean())


@pytest.mark.parametrize(
    "plant",
    [no_credit_for_partners, baseline_forgets_that_partners_share_draws, baseline_includes_the_row_itself],
)
def test_a_planted_bug_in_the_credit_is_caught(plant, monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()
