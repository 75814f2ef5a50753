"""One compiled training step against the eager one. Run as `python -m tests.compiled_step CASE`."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributions import Gamma, Normal, constraints

import optima
from optima import learn


def image_policy() -> optima.Sequential:
    return optima.Sequential(
        optima.Rotate(std=learn(10.0)),
        optima.Translate(range=learn(0.1)),
        optima.GaussianNoise(std=learn(0.1, prior=Gamma(2.0, 10.0))),
        optima.Mixup(alpha=learn(0.4)),
    )


def wide_policy() -> optima.Sequential:
    return optima.Sequential(
        optima.Flip(learn(0.4)),
        optima.Affine(std=learn([5.0, 0.1, 0.1, 5.0, 0.1, 0.1]), covariance="full"),
        optima.CropResize(range=learn(0.2)),
        optima.Hue(std=learn(10.0)),
        optima.Contrast(std=learn(0.1)),
        optima.Gamma(std=learn(0.1)),
        optima.Blur(std=learn(0.5)),
        optima.Erase(range=learn(0.3)),
        optima.CutMix(alpha=learn(1.0), mode="pair"),
    )


def scored_policy() -> optima.Augmentation:
    return optima.Rotate(std=learn(10.0), estimator="score_function")


def token_policy() -> optima.Augmentation:
    p = learn(0.1, support=constraints.interval(0.0, 0.5), prior=Normal(0.1, 0.1), posterior="point")
    return optima.TokenDropout(p, mask_id=1, special_ids=(0,))


def on_images() -> tuple[nn.Module, Tensor]:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 36, 10))
    return optima.bayesian_last_layer(model), torch.rand(16, 3, 6, 6)


def on_tokens() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Embedding(20, 4), nn.Flatten(), nn.Linear(24, 10)), torch.randint(0, 20, (16, 6))


CASES = {
    "image": (image_policy, on_images, 1, "jensen"),
    "image, three draws": (image_policy, on_images, 3, "marginal"),
    "every kind": (wide_policy, on_images, 1, "jensen"),
    "score function": (scored_policy, on_images, 1, "jensen"),
    "tokens": (token_policy, on_tokens, 2, "marginal"),
}


def main(policy: Callable, task: Callable, samples: int, bound) -> None:
    """Three compiled steps: the eager loss and gradients, fresh draws every time, one graph."""
    torch.manual_seed(0)
    model, x = task()
    model.eval()  # no draws of θ: they come from the global generator, which a compiled graph consumes in its own order
    y = torch.randint(0, 10, (16,))
    augment = policy()
    twin = copy.deepcopy(augment)
    objective = optima.ELBO(num_data=100, bound=bound, likelihood=optima.Categorical(subtract_floor=True))

    def step(augment: optima.Sequential) -> tuple[Tensor, Tensor]:
        view = augment(x, y, samples=samples)
        return objective(model(view.x), view, model=model, augment=augment).value, next(iter(view.gamma.values()))

    compiled = torch.compile(step, fullgraph=True)
    previous = None
    for _ in range(3):
        value, gamma = compiled(augment)
        expected, expected_gamma = step(twin)
        for parameter in (*augment.parameters(), *twin.parameters()):
            parameter.grad = None
        value.backward()
        expected.backward()
        torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(gamma, expected_gamma, rtol=1e-4, atol=1e-5)
        for (name, ours), theirs in zip(augment.named_parameters(), twin.parameters(), strict=True):
            assert ours.grad is not None, name
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=2e-3, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
        assert previous is None or not torch.equal(gamma, previous)
        previous = gamma.detach()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1, "compiled more than once"
    recorded = [int(phi.record.steps) for _, phi in augment.named_phi() if hasattr(phi, "record")]
    assert set(recorded) == {3}, "the gradient record must keep counting inside a compiled step"


if __name__ == "__main__":
    main(*CASES[sys.argv[1]])
