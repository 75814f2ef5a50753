"""What every augmentation owes its user, whatever the family: replay, identity, dtype, layout, isolation, copies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from scipy import integrate, special, stats
from torch import Tensor
from torch.distributions import (
    Categorical,
    Distribution,
    Kumaraswamy,
    LogNormal,
    Normal,
    SigmoidTransform,
    TransformedDistribution,
    Uniform,
    constraints,
)
from torch.nn import functional

import optima
from optima import (
    Affine,
    Blur,
    Brightness,
    Contrast,
    CropResize,
    CutMix,
    Erase,
    Flip,
    Gamma,
    GaussianNoise,
    Hue,
    Maybe,
    Mixup,
    Rotate,
    Saturation,
    Scale,
    Sequential,
    Shear,
    Shift,
    TokenDropout,
    Translate,
    learn,
)
from optima.augment import Augmentation, Augmenter
from optima.posterior import FixedPhi, LearnedPhi, PriorPhi
from tests.reference import assert_unbiased

GENERATOR = torch.Generator().manual_seed(0)
SIGNALS = torch.rand(5, 7, generator=GENERATOR)
IMAGES = torch.rand(5, 3, 6, 8, generator=GENERATOR)
TOKENS = torch.randint(10, 100, (5, 9), generator=GENERATOR)
LABELS = torch.tensor([0, 1, 2, 1, 0])


@dataclass(frozen=True)
class Family:
    """How to build it, a batch for it, and what each γ must be to change nothing."""

    build: Callable[[], Augmenter]
    x: Tensor
    identity: dict[str, float]
    mixes: bool = False


FAMILIES = {
    "Shift": Family(lambda: Shift(std=learn(1.0), mean=learn(0.3)), SIGNALS, {"shift": 0.0}),
    "GaussianNoise": Family(lambda: GaussianNoise(std=learn(0.5)), SIGNALS, {"noise": 0.0}),
    "GaussianNoise scored": Family(
        lambda: GaussianNoise(std=learn(0.5), estimator="score_function"), IMAGES, {"noise": 0.0}
    ),
    "Rotate": Family(lambda: Rotate(std=learn(20.0), mean=learn(3.0)), IMAGES, {"angle": 0.0}),
    "Rotate range": Family(lambda: Rotate(range=learn(20.0), padding="border"), IMAGES, {"angle": 0.0}),
    "Rotate batch": Family(lambda: Rotate(std=learn(20.0), phi_draws="batch"), IMAGES, {"angle": 0.0}),
    "Translate": Family(lambda: Translate(std=learn(0.1)), IMAGES, {"shift": 0.0}),
    "Translate pair": Family(lambda: Translate(range=learn([0.1, 0.2]), padding="reflection"), IMAGES, {"shift": 0.0}),
    "Mixup": Family(lambda: Mixup(alpha=learn(0.4)), IMAGES, {"lam": 1.0}, mixes=True),
    "Mixup scored": Family(
        lambda: Mixup(alpha=learn(0.4), estimator="score_function"), SIGNALS, {"lam": 1.0}, mixes=True
    ),
    "Mixup pair": Family(lambda: Mixup(alpha=learn(0.4), mode="pair"), IMAGES, {"lam": 1.0}, mixes=True),
    "Mixup batch scored": Family(
        lambda: Mixup(alpha=learn(0.4), mode="batch", estimator="score_function"), IMAGES, {"lam": 1.0}, mixes=True
    ),
    "CutMix": Family(lambda: CutMix(alpha=learn(1.0)), IMAGES, {"lam": 1.0}, mixes=True),
    "CutMix whole": Family(lambda: CutMix(alpha=learn(1.0), boxes="whole"), IMAGES, {"lam": 1.0}, mixes=True),
    "Scale": Family(lambda: Scale(std=learn(0.3)), IMAGES, {"log_scale": 0.0}),
    "Shear": Family(lambda: Shear(range=learn([10.0, 5.0])), IMAGES, {"angle": 0.0}),
    "Affine": Family(lambda: Affine(std=learn([5.0, 0.1, 0.1, 5.0, 0.1, 0.1])), IMAGES, {"affine": 0.0}),
    "Affine full": Family(
        lambda: Affine(range=learn([5.0, 0.1, 0.1, 5.0, 0.1, 0.1]), covariance="full"), IMAGES, {"affine": 0.0}
    ),
    "CropResize": Family(lambda: CropResize(std=learn(0.3)), IMAGES, {"log_side": 0.0}),
    "Flip": Family(lambda: Flip(learn(0.4)), IMAGES, {"flipped": 0.0}),
    "OneOf": Family(
        lambda: optima.OneOf(Rotate(std=learn(20.0)), Shift(std=learn(0.2)), probs=learn([0.5, 0.5])),
        IMAGES,
        {"rotate.angle": 0.0, "shift.shift": 0.0},
    ),
    "Maybe": Family(lambda: Maybe(Scale(range=learn(0.3)), learn(0.97)), IMAGES, {"choice.on": 0.0}),
    "Brightness": Family(lambda: Brightness(std=learn(0.3)), IMAGES, {"log_factor": 0.0}),
    "Contrast clipped": Family(lambda: Contrast(std=learn(0.3), clip=(0.0, 1.0)), IMAGES, {"log_factor": 0.0}),
    "Saturation": Family(lambda: Saturation(range=learn(0.3)), IMAGES, {"log_factor": 0.0}),
    "Hue": Family(lambda: Hue(std=learn(20.0)), IMAGES, {"angle": 0.0}),
    "Gamma": Family(lambda: Gamma(std=learn(0.3)), IMAGES, {"log_exponent": 0.0}),
    "Colours": Family(
        lambda: Sequential(Hue(std=learn(20.0)), Contrast(std=learn(0.2)), Brightness(range=learn(0.2))),
        IMAGES,
        {"hue.angle": 0.0, "contrast.log_factor": 0.0, "brightness.log_factor": 0.0},
    ),
    "Blur": Family(lambda: Blur(std=learn(1.0)), IMAGES, {"width": 0.0}),
    "Erase": Family(lambda: Erase(range=learn(0.5)), IMAGES, {"side": 0.0}),
    "TokenDropout": Family(lambda: TokenDropout(learn(0.3), mask_id=1), TOKENS, {"dropped": 0.0}),
    "Sequential": Family(
        lambda: Sequential(Rotate(std=learn(20.0)), GaussianNoise(std=learn(0.1)), Sequential(Shift(std=learn(0.2)))),
        IMAGES,
        {"rotate.angle": 0.0, "gaussiannoise.noise": 0.0, "sequential.shift.shift": 0.0},
    ),
    "Sequential mixed": Family(
        lambda: Sequential(Translate(std=learn(0.1)), Mixup(alpha=learn(0.4)), Mixup(alpha=0.2)),
        IMAGES,
        {"translate.shift": 0.0, "mixup.lam": 1.0, "mixup_2.lam": 1.0},
        mixes=True,
    ),
}
each_family = pytest.mark.parametrize("name", FAMILIES)
REAL = [name for name, family in FAMILIES.items() if family.x.is_floating_point()]
IMAGE = [name for name, family in FAMILIES.items() if family.x.ndim == 4]
ALONE = [name for name, family in FAMILIES.items() if not family.mixes]
each_real = pytest.mark.parametrize("name", REAL)


def learned(augment: Augmenter) -> list[LearnedPhi]:
    return [phi for _, phi in augment.named_phi() if isinstance(phi, LearnedPhi)]


def rows_of(gamma: dict[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    return {name: value[rows] for name, value in gamma.items()}


def detached(view: Any) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in view.gamma.items()}


# ---- replay and identity ---------------------------------------------------------------------------------------


@each_family
@pytest.mark.parametrize("samples", [1, 3])
def test_replay_is_bitwise(name: str, samples: int):
    family = FAMILIES[name]
    augment = family.build()
    view = augment(family.x, LABELS, samples=samples)
    augment(family.x, LABELS, samples=samples)
    again = augment(family.x, LABELS, samples=samples, replay=view.gamma)
    assert torch.equal(again.x, view.x)
    assert str(again.target) == str(view.target)
    assert list(again.gamma) == list(view.gamma)
    other = augment(family.x, LABELS, samples=samples)
    assert not torch.equal(other.x, view.x)


@each_family
def test_replay_does_not_draw(name: str):
    family = FAMILIES[name]
    augment = family.build()
    gamma = augment(family.x, LABELS).gamma
    state = augment.get_extra_state()
    augment(family.x, LABELS, replay=gamma)
    assert torch.equal(augment.get_extra_state(), state)


@each_family
@pytest.mark.parametrize("samples", [1, 3])
def test_evaluation_is_the_identity(name: str, samples: int):
    family = FAMILIES[name]
    augment = family.build().eval()
    view = augment(family.x, LABELS, samples=samples)
    assert torch.equal(view.x, family.x.repeat(samples, *[1] * (family.x.ndim - 1)))
    assert isinstance(view.target, Tensor)
    assert torch.equal(view.target, LABELS.repeat(samples))
    assert not view.gamma
    assert view.log_prob is None
    assert not torch.equal(augment.train()(family.x, LABELS).x, family.x)


def test_evaluation_asks_for_nothing():
    assert torch.equal(Mixup(alpha=1.0).eval()(SIGNALS).x, SIGNALS)
    assert torch.equal(Rotate(std=1.0).eval()(SIGNALS).x, SIGNALS)


def test_evaluation_refuses_a_replay_or_obeys_it():
    view = Shift(std=1.0).eval()(SIGNALS, replay={"shift": torch.ones(5)})
    assert torch.equal(view.x, SIGNALS + 1.0)


@each_family
def test_the_identity_gamma_changes_nothing(name: str):
    family = FAMILIES[name]
    augment = family.build()
    x = family.x.double() if family.x.is_floating_point() else family.x
    gamma = detached(augment(x, LABELS))
    gamma |= {key: torch.full_like(gamma[key], value) for key, value in family.identity.items()}
    replayed = augment(x, LABELS, replay=gamma)
    torch.testing.assert_close(replayed.x, x, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("augment", "x"),
    [
        (Shift(std=0.0), SIGNALS),
        (GaussianNoise(std=0.0), SIGNALS),
        (Rotate(std=0.0), IMAGES),
        (Rotate(range=0.0), IMAGES),
        (Translate(std=0.0), IMAGES),
        (TokenDropout(0.0, mask_id=1), TOKENS),
    ],
)
def test_a_strength_of_zero_is_no_augmentation(augment: Augmenter, x: Tensor):
    torch.testing.assert_close(augment(x).x, x, rtol=0.0, atol=1e-5)


# ---- shapes, types, layouts ------------------------------------------------------------------------------------


@each_family
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("samples", [1, 2])
def test_any_batch_size(name: str, rows: int, samples: int):
    family = FAMILIES[name]
    if family.mixes and rows == 1:
        with pytest.raises(ValueError, match="needs at least two examples to mix, got a batch of 1"):
            family.build()(family.x[:1], LABELS[:1], samples=samples)
        return
    view = family.build()(family.x[:rows], LABELS[:rows], samples=samples)
    assert view.x.shape == (rows * samples, *family.x.shape[1:])
    assert view.examples == rows


@each_real
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_inputs_come_back_in_their_type_and_phi_gets_a_finite_gradient(name: str, dtype: torch.dtype):
    family = FAMILIES[name]
    augment = family.build()
    view = augment(family.x.to(dtype), LABELS, samples=2)
    assert view.x.dtype == dtype
    assert all(value.dtype in (torch.float32, torch.float64, torch.int64) for value in view.gamma.values())
    assert all(value.dtype in (torch.float32, torch.float64) for value in view.phi.values())
    data = view.x.double().square().mean()
    (data if view.log_prob is None else data + view.log_prob.double().mean()).backward()
    for phi in learned(augment):
        assert phi.loc.grad is not None
        assert bool(phi.loc.grad.isfinite().all())
        assert bool((phi.loc.grad != 0).all())


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_tokens_keep_their_type(dtype: torch.dtype):
    assert TokenDropout(0.3, mask_id=1)(TOKENS.to(dtype)).x.dtype == dtype


@pytest.mark.parametrize("name", IMAGE)
@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("training", [True, False])
def test_channels_last_survives(name: str, samples: int, training: bool):
    augment = FAMILIES[name].build().train(training)
    last = IMAGES.contiguous(memory_format=torch.channels_last)
    view = augment(last, LABELS, samples=samples, generator=torch.Generator().manual_seed(0))
    assert view.x.is_contiguous(memory_format=torch.channels_last)
    assert not view.x.is_contiguous()
    first = augment(IMAGES, LABELS, samples=samples, generator=torch.Generator().manual_seed(0))
    assert first.x.is_contiguous()
    torch.testing.assert_close(view.x, first.x, rtol=1e-6, atol=1e-6)


@each_family
def test_inputs_that_are_not_contiguous(name: str):
    family = FAMILIES[name]
    sparse = torch.stack([family.x, family.x], 1)[:, 0]
    assert not sparse.is_contiguous()
    gamma = family.build()(family.x, LABELS).gamma
    assert torch.equal(family.build()(sparse, LABELS, replay=gamma).x, family.build()(family.x, LABELS, replay=gamma).x)


@each_family
def test_the_input_is_left_alone(name: str):
    family = FAMILIES[name]
    before = family.x.clone()
    family.build()(family.x, LABELS, samples=2)
    assert torch.equal(family.x, before)


# ---- examples and their neighbours -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALONE)
def test_permuting_the_batch_permutes_the_output(name: str):
    family = FAMILIES[name]
    augment, order = family.build(), torch.tensor([3, 0, 4, 2, 1])
    gamma = detached(augment(family.x, LABELS))
    straight = augment(family.x, LABELS, replay=gamma).x
    permuted = augment(family.x[order], LABELS[order], replay=rows_of(gamma, order)).x
    assert torch.equal(permuted, straight[order])


@pytest.mark.parametrize("name", ALONE)
def test_an_example_never_sees_another(name: str):
    family = FAMILIES[name]
    augment = family.build()
    x = family.x.clone()
    x[2] = x[2].flip(-1) + 1
    one, two = (augment(each, LABELS, generator=torch.Generator().manual_seed(0)).x for each in (family.x, x))
    others = torch.tensor([0, 1, 3, 4])
    assert torch.equal(one[others], two[others])
    assert not torch.equal(one[2], two[2])


@pytest.mark.parametrize("name", ALONE)
def test_the_rest_of_the_batch_does_not_change_an_examples_result(name: str):
    family = FAMILIES[name]
    augment = family.build()
    view = augment(family.x, LABELS)
    gamma = detached(view)
    for row in range(5):
        alone = augment(family.x[row : row + 1], LABELS[row : row + 1], replay=rows_of(gamma, torch.tensor([row]))).x
        torch.testing.assert_close(alone, view.x[row : row + 1].detach(), rtol=0.0, atol=1e-6)


def test_mixing_sees_exactly_its_partner():
    mixup = Mixup(alpha=1.0)
    view = mixup(SIGNALS, LABELS)
    partner = view.gamma["partner"]
    for row in range(5):
        x = SIGNALS.clone()
        x[row] += 1
        changed = (mixup(x, LABELS, replay=view.gamma).x != view.x).any(1)
        assert changed.tolist() == [i == row or int(partner[i]) == row for i in range(5)]


def test_a_sequence_applies_its_steps_in_order():
    first, second = Shift(std=1.0), Rotate(std=30.0)
    view = Sequential(first, second)(IMAGES, LABELS)
    after = first(IMAGES, replay={"shift": view.gamma["shift.shift"]})
    assert torch.equal(second(after.x, replay={"angle": view.gamma["rotate.angle"]}).x, view.x)


# ---- tokens ----------------------------------------------------------------------------------------------------


def test_special_and_padding_tokens_are_never_dropped():
    tokens = torch.tensor([[101, 7, 8, 102, 0, 0], [101, 9, 102, 0, 0, 0]])
    view = TokenDropout(1.0, mask_id=103, special_ids=[0, 101, 102])(tokens, samples=50)
    assert view.x.tolist() == [[101, 103, 103, 102, 0, 0], [101, 103, 102, 0, 0, 0]] * 50


def test_tokens_are_dropped_at_the_rate_and_independently():
    tokens = torch.full((20_000, 4), 7)
    dropped = (TokenDropout(0.3, mask_id=1)(tokens).x == 1).double()
    assert_unbiased(dropped, 0.3, detect=0.09)
    off_diagonal = torch.corrcoef(dropped.T) - torch.eye(4, dtype=torch.float64)
    assert float(off_diagonal.abs().max()) < 5 / math.sqrt(20_000)


def test_only_tokens_that_can_be_dropped_earn_credit():
    tokens = torch.tensor([[101, 7, 8, 102], [101, 102, 0, 0]])
    augment = TokenDropout(learn(0.3, scale=1e-6), mask_id=103, special_ids=[0, 101, 102])
    view = augment(tokens)
    dropped = view.gamma["dropped"][0, 1:3]
    exact = float((dropped * math.log(0.3) + (1 - dropped) * math.log(0.7)).sum())
    assert view.log_prob is not None
    assert view.log_prob.tolist() == pytest.approx([exact, 0.0], rel=1e-4)


# ---- copies ----------------------------------------------------------------------------------------------------


@each_family
def test_frozen_is_fixed_at_the_posterior_mean(name: str):
    family = FAMILIES[name]
    augment = family.build()
    frozen = augment.frozen()
    assert type(frozen) is type(augment)
    assert not list(frozen.parameters())
    assert not frozen.learns()
    assert augment.learns()
    assert float(frozen.kl()) == 0.0
    for (_, phi), (_, fixed) in zip(augment.named_phi(), frozen.named_phi(), strict=True):
        assert isinstance(fixed, FixedPhi)
        assert torch.equal(fixed.value, phi.summary().mean)
    view = frozen(family.x, LABELS, samples=2)
    assert not view.x.requires_grad
    assert view.log_prob is None
    for key, value in view.phi.items():
        phi = dict(augment.named_phi())[key]
        assert torch.equal(value, phi.summary().mean.expand_as(value))


@each_family
def test_prior_is_drawn_from_the_prior(name: str):
    family = FAMILIES[name]
    augment = family.build()
    prior = augment.prior()
    assert not list(prior.parameters())
    assert not prior.learns()
    assert float(prior.kl()) == 0.0
    kinds = [PriorPhi if isinstance(phi, LearnedPhi) else FixedPhi for _, phi in augment.named_phi()]
    assert [type(phi) for _, phi in prior.named_phi()] == kinds
    view = prior(family.x, LABELS, samples=2)
    assert view.x.shape == (10, *family.x.shape[1:])
    assert augment.learns()


def test_prior_draws_have_the_priors_distribution():
    augment = Shift(std=1.0, mean=learn(0.0, prior=Normal(2.0, 3.0)))
    mean = augment.prior()(torch.zeros(100_000, 1)).phi["mean"]
    assert_unbiased(mean.double(), 2.0, detect=0.05)
    assert_unbiased((mean.double() - 2).square(), 9.0, detect=0.05)


def test_a_copy_learns_apart():
    augment = Rotate(std=learn(10.0))
    twin = augment.frozen()
    with torch.no_grad():
        learned(augment)[0].loc.add_(1.0)
    assert float(dict(twin.named_phi())["std"].summary().mean) == pytest.approx(10.05, rel=1e-3)


# ---- KL --------------------------------------------------------------------------------------------------------


def test_kl_of_a_policy_is_the_sum_of_its_parts():
    augment = Sequential(Rotate(std=learn(10.0)), Sequential(Shift(std=learn(1.0), mean=learn(0.2))))
    parts = [phi.kl() for _, phi in augment.named_phi()]
    torch.testing.assert_close(augment.kl(), torch.stack(parts).sum())
    assert float(Sequential(Rotate(std=1.0)).kl()) == 0.0


def normal_kl(mean: float, std: float, prior_std: float) -> float:
    return 0.5 * ((std / prior_std) ** 2 + (mean / prior_std) ** 2 - 1) - math.log(std / prior_std)


@pytest.mark.parametrize("prior", [Normal(0.0, 0.2), {"angle": Normal(0.0, 0.2)}], ids=["one", "named"])
def test_a_prior_on_gamma_is_over_gammas_own_unit_and_counts_once(prior: Any):
    augment = Rotate(std=learn(10.0, posterior="point"), mean=5.0, prior_gamma=prior)
    degree = math.pi / 180
    exact = normal_kl(5 * degree, 10 * degree, 0.2)
    assert float(augment.kl().detach()) == pytest.approx(exact, rel=1e-5)
    assert float(Sequential(augment).kl().detach()) == pytest.approx(exact, rel=1e-5)


def test_a_prior_on_gamma_is_summed_over_components():
    augment = Translate(std=learn([0.1, 0.3], posterior="point"), prior_gamma=Normal(0.0, 0.2))
    exact = normal_kl(0.0, 0.1, 0.2) + normal_kl(0.0, 0.3, 0.2)
    assert float(augment.kl().detach()) == pytest.approx(exact, rel=1e-5)


def test_a_prior_on_gamma_is_averaged_over_phi():
    augment = Shift(std=learn(0.5, prior=LogNormal(0.0, 1.0), scale=0.4), prior_gamma=Normal(0.0, 1.0))
    own = float(learned(augment)[0].kl().detach())
    exact = integrate.quad(lambda u: stats.norm.pdf(u, math.log(0.5), 0.4) * normal_kl(0.0, math.exp(u), 1.0), -5, 3)[0]
    with torch.no_grad():
        kls = torch.stack([augment.kl() for _ in range(2000)]).double()
    assert_unbiased(kls - own, exact, detect=0.05)


def logit_normal_prior() -> Distribution:
    return TransformedDistribution(Normal(0.0, 1.0), [SigmoidTransform()])


@pytest.mark.parametrize(
    ("alpha", "prior", "log_p"),
    [
        (2.0, Kumaraswamy(2.0, 1.5), lambda a, b: math.log(3.0) + a + 0.5 * (b + math.log1p(math.exp(a)))),
        (0.2, logit_normal_prior(), lambda a, b: stats.norm.logpdf(a - b) - a - b),
    ],
    ids=["Kumaraswamy", "logit-normal, γ at the edges"],
)
def test_a_prior_on_gamma_without_a_closed_form_is_estimated(alpha: float, prior: Distribution, log_p: Any):
    augment = Mixup(alpha=learn(alpha, posterior="point"), prior_gamma={"lam": prior})

    def integrand(logit: float) -> float:
        # over the logit of λ, since at a small α most of λ's mass is closer to 0 and 1 than float64 can say
        log_lam, log_rest = -math.log1p(math.exp(-logit)), -math.log1p(math.exp(logit))
        log_q = (alpha - 1) * (log_lam + log_rest) - special.betaln(alpha, alpha)
        return math.exp(log_q + log_lam + log_rest) * (log_q - log_p(log_lam, log_rest))

    exact = integrate.quad(integrand, -200, 200, limit=1000, points=[-30, -5, 0, 5, 30])[0]
    with torch.no_grad():
        kls = torch.stack([augment.kl() for _ in range(4000)]).double()
    assert_unbiased(kls, exact, detect=0.2)


def test_the_estimate_and_its_gradient_are_finite_where_gamma_sits_at_the_ends():
    augment = Mixup(alpha=learn(0.2, posterior="point"), prior_gamma={"lam": Kumaraswamy(2.0, 1.5)})
    for _ in range(50):
        augment.zero_grad()
        kl = augment.kl()
        kl.backward()
        assert bool(kl.isfinite())
        assert all(bool(phi.loc.grad is not None and phi.loc.grad.isfinite().all()) for phi in learned(augment))


# ---- what the record hears -------------------------------------------------------------------------------------


def test_the_record_hears_the_data_and_never_the_kl():
    augment = Rotate(std=learn(10.0, prior=torch.distributions.Gamma(2.0, 0.2)), prior_gamma=Uniform(-4.0, 4.0))
    record = learned(augment)[0].record
    augment.kl().backward()
    assert int(record.steps) == 0
    view = augment(IMAGES)
    augment.draw_inputs(IMAGES)
    augment.summary()
    assert int(record.steps) == 0
    view.x.sum().backward()
    assert int(record.steps) == 1


def test_the_record_adds_up_the_examples():
    # x' = φ: every example's gradient along the real-line φ is its row's coefficient
    augment = Shift(std=1e-6, mean=learn(0.0))
    coefficient = torch.tensor([1.0, -3.0, 4.0, 0.5, 2.0])
    (augment(torch.zeros(5, 1)).x[:, 0] * coefficient).sum().backward()
    record = dict(augment.named_phi())["mean"].record  # pyright: ignore
    assert float(record.sums[0, 0]) == pytest.approx(4.5, rel=1e-5)  # pyright: ignore


# ---- a family of one's own -------------------------------------------------------------------------------------


class Gain(Augmentation):
    """The family of the documentation: x' = exp(γ) x."""

    def __init__(self, std: Any, **options: Any):
        super().__init__(**options)
        self.add_phi("std", std, support=constraints.positive, off=0.0)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"log_gain": Normal(0.0, phi["std"])}

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        return x * gamma["log_gain"].exp().view(-1, 1)


class OneOfTwo(Augmentation):
    """One of two gains, chosen by a discrete γ: a class number, or a soft or hard one-hot row."""

    def __init__(self, p: Any, **options: Any):
        super().__init__(**options)
        self.add_phi("p", p, support=constraints.unit_interval)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"which": Categorical(torch.stack([phi["p"], 1 - phi["p"]], -1), validate_args=False)}

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        which = gamma["which"]
        share = functional.one_hot(which, 2).to(x.dtype) if which.ndim == 1 else which
        return x * (share[:, :1] + 3 * share[:, 1:])


@pytest.mark.parametrize("estimator", ["score_function", "relaxed", "straight_through"])
@pytest.mark.parametrize("samples", [1, 3])
def test_a_discrete_gamma_is_replayed_however_it_was_drawn(estimator: str, samples: int):
    augment = OneOfTwo(learn(0.3), estimator=estimator)
    view = augment(SIGNALS, LABELS, samples=samples)
    assert torch.equal(augment(SIGNALS, LABELS, samples=samples, replay=view.gamma).x, view.x)


@pytest.mark.parametrize("estimator", ["pathwise", "score_function"])
def test_a_family_of_ten_lines_does_everything(estimator: str):
    augment = Sequential(Gain(learn(0.5), estimator=estimator), Shift(std=0.1))
    view = augment(SIGNALS, LABELS, samples=3)
    assert torch.equal(augment(SIGNALS, LABELS, samples=3, replay=view.gamma).x, view.x)
    assert (view.log_prob is None) == (estimator == "pathwise")
    assert float(augment.frozen()(SIGNALS).phi["gain.std"][0]) == pytest.approx(0.5, abs=0.01)
    assert augment.summary().rows[0].name == "gain.std"
    with pytest.raises(TypeError, match="Gain has no argument strength; it takes std, estimator"):
        Gain(0.5, strength=1)
