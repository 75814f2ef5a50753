"""Colour and detail: one problem per learned φ, for `tests.objective.test_gradients.check`.

Colours are mapped by arithmetic written out here; blur and erasing by the transforms, which have tests of their own.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from optima import Sequential, learn
from optima.augment import Augmentation
from optima.augment.colour import Brightness, Contrast, Gamma, Hue, Saturation
from optima.augment.local import Blur, Erase
from optima.transforms.blur import blur
from optima.transforms.erase import erase
from tests.objective.cases import DEGREE, Case, Columns, Params

SCALE = 0.3
_GREY = torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)
_WARMTH = torch.tensor([0.8, 1.2, 0.6, 0.1, -0.9, -0.5], dtype=torch.float64)


def _phi(value: float):
    return learn(value, scale=SCALE)


def _picture(channels: int, height: int, width: int) -> Tensor:
    count = channels * height * width
    return torch.linspace(0.5, 4.0, count, dtype=torch.float64).sin().square().reshape(channels, height, width)


def _read(x: Tensor) -> Tensor:
    flat = x.reshape(len(x), -1)
    weights = torch.linspace(-1, 2.5, flat.shape[1], dtype=torch.float64).cos()
    return (flat * weights).sum(-1)


def _read_colours(x: Tensor) -> Tensor:
    """Bounded: the exponential of a Gaussian with a log-normal width has no moments."""
    return torch.tanh(2.0 * (x.reshape(len(x), -1) * _WARMTH).sum(-1) - 2.0)


def _grey(x: Tensor) -> Tensor:
    return torch.einsum("c,nchw->nhw", _GREY, x).unsqueeze(1)


def _each(gamma: Tensor) -> Tensor:
    return gamma.view(-1, 1, 1, 1)


def _brighter(x: Tensor, gamma: Tensor) -> Tensor:
    return _each(gamma.exp()) * x


def _contrasted(x: Tensor, gamma: Tensor) -> Tensor:
    mean = _grey(x).mean((2, 3), keepdim=True)
    return mean + _each(gamma.exp()) * (x - mean)


def _saturated(x: Tensor, gamma: Tensor) -> Tensor:
    return _grey(x) + _each(gamma.exp()) * (x - _grey(x))


def _turned(x: Tensor, gamma: Tensor) -> Tensor:
    luma, cos, sin = _grey(x), _each(gamma.cos()), _each(gamma.sin())
    u, v = 0.492 * (x[:, 2:] - luma), 0.877 * (x[:, :1] - luma)
    u, v = u * cos - v * sin, u * sin + v * cos
    red, blue = luma + v / 0.877, luma + u / 0.492
    return torch.cat([red, (luma - _GREY[0] * red - _GREY[2] * blue) / _GREY[1], blue], 1)


def _all_four(p: Params, n: Columns, x: Tensor) -> Tensor:
    y = _brighter(x[None], p["brightness.std"] * n["brightness.log_factor"])
    y = _contrasted(y, p["contrast.std"] * n["contrast.log_factor"])
    y = _saturated(y, 0.3 * n["saturation.log_factor"])
    return _turned(y, p["hue.range"] * (2 * n["hue.angle"] - 1) * DEGREE)


def _joined(estimator: str) -> Augmentation:
    steps = Brightness(_phi(0.4)), Contrast(_phi(0.5)), Saturation(0.3), Hue(range=_phi(60.0))
    return cast("Augmentation", Sequential(*steps))  # it has what a case asks of an augmentation


_COLOURS = _picture(3, 1, 2)
_GREYS = _picture(1, 3, 4)
_POSITIVE = _COLOURS * 0.8 + 0.1
_UNIFORM = ("pathwise",)  # the support of a uniform moves with φ, so there is no score
_SCALES = {name: ((name, SCALE),) for name in ("std", "range")}

COLOUR_CASES = {
    "Brightness std": Case(
        build=lambda e: Brightness(_phi(0.5), estimator=e),
        start={"std": 0.5},
        scales=_SCALES["std"],
        x=_COLOURS,
        read=_read_colours,
        noise={"log_factor": ()},
        gamma_to_x=lambda p, n, x: _brighter(x[None], p["std"] * n["log_factor"]),
    ),
    "Brightness range": Case(
        build=lambda e: Brightness(range=_phi(0.8), estimator=e),
        start={"range": 0.8},
        scales=_SCALES["range"],
        x=_COLOURS,
        read=_read_colours,
        noise={"log_factor~": ()},
        gamma_to_x=lambda p, n, x: _brighter(x[None], p["range"] * (2 * n["log_factor"] - 1)),
        estimators=_UNIFORM,
    ),
    "Contrast std": Case(
        build=lambda e: Contrast(_phi(0.5), estimator=e),
        start={"std": 0.5},
        scales=_SCALES["std"],
        x=_COLOURS,
        read=_read_colours,
        noise={"log_factor": ()},
        gamma_to_x=lambda p, n, x: _contrasted(x[None], p["std"] * n["log_factor"]),
    ),
    "Contrast range": Case(
        build=lambda e: Contrast(range=_phi(0.8), estimator=e),
        start={"range": 0.8},
        scales=_SCALES["range"],
        x=_COLOURS,
        read=_read_colours,
        noise={"log_factor~": ()},
        gamma_to_x=lambda p, n, x: _contrasted(x[None], p["range"] * (2 * n["log_factor"] - 1)),
        estimators=_UNIFORM,
    ),
    "Saturation std": Case(
        build=lambda e: Saturation(_phi(0.5), estimator=e),
        start={"std": 0.5},
        scales=_SCALES["std"],
        x=_COLOURS,
        read=_read_colours,
        noise={"log_factor": ()},
        gamma_to_x=lambda p, n, x: _saturated(x[None], p["std"] * n["log_factor"]),
    ),
    "Saturation range": Case(
        build=lambda e: Saturation(range=_phi(0.8), estimator=e),
        start={"range": 0.8},
        scales=_SCALES["range"],
        x=_COLOURS,
        read=_read_colours,
        noise={"log_factor~": ()},
        gamma_to_x=lambda p, n, x: _saturated(x[None], p["range"] * (2 * n["log_factor"] - 1)),
        estimators=_UNIFORM,
    ),
    "Hue std": Case(
        build=lambda e: Hue(_phi(40.0), estimator=e),
        start={"std": 40.0},
        ends=(("std", 180.0),),
        scales=_SCALES["std"],
        x=_COLOURS,
        read=_read_colours,
        noise={"angle": ()},
        gamma_to_x=lambda p, n, x: _turned(x[None], p["std"] * n["angle"] * DEGREE),
    ),
    "Hue range": Case(
        build=lambda e: Hue(range=_phi(60.0), estimator=e),
        start={"range": 60.0},
        ends=(("range", 180.0),),
        scales=_SCALES["range"],
        x=_COLOURS,
        read=_read_colours,
        noise={"angle~": ()},
        gamma_to_x=lambda p, n, x: _turned(x[None], p["range"] * (2 * n["angle"] - 1) * DEGREE),
        estimators=_UNIFORM,
    ),
    "Gamma std": Case(
        build=lambda e: Gamma(_phi(0.5), estimator=e),
        start={"std": 0.5},
        scales=_SCALES["std"],
        x=_POSITIVE,
        read=_read_colours,
        noise={"log_exponent": ()},
        gamma_to_x=lambda p, n, x: x[None] ** _each((p["std"] * n["log_exponent"]).exp()),
    ),
    "Gamma range": Case(
        build=lambda e: Gamma(range=_phi(0.8), estimator=e),
        start={"range": 0.8},
        scales=_SCALES["range"],
        x=_POSITIVE,
        read=_read_colours,
        noise={"log_exponent~": ()},
        gamma_to_x=lambda p, n, x: x[None] ** _each((p["range"] * (2 * n["log_exponent"] - 1)).exp()),
        estimators=_UNIFORM,
    ),
    "Four colours joined": Case(
        build=_joined,
        start={"brightness.std": 0.4, "contrast.std": 0.5, "hue.range": 60.0},
        ends=(("hue.range", 180.0),),
        scales=tuple((name, SCALE) for name in ("brightness.std", "contrast.std", "hue.range")),
        x=_COLOURS,
        read=_read_colours,
        noise={
            "brightness.log_factor": (),
            "contrast.log_factor": (),
            "saturation.log_factor": (),
            "hue.angle~": (),
        },
        gamma_to_x=_all_four,
        estimators=_UNIFORM,
    ),
    "Blur std": Case(
        build=lambda e: Blur(_phi(0.8), estimator=e),
        start={"std": 0.8},
        scales=_SCALES["std"],
        x=_GREYS,
        read=_read,
        noise={"width": ()},
        gamma_to_x=lambda p, n, x: blur(x.expand(len(p["std"]), *x.shape), (p["std"] * n["width"]).abs()),
    ),
    "Blur range": Case(
        build=lambda e: Blur(range=_phi(1.2), estimator=e),
        start={"range": 1.2},
        scales=_SCALES["range"],
        x=_GREYS,
        read=_read,
        noise={"width~": ()},
        gamma_to_x=lambda p, n, x: blur(x.expand(len(p["range"]), *x.shape), p["range"] * n["width"]),
        estimators=_UNIFORM,
    ),
    "Erase std": Case(
        build=lambda e: Erase(_phi(0.4), value="mean", estimator=e),
        start={"std": 0.4},
        scales=_SCALES["std"],
        x=_GREYS,
        read=_read,
        noise={"side": (), "centre~": (2,)},
        gamma_to_x=lambda p, n, x: _erased(x, n["centre"], (p["std"] * n["side"]).abs(), "mean"),
    ),
    "Erase range": Case(
        build=lambda e: Erase(range=_phi(0.7), estimator=e),
        start={"range": 0.7},
        scales=_SCALES["range"],
        x=_GREYS,
        read=_read,
        noise={"side~": (), "centre~": (2,)},
        gamma_to_x=lambda p, n, x: _erased(x, n["centre"], p["range"] * n["side"], 0.0),
        estimators=_UNIFORM,
    ),
}


def _erased(x: Tensor, centre: Tensor, side: Tensor, value) -> Tensor:
    return erase(x.expand(len(side), *x.shape), centre, side.unsqueeze(1).expand(-1, 2), value)
