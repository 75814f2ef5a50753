"""Who is measured in one cell, and that they do the same work: the right shape, and as large a change of the image."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from benchmarks import families, peer_kornia, peer_opencv, peer_torchvision
from benchmarks.families import FAMILIES, Batch, Unmeasurable
from benchmarks.timing import Action

_T = TypeVar("_T")

PER_BATCH = "torchvision_batch"  # one draw for the batch: its change of the image is that draw's, and not compared


@dataclass
class Cell:
    """The contestants of one cell, those that are absent with their reasons, and the change each makes."""

    actions: dict[str, Action] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    change: dict[str, float] = field(default_factory=dict)


@contextmanager
def cell(family: str, on: Batch, threads: int, shim: Path | None) -> Iterator[Cell]:
    """Everybody who can do this family, checked; processes that were started end with the block."""
    found = Cell(_ours(family, on))
    views, family = FAMILIES[family].views, FAMILIES[family].like or family
    found.actions["copy"] = lambda: on.x.clone()
    end: list[Callable[[], None]] = []

    def pil() -> dict[str, Action]:
        if family != "augmix":
            return {}
        from benchmarks import peer_pil

        actions, stop = peer_pil.forwards(family, on, threads)
        end.append(stop)
        return actions

    peers: dict[str, Callable[[], dict[str, Action]]] = {
        "kornia": lambda: peer_kornia.forwards(family, on),
        "kornia_backward": lambda: peer_kornia.backwards(family, on),
        "torchvision": lambda: peer_torchvision.forwards(family, on, shim),
        "opencv": lambda: peer_opencv.forwards(family, on),
        "pil": pil,
    }
    try:
        for name, build in peers.items():
            _join(found, name, build, on, views)
        for name in ("optima", "optima_backward"):
            found.change[name] = _change(name, found.actions[name](), on, views)
        yield found
    finally:
        for stop in end:
            stop()


def _ours(family: str, on: Batch) -> dict[str, Action]:
    """A fixed policy forwards, as every peer's is; a learned one forwards and back to q(φ)."""
    learned = families.policy(family)
    fixed = learned.frozen()
    views = FAMILIES[family].views

    def forwards_and_back() -> Tensor:
        for parameter in learned.parameters():
            parameter.grad = None
        view = learned(on.x, on.y, samples=views)
        families.to_phi(view, on)
        return view.x.detach()

    forwards_and_back()
    families.check_reach(family, learned)
    return {"optima": lambda: fixed(on.x, on.y, samples=views).x, "optima_backward": forwards_and_back}


def _join(found: Cell, name: str, build: Callable[[], dict[str, Action]], on: Batch, views: int) -> None:
    """Add a library's contestants, or the reason why they are absent."""
    actions = _tried(found, name, build) or {}
    for contestant, action in actions.items():
        change = _tried(found, contestant, lambda action=action, who=contestant: _change(who, action(), on, views))
        if change is not None:
            found.change[contestant], found.actions[contestant] = change, action


def _tried(found: Cell, name: str, work: Callable[[], _T]) -> _T | None:
    """The result, or the reason why there is none: a peer's fault must not end a run of an hour."""
    try:
        return work()
    except Unmeasurable as reason:
        found.absent[name] = str(reason)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        found.absent[name] = f"{type(error).__name__}: {first[:120]}"
    return None


def _change(name: str, output: Any, on: Batch, views: int) -> float:
    """Mean |x' − x| over the batch, once x' is seen to be as many images as asked for."""
    images = _as_images(output, views)
    rows, *rest = on.x.shape
    if tuple(images.shape) != (views * rows, *rest):
        raise Unmeasurable(f"{name} returned {tuple(images.shape)}, and {(views * rows, *rest)} was asked for")
    if isinstance(output, Tensor) and output.dtype != on.x.dtype:
        raise Unmeasurable(f"{name} returned {output.dtype} for {on.x.dtype}")
    if not bool(images.isfinite().all()):
        raise Unmeasurable(f"{name} returned something that is not a number")
    change = float((images.float().unflatten(0, (views, rows)) - on.x.float()).abs().mean())
    if change == 0 and name != PER_BATCH:
        raise Unmeasurable(f"{name} changed nothing")
    return float(f"{change:.3g}")


def _as_images(output: Any, views: int) -> Tensor:
    """(views · B, C, H, W), from whatever layout the library has."""
    if isinstance(output, np.ndarray):
        return torch.from_numpy(output.copy()).flatten(0, -4).movedim(-1, 1)
    return output
