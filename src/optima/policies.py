"""Policies to start from: every strength in them is learned, from a modest start."""

from __future__ import annotations

from optima.augment import (
    Augmenter,
    AugMix,
    Blur,
    Brightness,
    Contrast,
    CutMix,
    Erase,
    Flip,
    Hue,
    Maybe,
    Mixup,
    OneOf,
    Rotate,
    Saturation,
    Scale,
    Sequential,
    Shear,
    Translate,
)
from optima.posterior import learn
from optima.transforms.geometry import Padding

__all__ = ["augmix", "auto", "colour", "geometric", "mix"]


def geometric(*, padding: Padding = "zeros") -> Sequential:
    """Mirror, turn, slant, magnify and move: one interpolation for all.

    Example:
        >>> [name for name, _ in geometric().steps()]
        ['flip', 'rotate', 'shear', 'scale', 'translate']
    """
    return Sequential(
        Flip(learn(0.2)),
        Rotate(std=learn(5.0), padding=padding),
        Shear(std=learn(3.0), padding=padding),
        Scale(std=learn(0.05), padding=padding),
        Translate(std=learn(0.05), padding=padding),
    )


def colour(*, channels: int = 3) -> Sequential:
    """Brightness, contrast and, of colour pictures, saturation and hue: one pass for all.

    Args:
        channels: 3, or any other number, for pictures without hue.
    """
    light = (Brightness(std=learn(0.1)), Contrast(std=learn(0.1)))
    return Sequential(*light, Saturation(std=learn(0.1)), Hue(std=learn(5.0))) if channels == 3 else Sequential(*light)


def mix() -> Augmenter:
    """Mixup or CutMix, or neither: how often each, and how strongly."""
    return Maybe(OneOf(Mixup(learn(0.4)), CutMix(learn(1.0)), probs=learn([0.5, 0.5])), learn(0.5))


def augmix() -> AugMix:
    """AugMix with a learned severity, and learned concentrations of its weights.

    For its consistency term call it with `samples=2, clean=True`, and use `ELBO(jsd=12.0)`.
    """
    return AugMix(severity=learn(3.0), dirichlet=learn(1.0), beta=learn(1.0))


def auto(*, steps: int = 2, channels: int = 3, padding: Padding = "zeros") -> Sequential:
    """A policy in the manner of AutoAugment: which operations, how strong, and how often.

    Args:
        steps: operations in a row; each is applied or not, and is one of ten (of eight without colour).
        channels: 3, or any other number, for pictures without hue.
        padding: what lies beyond the border.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(f"steps must be a whole number of operations, at least 1, got {steps!r}")
    return Sequential(*(Maybe(_any_operation(channels, padding), learn(0.5)) for _ in range(steps)))


def _any_operation(channels: int, padding: Padding) -> OneOf:
    operations: list[Augmenter] = [
        Rotate(std=learn(8.0), padding=padding),
        Shear(std=learn(8.0), padding=padding),
        Scale(std=learn(0.1), padding=padding),
        Translate(std=learn(0.08), padding=padding),
        Brightness(std=learn(0.2)),
        Contrast(std=learn(0.2)),
        Blur(range=learn(1.0)),
        Erase(range=learn(0.2)),
    ]
    if channels == 3:
        operations += [Saturation(std=learn(0.3)), Hue(std=learn(15.0))]
    return OneOf(*operations, probs=learn([1 / len(operations)] * len(operations)))
