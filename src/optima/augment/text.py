"""Augmentations of token sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Distribution, constraints

from optima.augment.base import Augmentation
from optima.augment.view import View
from optima.posterior import Learn, Number
from optima.sampling import ScoreFunction
from optima.transforms import mask_tokens


class TokenDropout(Augmentation):
    r"""Replace each token by the mask token with probability p: γ_t ~ Bernoulli(p), independently.

    The transform is a step in γ, so φ learns through the score function. The paper's p = p_max · σ(s) with a Gaussian
    penalty on p is `learn(0.0596, support=interval(0.0, 0.5), prior=Normal(0.1, 0.1), posterior="point")`.

    Args:
        p: probability of dropping a token.
        mask_id: what a dropped token becomes.
        special_ids: tokens that are never dropped: padding, classification, separator.
    """

    default_estimator = "score_function"
    estimators = (ScoreFunction,)
    gamma_per = "element"

    def __init__(self, p: Number | Learn, mask_id: int, *, special_ids: Sequence[int] = (), **options: Any):
        super().__init__(**options)
        if not isinstance(special_ids, Sequence):
            raise TypeError(f"special_ids must be a list of token numbers, got {type(special_ids).__name__}")
        for token in (mask_id, *special_ids):
            if isinstance(token, bool) or not isinstance(token, int) or token < 0:
                raise ValueError(
                    f"mask_id and special_ids must be token numbers, whole and not negative, got {token!r}"
                )
        self.add_phi("p", p, support=constraints.unit_interval, unit="of the tokens", off=0.0)
        self.mask_id = mask_id
        self.special_ids = tuple(special_ids)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"dropped": Bernoulli(probs=phi["p"], validate_args=False)}

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        dropped = gamma["dropped"].bool() & self._droppable(x)
        return mask_tokens(x, dropped, self.mask_id)

    def matters(self, view: View) -> Tensor:
        return self._droppable(view.x)

    def _droppable(self, tokens: Tensor) -> Tensor:
        special = torch.tensor(self.special_ids, dtype=tokens.dtype, device=tokens.device)
        return ~torch.isin(tokens, special)

    def check(self, view: View) -> None:
        if view.x.is_floating_point() or view.x.dtype == torch.bool or view.x.ndim != 2:
            raise TypeError(
                "TokenDropout needs integer token numbers of shape (B, L),"
                f" got {view.x.dtype} of shape {tuple(view.x.shape)}"
            )
