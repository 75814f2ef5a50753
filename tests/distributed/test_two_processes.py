"""Two real processes over gloo: the same φ, different draws, and the gradient of one process on the joined batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import optima
from optima import streams
from tests.distributed.worker import Learner, batch, loss_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Tensor]]:
    folder = tmp_path_factory.mktemp("ranks")
    outputs = [folder / f"{rank}.pt" for rank in (0, 1)]
    command = [sys.executable, "-m", "tests.distributed.worker"]
    processes = [
        subprocess.Popen([*command, str(rank), str(folder / "rendezvous"), str(outputs[rank])], cwd=ROOT)
        for rank in (0, 1)
    ]
    assert [process.wait(timeout=300) for process in processes] == [0, 0]
    return [torch.load(path, weights_only=True) for path in outputs]


def test_phi_and_theta_are_identical_after_fifty_steps(ranks: list[dict[str, Tensor]]):
    final = [{k: v for k, v in rank.items() if k.startswith("final.")} for rank in ranks]
    assert any("std.loc" in name for name in final[0])
    for name, value in final[0].items():
        assert torch.equal(value, final[1][name]), name
    start = Learner()
    moved = [n for n, p in start.named_parameters() if not torch.equal(p.detach(), final[0][f"final.{n}"])]
    assert set(moved) == {name for name, _ in start.named_parameters()}


def test_ranks_draw_different_gamma(ranks: list[dict[str, Tensor]]):
    names = [name for name in ranks[0] if name.startswith("gamma.")]
    assert len(names) == 4
    for name in names:
        assert not torch.equal(ranks[0][name], ranks[1][name]), name


def test_the_gradient_is_that_of_the_joined_batch(ranks: list[dict[str, Tensor]], monkeypatch: pytest.MonkeyPatch):
    """One process draws what each rank drew, runs the model once on both batches, and takes one loss."""
    learner = Learner()
    views = []
    for rank in (0, 1):
        monkeypatch.setattr(streams, "_rank", lambda rank=rank: rank)
        learner.augment.stream = streams.Stream(learner.augment.stream.seed)
        views.append(learner.augment(*batch(rank, 0)))
        for name, value in views[-1].gamma.items():
            assert torch.equal(value.detach(), ranks[rank][f"gamma.{name}"])
    targets = [view.target for view in views]
    assert all(isinstance(target, Tensor) for target in targets)
    joined = optima.View(torch.cat([view.x for view in views]), torch.cat(targets), gamma=views[0].gamma)
    loss_of(learner, learner.model(joined.x), joined).backward()
    for name, parameter in learner.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(ranks[0][f"grad.{name}"], parameter.grad, rtol=1e-4, atol=1e-6, msg=name)
        assert torch.equal(ranks[0][f"grad.{name}"], ranks[1][f"grad.{name}"])
