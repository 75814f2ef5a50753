"""T_γ as an object: applied to a batch, cut to some of its rows, and joined to the transform that follows.

Neighbours that join cost one pass over the pixels instead of two, and one interpolation instead of two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class Operator(Protocol):
    """T_γ for every row of a batch."""

    def __call__(self, x: Tensor) -> Tensor:
        """T_γ(x)."""
        ...

    def on_mask(self, mask: Tensor) -> Tensor:
        """What it does to a map of labels over the pixels."""
        ...

    def on_boxes(self, boxes: Tensor, height: int, width: int) -> Tensor:
        """What it does to boxes (rows, n, 4) given as left, top, right, bottom in pixels, for images of this size."""
        ...

    def rows(self, index: Tensor) -> Operator:
        """The same for some of the rows, given by number."""
        ...

    def then(self, following: Operator) -> Operator | None:
        """This, and `following` after it, as one; None where they do not join."""
        ...


@dataclass(frozen=True)
class Plain:
    """Any function of (x, γ), which joins with nothing.

    Args:
        function: T.
        gamma: its γ, one row per row of x.
        together: the function combines rows, so that it makes no sense for some of them alone.
    """

    function: Callable[[Tensor, dict[str, Tensor]], Tensor]
    gamma: dict[str, Tensor]
    together: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        moved = self.function(x, self.gamma)
        if not isinstance(moved, Tensor) or moved.ndim == 0 or len(moved) != len(x):
            came = f"shape {tuple(moved.shape)}" if isinstance(moved, Tensor) else type(moved).__name__
            raise ValueError(f"transform(x, gamma) must return T_γ(x), one row for each of {len(x)}, got {came}")
        return moved

    def on_mask(self, mask: Tensor) -> Tensor:
        return mask

    def on_boxes(self, boxes: Tensor, height: int, width: int) -> Tensor:
        return boxes

    def rows(self, index: Tensor) -> Plain:
        return Plain(self.function, {name: value[index] for name, value in self.gamma.items()})

    def then(self, following: Operator) -> Operator | None:
        return None
