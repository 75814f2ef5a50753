"""log p(y | output) against torch.distributions and scipy, on hard, soft and mixed targets."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from torch import Tensor, nn

from optima import Bernoulli, Categorical, Gaussian, learn
from optima.augment import MixedTarget
from optima.likelihoods import Likelihood, as_likelihood
from tests.reference import assert_unbiased

GENERATOR = torch.Generator().manual_seed(0)
LOGITS = 3 * torch.randn(6, 4, dtype=torch.float64, generator=GENERATOR)
LABELS = torch.tensor([0, 3, 1, 1, 2, 0])
OTHERS = torch.tensor([3, 3, 0, 1, 1, 2])
SOFT = torch.rand(6, 4, dtype=torch.float64, generator=GENERATOR).softmax(-1)
WEIGHT = torch.tensor([0.0, 1.0, 0.25, 0.7, 0.5, 0.9], dtype=torch.float64)
MIXED = MixedTarget((LABELS, OTHERS), torch.stack([WEIGHT, 1 - WEIGHT], 1))


def softened(target: MixedTarget, classes: int) -> Tensor:
    """The mixed target as probabilities, by a plain loop."""
    soft = torch.zeros(len(target.weights), classes, dtype=torch.float64)
    for row in range(len(soft)):
        for labels, weight in zip(target.labels, target.weights[row], strict=True):
            soft[row, int(labels[row])] += weight
    return soft


# ---- categorical -----------------------------------------------------------------------------------------------


def test_hard_labels_are_torchs_categorical():
    expected = torch.distributions.Categorical(logits=LOGITS).log_prob(LABELS)
    torch.testing.assert_close(Categorical().log_lik(LOGITS, LABELS), expected, rtol=1e-12, atol=0.0)
    torch.testing.assert_close(Categorical().log_lik(LOGITS, LABELS.byte()), expected, rtol=1e-12, atol=0.0)
    assert torch.equal(Categorical(subtract_floor=True).log_lik(LOGITS, LABELS), Categorical().log_lik(LOGITS, LABELS))


def test_soft_labels_are_the_cross_entropy():
    log_p = special.log_softmax(LOGITS.numpy(), -1)
    expected = torch.from_numpy((SOFT.numpy() * log_p).sum(-1))
    torch.testing.assert_close(Categorical().log_lik(LOGITS, SOFT), expected, rtol=1e-12, atol=0.0)


def test_mixed_labels_are_the_weighted_hard_ones():
    p = torch.distributions.Categorical(logits=LOGITS)
    expected = WEIGHT * p.log_prob(LABELS) + (1 - WEIGHT) * p.log_prob(OTHERS)
    torch.testing.assert_close(Categorical().log_lik(LOGITS, MIXED), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        Categorical().log_lik(LOGITS, softened(MIXED, 4)), expected, rtol=1e-12, atol=1e-12, msg="as soft labels"
    )


@pytest.mark.parametrize("target", [SOFT, MIXED], ids=["soft", "mixed"])
def test_without_its_floor_the_value_is_minus_kl(target: Tensor | MixedTarget):
    soft = target if isinstance(target, Tensor) else softened(target, 4)
    # scipy's rel_entr is t log(t / p), with 0 log 0 = 0
    expected = -special.rel_entr(soft.numpy(), special.softmax(LOGITS.numpy(), -1)).sum(-1)
    value = Categorical(subtract_floor=True).log_lik(LOGITS, target)
    torch.testing.assert_close(value, torch.from_numpy(expected), rtol=1e-10, atol=1e-12)
    assert bool((value <= 0).all())


def test_without_its_floor_a_perfect_model_scores_zero():
    for target in (SOFT, MIXED):
        soft = target if isinstance(target, Tensor) else softened(target, 4)
        perfect = soft.clamp_min(1e-300).log()
        value = Categorical(subtract_floor=True).log_lik(perfect, target)
        torch.testing.assert_close(value, torch.zeros(6, dtype=torch.float64), rtol=0.0, atol=1e-9)


def test_mixing_two_of_one_class_has_no_floor():
    # rows 1 and 3 of MIXED mix a class with itself: a hard label, whatever the weight
    weight = torch.tensor([0.3, 0.5], dtype=torch.float64)
    same = MixedTarget((LABELS[[1, 3]], LABELS[[1, 3]]), torch.stack([weight, 1 - weight], 1))
    with_floor = Categorical().log_lik(LOGITS[[1, 3]], same)
    without = Categorical(subtract_floor=True).log_lik(LOGITS[[1, 3]], same)
    torch.testing.assert_close(without, with_floor, rtol=0.0, atol=1e-12)


def test_three_labels_of_which_two_agree():
    labels = (torch.tensor([0]), torch.tensor([2]), torch.tensor([0]))
    target = MixedTarget(labels, torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64))
    value = Categorical(subtract_floor=True).log_lik(LOGITS[:1], target)
    expected = -special.rel_entr([0.5, 0.0, 0.5, 0.0], special.softmax(LOGITS[0].numpy())).sum()
    assert float(value) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("subtract_floor", [False, True])
@pytest.mark.parametrize("weight", [0.0, 1.0, 1e-30, 0.5])
@pytest.mark.parametrize("partner", [0, 1], ids=["same class", "other class"])
def test_the_gradient_of_the_weight_is_finite_at_the_ends(subtract_floor: bool, weight: float, partner: int):
    share = torch.tensor([weight], dtype=torch.float64, requires_grad=True)
    target = MixedTarget((torch.tensor([0]), torch.tensor([partner])), torch.stack([share, 1 - share], 1))
    logits = LOGITS[:1].clone().requires_grad_()
    Categorical(subtract_floor=subtract_floor).log_lik(logits, target).sum().backward()
    assert share.grad is not None
    assert bool(share.grad.isfinite())
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())
    if 0.1 < weight < 0.9:
        log_p = LOGITS[0].log_softmax(-1)
        exact = float(log_p[0] - log_p[partner])
        exact += math.log((1 - weight) / weight) if subtract_floor and partner else 0.0
        assert float(share.grad) == pytest.approx(exact, rel=1e-10, abs=1e-12)


@pytest.fixture
def every_warning() -> Iterator[None]:
    """torch gives some warnings once per process; here each of them counts."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


@pytest.mark.usefixtures("every_warning")
@pytest.mark.parametrize("likelihood", [Categorical(), Categorical(subtract_floor=True)])
def test_soft_zeros_have_finite_gradients(likelihood: Categorical):
    soft = torch.tensor([[0.0, 1.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    likelihood.log_lik(LOGITS[:1], soft).sum().backward()
    assert soft.grad is not None
    assert bool(soft.grad.isfinite().all())


def test_extreme_logits_do_not_overflow():
    logits = torch.tensor([[1e4, -1e4], [-1e4, 1e4]])
    value = Categorical().log_lik(logits, torch.tensor([0, 0]))
    assert value.tolist() == [0.0, -2e4]
    assert Categorical().mean(logits).tolist() == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("likelihood", ["categorical", "bernoulli", "gaussian"])
def test_half_precision_is_scored_in_float32(likelihood: str):
    scored = as_likelihood(likelihood)
    output = LOGITS.bfloat16()
    target = LABELS if likelihood == "categorical" else torch.ones(6, 4)
    value = scored.log_lik(output, target)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), scored.log_lik(output.double(), target), rtol=1e-5, atol=1e-5)
    assert scored.mean(output).dtype == torch.float32


# ---- bernoulli -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bool])
def test_hard_yes_and_no_are_torchs_bernoulli(dtype: torch.dtype):
    answers = (LOGITS > 0.5).to(dtype)
    expected = torch.distributions.Bernoulli(logits=LOGITS).log_prob(answers.double()).sum(-1)
    torch.testing.assert_close(Bernoulli().log_lik(LOGITS, answers), expected, rtol=1e-12, atol=1e-12)


def test_soft_yes_and_no():
    p = special.expit(LOGITS.numpy())
    expected = (SOFT.numpy() * np.log(p) + (1 - SOFT.numpy()) * np.log1p(-p)).sum(-1)
    torch.testing.assert_close(Bernoulli().log_lik(LOGITS, SOFT), torch.from_numpy(expected), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bool])
def test_mixed_yes_and_no_are_interpolated(dtype: torch.dtype):
    one, two = (LOGITS > 0.5).to(dtype), (LOGITS < 1.0).to(dtype)
    target = MixedTarget((one, two), MIXED.weights)
    soft = WEIGHT[:, None] * one.double() + (1 - WEIGHT[:, None]) * two.double()
    torch.testing.assert_close(Bernoulli().log_lik(LOGITS, target), Bernoulli().log_lik(LOGITS, soft))


def test_one_label_per_row():
    answers = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    value = Bernoulli().log_lik(LOGITS[:, 0], answers)
    torch.testing.assert_close(value, torch.distributions.Bernoulli(logits=LOGITS[:, 0]).log_prob(answers))
    torch.testing.assert_close(Bernoulli().mean(LOGITS), LOGITS.sigmoid())


# ---- gaussian --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6,), (6, 1), (6, 3), (6, 2, 2)])
def test_values_are_scipys_normal(shape: tuple[int, ...]):
    mean, value = torch.randn(2, *shape, dtype=torch.float64)
    expected = stats.norm.logpdf(value.numpy(), mean.numpy(), 0.3).reshape(6, -1).sum(-1)
    scored = Gaussian(noise=torch.tensor(0.3, dtype=torch.float64)).log_lik(mean, value)
    torch.testing.assert_close(scored, torch.from_numpy(expected), rtol=1e-10, atol=0.0)


def test_mixed_values_are_interpolated():
    mean = torch.randn(6, 2, dtype=torch.float64)
    one, two = torch.tensor([[1, 5]]).expand(6, 2), torch.tensor([[3, -2]]).expand(6, 2)
    between = WEIGHT[:, None] * one + (1 - WEIGHT[:, None]) * two
    torch.testing.assert_close(
        Gaussian(noise=0.5).log_lik(mean, MixedTarget((one, two), MIXED.weights)),
        Gaussian(noise=0.5).log_lik(mean, between),
    )


def test_learned_noise_is_averaged_over_its_posterior():
    # E over log-normal noise of log N(1 | 0, noise²), and its gradient along the noise's location, by quadrature
    likelihood = Gaussian(noise=learn(0.8, scale=0.4))
    phi = likelihood.noise
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    values = [likelihood.log_lik(zero, one) for _ in range(6000)]
    gradients = [torch.autograd.grad(value, phi.loc)[0] for value in values]  # pyright: ignore

    def expected(loc: float) -> float:
        def integrand(u: float) -> float:
            return float(stats.norm.pdf(u, loc, 0.4) * stats.norm.logpdf(1.0, 0.0, math.exp(u)))

        return integrate.quad(integrand, loc - 4, loc + 4)[0]

    at = math.log(0.8)
    assert_unbiased(torch.cat(values).detach(), expected(at), detect=0.1)
    slope = (expected(at + 1e-3) - expected(at - 1e-3)) / 2e-3
    assert_unbiased(torch.stack(gradients).double(), slope, detect=0.3)
    assert float(likelihood.kl().detach()) == pytest.approx(0.5 * (0.4**2 - 1) - math.log(0.4), rel=1e-5)


def test_the_maximum_of_the_likelihood_is_the_residuals_deviation():
    residuals = torch.tensor([0.3, -1.2, 0.8, 0.1], dtype=torch.float64)
    likelihood = Gaussian(noise=learn(1.0, posterior="point")).double()
    best = residuals.square().mean().sqrt()
    with torch.no_grad():
        likelihood.noise.loc.copy_(best.log())  # pyright: ignore
    value = likelihood.log_lik(torch.zeros(4, dtype=torch.float64), residuals).sum()
    (gradient,) = torch.autograd.grad(value, likelihood.noise.loc)  # pyright: ignore
    assert float(gradient) == pytest.approx(0.0, abs=1e-6)


def test_learned_noise_continues_bit_for_bit_from_a_checkpoint():
    likelihood = Gaussian(noise=learn(0.8))
    likelihood.log_lik(torch.zeros(1), torch.ones(1))
    twin = Gaussian(noise=learn(0.8))
    twin.load_state_dict(copy.deepcopy(likelihood.state_dict()))
    one, two = (each.log_lik(torch.zeros(1), torch.ones(1)).detach() for each in (likelihood, twin))
    assert torch.equal(one, two)


def test_only_a_learned_likelihood_costs_anything():
    for likelihood in (Categorical(), Bernoulli(), Gaussian(0.3)):
        assert float(likelihood.kl()) == 0.0
        assert not list(likelihood.parameters())
    assert len(list(Gaussian(learn(0.3)).parameters())) == 2


def test_by_name_or_as_given():
    assert isinstance(as_likelihood("categorical"), Categorical)
    assert isinstance(as_likelihood("bernoulli"), Bernoulli)
    assert isinstance(as_likelihood("gaussian"), Gaussian)
    own = Gaussian(0.1)
    assert as_likelihood(own) is own
    assert issubclass(Likelihood, nn.Module)
