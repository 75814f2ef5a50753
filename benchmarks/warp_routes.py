"""Other ways to warp than grid_sample, timed beside it: python -m benchmarks.warp_routes. About a minute.

Rotation of 32×3×224×224 in float32 by a random angle each, on one thread. All routes give the same picture, except that
three shears interpolate three times.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks import timing
from optima.transforms.geometry import Warp, _grid, centred, turn


def gathered(image: Tensor, warp: Warp) -> Tensor:
    """The four neighbours by four gathers, blended."""
    batch, channels, height, width = image.shape
    padded = functional.pad(image, (1, 2, 1, 2))
    across, down = _grid(height, width, warp.inverse, warp.offset).unbind(-1)
    column = ((across + 1) * (width / 2) + 0.5).clamp(0, width + 1)
    row = ((down + 1) * (height / 2) + 0.5).clamp(0, height + 1)
    left, top = column.floor(), row.floor()
    start = (top * (width + 3) + left).long().view(batch, 1, -1).expand(-1, channels, -1)
    flat = padded.flatten(2)
    corners = [flat.gather(2, start + step) for step in (0, 1, width + 3, width + 4)]
    right, below = (column - left).view(batch, 1, -1), (row - top).view(batch, 1, -1)
    upper, lower = torch.lerp(corners[0], corners[1], right), torch.lerp(corners[2], corners[3], right)
    return torch.lerp(upper, lower, below).view(image.shape)


def sheared(image: Tensor, angle: Tensor) -> Tensor:
    """A turn as three shears, each along one axis: two gathers and a blend."""
    slope = torch.tan(angle / 2)
    return _along(_along(_along(image, -slope).mT, angle.sin()).mT, -slope)


def _along(image: Tensor, slope: Tensor) -> Tensor:
    batch, channels, height, width = image.shape
    middle = torch.arange(height) - (height - 1) / 2
    place = torch.arange(width) - slope.view(-1, 1, 1) * middle.view(-1, 1) + 1
    place = place.clamp(0, width + 1).unsqueeze(1)
    left = place.floor()
    start = left.long().expand(batch, channels, height, width)
    padded = functional.pad(image, (1, 2))
    return torch.lerp(padded.gather(3, start), padded.gather(3, start + 1), place - left)


def main() -> None:
    """Print the median of each route, in ms."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    image, angle = torch.rand(32, 3, 224, 224), 0.3 * torch.randn(32)
    warp = centred(turn(angle), "zeros")
    grid = _grid(224, 224, warp.inverse, warp.offset)
    last = image.contiguous(memory_format=torch.channels_last)
    compiled = torch.compile(lambda x, inverse, offset: Warp(inverse, offset)(x))
    torch.testing.assert_close(gathered(image, warp), warp(image), rtol=0.0, atol=1e-4)
    torch.testing.assert_close(compiled(image, warp.inverse, warp.offset), warp(image), rtol=0.0, atol=1e-4)
    routes = {
        "the warp": lambda: warp(image),
        "its grid": lambda: _grid(224, 224, warp.inverse, warp.offset),
        "grid_sample": lambda: functional.grid_sample(image, grid, align_corners=False),
        "grid_sample, channels last": lambda: functional.grid_sample(last, grid, align_corners=False),
        "the warp, compiled by inductor": lambda: compiled(image, warp.inverse, warp.offset),
        "four gathers": lambda: gathered(image, warp),
        "three shears": lambda: sheared(image, angle),
    }
    times, _ = timing.interleaved(routes, 9)
    for name in routes:
        sys.stdout.write(f"{name:32} {timing.quartiles(times[name])['median']:8.1f}\n")


if __name__ == "__main__":
    main()
