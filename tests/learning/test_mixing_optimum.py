r"""The concentrations of Mixup and CutMix go to where the expected objective is greatest, known by quadrature.

Images are ±1 times a pattern and carry the number A ± B; the readout is the square of the mean along the pattern. With
a share t of an image and the rest of its opposite, it says (2t − 1)², and the mixed target A ± B (2t − 1). Mixing
little misses this target, and so does mixing much: an α in between does best.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch import Tensor

from optima import ELBO, CutMix, Gaussian, Mixup, learn
from optima.augment import mixing
from optima.augment.augmenter import Augmenter
from optima.objective import loss
from optima.posterior import Learn
from tests.learning.ascent import ascend, learned_phi
from tests.learning.test_recovers_the_strength import SIDES, detached_gamma

EXAMPLES = 1024
SIZE = 8
A, B = 0.75, 0.5**0.5
TOLERANCE = 0.2

PATTERN = (torch.rand(1, SIZE, SIZE, generator=torch.Generator().manual_seed(3)) < 0.5) * 2.0 - 1.0
QUANTILES = (np.arange(400) + 0.5) / 400
CENTRES = (np.arange(40) + 0.5) / 40

Share = Callable[[np.ndarray], np.ndarray]


def read(x: Tensor) -> Tensor:
    return (x * PATTERN).mean((1, 2, 3)).square().unsqueeze(1)


def blended(lam: np.ndarray) -> np.ndarray:
    """What Mixup leaves of an image."""
    return lam


def pasted(lam: np.ndarray) -> np.ndarray:
    """What CutMix leaves of it, for every place of a box of 1 − λ of the area that the border cuts."""
    half = np.sqrt(1 - lam)[:, None] / 2
    side = np.minimum(CENTRES + half, 1.0) - np.maximum(CENTRES - half, 0.0)
    return 1 - side[:, :, None] * side[:, None, :]


def best_alpha(share: Share) -> float:
    """argmin E (f(x') − y')² over partners that are opposite; alike ones stay what they are whatever α is."""

    def expected(log_alpha: float) -> float:
        alpha = np.exp(log_alpha)
        t = 2 * share(stats.beta(alpha, alpha).ppf(QUANTILES)) - 1
        return float(np.mean([(t**2 - A - sign * B * t) ** 2 for sign in (-1, 1)]))

    best = optimize.minimize_scalar(expected, bounds=(-2.5, 2.5), method="bounded")
    return float(np.exp(best["x"]))


CASES: dict[str, tuple[Callable[[Learn], Augmenter], Share]] = {
    "Mixup": (Mixup, blended),
    "Mixup pair": (lambda v: Mixup(v, mode="pair"), blended),
    "Mixup by score": (lambda v: Mixup(v, estimator="score_function"), blended),
    "CutMix": (CutMix, pasted),
    "CutMix by score": (lambda v: CutMix(v, estimator="score_function"), pasted),
}


def learned(build: Callable[[Learn], Augmenter], start: float, seed: int = 0) -> float:
    sign = torch.randint(2, (EXAMPLES, 1, 1, 1), generator=torch.Generator().manual_seed(5)) * 2.0 - 1.0
    augment = build(learn(start, posterior="point"))
    objective = ELBO(EXAMPLES, Gaussian(noise=0.3), beta_phi=0.0)
    data = sign * PATTERN, A + B * sign.view(-1, 1)
    ascend(augment, objective, read, data, steps=100, batch=256, samples=8, seed=seed)
    return float(learned_phi(augment))


def check(name: str, side: str) -> None:
    """Raise AssertionError unless α ended where the quadrature says."""
    build, share = CASES[name]
    best = best_alpha(share)
    start = best * (0.4, 2.5)[SIDES.index(side)]
    alpha = learned(build, start)
    assert abs(alpha - best) <= TOLERANCE * best, f"{alpha} from {start} for {best}"


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", CASES)
def test_the_concentration_that_does_best_is_found(name: str, side: str):
    check(name, side)


# ---- planted bugs ----------------------------------------------------------------------------------------------------


def unmixed_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixing, "mix_targets", lambda target, partner, weight: target)


def label_of_the_whole_box(monkeypatch: pytest.MonkeyPatch) -> None:
    """λ for the label's weight, although the border has cut the box."""
    monkeypatch.setattr(CutMix, "retarget", Mixup.retarget)


PLANTED = [
    (detached_gamma, "Mixup"),
    (detached_gamma, "CutMix"),
    (unmixed_targets, "Mixup"),
    (unmixed_targets, "CutMix"),
    (label_of_the_whole_box, "CutMix"),
]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("plant", "name"), PLANTED)
def test_a_planted_bug_ends_elsewhere(plant: Callable, name: str, side: str, monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)
    monkeypatch.setattr(loss, "unreached", lambda value, augment: ())  # the objective itself would refuse
    with pytest.raises(AssertionError, match=" from "):
        check(name, side)
