"""What learning φ adds to a training step: time and peak memory, learned ÷ fixed at the same strength.

python -m benchmarks.learning_cost [--quick]                              measure; results go into the JSON of --output
python -m benchmarks.learning_cost --table [--write docs/benchmarks.md]   what the JSON says, as tables

A step is one call of the augmentation, of the network and of the objective, backwards, and an update by AdamW; the
batch is 128×3×32×32. Five steps take turns, each with a network, an optimiser and a policy of its own:

    plain      no augmentation
    fixed      the policy at the posterior mean of φ
    floor      fixed, and the gradient with respect to the images is computed too, which the first layer can otherwise
               leave out; a pathwise gradient comes through the images, so no way to learn φ from all of them is cheaper
    learned    q(φ) is updated as well
    quarter    the same, from a random quarter of the images: `augment(x, y, share=0.25)`, unbiased and cheaper
"""

from __future__ import annotations

import argparse
import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import optima
from benchmarks import cost_tables, families, memory, options, timing
from benchmarks.families import FAMILIES, Batch
from benchmarks.record import Record
from benchmarks.resnet import resnet
from optima.augment.augmenter import Augmenter
from optima.augment.view import repeated

QUICK = Path("runs/benchmarks/learning_cost-quick.json")
FULL = Path("docs/benchmarks/learning_cost.json")
KINDS = ("plain", "fixed", "floor", "learned", "quarter")
SHARE = 0.25
NUM_DATA = 50_000
RATIOS = {
    "learned/fixed": ("learned", "fixed"),
    "floor/fixed": ("floor", "fixed"),
    "learned/floor": ("learned", "floor"),
    "quarter/fixed": ("quarter", "fixed"),
    "fixed/plain": ("fixed", "plain"),
}


@dataclass
class Step:
    """One training step, ready to be repeated."""

    on: Batch
    model: nn.Module
    augment: Augmenter | None
    objective: optima.ELBO
    optimizer: torch.optim.Optimizer
    samples: int
    floor: bool = False
    share: float = 1.0

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        x, y = self.on.x, self.on.y
        if self.augment is None:
            view = repeated(x, y, self.samples)
        else:
            view = self.augment(x, y, samples=self.samples, share=self.share)
        if self.floor:
            view.x.requires_grad_()
        self.objective(self.model(view.x), view, augment=self.augment).backward()
        self.optimizer.step()

    def held(self) -> int:
        """Bytes that are there before and after: parameters, buffers, the optimiser's moments and the batch."""
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        tensors: list[Tensor] = [self.on.x, self.on.y, *self.model.parameters(), *self.model.buffers()]
        policy = [] if self.augment is None else [*self.augment.parameters(), *self.augment.buffers()]
        return memory.held([*tensors, *policy, *(value for value in moments if isinstance(value, Tensor))])

    def peak(self) -> int:
        """Bytes alive at once at most, those included."""
        self.optimizer.zero_grad()
        return self.held() + memory.peak(self)


def main(argv: list[str]) -> int:
    """Measure in a process per number of threads, or show what was measured."""
    asked = _arguments().parse_args(argv)
    options.settle(asked, quick=QUICK, full=FULL)
    if asked.table:
        options.show(cost_tables.learning_cost(asked.output), asked.write, "learning_cost")
    elif asked.worker:
        return _measure(asked, asked.worker)
    else:
        Record(asked.output, "learning_cost", options.command("learning_cost", argv), fresh=asked.fresh).write()
        return options.per_thread("learning_cost", argv, asked.threads)
    return 0


def _arguments() -> argparse.ArgumentParser:
    parser = options.parser(__doc__ or "", rounds=21)
    parser.add_argument("--depths", nargs="+", type=int, help="of the networks: 8 and 20, or 8 with --quick")
    return parser


def _measure(asked: argparse.Namespace, threads: int) -> int:
    """Every cell of this number of threads; how many failed."""
    torch.set_num_threads(threads)
    memory.check()
    record = Record(asked.output, "learning_cost", options.command("learning_cost", sys.argv[1:]))
    on = families.batch("32", "float32")
    failed = 0
    for depth in asked.depths or ([8] if asked.quick else [8, 20]):
        for family in asked.families:
            measure = functools.partial(_cell, family, depth, on, asked.rounds)
            failed += not options.measured(record, f"{family}/resnet{depth}/{threads}", asked.rounds, measure)
    return failed


def _steps(family: str, depth: int, on: Batch) -> dict[str, Step]:
    learned = families.policy(family)
    frozen, quarter = learned.frozen(), families.policy(family)
    policies = {"plain": None, "fixed": frozen, "floor": learned.frozen(), "learned": learned, "quarter": quarter}
    return {kind: _step(kind, policies[kind], depth, on, FAMILIES[family].views) for kind in KINDS}


def _step(kind: str, augment: Augmenter | None, depth: int, on: Batch, views: int) -> Step:
    model = resnet(depth)
    groups: list[dict[str, Any]] = [{"params": list(model.parameters()), "lr": 1e-4}]
    if augment is not None and (phi := list(augment.parameters())):
        groups.append({"params": phi, "lr": 1e-4, "weight_decay": 0.0})
    optimizer = torch.optim.AdamW(groups)
    share = SHARE if kind == "quarter" else 1.0
    return Step(on, model, augment, optima.ELBO(NUM_DATA), optimizer, views, floor=kind == "floor", share=share)


def _cell(family: str, depth: int, on: Batch, rounds: int) -> dict[str, Any]:
    steps = _steps(family, depth, on)
    times, calls = timing.interleaved(steps, rounds)
    peaks = {kind: step.peak() for kind, step in steps.items()}
    return {
        "ms": {kind: {**timing.quartiles(times[kind]), "calls": calls[kind]} for kind in steps},
        "time_ratio": {name: timing.quartiles(_ratios(times, *pair)) for name, pair in RATIOS.items()},
        "peak_mib": {kind: round(value / memory.MEBIBYTE, 2) for kind, value in peaks.items()},
        "memory_ratio": {name: round(peaks[one] / peaks[other], 4) for name, (one, other) in RATIOS.items()},
    }


def _ratios(times: dict[str, list[float]], one: str, other: str) -> list[float]:
    """Of readings of the same round, which share the machine's mood."""
    return [a / b for a, b in zip(times[one], times[other], strict=True)]


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
