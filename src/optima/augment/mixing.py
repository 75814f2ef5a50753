"""Augmentations that combine two examples and their labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Beta, Distribution, constraints

from optima.augment.base import Augmentation
from optima.augment.view import Target, View, mix_targets
from optima.posterior import Learn, Number
from optima.sampling import Pathwise, ScoreFunction
from optima.streams import Noise
from optima.transforms import mix


class Mixup(Augmentation):
    r"""Blend each example with another one (Zhang et al., 2018): x' = λ x + (1 − λ) x_j, λ ~ Beta(α, α), labels
    likewise.

    Under a true gradient the cross-entropy of mixed labels pulls α towards 0, because mixed labels have an entropy of
    their own that no model can undercut; `Categorical(subtract_floor=True)` takes it out.

    Args:
        alpha: concentration of the Beta; `learn(0.2, support=unit_interval)` is the paper's logit parameterisation.
    """

    estimators = (Pathwise, ScoreFunction)

    def __init__(self, alpha: Number | Learn, **options: Any):
        super().__init__(**options)
        self.add_phi("alpha", alpha, support=constraints.positive, off=0.0, allows_off=False)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"lam": Beta(phi["alpha"], phi["alpha"], validate_args=False)}

    def draw_free(self, view: View, noise: Noise) -> dict[str, Tensor]:
        # argsort of uniforms, and not randperm, whose use as an index breaks torch.compile in torch 2.13
        uniform = noise.named("partner").uniform(
            (view.samples, view.examples), dtype=torch.float64, device=view.x.device
        )
        first = torch.arange(view.samples, device=view.x.device).unsqueeze(1) * view.examples
        return {"partner": (uniform.argsort(1) + first).flatten()}

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        return mix(x, gamma["partner"], gamma["lam"])

    def retarget(self, target: Target | None, gamma: dict[str, Tensor]) -> Target | None:
        return None if target is None else mix_targets(target, gamma["partner"], gamma["lam"])

    def check(self, view: View) -> None:
        if view.target is None:
            raise ValueError("Mixup mixes the targets too: call augment(x, y)")
        super().check(view)
