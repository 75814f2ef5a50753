"""A small CNN on a few hundred of the bundled digits: no augmentation, a guessed one, and a learned one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import LogNormal

import optima
from optima.augment.augmenter import Augmenter
from optima.augment.summary import Row
from optima.data import LabelledImages, digits
from optima.objective import Loss
from optima.posterior import Learn, LearnedPhi

TRAIN_IMAGES = 300
EPOCHS = 120
METHODS = ("none", "fixed", "learned")
GUESS = {"rotate.std": 15.0, "translate.std": 0.1}
GUESS_FACTOR = 0.5  # standard deviation of log φ under the prior: the guess is right within a factor of about two
DRAWS = 100
_BATCH = 50
_Z90 = 1.6448536


class Quantiles(NamedTuple):
    """Of q(φ): 5 %, 50 % and 95 %."""

    low: float
    median: float
    high: float


class Epoch(NamedTuple):
    """Averages over one epoch, in nats (NLL per example), and where every learned φ is at its end."""

    elbo: float
    nll: float
    kl_theta: float
    kl_phi: float
    phi: dict[str, Quantiles]


@dataclass(frozen=True)
class Run:
    """One trained method.

    Args:
        name: "none", "fixed" or "learned".
        augment: its policy.
        path: one entry per epoch.
        seconds: of training.
        probs: predicted class probabilities of the test images.
    """

    name: str
    augment: Augmenter
    path: list[Epoch]
    seconds: float
    probs: Tensor


@dataclass(frozen=True)
class Comparison:
    """The three runs, and the data they were judged on."""

    seed: int
    epochs: int
    train: LabelledImages
    test: LabelledImages
    runs: list[Run]

    def learned_rows(self) -> list[Row]:
        """The summary of every φ that was to be learned."""
        return [row for row in self.runs[-1].augment.summary().rows if row.kl is not None]


def compare(seed: int, epochs: int, on_epoch: Callable[[str, Epoch], None]) -> Comparison:
    """Train the three ways from the same initial weights, on the same images in the same order.

    Args:
        seed: decides which images are trained on, the initial weights, the order and every draw.
        epochs: passes over the training images.
        on_epoch: told the method's name and the epoch's averages.
    """
    data, test = digits().split(TRAIN_IMAGES, seed=seed)
    with torch.random.fork_rng(), _one_thread():
        _warm_up(data)
        torch.manual_seed(seed)  # a policy takes the seed of its own stream from here
        runs = [_run(name, augment, data, test, seed, epochs, on_epoch) for name, augment in policies().items()]
    return Comparison(seed, epochs, data, test, runs)


def policies() -> dict[str, Augmenter]:
    """No augmentation, the guess, and the guess as a starting point and prior."""
    guess, learned = dict(GUESS), {name: _around(value) for name, value in GUESS.items()}
    return dict(zip(METHODS, (_policy(guess).eval(), _policy(guess), _policy(learned)), strict=True))


def train(model: nn.Module, augment: Augmenter, data: LabelledImages, *, epochs: int) -> Iterator[Epoch]:
    """The whole of training; yields after every epoch."""
    objective = optima.ELBO(num_data=len(data.labels))
    optimizer = torch.optim.AdamW(
        [
            {"params": model.parameters(), "lr": 2e-3},
            {"params": augment.parameters(), "lr": 1e-2, "weight_decay": 0.0},
        ]
    )
    for _ in range(epochs):
        losses = []
        for rows in torch.randperm(len(data.labels)).split(_BATCH):
            x, y = data.images[rows], data.labels[rows]
            view = augment(x, y)
            loss = objective(model(view.x), view, model=model, augment=augment)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss)
        yield _averages(losses, augment, len(data.labels))


def small_cnn() -> nn.Module:
    """Three convolutions and two linear layers, the last of them Bayesian."""
    network = nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()),
        *(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10)),
    )
    return optima.bayesian_last_layer(network)


@contextmanager
def _one_thread() -> Iterator[None]:
    """A network this small hardly gains from more threads, waits long for busy ones, and sums differently."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _warm_up(data: LabelledImages) -> None:
    """A process's first steps pay for torch's own start, which is no method's cost."""
    for _ in train(small_cnn(), policies()["learned"], data, epochs=1):
        pass


def _run(
    name: str,
    augment: Augmenter,
    data: LabelledImages,
    test: LabelledImages,
    seed: int,
    epochs: int,
    on_epoch: Callable[[str, Epoch], None],
) -> Run:
    torch.manual_seed(seed)
    model, path, start = small_cnn(), [], time.perf_counter()
    for epoch in train(model, augment, data, epochs=epochs):
        path.append(epoch)
        on_epoch(name, epoch)
    seconds = time.perf_counter() - start
    probs = optima.predict(model, test.images, samples=DRAWS, generator=torch.Generator().manual_seed(seed))
    return Run(name, augment, path, seconds, probs)


def _policy(phi: dict[str, float] | dict[str, Learn]) -> Augmenter:
    return optima.Sequential(optima.Rotate(std=phi["rotate.std"]), optima.Translate(std=phi["translate.std"]))


def _around(guess: float) -> Learn:
    return optima.learn(guess, prior=LogNormal(math.log(guess), GUESS_FACTOR))


def _averages(losses: list[Loss], augment: Augmenter, num_data: int) -> Epoch:
    def mean(part: str) -> float:
        return float(torch.stack([getattr(loss, part) for loss in losses]).mean())

    phi = {name: _quantiles(phi) for name, phi in augment.named_phi() if isinstance(phi, LearnedPhi)}
    return Epoch(mean("elbo"), -mean("data_fit") / num_data, mean("kl_theta"), mean("kl_phi"), phi)


@torch.no_grad()
def _quantiles(phi: LearnedPhi) -> Quantiles:
    return Quantiles(*phi.from_noise(torch.tensor([-_Z90, 0.0, _Z90])).tolist())
