"""The bundled handwritten digits; `DIGITS.md` beside this file says whose they are and how the archive was written."""

from __future__ import annotations

from hashlib import blake2b
from importlib.resources import files
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

_LEVELS = 16


class LabelledImages(NamedTuple):
    """Images (N, 1, H, W) with values in [0, 1], and their class numbers (N,)."""

    images: Tensor
    labels: Tensor

    def split(self, train: int, *, seed: int = 0) -> tuple[LabelledImages, LabelledImages]:
        """Two disjoint parts, `train` examples and the rest, each with the classes in the proportions of the whole.

        The same seed gives the same parts everywhere: the order comes from a hash, not from a generator's stream.

        Args:
            train: how many examples the first part holds.
            seed: which split.

        Example:
            >>> train, test = digits().split(300)
            >>> len(train.labels), len(test.labels)
            (300, 1497)
        """
        if isinstance(train, bool) or not isinstance(train, int) or not 0 < train < len(self.labels):
            raise ValueError(f"train must be a whole number between 1 and {len(self.labels) - 1}, got {train!r}")
        shuffled = sorted(range(len(self.labels)), key=lambda index: _rank(seed, index))
        labels = self.labels.tolist()
        by_class = [[i for i in shuffled if labels[i] == label] for label in sorted(set(labels))]
        shares = _shares(train, [len(members) for members in by_class])
        chosen = {i for members, share in zip(by_class, shares, strict=True) for i in members[:share]}
        rest = [i for i in shuffled if i not in chosen]
        return self._rows([i for i in shuffled if i in chosen]), self._rows(rest)

    def _rows(self, index: list[int]) -> LabelledImages:
        return LabelledImages(self.images[index], self.labels[index])


def digits() -> LabelledImages:
    """The 1,797 handwritten digits of Alpaydin and Kaynak (UCI, CC BY 4.0): images (1797, 1, 8, 8), labels 0 to 9.

    Example:
        >>> digits().images.shape
        torch.Size([1797, 1, 8, 8])
    """
    with files("optima.data").joinpath("digits.npz").open("rb") as file, np.load(file, allow_pickle=False) as archive:
        images = torch.from_numpy(archive["images"]).float().div(_LEVELS).unsqueeze(1)
        return LabelledImages(images, torch.from_numpy(archive["labels"]).long())


def _rank(seed: int, index: int) -> bytes:
    return blake2b(f"{seed}/{index}".encode(), digest_size=8).digest()


def _shares(total: int, sizes: list[int]) -> list[int]:
    """`total` divided in proportion to `sizes`: rounded down, and the largest remainders rounded up."""
    exact = [total * size / sum(sizes) for size in sizes]
    shares = [int(share) for share in exact]
    by_remainder = sorted(range(len(sizes)), key=lambda i: shares[i] - exact[i])
    for i in by_remainder[: total - sum(shares)]:
        shares[i] += 1
    return shares
