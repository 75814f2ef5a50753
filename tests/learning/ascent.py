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
    data: tuple[Tensor, Tensor],
    *,
    steps: int,
    batch: int,
    samples: int,
    rate: float = 0.1,
    seed: int = 0,
) -> None:
    """Adam over shuffled epochs, whose rate falls linearly to 0 so that the noise of the last steps is averaged out.

    Args:
        augment: what learns; changed in place.
        objective: the bound to ascend.
        read: the model, which has no parameters.
        data: x and y; the batches must divide them.
        steps: of the optimizer.
        batch: B.
        samples: K.
        rate: Adam's first.
        seed: of the batches, of φ and of γ.
    """
    x, y = data
    generator = torch.Generator().manual_seed(seed)
    optimizer = Adam(augment.parameters(), lr=rate)
    schedule = LambdaLR(optimizer, lambda step: 1.0 - step / steps)
    batches: list[Tensor] = []
    for _ in range(steps):
        if not batches:
            batches = list(torch.randperm(len(x), generator=generator).view(-1, batch))
        rows = batches.pop()
        view = augment(x[rows], y[rows], samples=samples, generator=generator)
        optimizer.zero_grad()
        objective(read(view.x), view, augment=augment).backward()
        optimizer.step()
        schedule.step()


@torch.no_grad()
def learned_phi(augment: Augmenter) -> Tensor:
    """The one φ that learns, as its posterior mean."""
    (phi,) = [phi for _, phi in augment.named_phi() if isinstance(phi, LearnedPhi)]
    return phi.summary().mean.clone()
