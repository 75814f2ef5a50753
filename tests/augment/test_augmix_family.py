"""AugMix as an augmentation: its laws, replay, types, layouts, copies, files, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import LogNormal

import optima
from optima import Rotate, Sequential, Shift, learn
from optima.augment import Augmenter
from optima.augment.augmix import AugMix
from optima.posterior import LearnedPhi
from optima.transforms.augmix import DISCONTINUOUS, GEOMETRIC, OPERATIONS

IMAGES = torch.rand(5, 3, 8, 10, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 1, 0])


def everything_learned(**options: Any) -> AugMix:
    return AugMix(
        severity=learn(3.0), dirichlet=learn(1.0), beta=learn(1.0), depth_probs=learn([0.3, 0.3, 0.4]), **options
    )


def gradients(augment: Augmenter) -> dict[str, Tensor | None]:
    return {name: phi.loc.grad for name, phi in augment.named_phi() if isinstance(phi, LearnedPhi)}


# ---- draws -------------------------------------------------------------------------------------------------------


def test_gamma_has_a_row_per_row_and_says_everything():
    view = everything_learned(width=2)(IMAGES, LABELS, samples=3)
    shapes = {name: tuple(value.shape) for name, value in view.gamma.items()}
    assert shapes == {
        "weights": (15, 2),
        "blend": (15,),
        "operation": (15, 2, 3),
        "depth": (15, 2),
        "level": (15, 2, 3),
    }
    torch.testing.assert_close(view.gamma["weights"].sum(1), torch.ones(15))
    assert view.log_prob is not None
    assert view.log_prob.shape == (15,)


def test_depth_operations_and_signs_have_their_laws():
    names = ("rotate", "contrast", "solarize", "translate_y")
    augment = AugMix(severity=4.0, depth_probs=[0.2, 0.3, 0.5], operations=names)
    gamma = augment(torch.zeros(4000, 1, 2, 2)).gamma
    share = torch.stack([(gamma["depth"] == depth).double().mean() for depth in (1, 2, 3)])
    torch.testing.assert_close(share, torch.tensor([0.2, 0.3, 0.5]).double(), rtol=0.0, atol=0.02)
    drawn = torch.stack([(gamma["operation"] == OPERATIONS.index(name)).double().mean() for name in names])
    torch.testing.assert_close(drawn, torch.full((4,), 0.25).double(), rtol=0.0, atol=0.01)
    moving = torch.isin(gamma["operation"], torch.tensor([OPERATIONS.index(name) for name in GEOMETRIC]))
    assert not bool((gamma["level"][~moving] < 0).any())
    assert float((gamma["level"][moving] < 0).double().mean()) == pytest.approx(0.5, abs=0.02)
    assert bool((gamma["level"].abs() <= 5.0).all())


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_depth_can_be_fixed(depth: int):
    augment = AugMix(severity=learn(3.0), depth=depth)
    assert [name for name, _ in augment.named_phi()] == ["severity", "dirichlet", "beta"]
    assert bool((augment(IMAGES).gamma["depth"] == depth).all())


def test_nothing_is_scored_where_every_operation_is_smooth():
    smooth = [name for name in GEOMETRIC if name != "rotate"]
    assert AugMix(severity=learn(3.0), operations=smooth)(IMAGES).log_prob is None
    assert AugMix(severity=3.0)(IMAGES).log_prob is None
    assert AugMix(severity=learn(3.0))(IMAGES).log_prob is not None


# ---- replay, types, layouts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [1, 3])
def test_replay_is_bitwise(samples: int):
    augment = everything_learned()
    view = augment(IMAGES, LABELS, samples=samples)
    again = augment(IMAGES, LABELS, samples=samples, replay=view.gamma)
    assert torch.equal(again.x, view.x)
    assert not torch.equal(augment(IMAGES, LABELS, samples=samples).x, view.x)


@pytest.mark.parametrize("samples", [1, 2])
def test_evaluation_is_the_identity(samples: int):
    view = everything_learned().eval()(IMAGES, LABELS, samples=samples)
    assert torch.equal(view.x, IMAGES.repeat(samples, 1, 1, 1))
    assert not view.gamma


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types_come_back_and_every_phi_gets_a_finite_gradient(dtype: torch.dtype):
    augment = everything_learned()
    view = augment(IMAGES.to(dtype), LABELS, samples=8)
    assert view.x.dtype == dtype
    assert view.log_prob is not None
    (view.x.double().square().mean() + view.log_prob.double().mean()).backward()
    for name, gradient in gradients(augment).items():
        assert gradient is not None, name
        assert bool(gradient.isfinite().all()), name
        assert bool((gradient != 0).all()), name


def test_autocast_does_not_reach_the_pixels():
    gamma = everything_learned()(IMAGES).gamma
    plain = everything_learned()(IMAGES, replay=gamma).x
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(everything_learned()(IMAGES, replay=gamma).x, plain)


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("samples", [1, 3])
def test_channels_last_survives(samples: int, learned: bool):
    augment = everything_learned() if learned else AugMix()
    last = IMAGES.contiguous(memory_format=torch.channels_last)
    view = augment(last, samples=samples, generator=torch.Generator().manual_seed(0))
    assert view.x.is_contiguous(memory_format=torch.channels_last)
    first = augment(IMAGES, samples=samples, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(view.x, first.x, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("channels", [1, 3])
def test_any_batch_and_either_number_of_channels(rows: int, channels: int):
    view = everything_learned()(IMAGES[:rows, :channels], LABELS[:rows], samples=2)
    assert view.x.shape == (2 * rows, channels, 8, 10)


# ---- examples and their neighbours -------------------------------------------------------------------------------


def test_an_example_never_sees_another():
    augment, other = everything_learned(), IMAGES.clone()
    other[2] = 1 - other[2].flip(-1)
    one, two = (augment(x, generator=torch.Generator().manual_seed(0)).x for x in (IMAGES, other))
    rest = torch.tensor([0, 1, 3, 4])
    assert torch.equal(one[rest], two[rest])
    assert not torch.equal(one[2], two[2])


def test_permuting_the_batch_permutes_the_output_and_the_rest_of_it_changes_nothing():
    augment, order = everything_learned(), torch.tensor([3, 0, 4, 2, 1])
    view = augment(IMAGES)
    gamma = {name: value.detach() for name, value in view.gamma.items()}
    permuted = augment(IMAGES[order], replay={name: value[order] for name, value in gamma.items()})
    assert torch.equal(permuted.x, view.x[order])
    alone = augment(IMAGES[1:2], replay={name: value[1:2] for name, value in gamma.items()})
    torch.testing.assert_close(alone.x, view.x[1:2].detach(), rtol=0.0, atol=1e-6)


# ---- learning ------------------------------------------------------------------------------------------------------


def test_a_training_step_moves_every_phi():
    augment = everything_learned()
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(240, 3))
    objective = optima.ELBO(num_data=100)
    view = augment(IMAGES, LABELS, samples=4)
    objective(model(view.x), view, model=model, augment=augment).backward()
    assert all(gradient is not None and bool(gradient.isfinite().all()) for gradient in gradients(augment).values())


@pytest.mark.parametrize("start", [1.0, 6.0])
def test_severity_moves_towards_the_one_that_made_the_data(start: float):
    # the log-likelihood is highest where the mean distance from the clean image is that of severity 3
    x = torch.linspace(0.2, 0.9, 6).expand(512, 3, 6, 6).contiguous()

    def distance(augment: AugMix) -> tuple[Tensor, Any]:
        view = augment(x, torch.zeros(512), generator=torch.Generator().manual_seed(1))
        return (view.x - x).square().mean((1, 2, 3)).sqrt(), view

    with torch.no_grad():
        wanted = distance(AugMix(severity=3.0))[0].mean()
    augment = AugMix(severity=learn(start, posterior="point"))
    optimizer = torch.optim.Adam(augment.parameters(), lr=0.2)
    for _ in range(30):
        found, view = distance(augment)
        gap = found.mean() - wanted
        surrogate = found + (found - found.mean()).detach() * view.log_prob
        optimizer.zero_grad()
        (2 * gap.detach() * surrogate.mean()).backward()
        optimizer.step()
    assert float(dict(augment.named_phi())["severity"].summary().mean) == pytest.approx(3.0, abs=0.4)


# ---- copies and files ----------------------------------------------------------------------------------------------


def test_frozen_and_prior():
    augment = everything_learned()
    frozen = augment.frozen()
    assert not list(frozen.parameters())
    view = frozen(IMAGES, LABELS, samples=2)
    assert not view.x.requires_grad
    assert view.log_prob is None
    assert augment.prior()(IMAGES).x.shape == IMAGES.shape
    assert {row.name for row in augment.summary().rows} == {"severity", "dirichlet", "beta", "depth_probs"}


@pytest.mark.parametrize(
    "augment",
    [
        everything_learned(operations=["rotate", "equalize"], padding="border"),
        AugMix(severity=learn(2.0, prior=LogNormal(0.5, 0.3)), depth=2, width=2, beta=0.5),
    ],
)
def test_saving_and_loading(augment: AugMix, tmp_path: Path):
    augment(IMAGES)
    optima.save(augment, tmp_path / "policy")
    loaded = optima.load(tmp_path / "policy", families=[AugMix])
    assert torch.equal(loaded(IMAGES).x, augment(IMAGES).x)


def test_a_prior_on_gamma_is_counted():
    augment = AugMix(beta=learn(2.0, posterior="point"), prior_gamma={"blend": torch.distributions.Beta(1.0, 1.0)})
    exact = torch.distributions.kl_divergence(torch.distributions.Beta(2.0, 2.0), torch.distributions.Beta(1.0, 1.0))
    torch.testing.assert_close(augment.kl().detach(), exact)


# ---- what it refuses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"severity": 0.05}, r"must lie in \(0.1, 10\)"),
        ({"severity": learn(11.0)}, r"must start inside \(0.1, 10\)"),
        ({"width": 0}, "width must be a whole number of at least 1, got 0"),
        ({"depth": 4}, "depth must be a whole number from 1 to 3, got 4"),
        ({"depth_probs": [0.5, 0.5]}, "takes"),
        ({"depth_probs": [0.5, 0.5, 0.5]}, "must lie in the simplex"),
        ({"operations": ["rotate", "blur"]}, r"no operation is called \['blur'\]"),
        ({"operations": "rotation"}, r"no operation is called \['rotation'\]"),
        ({"operations": []}, "at least one"),
        ({"operations": ["rotate", "rotate"]}, "at most once"),
        ({"severity": learn(3.0), "operations": ["equalize", "autocontrast"]}, "severity cannot be learned"),
        ({"dirichlet": learn(1.0), "width": 1}, "dirichlet cannot be learned"),
        ({"padding": "wrap"}, "padding must be one of"),
        ({"estimator": "score_function"}, "does not fit its γ"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        AugMix(**arguments)


def test_depth_and_its_probabilities_exclude_each_other():
    with pytest.raises(TypeError, match="depth or depth_probs, got both"):
        AugMix(depth=2, depth_probs=[0.2, 0.3, 0.5])


@pytest.mark.parametrize("x", [IMAGES * 2 - 1, IMAGES * 255, IMAGES * torch.nan])
def test_images_must_lie_between_zero_and_one(x: Tensor):
    with pytest.raises(ValueError, match=r"AugMix works on images in \[0, 1\]; normalise afterwards"):
        AugMix()(x)


@pytest.mark.parametrize("x", [torch.rand(2, 4, 5, 5), torch.rand(2, 3, 5)])
def test_only_images_of_one_or_three_channels(x: Tensor):
    with pytest.raises(ValueError, match="AugMix needs images of"):
        AugMix()(x)


def test_what_is_learned_before_a_jump_is_refused():
    before = Rotate(std=learn(10.0))
    with pytest.raises(ValueError, match="put AugMix first"):
        Sequential(before, AugMix())(IMAGES)
    smooth = [name for name in OPERATIONS if name not in DISCONTINUOUS]
    Sequential(Rotate(std=learn(10.0)), AugMix(operations=smooth))(IMAGES)
    Sequential(AugMix(severity=learn(3.0)), Rotate(std=learn(10.0)), Shift(std=learn(0.1)))(IMAGES)
    AugMix()(IMAGES.clone().requires_grad_())


def test_a_replay_of_the_wrong_shape():
    augment = AugMix()
    gamma = dict(augment(IMAGES).gamma)
    gamma["depth"] = gamma["depth"][:, :2]
    with pytest.raises(ValueError, match=r"replay: depth must have shape \(5, 3\), got \(5, 2\)"):
        augment(IMAGES, replay=gamma)


def test_masks_are_refused():
    with pytest.raises(ValueError, match="AugMix cannot keep"):
        AugMix()(IMAGES, mask=torch.zeros(5, 8, 10, dtype=torch.long))
