"""The policies to start from: every strength in them learns, and they are what they say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import optima
from optima import ELBO, policies
from optima.augment import Augmenter
from optima.posterior import FixedPhi, LearnedPhi

X = torch.rand(32, 3, 12, 12, generator=torch.Generator().manual_seed(0))
Y = torch.arange(32) % 4

POLICIES: dict[str, Callable[[], Augmenter]] = {
    "geometric": policies.geometric,
    "geometric, border": lambda: policies.geometric(padding="border"),
    "colour": policies.colour,
    "mix": policies.mix,
    "augmix": policies.augmix,
    "auto": lambda: policies.auto(steps=1),
    "auto, three": lambda: policies.auto(steps=3, padding="reflection"),
}


def model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(4))


@pytest.mark.parametrize("name", POLICIES)
def test_every_strength_hears_the_data(name: str):
    augment, network, objective = POLICIES[name](), model(), ELBO(num_data=32, beta_phi=0.0)
    for _ in range(4):  # a branch of few rows may miss a batch
        view = augment(X, Y, samples=4)
        objective(network(view.x), view, augment=augment).backward()
    for key, phi in augment.named_phi():
        if isinstance(phi, LearnedPhi):
            assert phi.loc.grad is not None, key
            assert bool((phi.loc.grad != 0).all()), key


@pytest.mark.parametrize("name", POLICIES)
def test_everything_but_centres_and_depths_is_learned(name: str):
    fixed = {key.rpartition(".")[2] for key, phi in POLICIES[name]().named_phi() if isinstance(phi, FixedPhi)}
    assert fixed <= {"mean", "depth_probs"}


@pytest.mark.parametrize("name", POLICIES)
def test_saving_and_loading_keeps_what_they_do(name: str, tmp_path: Path):
    augment = POLICIES[name]()
    view = augment(X, Y)
    optima.save(augment, tmp_path / "policy")
    assert torch.equal(optima.load(tmp_path / "policy")(X, Y, replay=view.gamma).x, view.x)


def test_grey_pictures_have_no_hue():
    grey = X[:, :1]
    for augment in (policies.colour(channels=1), policies.auto(channels=1), policies.geometric(), policies.augmix()):
        assert augment(grey, Y).x.shape == grey.shape
    with pytest.raises(ValueError, match="Saturation needs the channels red, green and blue, got 1"):
        policies.colour()(grey, Y)


def test_augmix_with_its_consistency_term():
    augment, network = policies.augmix(), model()
    view = augment(X, Y, samples=2, clean=True)
    loss = ELBO(num_data=32, jsd=12.0)(network(view.x), view, augment=augment)
    loss.backward()
    assert loss.jsd is not None
    assert float(loss.jsd) > 0
    for _, phi in augment.named_phi():
        assert not isinstance(phi, LearnedPhi) or phi.loc.grad is not None


@pytest.mark.parametrize("steps", [0, 1.5, True])
def test_a_policy_needs_a_step(steps):
    with pytest.raises(ValueError, match="steps must be a whole number"):
        policies.auto(steps=steps)
