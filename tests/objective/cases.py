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
from torch.nn import functional

from optima import CropResize, GaussianNoise, Rotate, Scale, Shear, Shift, Translate, learn
from optima.augment import Augmentation
from optima.transforms import rotate, scale, shear, translate
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
        real: φ whose support is the real line.
        ends: φ whose support ends, and where; the others are positive.
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
    ends: tuple[tuple[str, float], ...] = ()
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
            phi[name] = self._constrained(name, u)
        x = self.gamma_to_x(phi, columns, self.x)
        return (-0.5 * (self.target - self.read(x)) ** 2).mean()

    def exact_gradient(self, seed: int = 1) -> Params:
        """Central differences of `expected`."""
        params = self.params()
        columns = self.columns(seed)

        def at(name: str, step: float) -> Tensor:
            return self.expected({**params, name: params[name] + step}, columns)

        return {name: (at(name, 1e-4) - at(name, -1e-4)) / 2e-4 for name in params}

    def _constrained(self, name: str, u: Tensor) -> Tensor:
        if name in self.real:
            return u
        end = dict(self.ends).get(name)
        return u.exp() if end is None else end * torch.sigmoid(u)

    def params(self) -> Params:
        """The start of every q(φ), on the unconstrained line."""
        params = {}
        for name, value in self.start.items():
            end = dict(self.ends).get(name)
            odds = value if end is None else value / (end - value)
            params[f"{name}.loc"] = torch.tensor(value if name in self.real else math.log(odds), dtype=torch.float64)
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


def phi(value: float | list[float], scale: float = SCALE):
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


def _both(number: Tensor) -> Tensor:
    return number[:, None].expand(-1, 2)


def _cropped(x: Tensor, log_side: Tensor, place: Tensor) -> Tensor:
    """The crop by torch's own grid, whose coordinates run from −1 to 1."""
    side = torch.exp(-log_side.abs())
    zero = torch.zeros_like(side)
    # it may lie where its outermost pixels are still pixels of the image, 5 × 5
    across, down = (2 * (1 - side) * (axis - 0.5) * 4 / 5 for axis in place.unbind(1))
    matrix = torch.stack([side, zero, across, zero, side, down], 1).view(-1, 2, 3)
    grid = functional.affine_grid(matrix, [len(side), *x.shape], align_corners=False)
    return functional.grid_sample(_repeat(x, len(side)), grid, align_corners=False)


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
        ends=(("std", 180.0),),
        scales=(("std", 0.3), ("mean", 10.0)),
        x=_image(),
        read=_read_image,
        noise={"angle": ()},
        gamma_to_x=lambda p, n, x: rotate(_repeat(x, len(n["angle"])), (p["mean"] + p["std"] * n["angle"]) * DEGREE),
    ),
    "Rotate range": Case(
        build=lambda e: Rotate(range=phi(40.0), estimator=e),
        start={"range": 40.0},
        ends=(("range", 180.0),),
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
    "Scale std": Case(
        build=lambda e: Scale(std=phi(0.2), padding="border", estimator=e),
        start={"std": 0.2},
        x=_image(),
        read=_read_image,
        noise={"log_scale": ()},
        gamma_to_x=lambda p, n, x: scale(
            _repeat(x, len(n["log_scale"])), _both(p["std"] * n["log_scale"]), padding="border"
        ),
    ),
    "Scale range": Case(
        build=lambda e: Scale(range=phi(0.6, 0.3), estimator=e),
        start={"range": 0.6},
        scales=(("range", 0.3),),
        x=_image(),
        read=_read_image,
        noise={"log_scale~": ()},
        gamma_to_x=lambda p, n, x: scale(_repeat(x, len(n["log_scale"])), _both(p["range"] * (2 * n["log_scale"] - 1))),
        estimators=("pathwise",),
    ),
    "Shear std": Case(
        build=lambda e: Shear(std=phi(12.0, 0.3), padding="border", estimator=e),
        start={"std": 12.0},
        ends=(("std", 85.0),),
        scales=(("std", 0.3),),
        x=_image(),
        read=_read_image,
        noise={"angle": (2,)},
        gamma_to_x=lambda p, n, x: shear(
            _repeat(x, len(n["angle"])), p["std"][:, None] * n["angle"] * DEGREE, padding="border"
        ),
    ),
    "Shear range": Case(
        build=lambda e: Shear(range=phi(25.0), padding="border", estimator=e),
        start={"range": 25.0},
        ends=(("range", 85.0),),
        x=_image(),
        read=_read_image,
        noise={"angle~": (2,)},
        gamma_to_x=lambda p, n, x: shear(
            _repeat(x, len(n["angle"])), p["range"][:, None] * (2 * n["angle"] - 1) * DEGREE, padding="border"
        ),
        estimators=("pathwise",),
    ),
    "CropResize std": Case(
        build=lambda e: CropResize(std=phi(0.3), estimator=e),
        start={"std": 0.3},
        x=_image(),
        read=_read_image,
        noise={"log_side": (), "place~": (2,)},
        gamma_to_x=lambda p, n, x: _cropped(x, p["std"] * n["log_side"], n["place"]),
    ),
    "CropResize range": Case(
        build=lambda e: CropResize(range=phi(0.5), estimator=e),
        start={"range": 0.5},
        x=_image(),
        read=_read_image,
        noise={"log_side~": (), "place~": (2,)},
        gamma_to_x=lambda p, n, x: _cropped(x, p["range"] * (2 * n["log_side"] - 1), n["place"]),
        estimators=("pathwise",),
    ),
}
