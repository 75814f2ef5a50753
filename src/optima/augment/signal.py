"""Augmentations of any real-valued signal."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.distributions import Distribution, Normal, constraints

from optima.augment.base import Augmentation
from optima.posterior import Learn, Number
from optima.sampling import Pathwise, ScoreFunction
from optima.transforms import add_noise, shift


class Shift(Augmentation):
    r"""Add one number to each example: x' = x + γ, γ ~ Normal(mean, std²).

    Args:
        std: spread of the shift, in the input's unit.
        mean: its centre.
    """

    estimators = (Pathwise, ScoreFunction)
    keeps_masks = True

    def __init__(self, std: Number | Learn, mean: Number | Learn = 0.0, **options: Any):
        super().__init__(**options)
        self.add_phi("std", std, support=constraints.positive, off=0.0)
        self.add_phi("mean", mean, support=constraints.real, off=0.0)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"shift": Normal(phi["mean"], phi["std"], validate_args=False)}

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        return shift(x, gamma["shift"])


class GaussianNoise(Augmentation):
    r"""Add independent noise to every element: x' = x + γ, γ ~ Normal(0, std²).

    Args:
        std: spread of the noise, in the input's unit.
    """

    estimators = (Pathwise, ScoreFunction)
    gamma_per = "element"
    keeps_masks = True

    def __init__(self, std: Number | Learn, **options: Any):
        super().__init__(**options)
        self.add_phi("std", std, support=constraints.positive, off=0.0)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"noise": Normal(phi["std"].new_zeros(()), phi["std"], validate_args=False)}

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        return add_noise(x, gamma["noise"])
