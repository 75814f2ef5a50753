"""Learning from a share of the examples: the same pictures, the same expected gradient, less to go back through."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import optima
from optima import CropResize, GaussianNoise, Maybe, Mixup, Rotate, Sequential, Shift, Translate, View, learn
from optima.augment import Augmenter
from optima.augment import view as view_module
from optima.augment.augmenter import _learners
from optima.augment.view import Learners
from tests.reference import GivenNoise

DOUBLE = torch.float64
X = torch.rand(4, 2, 6, 7, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
Y = torch.arange(4)
WEIGHTS = torch.rand(4, 2, 6, 7, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))

POLICIES: dict[str, Callable[[], Augmenter]] = {
    "one": lambda: Rotate(std=learn(20.0), mean=learn(3.0)),
    "joined": lambda: Sequential(Rotate(std=learn(20.0)), Translate(std=learn(0.1)), CropResize(range=learn(0.2))),
    "apart": lambda: Sequential(Rotate(std=learn(20.0)), Shift(std=learn(0.3)), GaussianNoise(std=learn(0.1))),
    "before mixing": lambda: Sequential(Rotate(std=learn(20.0)), Mixup(learn(0.5)), Shift(std=learn(0.3))),
    "before a choice": lambda: Sequential(
        Rotate(std=learn(20.0)), Maybe(Shift(std=learn(0.3)), 0.5), Shift(std=learn(0.1))
    ),
}
each = pytest.mark.parametrize("name", POLICIES)


def gradients(augment: Augmenter, learners: Learners | None) -> tuple[Tensor, dict[str, Tensor]]:
    """The pictures, and the gradient of a smooth function of them that no row enters alone."""
    start = View(X, Y, learners=learners)
    noise = optima.sampling.as_noise(torch.Generator().manual_seed(5))
    view = augment.extend(start, noise, None, "").settled()
    value = torch.sin((view.x * WEIGHTS).sum((1, 2, 3))).sum()
    parameters = dict(augment.named_parameters())
    found = torch.autograd.grad(value, list(parameters.values()), allow_unused=True)
    return view.x, {n: torch.zeros(()) if g is None else g for n, g in zip(parameters, found, strict=True)}


def subset(chosen: tuple[int, ...]) -> Learners:
    others = [row for row in range(4) if row not in chosen]
    return Learners(torch.tensor(chosen), torch.tensor(others), 4 / len(chosen))


def check(name: str, count: int) -> None:
    """The mean over all subsets of that size is the gradient from everybody, exactly."""
    augment = POLICIES[name]().double()
    pictures, full = gradients(augment, None)
    subsets = list(itertools.combinations(range(4), count))
    total = dict.fromkeys(full, torch.zeros(()))
    differs = False
    for chosen in subsets:
        x, part = gradients(augment, subset(chosen))
        torch.testing.assert_close(x, pictures, rtol=0.0, atol=0.0)
        total = {key: total[key] + part[key] / len(subsets) for key in full}
        differs |= any(not torch.allclose(part[key], full[key]) for key in full)
    assert differs, "the case must see which rows were chosen"
    for key, exact in full.items():
        torch.testing.assert_close(total[key], exact, rtol=1e-9, atol=1e-12, msg=lambda m, k=key: f"{k}: {m}")


@each
@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_mean_over_all_choices_is_the_gradient_from_everybody(name: str, count: int):
    check(name, count)


def test_a_share_that_does_not_count_the_more_is_caught(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Learners, "louder", lambda self, gamma: gamma)
    with pytest.raises(AssertionError):
        check("one", 2)


def test_a_cut_behind_a_mixture_is_caught(monkeypatch: pytest.MonkeyPatch):
    plain = view_module.replace
    monkeypatch.setattr(
        "optima.augment.base.replace",
        lambda view, **changes: plain(view, **{k: v for k, v in changes.items() if k != "learners"}),
    )
    with pytest.raises((AssertionError, IndexError)):
        check("before mixing", 2)


@pytest.mark.parametrize("samples", [1, 3])
def test_all_draws_of_the_chosen_examples_teach(samples: int):
    noise = GivenNoise({"share": torch.tensor([0.9, 0.1, 0.5, 0.2], dtype=DOUBLE)})
    learners = _learners(View(X.repeat(samples, 1, 1, 1), samples=samples), 0.5, noise)
    assert learners is not None
    assert sorted(row % 4 for row in learners.rows.tolist()) == sorted([1, 3] * samples)
    assert sorted([*learners.rows.tolist(), *learners.others.tolist()]) == list(range(4 * samples))
    assert learners.loudness == 2.0


@each
def test_the_public_call(name: str):
    augment = POLICIES[name]()
    view = augment(X.float(), Y, samples=2, share=0.25)
    assert view.learners is None
    assert torch.equal(augment(X.float(), Y, samples=2, replay=view.gamma).x, view.x)
    view.x.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in augment.parameters())
    layout = augment(X.float().contiguous(memory_format=torch.channels_last), Y, share=0.5).x
    assert layout.is_contiguous(memory_format=torch.channels_last)


def test_masks_and_boxes_go_along():
    pictures = (X > 0.5).double()
    augment = Sequential(Rotate(std=learn(20.0)), Translate(std=learn(0.1)))
    boxes = torch.tensor([[[1.0, 1.0, 4.0, 4.0]]]).expand(4, 1, 4)
    view = augment(pictures, mask=pictures[:, 0].long(), boxes=boxes, share=0.5)
    again = augment(pictures, mask=pictures[:, 0].long(), boxes=boxes, replay=view.gamma)
    assert torch.equal(view.mask, again.mask)  # pyright: ignore[reportArgumentType]
    assert torch.equal(view.boxes, again.boxes)  # pyright: ignore[reportArgumentType]


def test_an_input_that_wants_a_gradient_is_not_cut():
    with pytest.raises(ValueError, match="share would cut the gradient that x itself wants"):
        Rotate(std=1.0)(X.clone().requires_grad_(), share=0.5)


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, True, "half", float("nan")])
def test_a_share_is_a_share(share):
    with pytest.raises(ValueError, match="share must be a share of the examples"):
        Rotate(std=1.0)(X, share=share)
