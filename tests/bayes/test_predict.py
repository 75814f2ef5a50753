"""The predictive distribution: averages of probabilities, against quadrature and explicit weight draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from optima import (
    BayesianLinear,
    Gaussian,
    GaussianNoise,
    Mixup,
    Rotate,
    Sequential,
    Shift,
    TokenDropout,
    bayesian_last_layer,
    learn,
    predict,
)
from tests.reference import gauss_hermite

X = torch.tensor([[1.5], [-0.5], [3.0]], dtype=torch.float64)
NODES, WEIGHTS = (part.numpy() for part in gauss_hermite(80))


ROWS, SAMPLES = 20_000, 3  # every row is drawn on its own: 60,000 draws in three passes


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def one_weight() -> BayesianLinear:
    """p(class 1 | x, θ) = σ(w x) with w ~ N(1, 0.8²): class 0's logit is 0."""
    head = BayesianLinear(1, 2, bias=False).double()
    with torch.no_grad():
        head.weight_loc.copy_(torch.tensor([[0.0], [1.0]]))
        head.weight_log_scale.copy_(torch.tensor([[-400.0], [math.log(0.8)]]))
    return head


def plain() -> nn.Linear:
    """p(class 1 | x) = σ(2x)."""
    model = nn.Linear(1, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0], [2.0]]))
    return model


def assert_predicts(model: nn.Module, logit: Callable[[float, Any, Any], Any], augment: Any = None) -> None:
    """p(class 1 | x) is E σ(logit(x, w, g)) over two standard normals w and g, by quadrature.

    A mean over the rows may be 5 standard errors off; an error of 0.015 would be 8 of them.
    """
    w, g = np.meshgrid(NODES, NODES)
    weight = np.outer(WEIGHTS, WEIGHTS)
    for x in X.flatten().tolist():
        rows = torch.full((ROWS, 1), x, dtype=torch.float64)
        generator = torch.Generator().manual_seed(0)
        probs = predict(model, rows, samples=SAMPLES, augment=augment, generator=generator)
        assert probs.shape == (ROWS, 2)
        assert float((probs.sum(-1) - 1).abs().max()) < 1e-12
        values = sigmoid(logit(x, w, g))
        mean = float((weight * values).sum())
        stderr = math.sqrt(float((weight * (values - mean) ** 2).sum()) / (ROWS * SAMPLES))
        assert 8 * stderr < 0.015, "no power"
        assert abs(float(probs[:, 1].mean()) - mean) < 5 * stderr


@pytest.mark.parametrize("wrapped", [False, True], ids=["layer", "network"])
def test_prediction_is_the_mean_of_probabilities(wrapped: bool, monkeypatch: pytest.MonkeyPatch):
    model = nn.Sequential(nn.Identity(), one_weight()) if wrapped else one_weight()
    assert_predicts(model, lambda x, w, _: x * (1 + 0.8 * w))
    # planted: the mean of the logits instead
    monkeypatch.setattr(BayesianLinear, "draw", lambda self, x, samples, generator: self.moments(x)[0].unsqueeze(0))
    with pytest.raises(AssertionError):
        assert_predicts(model, lambda x, w, _: x * (1 + 0.8 * w))


def test_prediction_is_the_mean_over_explicit_weight_draws():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3))
    bayesian_last_layer(model, init_std=0.7).double()
    x = torch.randn(5, 2, dtype=torch.float64)
    head = model[2]
    assert isinstance(head, BayesianLinear)
    assert head.bias_loc is not None
    assert head.bias_log_scale is not None
    with torch.no_grad():
        features = model[:2](x)
        weight = head.weight_loc + 0.7 * torch.randn(20_000, 3, 4, dtype=torch.float64)
        shift = head.bias_loc + 0.7 * torch.randn(20_000, 3, dtype=torch.float64)
        explicit = (torch.einsum("bi,soi->sbo", features, weight) + shift[:, None]).softmax(-1)
    probs = predict(model, x.repeat(10_000, 1), samples=3).reshape(10_000, 5, 3).mean(0)
    stderr = (explicit.var(0) * (1 / 20_000 + 1 / 30_000)).sqrt()
    assert float(8 * stderr.max()) < 0.03
    assert float(((probs - explicit.mean(0)) / stderr).abs().max()) < 5


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x


class TwoHeads(nn.Module):
    """The output is not that of a Bayesian layer: every draw needs a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.one, self.two = Counted(), one_weight(), one_weight()

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        return 0.5 * (self.one(x) + self.two(x))


def test_a_bayesian_last_layer_costs_one_pass_through_the_backbone():
    body = Counted()
    predict(nn.Sequential(body, one_weight()), X, samples=50)
    assert body.calls == 1


def test_a_plain_model_is_called_once():
    body = Counted()
    probs = predict(nn.Sequential(body, nn.Linear(1, 2).double()), X, samples=50)
    assert body.calls == 1
    torch.testing.assert_close(probs.sum(-1), torch.ones(3, dtype=torch.float64))


def test_bayesian_layers_inside_the_model_are_all_drawn():
    model = TwoHeads()
    assert_predicts(model, lambda x, w, v: 0.5 * x * (2 + 0.8 * (w + v)))
    assert not model.one._forward_hooks
    model.body.calls = 0
    predict(model, X, samples=7)
    assert model.body.calls >= 7


def test_hooks_are_removed_when_the_model_fails():
    model = nn.Sequential(one_weight(), nn.Linear(5, 2).double())
    with pytest.raises(RuntimeError):
        predict(model, X, samples=3)
    assert not model[0]._forward_hooks
    assert model.training


@pytest.mark.parametrize("training", [True, False])
def test_modes_are_put_back_one_by_one(training: bool):
    model = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(1).double(), one_weight()).train(training)
    model[1].train(not training)
    before = [module.training for module in model.modules()]
    statistics = model[1].running_mean.clone()  # pyright: ignore
    predict(model, X, samples=3)
    assert [module.training for module in model.modules()] == before
    assert torch.equal(model[1].running_mean, statistics)  # pyright: ignore


def test_prediction_is_in_evaluation_and_without_gradients():
    model = nn.Sequential(nn.Dropout(0.9), one_weight()).train()
    probs = predict(model, X, samples=3, generator=torch.Generator().manual_seed(0))
    again = predict(model, X, samples=3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(probs, again), "dropout must be off"
    assert not probs.requires_grad


def test_a_generator_leaves_the_global_stream_alone():
    before = torch.get_rng_state()
    augment = Sequential(Shift(std=learn(0.5)), GaussianNoise(std=0.1))
    state = torch.get_rng_state()
    one = predict(one_weight(), X, samples=3, augment=augment, generator=torch.Generator().manual_seed(0))
    two = predict(one_weight(), X, samples=3, augment=augment, generator=torch.Generator().manual_seed(0))
    assert torch.equal(one, two)
    assert not torch.equal(before, state), "building draws a seed"
    # one_weight() itself initialises a layer
    torch.set_rng_state(state)
    model = one_weight()
    state = torch.get_rng_state()
    predict(model, X, samples=3, augment=augment, generator=torch.Generator().manual_seed(0))
    assert torch.equal(torch.get_rng_state(), state)


# ---- over γ ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
def test_prediction_marginalises_over_gamma(training: bool, monkeypatch: pytest.MonkeyPatch):
    augment = Shift(std=0.9, mean=0.4).train(training)
    assert_predicts(plain(), lambda x, w, g: 2 * (x + 0.4 + 0.9 * g), augment)
    assert augment.training is training
    # planted: γ at its mean
    monkeypatch.setattr(Shift, "draw_inputs", lambda self, x, generator: x + 0.4)
    with pytest.raises(AssertionError):
        assert_predicts(plain(), lambda x, w, g: 2 * (x + 0.4 + 0.9 * g), augment)


def test_prediction_marginalises_over_phi():
    # γ ~ N(m, tiny), m ~ N(0.4, 0.9²): the same predictive, all of its spread in q(φ)
    augment = Shift(std=1e-6, mean=learn(0.4, scale=0.9))
    assert_predicts(plain(), lambda x, w, g: 2 * (x + 0.4 + 0.9 * g), augment)


def test_theta_and_gamma_are_drawn_together():
    assert_predicts(one_weight(), lambda x, w, g: (1 + 0.8 * w) * (x + 0.9 * g), Shift(std=0.9))


def test_augmentations_that_mix_are_left_out():
    mixed = Sequential(Mixup(alpha=1.0), Shift(std=0.5))
    alone = Sequential(Shift(std=0.5))
    generator = torch.Generator
    one = predict(plain(), X, samples=5, augment=mixed, generator=generator().manual_seed(0))
    two = predict(plain(), X, samples=5, augment=alone, generator=generator().manual_seed(0))
    assert torch.equal(one, two)
    torch.testing.assert_close(
        predict(plain(), X, samples=2, augment=Mixup(alpha=1.0)), plain()(X).softmax(-1).detach()
    )


def test_images_and_tokens_are_augmented_too():
    images = torch.rand(2, 1, 5, 5)
    model = nn.Sequential(nn.Flatten(), nn.Linear(25, 3))
    turned = predict(model, images, samples=3, augment=Rotate(std=45.0))
    assert turned.shape == (2, 3)
    assert not torch.allclose(turned, predict(model, images))
    tokens = torch.arange(1, 9).reshape(2, 4)
    reader = nn.Sequential(nn.Embedding(10, 2), nn.Flatten(), nn.Linear(8, 3))
    dropped = predict(reader, tokens, samples=3, augment=TokenDropout(0.5, mask_id=0))
    assert not torch.allclose(dropped, predict(reader, tokens))


@pytest.mark.parametrize(
    ("likelihood", "mean"),
    [
        ("categorical", lambda output: output.softmax(-1)),
        ("bernoulli", torch.sigmoid),
        ("gaussian", lambda output: output),
        (Gaussian(0.3), lambda output: output),
    ],
)
def test_the_likelihood_says_what_the_output_means(likelihood: Any, mean: Any):
    torch.testing.assert_close(predict(plain(), X, likelihood=likelihood), mean(plain()(X)).detach())
