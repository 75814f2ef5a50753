"""Gradient ascent on q(φ) alone: the model is a known readout, so that only the augmentation is left to learn."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.optim import Adam
from torch.optim.lr_scheduler import LambdaLR

from optima import ELBO
from optima.augment.augmenter import Augmenter
from optima.posterior import LearnedPhi

Readout = Callable[[Tensor], Tensor]


def ascend(
    augment: Augmenter,
    objective: ELBO,
    read: Readout,
    x: Tensor,
    y: Tensor,
    *,
    steps: int,
    batch: int,
    samples: int,
    rate: float,
    seed: int = 0,
) -> None:
    """Adam whose rate falls linearly to 0, so that the noise of the last steps is averaged out."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = Adam(augment.parameters(), lr=rate)
    schedule = LambdaLR(optimizer, lambda step: 1.0 - step / steps)
    per_epoch = len(x) // batch
    for step in range(steps):
        if step % per_epoch == 0:
            order = torch.randperm(len(x), generator=generator).view(per_epoch, batch)
        rows = order[step % per_epoch]
        view = augment(x[rows], y[rows], samples=samples, generator=generator)
        optimizer.zero_grad()
        objective(read(view.x), view, augment=augment).backward()
        optimizer.step()
        schedule.step()


def learned_phi(augment: Augmenter) -> LearnedPhi:
    """The one φ that learns."""
    (phi,) = [phi for _, phi in augment.named_phi() if isinstance(phi, LearnedPhi)]
    return phi
