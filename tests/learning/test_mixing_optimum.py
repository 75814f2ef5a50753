r"""The concentration of Mixup and of CutMix goes to where the expected objective is greatest, known by quadrature.

Images are ±1 times a pattern and carry the number y = a ± b; the readout is the square of the mean along the pattern.
In a mixture of two opposite images with share t of its own, it says (2t − 1)², and the mixed target a ± b (2t − 1).
Little mixing misses a, and so does much: between them is an α that does best.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch import Tensor

from optima import ELBO, Augmentation, CutMix, Gaussian, Mixup, learn
from optima.augment import mixing
from optima.posterior import Learn
from tests.learning.ascent import ascend, learned_phi

A, B = 0.75, 0.5**0.5
SIZE = 8
TOLERANCE = 0.15
PATTERN = (torch.rand(1, SIZE, SIZE, generator=torch.Generator().manual_seed(3)) < 0.5).float() * 2 - 1

_LEVELS = (np.arange(400) + 0.5) / 400
_PLACES = (np.arange(40) + 0.5) / 40


def read(x: Tensor) -> Tensor:
    return (x * PATTERN).mean((1, 2, 3)).square().unsqueeze(1)


def blended(lam: np.ndarray) -> np.ndarray:
    return lam


def pasted(lam: np.ndarray) -> np.ndarray:
    """What a box of 1 − λ of the area leaves of an image when its centre lies anywhere and the border cuts it."""
    half = np.sqrt(1 - lam)[:, None] / 2
    side = np.minimum(_PLACES + half, 1.0) - np.maximum(_PLACES - half, 0.0)
    return 1 - side[:, :, None] * side[:, None, :]


def best_alpha(share: Callable[[np.ndarray], np.ndarray]) -> float:
    """argmin E (f(x') − y')² over opposite partners; alike ones are the same whatever α."""

    def expected(log_alpha: float) -> float:
        alpha = np.exp(log_alpha)
        t = 2 * share(stats.beta(alpha, alpha).ppf(_LEVELS)) - 1
        return float(np.mean([(t**2 - A - sign * B * t) ** 2 for sign in (-1, 1)]))

    return float(np.exp(optimize.minimize_scalar(expected, bounds=(-2.5, 2.5), method="bounded").x))


CASES: dict[str, tuple[Callable[[Learn], Augmentation], Callable[[np.ndarray], np.ndarray]]] = {
    "Mixup": (lambda v: Mixup(v), blended),
    "Mixup pair": (lambda v: Mixup(v, mode="pair"), blended),
    "Mixup by score": (lambda v: Mixup(v, estimator="score_function"), blended),
    "CutMix": (lambda v: CutMix(v), pasted),
    "CutMix by score": (lambda v: CutMix(v, estimator="score_function"), pasted),
}


def learned_alpha(build: Callable[[Learn], Augmentation], start: float, seed: int = 0) -> float:
    sign = torch.randint(2, (1024, 1, 1, 1), generator=torch.Generator().manual_seed(5)) * 2.0 - 1.0
    augment = build(learn(start, posterior="point"))
    objective = ELBO(num_data=1024, likelihood=Gaussian(noise=0.3), beta_phi=0.0)
    ascend(
        augment, objective, read, sign * PATTERN, A + B * sign.view(-1, 1),
        steps=100, batch=256, samples=8, rate=0.1, seed=seed,
    )
    return float(learned_phi(augment).summary().mean)


if __name__ == "__main__":
    import time
    for name, (build, share) in CASES.items():
        best = best_alpha(share)
        for seed in range(3):
            t0 = time.time()
            print(name, best, *[learned_alpha(build, best * f, seed) / best - 1 for f in (0.4, 2.5)], time.time() - t0, flush=True)
