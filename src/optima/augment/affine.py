"""All six ways to move an image linearly, at once and, if wanted, correlated."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, MultivariateNormal, TransformedDistribution, constraints

from optima.augment.base import Augmentation
from optima.augment.geometric import DEGREE
from optima.augment.view import View
from optima.augment.width import add_width, check_images, checked_padding, spread
from optima.distributions import LinearMap
from optima.posterior import FixedPhi, Learn, Number, learn
from optima.sampling import Pathwise, ScoreFunction
from optima.transforms.geometry import Padding, Warp, magnify, shifted, slant, turn

PARTS = ("turn", "log_width", "log_height", "slant", "shift_right", "shift_down")
_PAIRS = len(PARTS) * (len(PARTS) - 1) // 2


class Affine(Augmentation):
    r"""Magnify, slant, turn and move each image, in this order and in one interpolation; γ holds six numbers:

        γ = (turn, log width, log height, slant, shift right, shift down)

    with covariance="diagonal": γ_k ~ Normal(0, std_k²) or Uniform(−range_k, range_k), independently;
    with covariance="full":     γ = L ε, ε Gaussian or uniform as above with width 1, Σ = L Lᵀ.

    L = diag(width) · R, where row i of the lower triangle R is (coupling_i1, …, coupling_i,i−1, 1) divided by its
    length: so width stays the width of each part whatever the coupling, and couplings of 0 are independence. Fifteen
    numbers and six cover every positive definite Σ.

    Turn and slant are given in degrees and recorded in radians, shifts are fractions of the size, and widths and
    heights are logarithms of the magnification.

    Args:
        std: six spreads; give this or `range`. A 0 leaves that part out (with covariance="diagonal").
        range: six half-widths of uniform laws, likewise.
        covariance: "diagonal" or "full".
        coupling: fifteen numbers, for (2, 1), (3, 1), (3, 2), (4, 1), … in this order; the default learns them from 0.
        padding: what lies beyond the border: "zeros", "border" or "reflection".
    """

    estimators = (Pathwise, ScoreFunction)
    keeps_masks = True

    def __init__(
        self,
        std: Number | Learn | None = None,
        *,
        range: Number | Learn | None = None,
        covariance: Literal["diagonal", "full"] = "diagonal",
        coupling: Number | Learn | None = None,
        padding: Padding = "zeros",
        **options: Any,
    ):
        super().__init__(**options)
        if covariance not in ("diagonal", "full"):
            raise ValueError(f'covariance must be "diagonal" or "full", got {covariance!r}')
        if covariance == "diagonal" and coupling is not None:
            raise ValueError('Affine(coupling=…) belongs to covariance="full"; a diagonal one has none')
        units = "degrees, log, log, degrees, of the size, of the size"
        self.width = add_width(self, std, range, unit=units, shapes=((len(PARTS),),), labels=PARTS)
        self.covariance = covariance
        if covariance == "full":
            self._add_coupling(coupling)
        self.padding: Padding = checked_padding(padding)

    def _add_coupling(self, coupling: Number | Learn | None) -> None:
        width = getattr(self, self.width)
        if isinstance(width, FixedPhi) and bool((width.value == 0).any()):
            raise ValueError('Affine(covariance="full") needs widths above 0; a part of no width has no correlation')
        value = learn([0.0] * _PAIRS) if coupling is None else coupling
        self.add_phi("coupling", value, support=constraints.real, off=None, shapes=((_PAIRS,),))

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        width = phi[self.width]
        width = width * width.new_tensor([DEGREE, 1.0, 1.0, DEGREE, 1.0, 1.0])
        if self.covariance == "diagonal":
            return {"affine": spread(self.width, torch.zeros_like(width), width)}
        factor = width.unsqueeze(-1) * unit_rows(phi["coupling"])
        if self.width == "std":
            return {"affine": MultivariateNormal(torch.zeros_like(width), scale_tril=factor, validate_args=False)}
        cube = Independent(spread("range", torch.zeros_like(width), torch.ones_like(width)), 1)
        return {"affine": TransformedDistribution(cube, [LinearMap(factor)], validate_args=False)}

    def operator(self, x: Tensor, gamma: dict[str, Tensor]) -> Warp:
        angle, log_scale, tilt, shift = gamma["affine"].split([1, 2, 1, 2], 1)
        # A = turn · slant · magnify, so A⁻¹ the other way round
        inverse = magnify(log_scale) @ slant(torch.cat([tilt, torch.zeros_like(tilt)], 1)) @ turn(angle.squeeze(1))
        return shifted(shift, x, self.padding, inverse)

    def check(self, view: View) -> None:
        check_images(self, view)


def unit_rows(coupling: Tensor) -> Tensor:
    """R, (…, 6, 6): lower triangular, with rows of length 1 and a positive diagonal, from (…, 15) numbers."""
    size = len(PARTS)
    row, column = torch.tril_indices(size, size, -1, device=coupling.device)
    lower = torch.eye(size, dtype=coupling.dtype, device=coupling.device).expand(*coupling.shape[:-1], size, size)
    lower = lower.clone()
    lower[..., row, column] = coupling
    return lower / lower.norm(dim=-1, keepdim=True)
