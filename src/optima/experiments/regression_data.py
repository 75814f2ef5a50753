r"""The paper's synthetic regression problem, and what is known about it in closed form.

    y = f(x) + ε + ε' sin x,   f(x) = sin 2x + ½ cos 3x,   ε ~ N(0, 0.2²),   ε' ~ N(0, 0.15²)

Training inputs are uniform on [−3, 3], test inputs evenly spaced on it; ε and ε' are drawn anew for every point.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

NUM_DATA = 50
NUM_TEST = 1000
EDGE = 3.0
EPSILON_STD = 0.2
EPSILON_SIN_STD = 0.15


class Dataset(NamedTuple):
    """Training and test data, each (rows, 1); `f_test` is the test target without its noise."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    f_test: Tensor


def truth(x: Tensor) -> Tensor:
    """f(x) = sin 2x + ½ cos 3x."""
    return (2 * x).sin() + 0.5 * (3 * x).cos()


def observe(x: Tensor, generator: torch.Generator) -> Tensor:
    """y = f(x) + ε + ε' sin x, with its own ε and ε' for every element of x."""
    epsilon, epsilon_sin = torch.randn((2, *x.shape), generator=generator)
    return truth(x) + EPSILON_STD * epsilon + EPSILON_SIN_STD * epsilon_sin * x.sin()


def draw_dataset(generator: torch.Generator) -> Dataset:
    """One data set of the paper's size."""
    x = EDGE * (2 * torch.rand((NUM_DATA, 1), generator=generator) - 1)
    x_test = torch.linspace(-EDGE, EDGE, NUM_TEST).unsqueeze(1)
    return Dataset(x, observe(x, generator), x_test, observe(x_test, generator), truth(x_test))


def noise_std() -> float:
    """Root mean square of the noise over x ~ U(−3, 3): E[sin² x] = ½ − sin 6 / 12."""
    sin_squared = 0.5 - math.sin(2 * EDGE) / (4 * EDGE)
    return math.sqrt(EPSILON_STD**2 + EPSILON_SIN_STD**2 * sin_squared)


def true_squared_slope() -> float:
    """E[f'(x)²] over x ~ U(−3, 3), f' = 2 cos 2x − 1.5 sin 3x; the product of the two is odd and drops out."""
    cos_squared = 0.5 + math.sin(4 * EDGE) / (8 * EDGE)
    sin_squared = 0.5 - math.sin(6 * EDGE) / (12 * EDGE)
    return 4 * cos_squared + 2.25 * sin_squared
