"""`OneOf` and `Maybe`: who gets what, with which label, and what they refuse."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.distributions import Bernoulli, Dirichlet, Normal

import optima
from optima import ELBO, CutMix, Flip, GaussianNoise, Maybe, Mixup, OneOf, Rotate, Scale, Sequential, Shift, learn
from optima.augment import MixedTarget
from optima.posterior import FixedPhi, LearnedPhi

X = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.arange(6)


def shifts(*amounts: float) -> list[Shift]:
    return [Shift(std=0.0, mean=amount) for amount in amounts]


@pytest.mark.parametrize("samples", [1, 4])
def test_every_row_gets_what_it_chose(samples: int):
    view = OneOf(*shifts(1.0, 2.0, 3.0))(X, Y, samples=samples)
    chosen = view.gamma["choice.branch"]
    torch.testing.assert_close(view.x, X.repeat(samples, 1, 1, 1) + (1.0 + chosen).view(-1, 1, 1, 1))
    assert torch.equal(view.target, Y.repeat(samples))  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_branches_are_met_as_often_as_they_should_be():
    view = OneOf(*shifts(1.0, 2.0, 3.0), probs=[0.2, 0.5, 0.3])(torch.zeros(20_000, 1))
    shares = torch.bincount(view.gamma["choice.branch"], minlength=3) / 20_000
    error = 5 * math.sqrt(0.25 / 20_000)
    assert shares.tolist() == pytest.approx([0.2, 0.5, 0.3], abs=error)
    on = Maybe(Shift(std=0.0, mean=1.0), 0.3)(torch.zeros(20_000, 1)).x.mean()
    assert float(on) == pytest.approx(0.3, abs=error)


def test_a_row_that_is_left_alone_is_bitwise_what_it_was():
    view = Maybe(Rotate(std=30.0), 0.5)(X, samples=5)
    off = view.gamma["choice.on"] == 0
    assert 0 < int(off.sum()) < len(off)
    assert torch.equal(view.x[off], X.repeat(5, 1, 1, 1)[off])
    changed = (view.x[~off] - X.repeat(5, 1, 1, 1)[~off]).abs().amax((1, 2, 3))
    assert float(changed.min()) > 0


def test_labels_follow_the_choice():
    augment = Sequential(OneOf(Mixup(1.0), CutMix(1.0), Rotate(std=5.0), Mixup(1.0)), Maybe(Mixup(1.0)))
    pictures = torch.eye(6)[:, :, None, None].expand(6, 6, 8, 8)
    view = augment(pictures, Y, samples=40, generator=torch.Generator().manual_seed(0))
    assert isinstance(view.target, MixedTarget)
    assert len(view.target.labels) == 4
    dense = torch.zeros(240, 6)
    for labels, weight in zip(view.target.labels, view.target.weights.unbind(1), strict=True):
        dense[torch.arange(240), labels] += weight
    assert dense.sum(1).tolist() == pytest.approx([1.0] * 240, abs=1e-5)
    unturned = view.gamma["oneof.choice.branch"] != 2
    reached = unturned & unturned.view(40, 6).all(1).repeat_interleave(6)
    torch.testing.assert_close(view.x.mean((2, 3))[reached], dense[reached], rtol=0.0, atol=1e-5)
    assert set(view.gamma["oneof.choice.branch"].tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("build", [lambda: OneOf(Flip(0.5), Rotate(std=10.0)), lambda: Maybe(Rotate(std=10.0), 0.5)])
def test_masks_and_boxes_follow_the_choice(build):
    pictures = (torch.rand(8, 1, 9, 9) > 0.5).float()
    boxes = torch.tensor([[[2.0, 2.0, 5.0, 5.0]]]).expand(8, 1, 4)
    augment = build()
    view = augment(pictures, mask=pictures[:, 0].long(), boxes=boxes)
    assert view.mask is not None
    assert view.boxes is not None
    for row in range(8):
        alone = augment(pictures, replay=view.gamma, mask=pictures[:, 0].long(), boxes=boxes)
        assert torch.equal(alone.mask[row], view.mask[row])
    sure = (view.x[:, 0] - 0.5).abs() > 0.4999
    assert torch.equal(view.x[:, 0][sure] > 0.5, view.mask[sure] > 0)


def test_a_relaxed_choice_is_a_blend():
    augment = OneOf(*shifts(1.0, 2.0), probs=learn([0.5, 0.5]), estimator="relaxed")
    view = augment(X)
    weights = view.gamma["choice.branch"]
    assert weights.shape == (6, 2)
    torch.testing.assert_close(view.x, X + (weights @ torch.tensor([1.0, 2.0])).view(-1, 1, 1, 1))
    straight = OneOf(*shifts(1.0, 2.0), probs=learn([0.5, 0.5]), estimator="straight_through")(X)
    assert set(((straight.x - X).mean((1, 2, 3)) * 1000).round().tolist()) <= {1000.0, 2000.0}
    straight.x.sum().backward()
    soft = Maybe(Shift(std=0.0, mean=1.0), learn(0.5), estimator="relaxed")(X)
    torch.testing.assert_close(soft.x, X + soft.gamma["choice.on"].view(-1, 1, 1, 1))


def test_a_branch_that_no_row_chose_is_not_taken_for_lost():
    augment = OneOf(Rotate(std=learn(5.0)), GaussianNoise(std=learn(0.1)), probs=[0.999, 0.001])
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 6))
    objective = ELBO(num_data=6)
    view = augment(X, Y, generator=torch.Generator().manual_seed(0))
    assert view.idle == ("gaussiannoise.",)
    objective(model(view.x), view, augment=augment).backward()
    with pytest.raises(ValueError, match=r"the data cannot move rotate\.std"):
        objective(model(view.x.detach()), view, augment=augment)


def test_a_policy_is_one_expression_and_learns_every_part_of_it():
    policy = Sequential(
        OneOf(
            Rotate(std=learn(10.0)),
            Sequential(Flip(learn(0.5)), Shift(std=learn(0.1))),
            Maybe(GaussianNoise(std=learn(0.1)), learn(0.5)),
            probs=learn([0.3, 0.3, 0.4], prior=Dirichlet(torch.ones(3))),
        ),
        Maybe(OneOf(Mixup(learn(0.4)), CutMix(learn(1.0))), learn(0.7)),
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 6))
    view = policy(X, Y, samples=8)
    ELBO(num_data=6)(model(view.x), view, augment=policy).backward()
    for name, phi in policy.named_phi():
        if isinstance(phi, LearnedPhi):
            assert phi.loc.grad is not None, name
            assert bool(phi.loc.grad.isfinite().all())
            assert bool((phi.loc.grad != 0).any()), name
    assert all(isinstance(phi, FixedPhi) for _, phi in policy.frozen().named_phi())
    assert torch.equal(policy(X, Y, samples=8, replay=view.gamma).x, view.x)
    assert policy.prior()(X, Y).x.shape == X.shape
    names = [row.name for row in policy.summary().rows]
    assert "oneof.maybe.choice.p" in names
    assert "maybe.oneof.cutmix.alpha" in names


def test_predictions_leave_mixing_branches_out():
    augment = OneOf(Mixup(1.0), Shift(std=0.0, mean=1.0), probs=[0.5, 0.5])
    inputs = augment.draw_inputs(X, torch.Generator().manual_seed(0))
    change = (inputs - X).mean((1, 2, 3))
    assert set(change.round(decimals=4).tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("batch", [4, 16])
def test_idle_branches_inside_idle_branches_are_not_taken_for_lost(batch: int):
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(6))
    for seed in range(5):
        torch.manual_seed(seed)
        augment = optima.policies.auto()
        view = augment(torch.rand(batch, 3, 8, 8), torch.arange(batch) % 6)
        assert any(name.count("oneof.") for name in view.idle), "the case must have a branch that nobody chose"
        loss = ELBO(num_data=100)(model(view.x), view, augment=augment)
        loss.backward()
        assert bool(loss.value.isfinite())


def test_probabilities_may_be_a_tensor():
    augment = OneOf(*shifts(1.0, 2.0), probs=torch.tensor([0.25, 0.75]))
    assert augment.summary().rows[0].mean == [0.25, 0.75]


def test_the_prior_of_a_choice_has_a_kl():
    choice = Maybe(Shift(std=0.5), learn(0.5), prior_gamma=Bernoulli(torch.tensor(0.3)))
    assert float(choice.prior().kl().detach()) > 0
    assert float(Scale(std=learn(0.1), prior_gamma=Normal(0.0, 0.2)).prior().kl().detach()) > 0


def replayed(branches: list[int]) -> dict[str, torch.Tensor]:
    rows = torch.zeros(len(branches))
    return {"choice.branch": torch.tensor(branches), "shift.shift": rows, "shift_2.shift": rows}


def halves() -> dict[str, torch.Tensor]:
    return {"choice.on": torch.tensor([0.5, 1.0]), "shift.shift": torch.zeros(2)}


class Smoothed(Shift):
    """A shift that smooths labels."""

    def retarget(self, view, gamma):
        assert isinstance(view.target, torch.Tensor)
        return nn.functional.one_hot(view.target, 6) * 0.9 + 0.1 / 6


WRONG = {
    "nothing": (lambda: OneOf(), "OneOf needs at least one augmentation"),
    "too few probabilities": (lambda: OneOf(*shifts(1.0, 2.0), probs=[1.0]), "2 augmentations and 1 probabilities"),
    "no probabilities": (lambda: OneOf(*shifts(1.0, 2.0), probs=[0.7, 0.7]), r"OneOf\(probs=…\) must lie in"),
    "one object twice": (lambda: OneOf(*[Shift(std=1.0)] * 2), "the same augmentation object appears twice"),
    "relaxed labels": (lambda: OneOf(Mixup(1.0), Shift(std=1.0), estimator="relaxed"), "the labels of Mixup"),
    "relaxed masks": (
        lambda: Maybe(Flip(0.5), estimator="relaxed")(X, mask=torch.zeros(6, 8, 8, dtype=torch.int64)),
        "moves no mask and no box",
    ),
    "p above 1": (lambda: Maybe(Shift(std=1.0), 1.5), r"Maybe\(p=…\) must lie in"),
    "one number": (lambda: OneOf(*shifts(1.0, 2.0), probs=0.5), r"OneOf\(probs=…\) takes a list"),
    "a branch there is not": (
        lambda: OneOf(*shifts(1.0, 2.0))(X[:2], replay=replayed([0, 2])),
        r"branch must hold whole numbers from 0 to 1, got \[0, 2\]",
    ),
    "half a choice": (
        lambda: Maybe(Shift(std=0.0))(X[:2], replay=halves()),
        "on must hold whole numbers from 0 to 1",
    ),
    "relaxed labels of its own": (
        lambda: Maybe(Smoothed(std=0.0), estimator="relaxed")(X, Y),
        "cannot blend the targets that its branches change",
    ),
    "pathwise": (lambda: Maybe(Shift(std=1.0), 0.5, estimator="pathwise"), "Pathwise does not fit"),
    "one picture to mix": (lambda: Maybe(Mixup(1.0))(X[:1], Y[:1]), "at least two examples"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_refused(name: str):
    call, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_only_augmentations_can_be_chosen():
    with pytest.raises(TypeError, match="OneOf takes augmentations, got Linear"):
        OneOf(nn.Linear(1, 1))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="Maybe takes augmentations, got float"):
        Maybe(0.5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="a relaxed choice blends its inputs"):
        Maybe(optima.TokenDropout(0.5, mask_id=1), estimator="relaxed")(torch.ones(2, 3, dtype=torch.int64))
