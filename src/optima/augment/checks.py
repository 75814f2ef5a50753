"""What a call of an augmentation must be given."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from optima.augment.view import MixedTarget, Target


def check_batch(x: Tensor, y: Target | None, samples: int, generator: torch.Generator | None) -> None:
    """Raise unless these are inputs, one target for each, and a number of draws."""
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor with one row per example, got {type(x).__name__}")
    if x.ndim == 0 or len(x) == 0:
        raise ValueError(f"x must hold at least one example along its first axis, got shape {tuple(x.shape)}")
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ValueError(f"samples must be a whole number of draws, at least 1, got {samples!r}")
    if y is not None:
        parts = (*y.labels, y.weights) if isinstance(y, MixedTarget) else (y,)
        rows = next((length for length in map(_rows, parts) if length != len(x)), len(x))
        if rows != len(x):
            raise ValueError(f"y must hold one target per example: x has {len(x)} rows and y has {rows}")
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, got {type(generator).__name__}")
    if generator is not None and generator.device.type != x.device.type:
        raise ValueError(
            f"generator lives on {generator.device} and x on {x.device}; make torch.Generator({str(x.device)!r})"
        )


def _rows(y: Tensor) -> int:
    if not isinstance(y, Tensor):
        raise TypeError(f"y must be a tensor, a MixedTarget or None, got {type(y).__name__}")
    if y.ndim == 0:
        raise ValueError("y must hold one target per example, got a single number")
    return len(y)


def check_mask(mask: Tensor | None, x: Tensor) -> None:
    """Raise unless this is a label for every pixel."""
    if mask is None:
        return
    if not isinstance(mask, Tensor):
        raise TypeError(f"mask must be a tensor of labels, one per pixel, got {type(mask).__name__}")
    expected = (len(x), *x.shape[2:])
    if x.ndim != 4 or tuple(mask.shape) != expected:
        raise ValueError(
            f"mask must hold one label per pixel of images (B, C, H, W), shape {expected}, got {tuple(mask.shape)}"
        )


def check_boxes(boxes: Tensor | None, x: Tensor) -> None:
    """Raise unless these are upright boxes in the images."""
    if boxes is None:
        return
    if not isinstance(boxes, Tensor) or not boxes.is_floating_point():
        came = str(boxes.dtype) if isinstance(boxes, Tensor) else type(boxes).__name__
        raise TypeError(f"boxes must be a floating-point tensor, since they move by parts of a pixel, got {came}")
    if x.ndim != 4 or boxes.ndim != 3 or len(boxes) != len(x) or boxes.shape[-1] != 4:
        raise ValueError(
            f"boxes must hold n boxes for each of the images (B, C, H, W), shape ({len(x)}, n, 4), got"
            f" {tuple(boxes.shape)}"
        )
    if boxes.device.type == "cpu" and bool((boxes[..., :2] > boxes[..., 2:]).any()):
        raise ValueError("boxes must be given as left, top, right, bottom; one of them ends before it begins")


def check_replay(replay: Mapping[str, Tensor], expected: set[str], rows: int) -> None:
    """Raise unless `replay` holds every component of γ, one row each."""
    if not isinstance(replay, Mapping):
        raise TypeError(f"replay must be the gamma of a view, a mapping of named tensors, got {type(replay).__name__}")
    if set(replay) != expected:
        raise ValueError(f"replay must hold the γ of this augmentation, {sorted(expected)}, got {sorted(replay)}")
    for name, value in replay.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"replay: {name} must be a tensor, got {type(value).__name__}")
    wrong = {name: len(value) for name, value in replay.items() if len(value) != rows}
    if wrong:
        raise ValueError(f"replay must hold one γ per row of the view, {rows} (samples × batch), got {wrong}")
