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
_BLOCKS = 32  # more than a run of 10¹¹ steps fills


class GradientRecord(nn.Module):
    """Block-wise t-statistics of a gradient; tensors only, so that recording never waits for the device.

    A step is recorded in six small operations, since an accelerator spends longer on starting one than on doing it;
    everything else is left to `z`.

    Args:
        shape: of the location of q(φ).
    """

    steps: Tensor
    sums: Tensor
    powers: Tensor
    starts: Tensor

    def __init__(self, shape: torch.Size):
        super().__init__()
        self.register_buffer("steps", torch.zeros(1, dtype=torch.int64))
        # Σ g, Σ g², Σ g³ of every block, g the gradient of the loss
        self.register_buffer("sums", torch.zeros((_BLOCKS, 3, *shape), dtype=torch.float64))
        powers = torch.arange(1.0, 4.0, dtype=torch.float64).view(3, *[1] * len(shape))
        self.register_buffer("powers", powers, persistent=False)
        # block k has 32 · 2ᵏ steps, and begins behind all before it
        starts = FIRST_BLOCK * (2 ** torch.arange(_BLOCKS) - 1)
        self.register_buffer("starts", starts, persistent=False)

    @torch.no_grad()
    def add(self, gradient: Tensor) -> None:
        """Record dLoss/du for every draw u of the unconstrained φ, shape (draws, *shape)."""
        total = gradient.detach().sum(0, dtype=self.sums.dtype)
        total = total.nan_to_num(0.0, 0.0, 0.0)  # a step that mixed precision throws away
        block = torch.bucketize(self.steps, self.starts, right=True) - 1
        self.sums.index_add_(0, block, total.pow(self.powers).unsqueeze(0))
        self.steps.add_(1)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> GradientRecord:
        """Follow the module to another device but never into half precision, where counters stop and sums are lost."""
        device = fn(torch.empty(0)).device
        precision = torch.float32 if device.type == "mps" else torch.float64
        self.steps, self.starts = self.steps.to(device), self.starts.to(device)
        self.sums, self.powers = self.sums.to(device, precision), self.powers.to(device, precision)
        return self

    def z(self) -> Tensor:
        """The most extreme t-statistic so far; positive where the data pushes φ up. The block under way counts once it
        is as long as the first."""
        lengths = torch.cat([self.starts[1:], 2 * self.starts[-1:] + FIRST_BLOCK]) - self.starts
        counts = torch.minimum((self.steps - self.starts).clamp(min=0), lengths)
        counts = counts.view(-1, *[1] * (self.sums.ndim - 2)).to(self.sums.dtype)
        ascent = self.sums * torch.where(self.powers % 2 == 1, -1.0, 1.0)
        z = torch.where(counts >= FIRST_BLOCK, _t_statistic(counts, *ascent.unbind(1)), 0.0)
        return z.gather(0, z.abs().argmax(0, keepdim=True)).squeeze(0)


def _t_statistic(count: Tensor, first: Tensor, second: Tensor, third: Tensor) -> Tensor:
    """The smaller of the t-statistic and Hall's transformation of it, from Σ g, Σ g², Σ g³."""
    count = count.clamp(min=2)
    mean, second, third = first / count, second / count, third / count
    spread = (second - mean.square()).clamp(min=0).sqrt()
    skew = (third - 3 * mean * second + 2 * mean**3) / spread**3
    ratio = mean / spread * ((count - 1) / count).sqrt()
    hall = ratio + skew * ratio**2 / 3 + skew**2 * ratio**3 / 27 + skew / (6 * count)
    z = count.sqrt() * torch.where(ratio * hall > 0, ratio.sign() * torch.minimum(ratio.abs(), hall.abs()), 0.0)
    # a gradient that is the same at every step has no spread: infinitely clear, unless it is zero
    constant = torch.where(mean == 0, 0.0, mean.sign() * torch.inf)
    return torch.where(spread <= 1e-12 * mean.abs(), constant, z)
