"""Small problems whose expected objective is known without the library: one per augmentation.

Each case says how to build the augmentation, which noise its draws consume, and the log-likelihood of a row as plain
arithmetic on that noise. `expected` averages that arithmetic over evenly spread points, so that its derivative is a
central difference of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from optima import GaussianNoise, Rotate, Shift, Translate, learn
from optima.augment import Augmentation
from optima.transforms import rotate, translate
from tests.reference import spread_uniforms, to_normal

LOG2_ROWS = 18
SCALE = 0.5  # of q(φ), wide enough for log_scale to matter

Params = dict[str, Tensor]
Columns = dict[str, Tensor]


@dataclass(frozen=True)
class Case:
    """One augmentation on one repeated example.

    Args:
        build: the augmentation, given an estimator.
        start: for each learned φ the constrained starting value.
        real: φ whose support is the real line; the others are positive.
        scales: of q(φ), where it is not `SCALE`.
        x: the example, without a batch axis.
        read: the output of the "model" for a batch, (rows,).
        noise: names and shapes of the γ noise; those ending in "~" are uniform.
        gamma_to_x: T applied to the example, from draws of φ and the γ noise.
    """

    build: Callable[[str], Augmentation]
    start: dict[str, float]
    x: Tensor
    read: Callable[[Tensor], Tensor]
    noise: dict[str, tuple[int, ...]]
    gamma_to_x: Callable[[Params, Columns, Tensor], Tensor]
    real: tuple[str, ...] = ()
    scales: tuple[tuple[str, float], ...] = ()
    estimators: tuple[str, ...] = ("pathwise", "score_function")
    target: float = 0.4

    def columns(self, seed: int) -> Columns:
        """Noise for 2^18 rows: every φ's, then every γ's."""
        gaussian = dict.fromkeys(self.start, (1,))
        gaussian |= {name: shape for name, shape in self.noise.items() if not name.endswith("~")}
        flat = {name.rstrip("~"): shape for name, shape in self.noise.items() if name.endswith("~")}
        sizes = [sum(math.prod(shape) for shape in shapes.values()) for shapes in (gaussian, flat)]
        points = spread_uniforms(sum(sizes), LOG2_ROWS, seed)
        return _cut(to_normal(points[:, : sizes[0]]), gaussian) | _cut(points[:, sizes[0] :], flat)

    def expected(self, params: Params, columns: Columns) -> Tensor:
        """E of the log-likelihood, up to a constant, from the definition alone."""
        phi = {}
        for name in self.start:
            u = params[f"{name}.loc"] + params[f"{name}.log_scale"].exp() * columns[name].squeeze(-1)
            phi[name] = u if name in self.real else u.exp()
        x = self.gamma_to_x(phi, columns, self.x)
        return (-0.5 * (self.target - self.read(x)) ** 2).mean()

    def exact_gradient(self, seed: int = 1) -> Params:
        """Central differences of `expected`."""
        params = self.params()
        columns = self.columns(seed)

        def at(name: str, step: float) -> Tensor:
            return self.expected({**params, name: params[name] + step}, columns)

        return {name: (at(name, 1e-4) - at(name, -1e-4)) / 2e-4 for name in params}

    def params(self) -> Params:
        """The start of every q(φ), on the unconstrained line."""
        params = {}
        for name, value in self.start.items():
            params[f"{name}.loc"] = torch.tensor(value if name in self.real else math.log(value), dtype=torch.float64)
            params[f"{name}.log_scale"] = torch.tensor(
                math.log(dict(self.scales).get(name, SCALE)), dtype=torch.float64
            )
        return params


def _cut(points: Tensor, shapes: dict[str, tuple[int, ...]]) -> Columns:
    columns, at = {}, 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        columns[name] = points[:, at : at + size].reshape(len(points), *shape)
        at += size
    return columns


def phi(value: float, scale: float = SCALE):
    """A learned φ with the cases' spread."""
    return learn(value, scale=scale)


def _image() -> Tensor:
    x = torch.linspace(-1, 1, 5, dtype=torch.float64)
    y = x[:, None]
    return (torch.exp(-2 * (x - 0.3) ** 2 - 3 * (y + 0.2) ** 2) + 0.3 * x)[None]


_WEIGHTS = torch.linspace(-1, 2, 25, dtype=torch.float64).sin()


def _read_image(x: Tensor) -> Tensor:
    return (x.reshape(len(x), -1) * _WEIGHTS).sum(-1)


def _read_sum(x: Tensor) -> Tensor:
    return torch.tanh(x.reshape(len(x), -1).sum(-1))


def _repeat(x: Tensor, rows: int) -> Tensor:
    return x.expand(rows, *x.shape)


DEGREE = math.pi / 180

CASES = {
    "Shift": Case(
        build=lambda e: Shift(std=phi(0.5), mean=phi(0.2), estimator=e),
        start={"std": 0.5, "mean": 0.2},
        real=("mean",),
        x=torch.tensor([0.3], dtype=torch.float64),
        read=_read_sum,
        noise={"shift": ()},
        gamma_to_x=lambda p, n, x: x + (p["mean"] + p["std"] * n["shift"])[:, None],
    ),
    "GaussianNoise": Case(
        build=lambda e: GaussianNoise(std=phi(0.4), estimator=e),
        start={"std": 0.4},
        x=torch.tensor([0.3, -0.1], dtype=torch.float64),
        read=_read_sum,
        noise={"noise": (2,)},
        gamma_to_x=lambda p, n, x: x + p["std"][:, None] * n["noise"],
    ),
    "Rotate std": Case(
        build=lambda e: Rotate(std=phi(12.0, 0.3), mean=phi(20.0, 10.0), estimator=e),
        start={"std": 12.0, "mean": 20.0},
        real=("mean",),
        scales=(("std", 0.3), ("mean", 10.0)),
        x=_image(),
        read=_read_image,
        noise={"angle": ()},
        gamma_to_x=lambda p, n, x: rotate(_repeat(x, len(n["angle"])), (p["mean"] + p["std"] * n["angle"]) * DEGREE),
    ),
    "Rotate range": Case(
        build=lambda e: Rotate(range=phi(40.0), estimator=e),
        start={"range": 40.0},
        x=_image(),
        read=_read_image,
        noise={"angle~": ()},
        gamma_to_x=lambda p, n, x: rotate(_repeat(x, len(n["angle"])), p["range"] * (2 * n["angle"] - 1) * DEGREE),
        estimators=("pathwise",),
    ),
    "Translate std": Case(
        build=lambda e: Translate(std=phi(0.1), padding="border", estimator=e),
        start={"std": 0.1},
        x=_image(),
        read=_read_image,
        noise={"shift": (2,)},
        gamma_to_x=lambda p, n, x: translate(
            _repeat(x, len(n["shift"])), p["std"][:, None] * n["shift"], padding="border"
        ),
    ),
    "Translate range": Case(
        build=lambda e: Translate(range=phi(0.15), padding="border", estimator=e),
        start={"range": 0.15},
        x=_image(),
        read=_read_image,
        noise={"shift~": (2,)},
        gamma_to_x=lambda p, n, x: translate(
            _repeat(x, len(n["shift"])), p["range"][:, None] * (2 * n["shift"] - 1), padding="border"
        ),
        estimators=("pathwise",),
    ),
}
