r"""Small tasks whose right strength is known, because the data were made with it: one or two per family.

Nature draws γ ~ p(γ | φ*) and emits y = f(T_γ(x)) + Normal(0, s²), where the inputs x and the readout f are known. The
expectation of log E_γ p(y | T_γ(x)) over such data is greatest at φ = φ*.

With K draws the bound is looser the rarer a draw that comes near y, which pulls its maximum away from φ*. So s is about
as large as the change that T_γ makes to f, and twice that where a Gaussian γ has tails to be met.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from optima import (
    Affine,
    CropResize,
    Flip,
    GaussianNoise,
    Maybe,
    OneOf,
    Rotate,
    Scale,
    Shear,
    Shift,
    TokenDropout,
    Translate,
)
from optima.augment.augmenter import Augmenter
from optima.augment.augmix import AugMix
from optima.augment.colour import Brightness, Contrast, Gamma, Hue, Saturation
from optima.augment.local import Blur, Erase
from optima.posterior import Learn
from tests.learning.ascent import Readout

EXAMPLES = 4096
SIDE = 8
TAILS = 2.0  # the ratio for a Gaussian γ

Strength = float | list[float]


@dataclass(frozen=True)
class Task:
    """A readout of augmented inputs whose φ* is known.

    Args:
        build: the augmentation, given φ as a number or as something to be learned.
        truth: φ*.
        starts: from where to learn it: narrow or seldom, and wide or often.
        inputs: makes x.
        readout: makes f for these inputs.
        ratio: s, as a multiple of the change that T_γ makes to f at φ*.
        tolerance: relative, on every element of φ.
        batch: B.
        samples: K.
    """

    build: Callable[[Strength | Learn], Augmenter]
    truth: Strength
    starts: tuple[Strength, Strength]
    inputs: Callable[[], Tensor]
    readout: Callable[[Tensor], Readout]
    ratio: float
    tolerance: float = 0.15
    batch: int = 64
    samples: int = 64

    def data(self) -> tuple[Tensor, Tensor, Readout, float]:
        """x, y, f and s."""
        x = self.inputs()
        read = self.readout(x)
        y, noise = emitted(self.build(self.truth), read, x, self.ratio)
        return x, y, read, noise


def emitted(nature: Augmenter, read: Readout, x: Tensor, ratio: float) -> tuple[Tensor, float]:
    """y and s."""
    generator = torch.Generator().manual_seed(11)
    clean = read(nature(x, generator=generator).x)
    noise = ratio * float((clean - read(x)).std())
    return clean + noise * torch.randn(clean.shape, generator=generator), noise


# ---- inputs and readouts -------------------------------------------------------------------------------------------


def smooth(channels: int = 1) -> Tensor:
    """Random images in (0, 1) without fine detail."""
    coarse = torch.rand(EXAMPLES, channels, 4, 4, generator=torch.Generator().manual_seed(1))
    return functional.interpolate(coarse, SIDE, mode="bilinear")


def coloured() -> Tensor:
    return smooth(3)


def rough() -> Tensor:
    """Random images in (0, 1), every pixel on its own."""
    return torch.rand(EXAMPLES, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(1))


def tokens() -> Tensor:
    return torch.randint(2, 12, (EXAMPLES, 6), generator=torch.Generator().manual_seed(1))


def linear(inputs: Tensor, outputs: int = 4) -> Readout:
    """Random projections of the pixels."""
    pixels = inputs[0].numel()
    weights = torch.randn(pixels, outputs, generator=torch.Generator().manual_seed(7)) / pixels**0.5
    return lambda x: x.flatten(1) @ weights


def pair(inputs: Tensor) -> Readout:
    return linear(inputs, 2)


def many(inputs: Tensor) -> Readout:
    return linear(inputs, 24)


def table(inputs: Tensor) -> Readout:
    """Every token at every place says something of its own."""
    length = inputs.shape[1]
    values = torch.randn(length, 12, 4, generator=torch.Generator().manual_seed(7))
    return lambda x: values[torch.arange(length), x].sum(1)


# ---- the tasks -----------------------------------------------------------------------------------------------------


def width(
    build: Callable[[Strength | Learn], Augmenter],
    truth: float,
    inputs: Callable[[], Tensor] = smooth,
    *,
    ratio: float = 1.0,
    readout: Callable[[Tensor], Readout] = linear,
) -> Task:
    """φ is a width, learned from 2.5 times less and from 2.5 times more."""
    return Task(build, truth, (truth / 2.5, truth * 2.5), inputs, readout, ratio)


def six_widths() -> Task:
    truth = [15.0, 0.3, 0.3, 20.0, 0.08, 0.08]
    starts = [part / 2.5 for part in truth], [part * 2.5 for part in truth]
    return Task(Affine, truth, starts, smooth, many, TAILS, tolerance=0.35, batch=128)


def one_of(probs: Strength | Learn) -> OneOf:
    return OneOf(Rotate(std=5.0, mean=90.0), Flip(1.0), Flip(1.0, axis="vertical"), probs=probs)


def augmix(*operations: str) -> Callable[[Strength | Learn], Augmenter]:
    return lambda severity: AugMix(severity, width=1, depth=1, operations=operations)


SEVERITIES = 1.4, 8.5

TASKS = {
    "Shift": width(Shift, 0.5, ratio=TAILS),
    "GaussianNoise": width(GaussianNoise, 0.3, readout=pair),
    "Rotate std": width(Rotate, 25.0, ratio=TAILS),
    "Rotate range": width(lambda v: Rotate(range=v), 40.0),
    "Translate std": width(Translate, 0.12, ratio=TAILS),
    "Translate range": width(lambda v: Translate(range=v), 0.2),
    "Scale std": width(Scale, 0.25, ratio=TAILS),
    "Scale range": width(lambda v: Scale(range=v), 0.4),
    "Shear std": width(Shear, 15.0, ratio=TAILS),
    "Shear range": width(lambda v: Shear(range=v), 20.0),
    "Affine std": six_widths(),
    "CropResize std": width(CropResize, 0.4, ratio=TAILS),
    "CropResize range": width(lambda v: CropResize(range=v), 0.5),
    "Brightness": width(Brightness, 0.3, ratio=TAILS),
    "Contrast": width(Contrast, 0.4, ratio=TAILS),
    "Saturation": width(Saturation, 0.4, coloured, ratio=TAILS),
    "Hue": width(Hue, 30.0, coloured, ratio=TAILS),
    "Gamma": width(Gamma, 0.4, ratio=TAILS),
    "Blur std": width(Blur, 0.8, rough, ratio=TAILS),
    "Blur range": width(lambda v: Blur(range=v), 1.0, rough),
    "Erase std": width(Erase, 0.4, ratio=TAILS),
    "Erase range": width(lambda v: Erase(range=v), 0.4),
    "Flip": Task(Flip, 0.4, (0.15, 0.85), smooth, linear, 1.0),
    "TokenDropout": Task(lambda v: TokenDropout(v, mask_id=1), 0.3, (0.08, 0.75), tokens, table, 1.0),
    "Maybe": Task(
        lambda v: Maybe(Rotate(std=10.0, mean=90.0), v), 0.4, (0.15, 0.85), smooth, linear, 1.0, batch=32, samples=32
    ),
    "OneOf": Task(
        one_of,
        [0.25, 0.45, 0.3],
        ([0.5, 0.05, 0.45], [0.05, 0.9, 0.05]),
        smooth,
        linear,
        0.5,
        tolerance=0.2,
        batch=32,
        samples=32,
    ),
    "AugMix": Task(
        augmix("rotate", "shear_x", "shear_y", "translate_x", "translate_y"), 3.5, SEVERITIES, smooth, linear, TAILS
    ),
    "AugMix by score": Task(augmix("solarize"), 3.5, SEVERITIES, smooth, linear, TAILS),
}
