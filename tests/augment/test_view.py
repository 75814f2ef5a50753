"""What a view holds: K draws of B examples, their targets, and targets of targets when examples are mixed."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from optima import CutMix, GaussianNoise, Mixup, Rotate, Sequential, Shift, View
from optima.augment.view import MixedTarget, mix_targets

LABELS = torch.tensor([0, 2, 1, 1])
ONE_HOT = torch.eye(3, dtype=torch.float64)[LABELS]


def softened(target: Any, classes: int = 3) -> Tensor:
    """Any target as probabilities, by a loop."""
    if not isinstance(target, MixedTarget):
        return target
    soft = torch.zeros(len(target.weights), classes, dtype=target.weights.dtype)
    for row in range(len(soft)):
        for labels, weight in zip(target.labels, target.weights[row], strict=True):
            soft[row, int(labels[row])] += weight
    return soft


def test_a_view_is_a_value():
    view = View(torch.zeros(6, 2), samples=3)
    assert view.examples == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        view.samples = 2  # pyright: ignore


@pytest.mark.parametrize("samples", [1, 3])
def test_draws_are_outermost(samples: int):
    x, y = torch.arange(8.0).reshape(4, 2), torch.arange(4)
    view = Shift(std=1.0)(x, y, samples=samples)
    assert view.x.shape == (4 * samples, 2)
    assert view.samples == samples
    assert view.examples == 4
    assert isinstance(view.target, Tensor)
    assert view.target.tolist() == [0, 1, 2, 3] * samples
    for row in range(4 * samples):
        assert torch.equal(view.x[row], x[row % 4] + view.gamma["shift"][row])


@pytest.mark.parametrize(
    "y",
    [LABELS, ONE_HOT, torch.randn(4, 2, 2), MixedTarget((LABELS, LABELS.flip(0)), torch.full((4, 2), 0.5)), None],
    ids=["hard", "soft", "values", "mixed", "none"],
)
def test_targets_are_repeated_with_their_rows(y: Any):
    target = Shift(std=1.0)(torch.zeros(4, 2), y, samples=2).target
    if y is None:
        assert target is None
    elif isinstance(y, MixedTarget):
        assert isinstance(target, MixedTarget)
        assert torch.equal(target.weights, torch.cat([y.weights, y.weights]))
        for one, two in zip(target.labels, y.labels, strict=True):
            assert torch.equal(one, torch.cat([two, two]))
    else:
        assert isinstance(target, Tensor)
        assert torch.equal(target, torch.cat([y, y]))


def test_hard_labels_are_kept_apart():
    partner, weight = torch.tensor([1, 0, 3, 2]), torch.tensor([0.2, 1.0, 0.0, 0.6])
    target = mix_targets(LABELS, partner, weight)
    assert isinstance(target, MixedTarget)
    assert [labels.tolist() for labels in target.labels] == [[0, 2, 1, 1], [2, 0, 1, 1]]
    torch.testing.assert_close(target.weights, torch.stack([weight, 1 - weight], 1))
    assert all(labels.dtype == torch.int64 for labels in target.labels)


def test_soft_labels_and_values_are_interpolated():
    partner, weight = torch.tensor([1, 0, 3, 2]), torch.tensor([0.2, 1.0, 0.0, 0.6], dtype=torch.float64)
    for y in (ONE_HOT, torch.randn(4, dtype=torch.float64), torch.randn(4, 2, 3, dtype=torch.float64)):
        target = mix_targets(y, partner, weight)
        assert isinstance(target, Tensor)
        for row in range(4):
            torch.testing.assert_close(target[row], weight[row] * y[row] + (1 - weight[row]) * y[partner[row]])


@pytest.mark.parametrize("y", [LABELS, ONE_HOT], ids=["hard", "soft"])
@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_inputs_and_targets_are_mixed_alike(y: Tensor, samples: int, times: int):
    # the input is its own label, so that whatever Mixup does to one it must do to the other
    augment = Sequential(*(Mixup(alpha=1.0) for _ in range(times)))
    view = augment(ONE_HOT, y, samples=samples)
    torch.testing.assert_close(softened(view.target), view.x)
    if isinstance(view.target, MixedTarget):
        assert len(view.target.labels) == 2**times
        torch.testing.assert_close(view.target.weights.sum(1), torch.ones(4 * samples, dtype=torch.float64))


@pytest.mark.parametrize("samples", [1, 3])
def test_partners_are_a_permutation_within_each_draw(samples: int):
    partner = Mixup(alpha=1.0)(torch.zeros(5, 2), torch.zeros(5), samples=samples).gamma["partner"].reshape(samples, 5)
    for draw, row in enumerate(partner.tolist()):
        assert sorted(row) == [5 * draw + i for i in range(5)]


@pytest.mark.parametrize("mode", ["elem", "pair", "batch"])
@pytest.mark.parametrize("rows", [2, 3, 4, 5])
def test_partners_are_uniform_among_the_others(mode: Literal["elem", "pair", "batch"], rows: int):
    partner = Mixup(alpha=1.0, mode=mode)(torch.zeros(rows, 1), torch.zeros(rows), samples=2000).gamma["partner"]
    partner = partner.reshape(2000, rows) % rows
    counts = torch.stack([torch.bincount(column, minlength=rows) for column in partner.T]).double()
    assert float(counts.diagonal().abs().max()) == 0.0
    share = 1 / (rows - 1)
    # 2,000 draws: 5 standard errors
    others = counts[~torch.eye(rows, dtype=torch.bool)]
    assert float((others - 2000 * share).abs().max()) <= 5 * math.sqrt(2000 * share * (1 - share)) + 1e-9


@pytest.mark.parametrize("rows", [2, 3, 4, 5, 8, 9])
def test_pairs_are_mixed_with_each_other_at_one_share(rows: int):
    gamma = Mixup(alpha=1.0, mode="pair")(torch.zeros(rows, 1), torch.zeros(rows), samples=7).gamma
    partner, lam = gamma["partner"], gamma["lam"]
    assert sorted(partner.tolist()) == list(range(7 * rows))
    assert torch.equal(partner // rows, torch.arange(7 * rows) // rows)
    assert torch.equal(lam[partner], lam)
    ring = partner[partner] != torch.arange(7 * rows)
    # an odd batch has one ring of three in each draw
    assert ring.view(7, rows).sum(1).tolist() == [3 * (rows % 2)] * 7
    assert all(len(set(row)) == max(rows // 2, 1) for row in lam.view(7, rows).tolist())


def test_a_batch_may_share_one_box():
    x = torch.rand(5, 1, 8, 8)
    gamma = CutMix(alpha=1.0, mode="batch")(x, torch.arange(5), samples=2).gamma
    for name in ("lam", "centre"):
        draws = gamma[name].view(2, 5, -1)
        assert torch.equal(draws, draws[:, :1].expand_as(draws))
        assert not torch.equal(draws[0], draws[1])


def test_gamma_is_named_by_where_it_was_drawn():
    augment = Sequential(Rotate(std=1.0), Sequential(Rotate(std=1.0), Mixup(alpha=1.0)), Rotate(std=2.0))
    view = augment(torch.zeros(2, 1, 4, 4), torch.zeros(2))
    assert list(view.gamma) == [
        "rotate.angle",
        "sequential.rotate.angle",
        "sequential.mixup.lam",
        "sequential.mixup.partner",
        "rotate_2.angle",
    ]
    assert [name for name, _ in augment.named_phi()] == [
        "rotate.std",
        "rotate.mean",
        "sequential.rotate.std",
        "sequential.rotate.mean",
        "sequential.mixup.alpha",
        "rotate_2.std",
        "rotate_2.mean",
    ]


def test_mixed_targets_pass_through_augmentations_that_do_not_mix():
    y = MixedTarget((LABELS, LABELS.flip(0)), torch.full((4, 2), 0.5))
    assert GaussianNoise(std=1.0)(ONE_HOT, y).target is y
