"""The Jensen–Shannon term: its value, its gradient by enumeration, and what it refuses."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from optima import ELBO, Flip, Mixup, Rotate, Sequential, learn
from optima.augment import View
from optima.objective import estimators
from optima.objective.consistency import jensen_shannon
from optima.posterior import LearnedPhi
from tests.reference import GivenNoise

DOUBLE = torch.float64
X = torch.tensor([[[[0.5, -1.0]]], [[[2.0, 0.3]]]], dtype=DOUBLE)
Y = torch.tensor([0, 1])
HEAD = torch.tensor([[1.0, -0.5], [0.3, 0.8]], dtype=DOUBLE)
P = 0.35


def by_loop(probabilities: np.ndarray) -> float:
    """(1/V) Σ_v Σ_c p_vc log(p_vc / p̄_c), with 0 log 0 = 0."""
    mean = probabilities.mean(0)
    total = 0.0
    for view in probabilities:
        total += sum(p * math.log(p / m) for p, m in zip(view, mean, strict=True) if p > 0)
    return total / len(probabilities)


def test_it_is_the_mean_divergence_from_the_mean():
    logits = torch.randn(3, 5, 4, dtype=DOUBLE)
    exact = [by_loop(logits[:, row].softmax(-1).numpy()) for row in range(5)]
    torch.testing.assert_close(jensen_shannon(logits), torch.tensor(exact, dtype=DOUBLE), rtol=1e-12, atol=1e-14)


def test_it_is_zero_for_equal_views_and_log_v_for_views_that_share_nothing():
    logits = torch.randn(1, 4, 6)
    assert jensen_shannon(logits.expand(3, 4, 6)).tolist() == pytest.approx([0.0] * 4, abs=1e-6)
    apart = 1e4 * torch.eye(3)[:, None]
    assert jensen_shannon(apart).tolist() == pytest.approx([math.log(3)])
    assert bool(jensen_shannon(1e4 * torch.randn(3, 7, 5)).isfinite().all())


def test_gradients_are_those_of_finite_differences():
    logits = torch.randn(3, 2, 4, dtype=DOUBLE, requires_grad=True)
    assert torch.autograd.gradcheck(jensen_shannon, logits)


# ---- in the objective ------------------------------------------------------------------------------------------------


def test_the_loss_is_the_likelihood_of_the_batch_and_the_divergence_of_the_views():
    model, x = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), torch.rand(4, 3, 2, 2)
    y = torch.tensor([0, 2, 1, 0])
    augment = Rotate(std=learn(20.0))
    view = augment(x, y, samples=2, clean=True)
    assert view.x.shape == (12, 3, 2, 2)
    assert torch.equal(view.x[:4], x)
    assert view.target is y
    assert (view.examples, view.samples) == (4, 2)
    output = model(view.x)
    loss = ELBO(num_data=40, jsd=12.0)(output, view, augment=augment)
    log_p = output[:4].log_softmax(-1)[torch.arange(4), y]
    divergence = jensen_shannon(output.view(3, 4, 3))
    assert float(loss.data_fit) == pytest.approx(40 * log_p.mean().item(), rel=1e-5)
    assert loss.jsd is not None
    assert float(loss.jsd) == pytest.approx(divergence.mean().item(), rel=1e-5)
    expected = -(log_p.mean() - 12.0 * divergence.mean()) + augment.kl() / 40
    assert loss.value.item() == pytest.approx(expected.item(), rel=1e-5)
    assert float(loss.elbo) == pytest.approx(-40 * loss.value.item(), rel=1e-5)
    assert loss.advantage is None


def flip(p: float = P) -> Flip:
    return Flip(learn(p, posterior="point")).double()


def stepped(augment: Flip, flips: tuple[int, ...], clean: bool = True) -> Tensor:
    noise = GivenNoise({"flipped": torch.tensor([0.0 if one else 1.0 - 1e-12 for one in flips], dtype=DOUBLE)})
    view = augment.extend(View(X.repeat(2, 1, 1, 1), Y.repeat(2), samples=2), noise, None, "").finished()
    view = view.after(X, Y)
    objective = ELBO(num_data=2, beta_phi=0.0, jsd=3.0)
    return -objective(view.x.flatten(1) @ HEAD, view, augment=augment).value


def chance(flips: tuple[int, ...], p: float) -> float:
    return math.prod(p if one else 1 - p for one in flips)


def check() -> None:
    """The gradient of a discrete φ through the divergence, over all 2⁴ flips of two examples with two draws each."""
    augment, every = flip(), list(itertools.product((0, 1), repeat=4))
    for flips in every:
        (chance(flips, P) * stepped(augment, flips)).backward()
    phi = augment.p
    assert isinstance(phi, LearnedPhi)
    with torch.no_grad():
        values = [float(stepped(augment, flips)) for flips in every]
    logit, step = math.log(P / (1 - P)), 1e-5

    def expected(shift: float) -> float:
        p = 1 / (1 + math.exp(-logit - shift))
        return sum(chance(flips, p) * value for flips, value in zip(every, values, strict=True))

    exact = (expected(step) - expected(-step)) / (2 * step)
    assert abs(exact) > 1e-3
    assert phi.loc.grad is not None
    assert abs(float(phi.loc.grad) - exact) < 1e-8, f"{float(phi.loc.grad)} for {exact}"


def test_the_score_function_sees_the_divergence():
    check()


def no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimators, "score_function", lambda value, signal, log_prob: value + 0.0 * log_prob.sum(0))


def divided_by_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = estimators.score_function
    monkeypatch.setattr(
        estimators, "score_function", lambda value, signal, log_prob: plain(value, signal / len(log_prob), log_prob)
    )


def baseline_includes_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimators, "leave_one_out_batch", lambda log_lik, sources=None: log_lik.mean())


@pytest.mark.parametrize("plant", [no_score, divided_by_the_draws, baseline_includes_the_example])
def test_a_planted_bug_is_caught(plant, monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()


def test_evaluation_is_the_batch_again_and_again():
    view = Rotate(std=5.0).eval()(X, Y, samples=2, clean=True)
    assert torch.equal(view.x, X.repeat(3, 1, 1, 1))


WRONG = {
    "mixed labels": (lambda: Sequential(Mixup(1.0))(X, Y, clean=True), "whose labels Mixup would mix"),
    "a mask": (
        lambda: Rotate(std=1.0)(X, Y, clean=True, mask=torch.zeros(2, 1, 2, dtype=torch.int64)),
        "leave out mask and boxes",
    ),
    "no weight": (lambda: ELBO(num_data=2)(X.flatten(1), View(X, Y, samples=0, clean=True)), "pass jsd= to ELBO"),
    "no clean batch": (lambda: ELBO(num_data=2, jsd=1.0)(X.flatten(1), View(X, Y)), r"augment\(x, y, clean=True\)"),
    "no classes": (lambda: ELBO(num_data=2, likelihood="gaussian", jsd=1.0), "Gaussian gives none"),
    "another bound": (lambda: ELBO(num_data=2, jsd=1.0, bound="marginal"), 'no bound="marginal"'),
    "a negative weight": (lambda: ELBO(num_data=2, jsd=-1.0), "jsd must be finite and not negative"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_refused(name: str):
    call, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        call()
