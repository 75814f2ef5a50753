"""Discrete γ, mixing and K draws: the expected gradient against enumeration, with the power to see a bias of 2 %."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from scipy import special
from torch import Tensor

import optima
from optima import learn, sampling
from optima.augment import View
from optima.objective import estimators, loss
from tests.objective.gates import Gate
from tests.reference import (
    GivenNoise,
    assert_close,
    assert_unbiased,
    gauss_hermite,
    gradient_of,
    spread_uniforms,
    to_normal,
)

# ---- token dropout: every mask enumerated --------------------------------------------------------------------------

TOKENS = torch.tensor([5, 7, 0, 3])  # 0 is padding and never dropped; 1 is the mask
VALUES = torch.tensor([0.0, -1.2, 0.0, 0.6, 0.0, 0.9, 0.0, -0.4])
P = 0.25
SCALE = 0.8  # of q(φ) on the unconstrained line
LOG2_ROWS = 18
RTOL = 0.015  # a bias of 2 % does not pass


def read_tokens(tokens: Tensor) -> Tensor:
    return VALUES[tokens].sum(-1)


def log_lik_of_every_mask() -> tuple[Tensor, list[int]]:
    values, dropped = [], []
    for mask in itertools.product([0, 1], repeat=3):
        tokens = TOKENS.clone()
        tokens[torch.tensor([0, 1, 3])[torch.tensor(mask).bool()]] = 1
        values.append(-0.5 * (0.5 - read_tokens(tokens).double()) ** 2 - 0.5 * math.log(2 * math.pi))
        dropped.append(sum(mask))
    return torch.stack(values), dropped


def expected_bound(bound: str, samples: int) -> Callable[[Tensor], Tensor]:
    log_liks, dropped = log_lik_of_every_mask()
    combine = {"jensen": torch.mean, "marginal": lambda v: v.logsumexp(0) - math.log(samples), "naive": torch.sum}

    def expected(p: Tensor) -> Tensor:
        total = torch.zeros_like(p)
        for combination in itertools.product(range(8), repeat=samples):
            drops = sum(dropped[index] for index in combination)
            total += p**drops * (1 - p) ** (3 * samples - drops) * combine[bound](log_liks[list(combination)])
        return total

    return expected


def expected_gradient(bound: str, samples: int) -> dict[str, Tensor]:
    """Central differences of E_u [expected bound at p = σ(u)], u ~ N(logit P, SCALE²)."""
    nodes, weights = gauss_hermite(32)
    expected = expected_bound(bound, samples)

    def at(loc: float, log_scale: float) -> Tensor:
        return (weights * expected(torch.sigmoid(loc + math.exp(log_scale) * nodes))).sum()

    loc, wide, step = math.log(P / (1 - P)), math.log(SCALE), 1e-4
    by_loc = at(loc + step, wide) - at(loc - step, wide)
    by_scale = at(loc, wide + step) - at(loc, wide - step)
    return {"p.loc": by_loc / (2 * step), "p.log_scale": by_scale / (2 * step)}


def check_tokens(bound, samples: int) -> None:
    """The gradient of one training step whose noise fills the unit cube evenly."""
    augment = optima.TokenDropout(learn(P, scale=SCALE), mask_id=1, special_ids=(0,))
    points = spread_uniforms(1 + 3 * samples, LOG2_ROWS)
    rows = len(points)
    uniforms = torch.full((samples, rows, 4), 0.5, dtype=torch.float64)
    uniforms[..., [0, 1, 3]] = points[:, 1:].view(rows, samples, 3).transpose(0, 1)
    noise = GivenNoise({"p": to_normal(points[:, :1]), "dropped": uniforms.view(samples * rows, 4)})
    view = View(TOKENS.expand(rows * samples, 4), torch.full((rows * samples,), 0.5), samples)
    view = augment.extend(view, noise, None, "").settled()
    objective = optima.ELBO(num_data=rows, likelihood="gaussian", beta_phi=0.0, bound=bound)
    objective(read_tokens(view.x), view, augment=augment).backward()
    exact = expected_gradient(bound, samples)
    for name, parameter in augment.named_parameters():
        assert parameter.grad is not None, f"{name} gets no gradient"
        assert_close(-parameter.grad.double(), exact[name], rtol=RTOL)


@pytest.mark.parametrize(
    ("bound", "samples"),
    [("jensen", 1), ("jensen", 2), ("marginal", 1), ("marginal", 2), ("marginal", 3), ("naive", 2)],
)
def test_token_dropout_gradient(bound, samples: int):
    check_tokens(bound, samples)


def own_value_in_the_baseline_of_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimators, "leave_one_out_draws", lambda log_lik: log_lik.mean(0).expand_as(log_lik))


def own_value_in_the_marginal_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        estimators, "marginal_signal", lambda log_lik: (log_lik.logsumexp(0) - log_lik.mean(0)).expand_as(log_lik) - 1
    )


def jensen_signal_for_the_marginal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        estimators, "marginal_signal", lambda log_lik: log_lik - estimators.leave_one_out_draws(log_lik)
    )


def no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss.estimators, "score_function", lambda value, signal, log_prob: value + 0 * log_prob.sum(0))


@pytest.mark.parametrize(
    ("plant", "bound"),
    [
        (own_value_in_the_baseline_of_draws, "jensen"),
        (own_value_in_the_marginal_signal, "marginal"),
        (jensen_signal_for_the_marginal, "marginal"),
        (no_score, "jensen"),
    ],
)
def test_a_planted_bug_in_the_score_function_is_caught(plant, bound, monkeypatch: pytest.MonkeyPatch):
    check_tokens(bound, 2)
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check_tokens(bound, 2)


def test_the_marginal_bound_is_not_the_jensen_bound_here():
    p = torch.tensor([P], dtype=torch.float64)
    assert float(expected_bound("marginal", 2)(p) - expected_bound("jensen", 2)(p)) > 0.01


# ---- one draw per example and few examples: every gate of the batch enumerated --------------------------------------

INPUTS = torch.tensor([[0.5], [-1.2], [2.0]], dtype=torch.float64)
TARGETS = torch.tensor([[0.3], [0.9], [-0.4]], dtype=torch.float64)


def gate_step(rows: int, gates: tuple[int, ...], augment: Gate) -> Tensor:
    """The mean of ℓ over the batch, with its gradient, for gates that are as given."""
    uniforms = torch.tensor([0.0 if gate else 1.0 - 1e-12 for gate in gates], dtype=torch.float64)
    view = augment.extend(View(INPUTS[:rows], TARGETS[:rows]), GivenNoise({"open": uniforms}), None, "").settled()
    assert view.sources is None, "rows that share nothing take the plain baseline"
    objective = optima.ELBO(num_data=rows, likelihood="gaussian", beta_phi=0.0)
    return -objective(torch.sin(2 * view.x), view, augment=augment).value


def check_gates(rows: int) -> None:
    """E of the gradient over all 2^B gates; a baseline that holds a row's own ℓ makes it smaller by 1 − 1/B."""
    augment = Gate(learn(0.35, posterior="point")).double()
    (loc,) = augment.parameters()
    p = float(loc.detach().sigmoid())
    for gates in itertools.product((0, 1), repeat=rows):
        chance = math.prod(p if gate else 1 - p for gate in gates)
        (chance * gate_step(rows, gates, augment)).backward()
    with torch.no_grad():
        opened, closed = (float(gate_step(rows, (gate,) * rows, augment)) for gate in (1, 0))
    # rows are independent, so that E of the mean is p ℓ(open) + (1 − p) ℓ(closed)
    assert_close(gradient_of(loc), p * (1 - p) * (opened - closed), rtol=1e-12)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_one_draw_per_example_is_exact_in_the_smallest_batches(rows: int):
    check_gates(rows)


def plain_baseline(monkeypatch: pytest.MonkeyPatch, baseline: Callable[[Tensor], Tensor]) -> None:
    """Another baseline where every row depends on its own draw alone."""
    genuine = estimators.leave_one_out_batch

    def planted(log_lik: Tensor, sources: Tensor | None = None) -> Tensor:
        return baseline(log_lik) if sources is None else genuine(log_lik, sources)

    monkeypatch.setattr(estimators, "leave_one_out_batch", planted)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_the_rows_own_value_in_the_plain_baseline_is_caught(rows: int, monkeypatch: pytest.MonkeyPatch):
    plain_baseline(monkeypatch, lambda log_lik: log_lik.mean().expand_as(log_lik))
    with pytest.raises(AssertionError):
        check_gates(rows)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_baseline_of_nothing_has_no_bias(rows: int, monkeypatch: pytest.MonkeyPatch):
    plain_baseline(monkeypatch, torch.zeros_like)
    check_gates(rows)


# ---- Mixup: λ integrated out ---------------------------------------------------------------------------------------

ALPHA = 0.6
LOGITS = torch.tensor([[1.0, -0.5, 0.2], [-0.3, 0.8, 0.1]])  # of the two images, 0 and 1
LABELS = (0, 1)


def read_blend(x: Tensor) -> Tensor:
    """Logits that bend between the two images' own."""
    return x * LOGITS[1] + (1 - x) * LOGITS[0] + 2 * x * (1 - x) * torch.tensor([0.0, 0.5, -0.5])


def mixed_log_lik(own: int, other: int, lam: float, *, floor: bool) -> float:
    position = lam * own + (1 - lam) * other
    log_p = read_blend(torch.tensor([[position]])).double().log_softmax(-1)[0]
    weights = torch.zeros(3, dtype=torch.float64)
    weights[LABELS[own]] += lam
    weights[LABELS[other]] += 1 - lam
    entropy = float(torch.special.entr(weights).sum()) if floor else 0.0
    return float(weights @ log_p) + entropy


def expected_mixup(floor: bool) -> Callable[[Tensor], Tensor]:
    """E over the partner, either image with equal chances, and over λ ~ Beta(α, α), by Gauss-Jacobi quadrature."""

    def expected(alphas: Tensor) -> Tensor:
        values = []
        for alpha in alphas.tolist():
            # weight (1−t)^(α−1) (1+t)^(α−1) on (−1, 1): the Beta density of λ = (1 + t) / 2
            nodes, weights = special.roots_jacobi(24, alpha - 1, alpha - 1)
            total = sum(
                weight * mixed_log_lik(own, other, (1 + node) / 2, floor=floor)
                for own in (0, 1)
                for other in (0, 1)
                for node, weight in zip(nodes, weights / weights.sum(), strict=True)
            )
            values.append(total / 4)
        return torch.tensor(values, dtype=torch.float64)

    return expected


def mixup_gradient(floor: bool) -> float:
    """d/d log α of the expectation."""
    up, down = (expected_mixup(floor)(torch.tensor([ALPHA * math.exp(step)])) for step in (1e-3, -1e-3))
    return float((up - down) / 2e-3)


def check_mixup(estimator: str, *, floor: bool, rows: int = 1_200_000) -> None:
    augment = optima.Mixup(learn(ALPHA, posterior="point"), estimator=estimator)
    objective = optima.ELBO(rows, optima.Categorical(subtract_floor=floor), beta_phi=0.0)
    objective._reached[augment] = 1
    y = torch.arange(rows) % 2
    view = augment(y.float().unsqueeze(1), y, generator=torch.Generator().manual_seed(0))
    per_example = -objective(read_blend(view.x), view, augment=augment).value * rows
    (gradient,) = torch.autograd.grad(per_example, view.phi["alpha"])
    along = (gradient * ALPHA).double()  # α = exp(u)
    # half of the rows are each image: what differs between the two is not noise of the estimate
    assert_unbiased(along[::2] / 2 + along[1::2] / 2, mixup_gradient(floor), detect=0.02)


@pytest.mark.parametrize("floor", [False, True])
@pytest.mark.parametrize("estimator", ["pathwise", "score_function"])
def test_mixup_gradient(estimator: str, floor: bool):
    check_mixup(estimator, floor=floor)


def test_a_mixup_whose_lambda_is_only_sampled_is_caught(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        sampling.Pathwise,
        "draw",
        lambda self, law, noise: sampling.Draw(sampling.sample(law, noise=noise) + 0 * law.concentration1, None),
    )
    with pytest.raises(AssertionError):
        check_mixup("pathwise", floor=False)


def test_a_true_gradient_shrinks_plain_mixup_and_the_floor_explains_it():
    """The mixed labels' own entropy pulls α down whatever the images say."""
    assert mixup_gradient(False) < 0 < mixup_gradient(True)
