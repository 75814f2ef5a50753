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
        if isinstance(y, MixedTarget):
            check_mixed(y, len(x))
    check_generator(generator, x)


def check_generator(generator: torch.Generator | None, x: Tensor) -> None:
    """Raise unless this can draw for x."""
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


def check_mixed(target: MixedTarget, rows: int) -> None:
    """Raise unless each of the labels has a weight in every row, a share of 1."""
    weights, expected = target.weights, (rows, len(target.labels))
    if not len(target.labels):
        raise ValueError("a MixedTarget needs one tensor of labels or more, got none")
    if tuple(weights.shape) != expected or not weights.is_floating_point():
        raise ValueError(
            f"a MixedTarget needs floating-point weights of shape {expected}, one per row and label, got"
            f" {weights.dtype} of shape {tuple(weights.shape)}"
        )
    if not can_look(weights) or not weights.numel():
        return
    low, high = float(weights.detach().min()), float(weights.detach().max())
    if not (low >= -1e-4 and high <= 1 + 1e-4):
        raise ValueError(f"the weights of a MixedTarget must lie in [0, 1], got {low:g}…{high:g}")
    check_sums(weights, "the weights of a MixedTarget")


def check_sums(shares: Tensor, what: str, remedy: str = "") -> None:
    """Raise unless every row sums to 1, as far as its precision goes."""
    worst = float((shares.detach().sum(-1) - 1).abs().max())
    if worst > max(1e-3, 4 * torch.finfo(shares.dtype).eps):
        raise ValueError(f"{what} must sum to 1 in every row, one is off by {worst:.3g}{remedy}")


def can_look(values: Tensor) -> bool:
    """Whether values may be looked at: on an accelerator the host would wait, and a compiled graph cannot."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling()


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


def check_share(share: float) -> None:
    """Raise unless this is a share of the examples."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise ValueError(f"share must be a share of the examples, above 0 and at most 1, got {share!r}")


def check_replay(replay: Mapping[str, Tensor], expected: set[str], rows: int) -> None:
    """Raise unless `replay` holds every component of γ, one row each."""
    if not isinstance(replay, Mapping):
        raise TypeError(f"replay must be the gamma of a view, a mapping of named tensors, got {type(replay).__name__}")
    if set(replay) != expected:
        raise ValueError(f"replay must hold the γ of this augmentation, {sorted(expected)}, got {sorted(replay)}")
    for name, value in replay.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"replay: {name} must be a tensor, got {type(value).__name__}")
    wrong = {name: len(value) if value.ndim else 0 for name, value in replay.items()}
    wrong = {name: length for name, length in wrong.items() if length != rows}
    if wrong:
        raise ValueError(f"replay must hold one γ per row of the view, {rows} (samples × batch), got {wrong}")
    for name, value in replay.items():
        if name.rpartition(".")[2] == "partner":
            _check_partner(name, value, rows)
        elif can_look(value) and not bool(value.isfinite().all()):
            raise ValueError(f"replay: {name} must be finite, got {float(value[~value.isfinite()][0])}")


def _check_partner(name: str, partner: Tensor, rows: int) -> None:
    if partner.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"replay: {name} must hold row numbers, torch.int64, got {partner.dtype}")
    if partner.ndim != 1:
        raise ValueError(
            f"replay: {name} must hold one row number per row, shape ({rows},), got {tuple(partner.shape)}"
        )
    if can_look(partner) and (int(partner.min()) < 0 or int(partner.max()) >= rows):
        raise ValueError(
            f"replay: {name} must hold row numbers in 0…{rows - 1}, got {int(partner.min())}…{int(partner.max())}"
        )
