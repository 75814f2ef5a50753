"""An augmentation that is on or off, for pipelines that are enumerated."""

from __future__ import annotations

from torch import Tensor
from torch.distributions import Bernoulli, Distribution, constraints

import optima


class Gate(optima.Augmentation):
    """Multiply an example by γ ~ Bernoulli(p)."""

    default_estimator = "score_function"

    def __init__(self, p, **options):
        super().__init__(**options)
        self.add_phi("p", p, support=constraints.unit_interval, off=1.0)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"open": Bernoulli(phi["p"], validate_args=False)}

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        return x * (0.3 + gamma["open"].view(-1, 1))
