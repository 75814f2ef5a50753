"""The regression's training: what it optimises, and what its methods share."""

from __future__ import annotations

import pytest
import torch

import optima
from optima import learn
from optima.experiments.regression import METHODS, Settings, network
from optima.experiments.regression_data import NUM_DATA
from optima.experiments.regression_run import dataset_of, run

FROZEN = Settings(epochs=1, lr=0.0, lr_phi=0.0)
SHORT = Settings(epochs=40, lr_phi=5e-2)


@pytest.fixture(autouse=True)
def _few_draws_to_predict_with(monkeypatch):
    monkeypatch.setattr("optima.experiments.regression_run.AVERAGED_DRAWS", 2)


@pytest.mark.parametrize("batch", [1, 10, 50])
def test_the_papers_loss_is_the_negative_elbo_per_point(batch):
    """MSE + KL / B and −ELBO / N differ by a constant, which no parameter moves."""
    method = METHODS[f"learned-batch-{batch}"]
    data = dataset_of(0)
    differences = []
    for std in (0.05, 0.3):
        augment = optima.Shift(
            std=learn(std, posterior="point"),
            mean=learn(0.0, posterior="point"),
            prior_gamma=method.shift().prior_gamma,
        )
        model = network(8)
        objective = optima.ELBO(NUM_DATA, method.likelihood(), beta_phi=method.beta_phi)
        view = augment(data.x, data.y)
        loss = objective(model(view.x), view, augment=augment)
        papers = (model(view.x) - data.y).square().mean() + augment.kl() / batch
        differences.append(float(loss.value.detach() - papers.detach()))
    assert differences[0] == pytest.approx(differences[1], abs=1e-5)


def test_every_method_starts_from_the_seeds_data_and_weights():
    fits = {name: run(0, name, FROZEN)["fit"] for name in METHODS}
    assert all(fit == fits["none"] for fit in fits.values())
    assert run(1, "none", FROZEN)["fit"] != fits["none"]


def test_a_seed_decides_every_number():
    first, again = (run(3, "learned-noise", SHORT) for _ in range(2))
    assert first.pop("cpu_seconds") > 0
    assert again.pop("cpu_seconds") > 0
    assert first == again
    assert run(4, "learned-noise", SHORT)["test_mse"] != first["test_mse"]


def test_a_run_leaves_the_callers_generator_and_threads_alone():
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    run(0, "fixed", FROZEN)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_counting_copies_changes_the_scale_and_not_the_fit():
    """With nothing but θ to learn, K copies multiply the loss by K, which Adam divides out again."""
    average, copies, once = (run(0, name, SHORT) for name in ("naive-average", "naive-copies", "fixed"))
    assert copies["fit"] == pytest.approx(average["fit"], abs=1e-3)
    assert max(abs(a - b) for a, b in zip(once["fit"], average["fit"], strict=True)) > 5e-3
    data_fit = [result["trace"]["elbo"][0] for result in (average, copies)]
    assert data_fit[1] == pytest.approx(5 * data_fit[0], rel=1e-6)


def test_a_heavier_kl_and_a_louder_likelihood_hold_sigma_up():
    names = ("learned-batch-1", "learned-batch-50", "learned-true-noise")
    stds = [run(0, name, Settings(epochs=150, lr_phi=5e-2))["std"] for name in names]
    assert stds[0] > 0.14 > stds[1] > stds[2]


def test_the_noise_is_learned_only_where_asked():
    fixed, learned = (run(0, name, SHORT)["trace"]["noise"] for name in ("learned-true-noise", "learned-noise"))
    assert fixed == [fixed[0]] * len(fixed)
    assert learned[-1] > learned[0]  # the untrained network is further from the data than the noise is


def test_no_augmentation_means_the_inputs_themselves():
    x = dataset_of(0).x
    assert torch.equal(METHODS["none"].shift()(x).x, x)
    assert not torch.equal(METHODS["fixed"].shift()(x).x, x)
