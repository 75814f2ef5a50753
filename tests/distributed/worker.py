"""One rank of a two-process run. Run as `python -m tests.distributed.worker RANK RENDEZVOUS OUTPUT`."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import optima
from optima import learn

ROWS, STEPS, SEED = 8, 50, 1234


class Learner(nn.Module):
    """Model and policy under one roof, so that DistributedDataParallel keeps both in step."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(SEED)
        self.model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
        self.augment = optima.Sequential(
            optima.Shift(std=learn(0.3), mean=learn(0.1)),
            optima.GaussianNoise(std=learn(0.2)),
            optima.Mixup(learn(0.5)),
        )

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, optima.View]:
        view = self.augment(x, y)
        return self.model(view.x), view


def batch(rank: int, step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(ROWS, 3, generator=generator)
    return x, x.sum(1, keepdim=True).sin()


def loss_of(learner: Learner, output: Tensor, view: optima.View) -> Tensor:
    objective = optima.ELBO(num_data=2 * ROWS, likelihood=optima.Gaussian(noise=0.5))
    return objective(output, view, model=learner.model, augment=learner.augment).value


def main(rank: int, rendezvous: str, output: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    learner = Learner()
    wrapped = DistributedDataParallel(learner)
    optimizer = torch.optim.Adam(learner.parameters(), lr=1e-2)
    record: dict[str, Tensor] = {}
    for step in range(STEPS):
        predicted, view = wrapped(*batch(rank, step))
        optimizer.zero_grad()
        loss_of(learner, predicted, view).backward()
        if step == 0:
            gradients = {name: p.grad for name, p in learner.named_parameters() if p.grad is not None}
            record |= {f"grad.{name}": gradient.clone() for name, gradient in gradients.items()}
            record |= {f"gamma.{name}": value.detach().clone() for name, value in view.gamma.items()}
        optimizer.step()
    record |= {f"final.{name}": p.detach().clone() for name, p in learner.named_parameters()}
    torch.save(record, output)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
