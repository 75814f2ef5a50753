"""The demo's training: what differs between the three methods, and that nothing else does."""

from __future__ import annotations

import pytest
import torch

import optima
from optima.augment.augmenter import Augmenter
from optima.data import digits
from optima.experiments import three_ways
from optima.experiments.three_ways import GUESS, METHODS, Comparison, Epoch, compare, policies
from optima.posterior import LearnedPhi


def run() -> tuple[Comparison, list[tuple[str, Epoch]]]:
    told: list[tuple[str, Epoch]] = []
    comparison = compare(0, 2, lambda name, epoch: told.append((name, epoch)))
    return comparison, told


def learned(augment: Augmenter) -> dict[str, LearnedPhi]:
    return {name: phi for name, phi in augment.named_phi() if isinstance(phi, LearnedPhi)}


@pytest.fixture(scope="module")
def finished() -> tuple[Comparison, list[tuple[str, Epoch]]]:
    return run()


def test_the_three_policies_are_none_the_guess_and_learned():
    none, fixed, learning = (policies()[name] for name in METHODS)
    x = digits().images[:4]
    assert none(x).x is x
    assert not torch.equal(fixed(x).x, x)
    assert not list(fixed.parameters())
    assert {name: float(phi.start) for name, phi in learned(learning).items()} == pytest.approx(GUESS)


def test_every_epoch_is_told_in_order(finished):
    comparison, told = finished
    assert [name for name, _ in told] == [name for name in METHODS for _ in range(2)]
    assert [epoch for _, epoch in told] == [epoch for run in comparison.runs for epoch in run.path]


def test_only_the_learned_run_moves_its_strengths_and_every_step_reaches_them(finished):
    comparison, _ = finished
    none, fixed, learning = comparison.runs
    assert all(not epoch.phi and epoch.kl_phi == 0 for epoch in (*none.path, *fixed.path))
    assert set(learning.path[-1].phi) == set(GUESS)
    steps_per_epoch = three_ways.TRAIN_IMAGES // three_ways._BATCH
    for name, phi in learned(learning.augment).items():
        assert int(phi.record.steps) == 2 * steps_per_epoch
        assert learning.path[0].phi[name].median != learning.path[1].phi[name].median


def test_the_path_ends_where_the_posterior_is(finished):
    comparison, _ = finished
    last = comparison.runs[-1].path[-1].phi
    for row in comparison.learned_rows():
        assert last[row.name].low == pytest.approx(row.low, rel=1e-5)
        assert last[row.name].high == pytest.approx(row.high, rel=1e-5)
        assert row.low < last[row.name].median < row.high


def test_elbo_is_the_sum_of_its_parts(finished):
    comparison, _ = finished
    for epoch in (epoch for run in comparison.runs for epoch in run.path):
        data_fit = -epoch.nll * len(comparison.train.labels)
        assert epoch.elbo == pytest.approx(data_fit - epoch.kl_theta - epoch.kl_phi, rel=1e-5)


def test_a_seed_decides_every_number_and_leaves_the_caller_as_he_was(finished):
    comparison, _ = finished
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    again, _ = run()
    for one, same in zip(comparison.runs, again.runs, strict=True):
        assert torch.equal(one.probs, same.probs)
        assert one.path == same.path
    # and what the caller's generator and threads were does not change
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_the_three_start_from_the_same_weights_and_another_seed_from_others(monkeypatch):
    starts = []
    monkeypatch.setattr(three_ways, "_warm_up", lambda data: None)
    monkeypatch.setattr(three_ways, "train", lambda model, *_, **__: starts.append(model.state_dict()) or iter(()))
    for seed in (0, 1):
        compare(seed, 1, lambda *_: None)
    none, fixed, learning, other = starts[:4]
    for name, weights in none.items():
        assert torch.equal(weights, fixed[name])
        assert torch.equal(weights, learning[name])
        assert torch.equal(weights, other[name]) == name.endswith("log_scale")


def test_the_network_is_bayesian_in_its_last_layer_only():
    bayesian = [type(m).__name__ for m in three_ways.small_cnn().modules() if isinstance(m, optima.BayesianLinear)]
    assert len(bayesian) == 1
    assert isinstance(list(three_ways.small_cnn().modules())[-1], optima.BayesianLinear)
