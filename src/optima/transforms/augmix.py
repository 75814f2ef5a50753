r"""AugMix (Hendrycks et al., 2020): chains of simple operations, blended with the image they began from.

    x' = (1 − m) · x + m · Σ_w a_w · chain_w(x)

A chain is `depth` operations, each with a level ℓ in (0, 10]; the sign of ℓ matters to the geometric ones alone:

    rotate                                    by 3ℓ degrees, positive is counter-clockwise
    shear_x, shear_y                          by 0.03 ℓ, the left upper corner stays where it is
    translate_x, translate_y                  by ℓ/30 of the size, positive to the right and downwards
    color, contrast, brightness, sharpness    factor 0.1 + 0.18 ℓ
    posterize                                 to 4 − ⌊0.4 ℓ⌋ bits
    solarize                                  from 1 − ℓ/10 upwards
    autocontrast, equalize                    no level

Neighbouring geometric operations of a chain are one warp, bilinear, where the original rounds to the nearest pixel
after each. A step sorts the images of all chains by what they need, does each kind at once, and never visits the
images one by one; images are taken a few at a time, so that memory stays bounded and what is worked on stays in cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from optima.transforms import tonal
from optima.transforms.geometry import Padding, Warp

OPERATIONS = (
    "autocontrast",
    "equalize",
    "posterize",
    "rotate",
    "solarize",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
    "color",
    "contrast",
    "brightness",
    "sharpness",
)
GEOMETRIC = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
DISCONTINUOUS = ("posterize", "solarize", "equalize")  # x' jumps with ℓ, or with what the step before made
UNLEVELLED = ("autocontrast", "equalize")
MOST_STEPS = 3


def _factor(level: Tensor) -> Tensor:
    return 0.1 + 0.18 * level


_TONAL: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "autocontrast": lambda image, level: tonal.autocontrast(image),
    "equalize": lambda image, level: tonal.equalize(image),
    "posterize": lambda image, level: tonal.posterize(image, (4.0 - (0.4 * level.detach()).floor()).clamp(1.0, 4.0)),
    "solarize": lambda image, level: tonal.solarize(image, 1.0 - level.detach() / 10.0),
    "color": lambda image, level: tonal.colour(image, _factor(level)),
    "contrast": lambda image, level: tonal.contrast(image, _factor(level)),
    "brightness": lambda image, level: tonal.brightness(image, _factor(level)),
    "sharpness": lambda image, level: tonal.sharpness(image, _factor(level)),
}
# a kind of work: one of the tonal operations, the warp, or none
_WARP, _NONE = len(_TONAL), len(_TONAL) + 1
_KINDS = [_WARP if name in GEOMETRIC else list(_TONAL).index(name) for name in OPERATIONS]
_IN_HAND = {"cpu": 2**20}  # numbers worked on at once: about what a cache holds; a wide device wants more
_IN_HAND_ELSEWHERE = 2**27


def augmix(
    image: Float[Tensor, "B C H W"],
    weights: Float[Tensor, "B K"],
    blend: Float[Tensor, " B"],
    depth: Int[Tensor, "B K"],
    operation: Int[Tensor, "B K 3"],
    level: Float[Tensor, "B K 3"],
    *,
    padding: Padding = "zeros",
) -> Float[Tensor, "B C H W"]:
    """Blend each image with K chains: a (B, K), m (B,), then per chain how many of its three steps are taken.

    Differentiable in a, m, the image and the levels, except that posterize, solarize and equalize pass no gradient to
    levels, and posterize and equalize none to what came before them.

    Args:
        image: in [0, 1], of one or three channels; computed in float32 at least.
        weights: a, summing to 1 over K.
        blend: m.
        depth: steps taken, 1 to 3.
        operation: positions in `OPERATIONS`.
        level: ℓ, signed.
        padding: what lies beyond the border.
    """
    precise = torch.promote_types(image.dtype, torch.float32)
    width = weights.shape[1]
    few = max(1, _IN_HAND.get(image.device.type, _IN_HAND_ELSEWHERE) // (width * image[0].numel()))
    tracked = torch.is_grad_enabled() and any(part.requires_grad for part in (image, weights, blend, level))
    desk = None if tracked else _Desk.of(image, min(few, len(image)), width, precise)
    programs = _programs(depth, operation, level.to(precise), image, padding)
    share = torch.cat([1.0 - blend.unsqueeze(1), blend.unsqueeze(1) * weights], 1).to(precise)
    result = None if tracked else torch.empty_like(image)
    parts = []
    for first in range(0, len(image), few):
        x = image[first : first + few].to(precise, memory_format=torch.contiguous_format)
        ends, place = _run(x, programs.chains(first * width, (first + few) * width), width, desk)
        mixed = _mixed(x, ends, place.view(-1, width), share[first : first + few], desk)
        if result is None:
            parts.append(mixed.to(image.dtype))
        else:
            result[first : first + few] = mixed
    return torch.cat(parts) if result is None else result


class _Desk(NamedTuple):
    """Memory to work in where no gradient is wanted: fetching fresh pages costs more than the work."""

    chains: tuple[Tensor, Tensor]
    images: Tensor

    @classmethod
    def of(cls, image: Tensor, rows: int, width: int, dtype: torch.dtype) -> _Desk:
        shape = (rows * width, *image.shape[1:])
        one, other = (torch.empty(shape, dtype=dtype, device=image.device) for _ in range(2))
        return cls((one, other), torch.empty((rows, *shape[1:]), dtype=dtype, device=image.device))


def _select(images: Tensor, rows: Tensor, into: Tensor | None) -> Tensor:
    if into is None:
        return images.index_select(0, rows)
    return torch.index_select(images, 0, rows, out=into[: len(rows)])


def _mixed(image: Tensor, ends: Tensor, place: Tensor, share: Tensor, desk: _Desk | None) -> Tensor:
    """share₀ · x + Σ_w share_w · the end of chain w, which is at place[:, w]."""
    own, *others = share.view(*share.shape, 1, 1, 1).unbind(1)
    mixed = image * own
    for weight, where in zip(others, place.unbind(1), strict=True):
        mixed = mixed.addcmul_(_select(ends, where, None if desk is None else desk.images), weight)
    return mixed


# ---- what there is to do -----------------------------------------------------------------------------------------


class _Programs(NamedTuple):
    """What every chain does at each of its steps, (chains, 3); a step that is not taken comes after those that are."""

    kind: Tensor
    level: Tensor
    inverse: Tensor
    offset: Tensor
    padding: Padding

    def chains(self, first: int, last: int) -> _Programs:
        """Some of the chains."""
        some = (part[first:last] for part in (self.kind, self.level, self.inverse, self.offset))
        return _Programs(*some, padding=self.padding)


def _programs(depth: Tensor, operation: Tensor, level: Tensor, image: Tensor, padding: Padding) -> _Programs:
    """The chains as work to be done, a run of geometric steps being one warp."""
    depth, operation, level = depth.flatten(), operation.flatten(0, 1), level.flatten(0, 1)
    taken = torch.arange(MOST_STEPS, device=depth.device) < depth.unsqueeze(1)
    kind = torch.tensor(_KINDS, device=depth.device)[operation].masked_fill(~taken, _NONE)
    moves = kind == _WARP
    inverse, offset = _runs(*_steps(operation, level, image), moves, padding)
    continued = torch.zeros_like(moves)
    continued[:, 1:] = moves[:, 1:] & moves[:, :-1]
    kind = kind.masked_fill(continued, _NONE)
    order = (kind == _NONE).int().argsort(dim=1, stable=True)
    chain = torch.arange(len(kind), device=kind.device).unsqueeze(1)
    return _Programs(kind[chain, order], level[chain, order], inverse[chain, order], offset[chain, order], padding)


def _steps(operation: Tensor, level: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse (chains, 3, 2, 2) and offset (chains, 3, 2) of each step's own warp; the identity where it is none."""
    height, width = image.shape[2:]

    def only(name: str, strength: float) -> Tensor:
        return strength * level * (operation == OPERATIONS.index(name))

    angle = only("rotate", 3.0 * math.pi / 180.0)
    sideways, downwards = only("shear_x", 0.03), only("shear_y", 0.03)
    right, down = only("translate_x", width / 30.0), only("translate_y", height / 30.0)
    cos, sin = angle.cos(), angle.sin()
    inverse = torch.stack([cos, sideways - sin, downwards + sin, cos], -1).unflatten(-1, (2, 2))
    # a shear that leaves the corner in place moves the centre
    return inverse, torch.stack([sideways * (height / 2) - right, downwards * (width / 2) - down], -1)


def _runs(inverse: Tensor, offset: Tensor, moves: Tensor, padding: Padding) -> tuple[Tensor, Tensor]:
    """For each step its warp followed by those of the geometric steps right after it."""
    still = torch.eye(2, dtype=inverse.dtype, device=inverse.device)
    rest = Warp(still.expand(len(inverse), 2, 2), torch.zeros_like(offset[:, 0]), padding)
    found: list[Warp] = []
    for step in reversed(range(MOST_STEPS)):
        run = Warp(inverse[:, step], offset[:, step], padding).then(rest)
        assert isinstance(run, Warp)  # noqa: S101
        here = moves[:, step].view(-1, 1)
        rest = Warp(torch.where(here.unsqueeze(-1), run.inverse, still), torch.where(here, run.offset, 0.0), padding)
        found.insert(0, rest)
    return torch.stack([run.inverse for run in found], 1), torch.stack([run.offset for run in found], 1)


# ---- doing it ----------------------------------------------------------------------------------------------------


def _run(image: Tensor, programs: _Programs, width: int, desk: _Desk | None) -> tuple[Tensor, Tensor]:
    """The ends of all chains, in some order, and where each chain's end is."""
    counts = (programs.kind.unsqueeze(-1) == torch.arange(_NONE + 1, device=image.device)).sum(0).tolist()
    state = image
    place = torch.arange(len(image), device=image.device).repeat_interleave(width)
    for step, count in enumerate(counts):
        if count[_NONE] == len(place):
            break
        order = programs.kind[:, step].argsort(stable=True)
        taken = _select(state, place[order], None if desk is None else desk.chains[step % 2])
        state = _stepped(taken, programs, step, order, count)
        place = order.argsort()
    return state, place


def _stepped(state: Tensor, programs: _Programs, step: int, order: Tensor, count: list[int]) -> Tensor:
    """The images after one step, sorted by what they need; they may be written into `state`."""
    before = state.split(count)
    after = list(before)
    for kind, rows in enumerate(order.split(count)):
        if len(rows) == 0 or kind == _NONE:
            continue
        if kind == _WARP:
            warp = Warp(programs.inverse[rows, step], programs.offset[rows, step], programs.padding)
            after[kind] = warp(before[kind])
        else:
            after[kind] = list(_TONAL.values())[kind](before[kind], programs.level[rows, step])
    if any(part.requires_grad for part in after):
        return torch.cat(after)
    for old, new in zip(before, after, strict=True):
        if new is not old:
            old.copy_(new)
    return state
