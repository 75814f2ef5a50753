r"""AugMix: chains of simple operations, blended with the image they began from (Hendrycks et al., 2020).

The gradient of the expected objective with respect to the severity S needs two estimators. A level ℓ ~ Uniform(0.1, S)
is pathwise as long as x' is continuous in it. What posterize, solarize and equalize make of it is not: there the
derivative along the path is 0 or wrong almost everywhere, while the expectation moves. So in every chain

    the steps up to its last discontinuous one    ℓ = k + ½ with probability p_k(S), the score function
    the steps after it, or all if there is none   ℓ ~ Uniform(0.1, S), pathwise

    p_k(S) ∝ h((S − k + ½) / 2),    h(t) = t² (3 − 2t) on [0, 1], 0 before it and 1 after it,    k = 0, …, 9

Level k is switched on while S goes from k − ½ to k + 1½, so that there are about S of them and their mean is about S/2,
as that of the uniform law. The score has a bounded second moment, since h'²/h is at most 12; and because one level is
half-way on whenever the next begins, no S in (½, 10) is without a gradient. The law does not ask whether S is learned:
a frozen copy draws alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Beta, Categorical, Dirichlet, Distribution, constraints

from optima.augment.base import Augmentation
from optima.augment.view import View
from optima.augment.width import check_images, checked_padding
from optima.posterior import Learn, Number
from optima.sampling import Pathwise, ScoreFunction
from optima.streams import Noise
from optima.transforms.augmix import DISCONTINUOUS, GEOMETRIC, MOST_STEPS, OPERATIONS, UNLEVELLED, augmix
from optima.transforms.geometry import Padding

_LEAST, _MOST = 0.1, 10.0
_EVENLY = (1 / 3, 1 / 3, 1 / 3)
_SLACK = 1e-3  # what resampling and half precision may add to a value of 1


class AugMix(Augmentation):
    r"""Blend each image with `width` chains of one to three random operations:

        x' = (1 − m) x + m Σ_w a_w chain_w(x),    a ~ Dirichlet(dirichlet, …, dirichlet),    m ~ Beta(beta, beta)

    Images are in [0, 1], of one or three channels. γ is recorded as `weights`, `blend`, `depth`, `operation` (positions
    in `optima.transforms.augmix.OPERATIONS`) and `level`, which is signed for the geometric operations.

    Weights, blend and the levels of smooth operations are pathwise; depth, and the levels that a discontinuous
    operation follows, are credited by the score function. No gradient of the expectation reaches what comes *before*
    a discontinuous operation: an augmentation that learns pathwise belongs after this one.

    Args:
        severity: S, from 0.1 to 10; no level exceeds it by more than 1.
        width: chains per image.
        depth: operations per chain, 1 to 3; drawn per chain when None.
        dirichlet: concentration of the chains' weights.
        beta: concentration of the blend.
        depth_probs: probabilities of a depth of 1, 2 and 3; even when None.
        operations: the names to choose from, all thirteen when None.
        padding: what lies beyond the border: "zeros", "border" or "reflection".
    """

    estimators = (Pathwise,)

    def __init__(
        self,
        severity: Number | Learn = 3.0,
        width: int = 3,
        depth: int | None = None,
        dirichlet: Number | Learn = 1.0,
        beta: Number | Learn = 1.0,
        *,
        depth_probs: Number | Learn | None = None,
        operations: Sequence[str] | None = None,
        padding: Padding = "zeros",
        **options: Any,
    ):
        super().__init__(**options)
        self.width = _whole("width", width, None)
        self.depth = None if depth is None else _whole("depth", depth, MOST_STEPS)
        self.operations = _checked_operations(operations)
        self.padding: Padding = checked_padding(padding)
        self._check_learnable(severity, dirichlet, depth_probs)
        self.add_phi("severity", severity, support=constraints.interval(_LEAST, _MOST))
        self.add_phi("dirichlet", dirichlet, support=constraints.positive)
        self.add_phi("beta", beta, support=constraints.positive)
        if depth is None:
            probs = _EVENLY if depth_probs is None else depth_probs
            self.add_phi("depth_probs", probs, support=constraints.simplex, shapes=((MOST_STEPS,),))

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        concentration = phi["dirichlet"].unsqueeze(-1).expand(*phi["dirichlet"].shape, self.width)
        return {
            "weights": Dirichlet(concentration, validate_args=False),
            "blend": Beta(phi["beta"], phi["beta"], validate_args=False),
        }

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        parts = (gamma[name] for name in ("weights", "blend", "depth", "operation", "level"))
        with torch.autocast(x.device.type, enabled=False):  # pixels would blur
            return augmix(x, *parts, padding=self.padding)

    def check(self, view: View) -> None:
        check_images(self, view)
        x = view.x
        if x.shape[1] not in (1, 3):
            raise ValueError(f"AugMix needs images of one or three channels, got {x.shape[1]}")
        if x.requires_grad and not x.is_leaf and set(self.operations) & set(DISCONTINUOUS):
            raise ValueError(
                f"{', '.join(DISCONTINUOUS)} pass on no gradient to what is learned before AugMix: put AugMix first,"
                " leave them out of operations=, or learn what comes before with the score function"
            )
        # looking would make an accelerator's host wait
        if x.device.type == "cpu" and not torch.compiler.is_compiling():
            low, high = (float(end) for end in torch.aminmax(x.detach()))
            if not (low >= -_SLACK and high <= 1.0 + _SLACK):
                raise ValueError(
                    f"AugMix works on images in [0, 1]; normalise afterwards (values run from {low:.4g} to {high:.4g})"
                )

    def check_construction(self) -> None:
        super().check_construction()
        self.components += ["operation", "depth", "level"]  # drawn below: the law of a level depends on the other two

    def _draw_gamma(self, view: View, phi: dict[str, Tensor], noise: Noise) -> tuple[dict[str, Tensor], Tensor | None]:
        gamma, _ = super()._draw_gamma(view, phi, noise)
        rows = {name: value.repeat(view.samples, *[1] * (value.ndim - 1)) for name, value in phi.items()}
        gamma["operation"] = self._draw_operation(rows["severity"], noise)
        gamma["depth"], depth_credit = self._draw_depth(rows, noise)
        gamma["level"], level_credit = _draw_level(rows["severity"], gamma["operation"], gamma["depth"], noise)
        if not set(self.operations) & {*DISCONTINUOUS, *UNLEVELLED}:
            level_credit = None  # all levels are pathwise, and each moves x', so that the objective sees S without it
        credits = [part for part in (depth_credit, level_credit) if part is not None and part.requires_grad]
        return gamma, torch.stack(credits).sum(0) if credits else None

    def _draw_operation(self, severity: Tensor, noise: Noise) -> Tensor:
        """Positions in `OPERATIONS`, (rows, width, 3), each of `operations` as likely as the others."""
        chosen = torch.tensor([OPERATIONS.index(name) for name in self.operations], device=severity.device)
        shape = (len(severity), self.width, MOST_STEPS)
        uniform = noise.named("operation").uniform(shape, dtype=severity.dtype, device=severity.device)
        return chosen[(uniform * len(chosen)).long().clamp(max=len(chosen) - 1)]

    def _draw_depth(self, phi: dict[str, Tensor], noise: Noise) -> tuple[Tensor, Tensor | None]:
        """Steps per chain, (rows, width), and their log-probability per row."""
        rows = len(phi["severity"])
        if self.depth is not None:
            return torch.full((rows, self.width), self.depth, device=phi["severity"].device), None
        law = Categorical(phi["depth_probs"].unsqueeze(1).expand(-1, self.width, -1), validate_args=False)
        index, log_prob = ScoreFunction().draw(law, noise.named("depth"))
        assert log_prob is not None  # noqa: S101
        return index + 1, log_prob.sum(1)

    def _check_shapes(self, gamma: dict[str, Tensor], x: Tensor) -> None:
        super()._check_shapes(gamma, x)
        chains = (len(x), self.width)
        expected = {"depth": chains, "operation": (*chains, MOST_STEPS), "level": (*chains, MOST_STEPS)}
        for name, shape in expected.items():
            if tuple(gamma[name].shape) != shape:
                raise ValueError(f"replay: {name} must have shape {shape}, got {tuple(gamma[name].shape)}")

    def _check_learnable(self, severity: Any, dirichlet: Any, depth_probs: Any) -> None:
        """Raise where a hyperparameter would have no effect."""
        if self.depth is not None and depth_probs is not None:
            raise TypeError(f"AugMix takes depth or depth_probs, got both: every chain has {self.depth} operations")
        if isinstance(dirichlet, Learn) and self.width == 1:
            raise ValueError("AugMix: the weight of a single chain is 1, so dirichlet cannot be learned; set width=")
        if isinstance(severity, Learn) and not set(self.operations) - set(UNLEVELLED):
            raise ValueError(f"AugMix: {', '.join(self.operations)} have no level, so severity cannot be learned")


# ---- the law of the levels ---------------------------------------------------------------------------------------


def lattice(severity: Tensor) -> Categorical:
    """p_k(S): which of the levels k + ½ precedes a discontinuous operation, (…,) → a batch of (…,)."""
    levels = torch.arange(10, dtype=severity.dtype, device=severity.device)
    ramp = ((severity.unsqueeze(-1) - levels + 0.5) / 2.0).clamp(0.0, 1.0)
    return Categorical(ramp.square() * (3.0 - 2.0 * ramp), validate_args=False)


def scored_steps(operation: Tensor, depth: Tensor) -> Tensor:
    """Which steps come no later than the last discontinuous one of their chain, (…, 3)."""
    taken = torch.arange(MOST_STEPS, device=depth.device) < depth.unsqueeze(-1)
    jumps = _among(operation, DISCONTINUOUS) & taken
    return jumps.flip(-1).cumsum(-1).flip(-1) > 0


def _draw_level(severity: Tensor, operation: Tensor, depth: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
    """ℓ with its sign, (rows, width, 3), and the log-probability of those that the score function credits, per row."""
    shape = operation.shape
    per_step = severity.view(-1, 1, 1).expand(shape)
    uniform = noise.named("level").uniform(shape, dtype=severity.dtype, device=severity.device)
    index, log_prob = ScoreFunction().draw(lattice(per_step), noise.named("lattice"))
    scored = scored_steps(operation, depth)
    level = torch.where(scored, index + 0.5, _LEAST + (per_step - _LEAST) * uniform)
    coin = noise.named("sign").uniform(shape, dtype=severity.dtype, device=severity.device)
    level = torch.where(_among(operation, GEOMETRIC) & (coin < 0.5), -level, level)
    assert log_prob is not None  # noqa: S101
    used = scored & ~_among(operation, UNLEVELLED)
    return level, torch.where(used, log_prob, 0.0).sum((1, 2))


def _among(operation: Tensor, names: Sequence[str]) -> Tensor:
    return torch.isin(operation, torch.tensor([OPERATIONS.index(name) for name in names], device=operation.device))


# ---- arguments ---------------------------------------------------------------------------------------------------


def _whole(name: str, value: int, most: int | None) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 or (most is not None and value > most):
        expected = "a whole number of at least 1" if most is None else f"a whole number from 1 to {most}"
        raise ValueError(f"AugMix: {name} must be {expected}, got {value!r}")
    return value


def _checked_operations(names: Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        return OPERATIONS
    chosen = (names,) if isinstance(names, str) else tuple(names)
    if unknown := [name for name in chosen if name not in OPERATIONS]:
        raise ValueError(f"AugMix: no operation is called {unknown}; they are {', '.join(OPERATIONS)}")
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"AugMix: operations must name each operation at most once and at least one, got {names}")
    return chosen
