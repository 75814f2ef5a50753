"""The bundled digits are scikit-learn's, unaltered; the split is exact, stratified and the same everywhere."""

from __future__ import annotations

import hashlib
from importlib.resources import files

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from optima.data import LabelledImages, digits

SHA256 = "b2dab7b501728c22e9119ad76740b2e17c77a231e42d1e592380d90886f1a05e"
FIRST_ROWS = [134, 179, 1752, 251, 1513, 1312]


def numbered(labels: list[int]) -> LabelledImages:
    """Examples whose picture is their own number."""
    return LabelledImages(torch.arange(len(labels)).float().view(-1, 1, 1, 1), torch.tensor(labels))


def test_the_archive_is_the_one_that_was_checked():
    content = files("optima.data").joinpath("digits.npz").read_bytes()
    assert hashlib.sha256(content).hexdigest() == SHA256


def test_digits_are_those_of_scikit_learn():
    images, labels = digits()
    pixels, classes = load_digits(return_X_y=True)
    assert (images.dtype, labels.dtype) == (torch.float32, torch.int64)
    assert images.shape == (1797, 1, 8, 8)
    np.testing.assert_array_equal(images.flatten(1).numpy() * 16, pixels)
    np.testing.assert_array_equal(labels.numpy(), classes)
    assert (float(images.min()), float(images.max())) == (0.0, 1.0)


def test_the_attribution_lies_beside_the_archive():
    text = files("optima.data").joinpath("DIGITS.md").read_text(encoding="utf-8")
    for part in ("E. Alpaydin", "C. Kaynak", "CC BY 4.0", "UCI Machine Learning Repository"):
        assert part in text


@pytest.mark.parametrize("train", [1, 7, 300, 1500, 1796])
def test_a_split_is_disjoint_and_complete(train: int):
    whole = numbered(digits().labels.tolist())
    first, second = whole.split(train, seed=3)
    assert len(first.labels) == train
    both = torch.cat([first.images, second.images]).flatten()
    torch.testing.assert_close(both.sort().values, whole.images.flatten())


@pytest.mark.parametrize("train", [50, 300, 1500])
def test_a_split_is_stratified_to_within_one_example(train: int):
    whole = digits()
    first, _ = whole.split(train)
    exact = torch.bincount(whole.labels) * train / len(whole.labels)
    assert ((torch.bincount(first.labels, minlength=10) - exact).abs() < 1).all()


def test_a_split_keeps_images_with_their_labels():
    whole = numbered(digits().labels.tolist())
    for part in whole.split(300):
        torch.testing.assert_close(part.labels, whole.labels[part.images.flatten().long()])


def test_a_split_is_fixed_by_its_seed():
    whole = numbered(digits().labels.tolist())
    assert whole.split(300)[0].images[:6].flatten().tolist() == FIRST_ROWS
    assert whole.split(300, seed=1)[0].images[:6].flatten().tolist() != FIRST_ROWS


def test_the_rows_are_mixed_not_sorted_by_class():
    first, second = digits().split(300)
    assert not torch.equal(first.labels, first.labels.sort().values)
    assert not torch.equal(second.labels, second.labels.sort().values)


@pytest.mark.parametrize("train", [0, -1, 1797, 2.5, True])
def test_a_size_that_leaves_a_part_empty_is_refused(train):
    with pytest.raises(ValueError, match="train must be a whole number between 1 and 1796"):
        digits().split(train)
