r"""Small tasks whose right strength is known, because the data were made with it: one per family.

Nature draws γ ~ p(γ | φ*) and emits y = f(T_γ(x)) + Normal(0, s²), with inputs x and a readout f that are known. For
that f, E_y log E_γ p(y | T_γ(x)) is greatest at φ = φ*. s is half the change that T_γ* makes to f, unless a task says
otherwise: smaller, and none of K draws would come near y, so that the bound would be loose and its maximum elsewhere.
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
from optima.posterior import Learn, Number
from tests.learning.ascent import Readout

EXAMPLES = 4096
Value = Number | Learn


def smooth(channels: int = 1, size: int = 8, coarse: int = 4) -> Tensor:
    """Random images in (0, 1) without fine detail."""
    seed = torch.Generator().manual_seed(channels)
    return functional.interpolate(torch.rand(EXAMPLES, channels, coarse, coarse, generator=seed), size, mode="bilinear")


def rough(channels: int = 1, size: int = 8) -> Tensor:
    """Random images in (0, 1), every pixel on its own."""
    return torch.rand(EXAMPLES, channels, size, size, generator=torch.Generator().manual_seed(channels))


def linear(inputs: Tensor, outputs: int = 4) -> Readout:
    """Random projections of the pixels, of about unit size."""
    pixels = inputs[0].numel()
    weights = torch.randn(pixels, outputs, generator=torch.Generator().manual_seed(7)) / pixels**0.5
    return lambda x: x.flatten(1) @ weights


@dataclass(frozen=True)
class Task:
    """
    Args:
        build: the augmentation, given φ as a number or as something to be learned.
        truth: φ*.
        starts: from where to learn it, below and above.
        inputs: x.
        readout: f, made for these inputs.
        ratio: s, as a share of the change that T_γ makes to f at φ*.
        tolerance: relative, on φ.
    """

    build: Callable[[Value], Augmenter]
    truth: Number
    starts: tuple[Number, Number]
    inputs: Callable[[], Tensor] = smooth
    readout: Callable[[Tensor], Readout] = linear
    ratio: float = 1.0
    tolerance: float = 0.15
    steps: int = 100
    batch: int = 64
    samples: int = 64
    rate: float = 0.1

    def data(self) -> tuple[Tensor, Readout, Tensor, float]:
        """x, f, y and s."""
        x = self.inputs()
        read = self.readout(x)
        generator = torch.Generator().manual_seed(11)
        clean = read(self.build(self.truth)(x, generator=generator).x)
        noise = self.ratio * float((clean - read(x)).std())
        return x, read, clean + noise * torch.randn(clean.shape, generator=generator), noise


def positive(truth: float, **options) -> dict:
    return {"truth": truth, "starts": (truth / 2.5, truth * 2.5), **options}


def tokens() -> Tensor:
    return torch.randint(2, 12, (EXAMPLES, 6), generator=torch.Generator().manual_seed(1))


def table(inputs: Tensor) -> Readout:
    """Every token at every place says something of its own."""
    values = torch.randn(6, 12, 4, generator=torch.Generator().manual_seed(7))
    place = torch.arange(6)
    return lambda x: values[place, x].sum(1)


SIX = [15.0, 0.3, 0.3, 20.0, 0.08, 0.08]

SMOOTH_OPERATIONS = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")

TASKS = {
    "Shift": Task(lambda v: Shift(v), **positive(0.5, ratio=2.0)),
    "GaussianNoise": Task(lambda v: GaussianNoise(v), **positive(0.3, readout=lambda x: linear(x, 2))),
    "Rotate std": Task(lambda v: Rotate(v), **positive(25.0, ratio=2.0)),
    "Rotate range": Task(lambda v: Rotate(range=v), **positive(40.0)),
    "Translate std": Task(lambda v: Translate(v), **positive(0.12, ratio=2.0)),
    "Translate range": Task(lambda v: Translate(range=v), **positive(0.2)),
    "Scale std": Task(lambda v: Scale(v), **positive(0.25, ratio=2.0)),
    "Scale range": Task(lambda v: Scale(range=v), **positive(0.4)),
    "Shear std": Task(lambda v: Shear(v), **positive(15.0, ratio=2.0)),
    "Shear range": Task(lambda v: Shear(range=v), **positive(20.0)),
    "Affine std": Task(
        lambda v: Affine(v),
        SIX,
        ([w / 2.5 for w in SIX], [w * 2.5 for w in SIX]),
        readout=lambda x: linear(x, 24),
        ratio=2.0,
        steps=150,
    ),
    "CropResize std": Task(lambda v: CropResize(v), **positive(0.4, ratio=2.0)),
    "CropResize range": Task(lambda v: CropResize(range=v), **positive(0.5)),
    "Flip": Task(lambda v: Flip(v), 0.4, (0.1, 0.85)),
    "Brightness": Task(lambda v: Brightness(v), **positive(0.3, ratio=2.0)),
    "Contrast": Task(lambda v: Contrast(v), **positive(0.4, ratio=2.0)),
    "Saturation": Task(lambda v: Saturation(v), **positive(0.4, ratio=2.0), inputs=lambda: smooth(3)),
    "Hue": Task(lambda v: Hue(v), **positive(30.0, ratio=2.0), inputs=lambda: smooth(3)),
    "Gamma": Task(lambda v: Gamma(v), **positive(0.4, ratio=2.0)),
    "Blur std": Task(lambda v: Blur(v), **positive(0.8, ratio=2.0), inputs=rough),
    "Blur range": Task(lambda v: Blur(range=v), **positive(1.0), inputs=rough),
    "Erase std": Task(lambda v: Erase(v), **positive(0.4, ratio=2.0)),
    "Erase range": Task(lambda v: Erase(range=v), **positive(0.4)),
    "TokenDropout": Task(lambda v: TokenDropout(v, mask_id=1), 0.3, (0.08, 0.7), tokens, table),
    "Maybe": Task(lambda v: Maybe(Rotate(std=10.0, mean=90.0), v), 0.4, (0.15, 0.85), batch=32, samples=32),
    "OneOf": Task(
        lambda v: OneOf(Rotate(std=5.0, mean=90.0), Flip(1.0), Flip(1.0, axis="vertical"), probs=v),
        [0.25, 0.45, 0.3],
        ([0.5, 0.1, 0.4], [0.05, 0.9, 0.05]),
        batch=32,
        samples=32,
        ratio=0.5,
    ),
    "AugMix": Task(lambda v: AugMix(v, width=1, depth=1, operations=SMOOTH_OPERATIONS), 3.5, (1.4, 8.5), ratio=2.0),
    "AugMix jumps": Task(lambda v: AugMix(v, width=1, depth=1, operations=("solarize",)), 3.5, (1.4, 8.5), ratio=2.0),
}
