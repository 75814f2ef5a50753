"""ECE and reliability against a plain loop, where other implementations break: edges, certainty, ties, empty bins."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from torch import Tensor

from optima.metrics import ece, reliability


def two_classes(confidence: Tensor) -> Tensor:
    """Rows that predict class 0 with that confidence."""
    return torch.stack([confidence, 1 - confidence], -1)


def by_a_loop(probs: np.ndarray, labels: np.ndarray, bins: int) -> tuple[list[int], float]:
    """Counts per bin ((k−1)/n, k/n] and the ECE."""
    members: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for row, label in zip(probs, labels, strict=True):
        confidence, predicted = float(row.max()), int(row.argmax())
        k = next(k for k in range(bins) if confidence <= (k + 1) / bins or k == bins - 1)
        members[k].append((confidence, predicted == label))
    error = sum(
        len(part) / len(labels) * abs(np.mean([c for c, _ in part]) - np.mean([r for _, r in part]))
        for part in members
        if part
    )
    return [len(part) for part in members], float(error)


@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(1, 60),
    classes=st.integers(1, 5),
    bins=st.integers(1, 17),
    seed=st.integers(0, 10_000),
    sharpness=st.sampled_from([0.1, 1.0, 10.0, 100.0]),
)
def test_ece_is_the_loops(rows: int, classes: int, bins: int, seed: int, sharpness: float):
    generator = torch.Generator().manual_seed(seed)
    probs = (sharpness * torch.randn(rows, classes, dtype=torch.float64, generator=generator)).softmax(-1)
    labels = torch.randint(classes, (rows,), generator=generator)
    counts, error = by_a_loop(probs.numpy(), labels.numpy(), bins)
    table = reliability(probs, labels, bins=bins)
    assert table.count.tolist() == counts
    assert ece(probs, labels, bins=bins) == pytest.approx(error, rel=1e-9, abs=1e-12)


def test_the_curve_is_sklearns():
    generator = torch.Generator().manual_seed(0)
    confidence = 0.5 + 0.5 * torch.rand(500, dtype=torch.float64, generator=generator)
    right = torch.rand(500, dtype=torch.float64, generator=generator) < confidence
    table = reliability(two_classes(confidence), (~right).long(), bins=10)
    accuracy, mean = calibration_curve(right.numpy(), confidence.numpy(), n_bins=10)
    filled = table.count > 0
    np.testing.assert_allclose(table.accuracy[filled], accuracy)
    np.testing.assert_allclose(table.confidence[filled], mean)


def test_known_values():
    # ten rows at 0.8 of which seven are right, ten at 0.6 of which all are
    probs = two_classes(torch.tensor([0.8] * 10 + [0.6] * 10, dtype=torch.float64))
    labels = torch.tensor([0] * 7 + [1] * 3 + [0] * 10)
    assert ece(probs, labels) == pytest.approx(0.5 * 0.1 + 0.5 * 0.4)
    table = reliability(probs, labels)
    assert table.count.tolist() == [0, 0, 0, 0, 0, 10, 0, 10, 0, 0]
    assert table.accuracy[[5, 7]].tolist() == pytest.approx([1.0, 0.7])
    assert table.confidence[[5, 7]].tolist() == pytest.approx([0.6, 0.8])
    assert torch.equal(table.edges, torch.arange(11, dtype=torch.float64) / 10)


def test_a_calibrated_forecast_has_little_error_and_an_overconfident_one_its_excess():
    generator = torch.Generator().manual_seed(0)
    confidence = 0.5 + 0.5 * torch.rand(200_000, dtype=torch.float64, generator=generator)
    chance = torch.rand(200_000, dtype=torch.float64, generator=generator)
    assert ece(two_classes(confidence), (chance > confidence).long()) < 0.01
    assert ece(two_classes(confidence), (chance > confidence - 0.1).long()) == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_certainty_is_in_the_last_bin(dtype: torch.dtype):
    probs, labels = torch.eye(2, dtype=dtype)[[0, 0, 1]], torch.tensor([0, 1, 1])
    table = reliability(probs, labels)
    assert table.count.tolist() == [0] * 9 + [3]
    assert float(table.confidence[-1]) == 1.0
    assert ece(probs, labels) == pytest.approx(1 / 3)


def test_certainty_that_is_always_wrong_is_the_worst():
    assert ece(torch.eye(2), torch.tensor([1, 0])) == 1.0
    assert ece(torch.eye(2), torch.tensor([0, 1])) == 0.0


def test_the_least_confidence_there_is():
    # a uniform row over many classes has a confidence near 0; ties go to the first class
    probs = torch.full((8, 64), 1 / 64)
    labels = torch.arange(8)
    table = reliability(probs, labels)
    assert table.count.tolist() == [8] + [0] * 9
    assert float(table.accuracy[0]) == pytest.approx(1 / 8)
    assert ece(probs, labels) == pytest.approx(1 / 8 - 1 / 64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bins", [2, 3, 5, 7, 10, 15, 16])
def test_a_confidence_on_an_edge_belongs_to_the_bin_below(bins: int, dtype: torch.dtype):
    _check_edges(bins, dtype)


@pytest.mark.parametrize("bins", [11, 20, 100])
def test_a_confidence_on_an_edge_belongs_to_the_bin_below_in_float64(bins: int):
    _check_edges(bins, torch.float64)


def _check_edges(bins: int, dtype: torch.dtype) -> None:
    """Class 0 has confidence k/n exactly, as far as the type can say it, for every k/n ≥ 1/2."""
    upper = [k for k in range(1, bins + 1) if Fraction(k, bins) >= Fraction(1, 2)]
    confidence = torch.tensor([k / bins for k in upper], dtype=torch.float64).to(dtype)
    table = reliability(two_classes(confidence), torch.zeros(len(upper), dtype=torch.long), bins=bins)
    assert table.count.tolist() == [float(k in upper) for k in range(1, bins + 1)]


def test_one_row():
    assert ece(torch.tensor([[0.3, 0.7]], dtype=torch.float64), torch.tensor([1])) == pytest.approx(0.3)
    assert ece(torch.tensor([[0.3, 0.7]], dtype=torch.float64), torch.tensor([0])) == pytest.approx(0.7)


def test_one_bin_is_the_gap_between_accuracy_and_confidence():
    probs = two_classes(torch.tensor([0.9, 0.6, 0.7], dtype=torch.float64))
    assert ece(probs, torch.tensor([0, 1, 0]), bins=1) == pytest.approx(abs(2 / 3 - 2.2 / 3))


def test_absent_classes_and_empty_bins_add_nothing():
    probs = torch.tensor([[0.0, 0.75, 0.25]] * 4, dtype=torch.float64)
    table = reliability(probs, torch.tensor([1, 1, 1, 2]))
    assert table.count.sum() == 4
    assert bool(table.accuracy.isfinite().all())
    assert ece(probs, torch.tensor([1, 1, 1, 2])) == 0.0


def test_order_of_rows_and_names_of_classes_do_not_matter():
    generator = torch.Generator().manual_seed(0)
    probs = torch.randn(50, 4, dtype=torch.float64, generator=generator).softmax(-1)
    labels = torch.randint(4, (50,), generator=generator)
    rows, names = torch.randperm(50, generator=generator), torch.tensor([2, 0, 3, 1])
    assert ece(probs[rows], labels[rows]) == pytest.approx(ece(probs, labels), abs=1e-12)
    assert ece(probs[:, names], names.argsort()[labels]) == pytest.approx(ece(probs, labels), abs=1e-12)
    assert math.isclose(ece(probs.repeat(3, 1), labels.repeat(3)), ece(probs, labels), abs_tol=1e-12)
