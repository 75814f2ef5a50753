"""Residual networks for images of 32 × 32 (He et al., 2016, section 4.2): 6n + 2 layers; 16, 32, 64 channels."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """x + two convolutions; where the size halves, the shortcut takes every second pixel and pads channels with 0."""

    def __init__(self, before: int, channels: int):
        super().__init__()
        self.stride, self.added = (2, channels - before) if before != channels else (1, 0)
        self.first = nn.Conv2d(before, channels, 3, stride=self.stride, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)])

    def forward(self, x: Tensor) -> Tensor:
        change = functional.relu(self.norms[0](self.first(x)))
        change = self.norms[1](self.second(change))
        shortcut = functional.pad(x[..., :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.added))
        return functional.relu(change + shortcut)


def resnet(depth: int, classes: int = 10) -> nn.Sequential:
    """A network of `depth` layers, 8 or 20 for example."""
    blocks, rest = divmod(depth - 2, 6)
    if rest or blocks < 1:
        raise ValueError(f"depth must be 6n + 2, such as 8 or 20, got {depth}")
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    before = 16
    for channels in (16, 32, 64):
        for _ in range(blocks):
            layers.append(Block(before, channels))
            before = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))
