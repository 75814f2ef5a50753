r"""Did the data speak? A running record of the data term's gradient with respect to one q(φ).

Every backward pass adds g, the gradient of the *data term alone* along the unconstrained location of q(φ) (the KL
never passes through the draw that is watched). Steps are grouped in blocks of 32, 64, 128, …; a block's verdict is
the t-statistic or the same corrected for skewness (Hall, 1992), whichever is closer to zero: the gradient along a
spread is lopsided, which the correction knows, and heavy-tailed, where it would see too much.

    t = mean(g) / (std(g) / √n),   r = t / √n,   h = √n (r + a r²/3 + a² r³/27 + a/(6n)),   a the skewness of g
    z = t or h, the smaller in size; 0 where they differ in sign

and the record keeps the most extreme z of any block. Blocks that grow find both a short early push and a long faint
one, and bound the number of looks: under 20 in ten million steps. |z| ≥ 4 then has a false alarm rate of about one in
a thousand, and up to one in a hundred where noise is lopsided and heavy-tailed at once (`docs/verdicts.md`). The
statistic does not change when the loss is rescaled, so it survives 1/N and mixed precision.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

FIRST_BLOCK = 32


class GradientRecord(nn.Module):
    """Block-wise t-statistics of a gradient; tensors only, so that recording never waits for the device.

    Args:
        shape: of the location of q(φ).
    """

    steps: Tensor
    state: Tensor
    extreme: Tensor

    def __init__(self, shape: torch.Size):
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        # the block under way: (its length, steps so far, Σ g, Σ g², Σ g³)
        self.register_buffer("state", torch.zeros((5, *shape), dtype=torch.float64))
        self.register_buffer("extreme", torch.zeros(shape, dtype=torch.float64))
        self.state[0] = FIRST_BLOCK

    @torch.no_grad()
    def add(self, gradient: Tensor) -> None:
        """Record dLoss/du for every draw u of the unconstrained φ, shape (draws, *shape)."""
        ascent = -gradient.detach().to(self.state.dtype).sum(0)
        ascent = torch.where(ascent.isfinite(), ascent, 0.0)  # a step that mixed precision throws away
        length, count = self.state[0], self.state[1] + 1
        sums = self.state[2:] + torch.stack([ascent, ascent.square(), ascent**3])
        z = _t_statistic(count, sums)
        full = count >= length
        self.extreme.copy_(torch.where(full & (z.abs() > self.extreme.abs()), z, self.extreme))
        block = torch.cat([torch.stack([length, count]), sums])
        fresh = torch.cat([2 * length.unsqueeze(0), torch.zeros_like(block[1:])])
        self.state.copy_(torch.where(full, fresh, block))
        self.steps.add_(1)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> GradientRecord:
        """Follow the module to another device but never into half precision, where counters stop and sums are lost."""
        device = fn(torch.empty(0)).device
        precision = torch.float32 if device.type == "mps" else torch.float64
        self.steps = self.steps.to(device)
        self.state = self.state.to(device, precision)
        self.extreme = self.extreme.to(device, precision)
        return self

    def z(self) -> Tensor:
        """The most extreme t-statistic so far, the unfinished block included; positive where the data pushes φ up."""
        count = self.state[1]
        unfinished = torch.where(count >= FIRST_BLOCK, _t_statistic(count, self.state[2:]), 0.0)
        return torch.where(unfinished.abs() > self.extreme.abs(), unfinished, self.extreme)


def _t_statistic(count: Tensor, sums: Tensor) -> Tensor:
    """The smaller of the t-statistic and Hall's transformation of it, from Σ g, Σ g², Σ g³."""
    count = count.clamp(min=2)
    mean, second, third = sums / count
    spread = (second - mean.square()).clamp(min=0).sqrt()
    skew = (third - 3 * mean * second + 2 * mean**3) / spread**3
    ratio = mean / spread * ((count - 1) / count).sqrt()
    hall = ratio + skew * ratio**2 / 3 + skew**2 * ratio**3 / 27 + skew / (6 * count)
    z = count.sqrt() * torch.where(ratio * hall > 0, ratio.sign() * torch.minimum(ratio.abs(), hall.abs()), 0.0)
    # a gradient that is the same at every step has no spread: infinitely clear, unless it is zero
    constant = torch.where(mean == 0, 0.0, mean.sign() * torch.inf)
    return torch.where(spread <= 1e-12 * mean.abs(), constant, z)
