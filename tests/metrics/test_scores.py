"""Accuracy, NLL and Brier against plain loops and scikit-learn."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics
from torch import Tensor

from optima.metrics import accuracy, brier, ece, nll


def predictions(rows: int, classes: int, seed: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    probs = (2 * torch.randn(rows, classes, dtype=torch.float64, generator=generator)).softmax(-1)
    return probs.to(dtype), torch.randint(classes, (rows,), generator=generator)


SOME = given(rows=st.integers(1, 40), classes=st.integers(1, 6), seed=st.integers(0, 10_000), double=st.booleans())


@settings(deadline=None, max_examples=40)
@SOME
def test_scores_are_those_of_plain_loops(rows: int, classes: int, seed: int, double: bool):
    probs, labels = predictions(rows, classes, seed, torch.float64 if double else torch.float32)
    right = log = square = 0.0
    for row, label in zip(probs.tolist(), labels.tolist(), strict=True):
        right += row.index(max(row)) == label
        log -= math.log(row[label])
        square += sum((p - (k == label)) ** 2 for k, p in enumerate(row))
    assert accuracy(probs, labels) == pytest.approx(right / rows, abs=1e-12)
    assert nll(probs, labels) == pytest.approx(log / rows, rel=1e-9, abs=1e-12)
    assert brier(probs, labels) == pytest.approx(square / rows, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("classes", [2, 5])
def test_scores_are_sklearns(classes: int):
    probs, labels = predictions(300, classes, seed=1)
    names = list(range(classes))
    assert accuracy(probs, labels) == pytest.approx(sklearn_metrics.accuracy_score(labels, probs.argmax(-1)))
    assert nll(probs, labels) == pytest.approx(sklearn_metrics.log_loss(labels, probs.numpy(), labels=names))
    halved = sum(
        sklearn_metrics.brier_score_loss((labels == k).numpy(), probs[:, k].numpy(), pos_label=True) for k in names
    )
    assert brier(probs, labels) == pytest.approx(halved)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("labels", [torch.tensor([0, 2]), torch.tensor([0, 2], dtype=torch.int32)])
def test_certain_and_right_is_perfect(dtype: torch.dtype, labels: Tensor):
    probs = torch.eye(3, dtype=dtype)[[0, 2]]
    assert accuracy(probs, labels) == 1.0
    assert nll(probs, labels) == 0.0
    assert brier(probs, labels) == 0.0


def test_certain_and_wrong_is_as_bad_as_can_be():
    probs, labels = torch.eye(3)[[0, 1]], torch.tensor([1, 2])
    assert accuracy(probs, labels) == 0.0
    assert nll(probs, labels) == math.inf
    assert brier(probs, labels) == 2.0


def test_of_equal_probabilities_the_first_class_counts():
    probs = torch.full((4, 4), 0.25)
    assert accuracy(probs, torch.arange(4)) == 0.25
    assert accuracy(probs, torch.zeros(4, dtype=torch.long)) == 1.0
    late = torch.tensor([[0.2, 0.4, 0.4]])
    assert accuracy(late, torch.tensor([1])) == 1.0
    assert accuracy(late, torch.tensor([2])) == 0.0


def test_one_row_and_absent_classes():
    probs = torch.tensor([[0.1, 0.2, 0.7]])
    assert accuracy(probs, torch.tensor([2])) == 1.0
    assert nll(probs, torch.tensor([0])) == pytest.approx(-math.log(0.1), rel=1e-6)
    assert brier(probs, torch.tensor([0])) == pytest.approx(0.9**2 + 0.2**2 + 0.7**2, rel=1e-6)


def test_many_float32_rows_are_summed_without_drift():
    probs, labels = predictions(200_000, 3, seed=2)
    assert nll(probs.float(), labels) == pytest.approx(nll(probs, labels), rel=1e-7)
    assert brier(probs.float(), labels) == pytest.approx(brier(probs, labels), rel=1e-7)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        torch.bfloat16,
    ],
)
def test_probabilities_in_low_precision_are_accepted(dtype: torch.dtype):
    probs, labels = predictions(500, 10, seed=0)
    assert nll(probs.to(dtype), labels) == pytest.approx(nll(probs, labels), rel=1e-2)
    assert ece(probs.to(dtype), labels) == pytest.approx(ece(probs, labels), abs=2e-2)


@pytest.mark.parametrize(
    "probs",
    [
        pytest.param([[0.7, 0.2]], id="sum below 1"),
        pytest.param([[1.2, -0.2]], id="negative"),
        pytest.param([[float("nan"), 1.0]], id="NaN"),
        pytest.param([[float("inf"), 0.0]], id="infinite"),
    ],
)
def test_what_is_no_distribution_is_refused(probs: list[list[float]]):
    with pytest.raises(ValueError, match="must be a distribution"):
        accuracy(torch.tensor(probs), torch.tensor([0]))
