"""Noise as an argument, and the two ways to judge an expected gradient: exactly, or with a stated power."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import norm, qmc
from torch import Tensor


@dataclass(frozen=True)
class GivenNoise:
    """A source of noise that returns what it was given, by name."""

    values: Mapping[str, Tensor]
    name: str = ""

    def named(self, name: str) -> GivenNoise:
        return GivenNoise(self.values, f"{self.name}.{name}" if self.name else name)

    def _take(self, shape: Sequence[int]) -> Tensor:
        value = self.values[self.name]
        return value.expand(tuple(shape)) if value.ndim == len(shape) else value.reshape(tuple(shape))

    def normal(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return self._take(shape).to(dtype)

    def uniform(self, shape: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return self._take(shape).to(dtype)

    def gamma(self, concentration: Tensor) -> Tensor:
        return self._take(concentration.shape).to(concentration.dtype)


def gauss_hermite(nodes: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of E over a standard normal."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    return torch.tensor(points), torch.tensor(weights / weights.sum())


def gauss_legendre(nodes: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of E over a uniform on (0, 1)."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    return torch.tensor((points + 1) / 2), torch.tensor(weights / 2)


def spread_uniforms(dims: int, log2_rows: int, seed: int = 0) -> Tensor:
    """2^n equally weighted points that fill the unit cube evenly, (rows, dims): a scrambled Sobol set."""
    return torch.tensor(qmc.Sobol(dims, rng=np.random.default_rng(seed)).random_base2(log2_rows))


def to_normal(uniforms: Tensor) -> Tensor:
    """The standard normal points at those quantiles."""
    return torch.tensor(norm.ppf(uniforms.numpy()))


def assert_unbiased(
    draws: Tensor, exact: Tensor | float, *, detect: float, weights: Tensor | None = None, max_z: float = 5.0
) -> None:
    """The mean of `draws` is `exact` within 5 standard errors, with the power to see a relative bias of `detect`.

    A bias of `detect` would show as at least 8 standard errors, so it is missed with a probability below one in a
    thousand.
    """
    draws = draws if weights is None else draws * weights.view(-1, *[1] * (draws.ndim - 1))
    reference = torch.as_tensor(exact, dtype=draws.dtype)
    stderr = draws.std(0) / math.sqrt(len(draws))
    assert ((max_z + 3) * stderr <= detect * reference.abs()).all(), f"no power: {stderr.tolist()} for {exact}"
    z = ((draws.mean(0) - reference) / stderr).abs().max()
    assert z <= max_z, f"biased by {float(z):.1f} standard errors: {draws.mean(0).tolist()} for {exact}"


def assert_close(actual: Tensor, exact: Tensor | float, *, rtol: float) -> None:
    """Relative agreement; the reference must not be zero."""
    reference = torch.as_tensor(exact, dtype=actual.dtype)
    assert reference.abs().min() > 0, "a relative tolerance against zero checks nothing"
    torch.testing.assert_close(actual, reference, rtol=rtol, atol=0.0)


def gradient_of(tensor: Tensor) -> Tensor:
    """The gradient that arrived at a leaf."""
    assert tensor.grad is not None, "no gradient arrived"
    return tensor.grad
