"""Every wrong use of the public API raises one clear error: the narrow type, one line, what is expected, what came."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import (
    Beta,
    Categorical,
    Dirichlet,
    LogNormal,
    Normal,
    Poisson,
    TransformedDistribution,
    Uniform,
    constraints,
)
from torch.distributions.transforms import AffineTransform

import optima
from optima import (
    ELBO,
    BayesianLinear,
    GaussianNoise,
    Mixup,
    Rotate,
    Sequential,
    Shift,
    TokenDropout,
    Translate,
    View,
    bayesian_last_layer,
    elbo,
    learn,
    metrics,
    predict,
)
from optima.augment import MixedTarget
from optima.objective import log_marginal, marginalization_advantage
from optima.posterior import Learn

SIGNALS = torch.linspace(-1, 1, 12).reshape(4, 3)
IMAGES = torch.linspace(0, 1, 4 * 3 * 5 * 5).reshape(4, 3, 5, 5)
LABELS = torch.tensor([0, 1, 1, 0])
PROBS = torch.tensor([[0.7, 0.3], [0.4, 0.6]])


@pytest.fixture(autouse=True)
def _as_a_user_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the run-time checks of shapes that tests have and users do not: the library must notice by itself."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def wrong(value: object) -> Any:
    """An argument that the type checker would refuse."""
    return value


def step(
    augment: Any,
    output: Callable[[Tensor], Tensor] = lambda x: x.flatten(1)[:, :2],
    *,
    x: Tensor = SIGNALS,
    y: Tensor | None = LABELS,
    change: Callable[[View], View] = lambda view: view,
    objective: ELBO | None = None,
) -> None:
    """One step of the loop, up to the loss."""
    view = change(augment(x, y))
    (objective or ELBO(num_data=4))(output(view.x), view, augment=augment)


def loss(output: Tensor, y: Any, likelihood: Any = "categorical") -> None:
    """The loss of a batch without augmentation."""
    ELBO(num_data=4, likelihood=likelihood)(output, View(torch.zeros(len(output), 1), y))


def drawn_without_grad() -> None:
    augment = Shift(std=learn(1.0))
    with torch.no_grad():
        view = augment(SIGNALS, LABELS)
    ELBO(num_data=4)(view.x[:, :2], view, augment=augment)


def replayed() -> None:
    augment = Shift(std=learn(1.0))
    gamma = {name: value.detach() for name, value in augment(SIGNALS, LABELS).gamma.items()}
    view = augment(SIGNALS, LABELS, replay=gamma)
    ELBO(num_data=4)(view.x[:, :2], view, augment=augment)


def same_twice() -> None:
    turn = Rotate(std=1.0)
    Sequential(turn, turn)


def same_nested() -> None:
    turn = Rotate(std=1.0)
    Sequential(turn, Sequential(turn))


class Own(optima.Augmentation):
    """Right in everything, for the wrong ones to differ from."""

    def __init__(self, std: Any = 1.0):
        super().__init__()
        self.add_phi("std", std, support=constraints.positive)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Any]:
        return {"a": Normal(0.0, phi["std"])}

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        return x + gamma["a"].unsqueeze(1)


class WithoutBase(Own):
    def __init__(self) -> None:
        self.std = 1.0


class Reserved(Own):
    def __init__(self) -> None:
        super().__init__()
        self.add_phi("stream", 1.0, support=constraints.positive)


class BareLaw(Own):
    def p_gamma(self, phi: dict[str, Tensor]) -> Any:
        return Normal(0.0, phi["std"])


class Kept(Own):
    def __init__(self, std: Any):
        super().__init__()
        self.width = std


class OneForAll(Own):
    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Any]:
        return {"a": Normal(0.0, 1.0)}


class Idle(optima.Augmentation):
    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Any]:
        return {}


class Shrinks(Own):
    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        return x[:-1]


class Forgets(Own):
    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Any:
        x = x + gamma["a"].unsqueeze(1)


def moved(by: float) -> TransformedDistribution:
    """A prior whose parameter is no tensor."""
    return TransformedDistribution(Normal(0.0, 1.0), [AffineTransform(by, 1.0)])


def weights(first: float) -> Tensor:
    return torch.tensor([[first, 1 - first]]).expand(4, 2)


def mixed(first: float) -> MixedTarget:
    """Classes, the first of the two with this weight."""
    return MixedTarget((LABELS, LABELS), weights(first))


def values(first: float) -> MixedTarget:
    """Numbers, likewise."""
    return MixedTarget((SIGNALS[:, 0].abs(), SIGNALS[:, 0].abs()), weights(first))


def blend(partner: list[Any]) -> None:
    Mixup(alpha=1.0)(SIGNALS, LABELS, replay={"lam": torch.full((4,), 0.5), "partner": torch.tensor(partner)})


def with_nan(x: Tensor) -> Tensor:
    return x.index_fill(0, torch.tensor([2]), float("nan"))


def left_in_eval() -> None:
    augment = Shift(std=learn(1.0))
    step(augment.eval())


def marginal_with_a_theta_per_row() -> None:
    layer, augment = BayesianLinear(3, 2), Shift(std=learn(1.0))
    view = augment(SIGNALS, LABELS, samples=2)
    ELBO(num_data=4, bound="marginal")(layer(view.x), view, model=layer, augment=augment)


def without_its_model() -> None:
    layer = BayesianLinear(3, 2)
    step(Shift(std=learn(1.0)), layer)


BUILD = {
    # ---- learn -------------------------------------------------------------------------------------------------
    "learn: text": (lambda: learn(wrong("a")), TypeError, "init must be a number.* got str"),
    "learn: nothing": (lambda: learn(wrong(None)), TypeError, "init must be a number.* got NoneType"),
    "learn: a switch": (lambda: learn(True), TypeError, "init must be a number.* got bool"),
    "learn: NaN": (lambda: learn(float("nan")), ValueError, "init must be finite, got nan"),
    "learn: infinity": (lambda: learn([1.0, float("inf")]), ValueError, r"init must be finite, got \[1.0, inf\]"),
    "learn: posterior": (
        lambda: learn(1.0, posterior=wrong("laplace")),
        ValueError,
        "posterior must be .normal. or .point., got 'laplace'",
    ),
    "learn: prior is a number": (lambda: learn(1.0, prior=wrong(2.0)), TypeError, "prior must be .* got float"),
    "learn: prior is a class": (lambda: learn(1.0, prior=wrong(Normal)), TypeError, "prior must be .* got type"),
    "learn: support is a pair": (lambda: learn(1.0, support=wrong((0, 1))), TypeError, "support must be .* got tuple"),
    "learn: scale 0": (lambda: learn(1.0, scale=0.0), ValueError, "scale must be a positive finite number, got 0.0"),
    "learn: scale NaN": (lambda: learn(1.0, scale=float("nan")), ValueError, "scale must be .* got nan"),
    "learn: scale is a switch": (lambda: learn(1.0, scale=True), TypeError, "scale must be a number, got bool"),
    "learn: scale is text": (lambda: learn(1.0, scale=wrong("1")), TypeError, "scale must be a number, got str"),
    "learn: complex": (lambda: learn(torch.tensor(1j)), TypeError, "init must be real numbers, got torch.complex64"),
    "learn: words": (lambda: learn(wrong(["a"])), TypeError, r"init must be a number, .* got \['a'\]"),
    "learn: nothing in a list": (lambda: learn(wrong([None])), TypeError, r"init must be a number, .* got \[None\]"),
    "learn: a ragged list": (lambda: learn(wrong([[1.0], [1.0, 2.0]])), TypeError, "init must be a number, a list"),
    "learn: switches": (lambda: learn([True, False]), TypeError, "init must be real numbers, got torch.bool"),
    "learn: unknown keyword": (lambda: learn(1.0, **wrong({"std": 2})), TypeError, "unexpected keyword.*'std'"),
    # ---- supports and priors -----------------------------------------------------------------------------------
    "support: fixed outside": (
        lambda: Rotate(std=-1.0),
        ValueError,
        r"Rotate\(std=…\) must lie in \(0, 180\), got -1.0",
    ),
    "support: learned outside": (
        lambda: Rotate(std=learn(-1.0)),
        ValueError,
        r"Rotate\(std=…\): learn\(-1.0\) must start inside \(0, 180\)",
    ),
    "support: learned at 0": (
        lambda: Rotate(std=learn(0.0)),
        ValueError,
        r"learn\(0.0\) sits on the edge of \(0, 180\)",
    ),
    "support: probability above 1": (
        lambda: TokenDropout(1.5, mask_id=1),
        ValueError,
        r"TokenDropout\(p=…\) must lie in \(0, 1\), got 1.5",
    ),
    "support: learned p on the lower edge": (
        lambda: TokenDropout(learn(0.0), mask_id=1),
        ValueError,
        r"learn\(0.0\) sits on the edge of \(0, 1\)",
    ),
    "support: learned p on the upper edge": (
        lambda: TokenDropout(learn(0.5, support=constraints.interval(0.0, 0.5)), mask_id=1),
        ValueError,
        r"learn\(0.5\) sits on the edge of \(0, 0.5\)",
    ),
    "support: on the edge of the prior's": (
        lambda: Rotate(std=learn(10.0, prior=Uniform(5.0, 10.0))),
        ValueError,
        r"learn\(10.0\) sits on the edge of \(5, 10\)",
    ),
    "support: wider than the family's": (
        lambda: Rotate(std=learn(1.0, support=constraints.real)),
        ValueError,
        r"support the real line must lie within \(0, 180\)",
    ),
    "support: Mixup(alpha=0)": (lambda: Mixup(alpha=0), ValueError, r"Mixup\(alpha=…\) must lie in \(0, ∞\), got 0"),
    "prior: elsewhere": (
        lambda: Rotate(std=learn(1.0, prior=Uniform(-3.0, -1.0))),
        ValueError,
        r"prior Uniform lives on \(-3, -1\), which does not fit \(0, 180\)",
    ),
    "prior: start outside": (
        lambda: Mixup(alpha=learn(2.0, prior=Beta(2.0, 2.0))),
        ValueError,
        r"learn\(2.0\) must start inside \(0, 1\)",
    ),
    "prior: narrower than the support": (
        lambda: Shift(std=1.0, mean=learn(0.5, prior=Beta(2.0, 2.0), support=constraints.real)),
        ValueError,
        r"support the real line must lie within the prior's, \(0, 1\): beyond it the KL would be infinite",
    ),
    "prior: infinitely wide": (
        lambda: learn(1.0, prior=Normal(0.0, float("inf"))),
        ValueError,
        "prior must have finite parameters, got a Normal with inf",
    ),
    "prior: not a number": (
        lambda: learn(1.0, prior=Normal(float("nan"), 1.0, validate_args=False)),
        ValueError,
        "prior must have finite parameters, got a Normal with nan",
    ),
    "prior: not a number, by another way": (
        lambda: Rotate(std=Learn(1.0, LogNormal(torch.tensor([0.0, float("inf")]), 1.0))),
        ValueError,
        r"Rotate\(std=…\): the prior must have finite parameters, got a LogNormal with inf",
    ),
    "prior: no density": (
        lambda: Shift(1.0, mean=learn(1.0, prior=moved(float("nan")))),
        ValueError,
        r"Shift\(mean=…\): the KL to the prior is nan where learn\(1.0\) starts; give a TransformedDistribution that",
    ),
    "prior: shape": (
        lambda: Translate(std=learn([0.1, 0.2], prior=Normal(torch.ones(3), 1.0))),
        ValueError,
        r"prior has shape \(3,\) and φ has shape \(2,\)",
    ),
    "prior: on a simplex": (
        lambda: Rotate(std=learn(0.5, prior=Dirichlet(torch.ones(3)))),
        ValueError,
        r"Rotate\(std=…\).*simplex",
    ),
    "prior: counts": (
        lambda: Rotate(std=learn(1.0, prior=Poisson(3.0))),
        ValueError,
        "prior.* Poisson",
    ),
    "prior: classes": (
        lambda: Rotate(std=learn(1.0, prior=Categorical(torch.ones(3)))),
        ValueError,
        "prior.* Categorical",
    ),
    # ---- families ----------------------------------------------------------------------------------------------
    "family: unknown keyword": (
        lambda: Rotate(std=1.0, degrees=3),
        TypeError,
        "Rotate has no argument degrees; it takes std, range, mean, padding, estimator",
    ),
    "family: neither width": (lambda: Rotate(), TypeError, "exactly one of std .* and range .*, got neither"),
    "family: both widths": (lambda: Translate(0.1, range=0.1), TypeError, "exactly one of std .* got both"),
    "family: missing": (lambda: Shift(**wrong({})), TypeError, "missing .*'std'"),
    "family: width is text": (lambda: Shift(std=wrong("1")), TypeError, r"Shift\(std=…\) must be a number.* got str"),
    "family: width NaN": (lambda: Shift(std=float("nan")), ValueError, r"Shift\(std=…\) must be finite, got nan"),
    "family: three widths": (
        lambda: Translate(std=[0.1, 0.1, 0.1]),
        ValueError,
        r"Translate\(std=…\) takes one number or a pair, got shape \(3,\)",
    ),
    "family: vector for a number": (
        lambda: Rotate(std=[1.0, 2.0]),
        ValueError,
        r"Rotate\(std=…\) .*one number.* got shape \(2,\)",
    ),
    "family: vector of alphas": (
        lambda: Mixup(alpha=learn([1.0, 2.0])),
        ValueError,
        r"Mixup\(alpha=…\) .*one number.* got shape \(2,\)",
    ),
    "family: unknown estimator": (
        lambda: Rotate(std=1.0, estimator="reinforce"),
        ValueError,
        "unknown estimator 'reinforce'; expected one of .*pathwise",
    ),
    "family: estimator for discrete γ": (
        lambda: Rotate(std=1.0, estimator="relaxed"),
        ValueError,
        "Relaxed does not fit its γ; expected one of .*'pathwise', 'score_function'",
    ),
    "family: pathwise tokens": (
        lambda: TokenDropout(0.1, mask_id=1, estimator="pathwise"),
        ValueError,
        "Pathwise does not fit its γ; expected one of .*'score_function'",
    ),
    "family: phi_draws": (
        lambda: Rotate(std=1.0, phi_draws=wrong("epoch")),
        ValueError,
        "phi_draws must be .example. or .batch., got 'epoch'",
    ),
    "family: padding": (
        lambda: Rotate(std=1.0, padding=wrong("wrap")),
        ValueError,
        r"padding must be one of \('zeros', 'border', 'reflection'\), got 'wrap'",
    ),
    "family: prior_gamma elsewhere": (
        lambda: Rotate(std=learn(1.0), prior_gamma={"shift": Normal(0.0, 1.0)}),
        ValueError,
        r"prior_gamma has no component \['shift'\]; γ has \['angle'\]",
    ),
    "family: prior_gamma is a number": (
        lambda: Rotate(std=learn(1.0), prior_gamma=wrong(0.2)),
        TypeError,
        "prior_gamma.* float",
    ),
    "family: prior_gamma of numbers": (
        lambda: Rotate(std=1.0, prior_gamma=wrong({"angle": 0.2})),
        TypeError,
        "prior_gamma of angle must be a distribution, got float",
    ),
    "family: prior_gamma on another set": (
        lambda: Shift(std=1.0, prior_gamma=Beta(1.0, 1.0)),
        ValueError,
        r"prior_gamma of shift is a Beta over \(0, 1\), and shift leaves that set",
    ),
    "family: prior_gamma of another shape": (
        lambda: Translate(std=0.1, prior_gamma=Normal(torch.zeros(3), 1.0)),
        ValueError,
        r"prior_gamma of shift has shape \(3,\), which does not fit γ's, \(2,\)",
    ),
    "own: no call of the base": (lambda: WithoutBase(), TypeError, r"WithoutBase.__init__ must begin with super"),
    "own: a reserved name": (lambda: Reserved(), ValueError, "cannot be called 'stream'"),
    "own: p_gamma is a distribution": (lambda: BareLaw(), TypeError, "p_gamma must return a dictionary .* got Normal"),
    "own: learn(...) kept": (
        lambda: Kept(learn(1.0)),
        TypeError,
        "Kept keeps learn.* as an attribute, where nothing learns it; declare it with self.add_phi",
    ),
    "own: one γ for all": (lambda: OneForAll(), ValueError, r"must give a one row per row of φ.* batch_shape is \(\)"),
    "own: no transform": (lambda: Idle(), TypeError, r"Idle must define transform\(x, gamma\)"),
    "family: mask_id": (lambda: TokenDropout(0.1, mask_id=-1), ValueError, "mask_id .* not negative, got -1"),
    "family: special_ids": (
        lambda: TokenDropout(0.1, mask_id=1, special_ids=[0, wrong(2.0)]),
        ValueError,
        "special_ids must be token numbers.* got 2.0",
    ),
    "family: one special id": (
        lambda: TokenDropout(0.1, mask_id=1, special_ids=wrong(0)),
        TypeError,
        "special_ids.* int",
    ),
    "sequence: empty": (lambda: Sequential(), ValueError, "at least one augmentation"),
    "sequence: a layer": (lambda: Sequential(wrong(nn.Linear(2, 2))), TypeError, "takes augmentations, got Linear"),
    "sequence: a list": (lambda: Sequential(wrong([Rotate(std=1.0)])), TypeError, "takes augmentations, got list"),
    "sequence: same object": (same_twice, ValueError, "same augmentation object appears twice"),
    "sequence: same object inside": (same_nested, ValueError, "same augmentation object appears twice"),
}

CALL = {
    # ---- NaN, and slips that would train in silence ---------------------------------------------------------------
    "step: NaN in x": (
        lambda: step(Shift(std=learn(1.0)), x=with_nan(SIGNALS)),
        ValueError,
        r"1 of 4 examples is not a number \(the first is example 2\), because view.x has NaN",
    ),
    "step: NaN in the output": (
        lambda: step(Shift(std=learn(1.0)), lambda x: with_nan(x[:, :2])),
        ValueError,
        "because the model's output has NaN",
    ),
    "step: NaN in the targets": (
        lambda: loss(torch.zeros(4, 1), torch.tensor([[0.0], [float("nan")], [0.0], [0.0]]), "gaussian"),
        ValueError,
        "the first is example 1.* because the targets has NaN",
    ),
    "step: eval mode": (left_in_eval, ValueError, r"augment is in eval mode.* call augment.train\(\)"),
    "step: Bayesian, without its model": (without_its_model, ValueError, "Bayesian layer: pass model="),
    "step: a θ per row under the marginal bound": (
        marginal_with_a_theta_per_row,
        ValueError,
        'build its Bayesian layers with draws="step"',
    ),
    "step: num_data is the number of batches": (
        lambda: step(Shift(std=learn(1.0)), objective=ELBO(num_data=3)),
        ValueError,
        "num_data is the number of training examples, 3, but this batch alone has 4",
    ),
    "step: one class": (
        lambda: loss(torch.zeros(4, 1), torch.zeros(4, dtype=torch.long)),
        ValueError,
        r"two classes or more, got \(4, 1\)",
    ),
    "own: rows lost": (lambda: Shrinks()(SIGNALS), ValueError, r"one row for each of 4, got shape \(3, 3\)"),
    "own: no return": (lambda: Forgets()(SIGNALS), ValueError, "one row for each of 4, got NoneType"),
    "mask: shape": (
        lambda: Rotate(std=1.0)(IMAGES, mask=torch.zeros(4, 5)),
        ValueError,
        r"shape \(4, 5, 5\), got \(4, 5\)",
    ),
    "mask: mixed": (
        lambda: Mixup(alpha=1.0)(IMAGES, LABELS, mask=torch.zeros(4, 5, 5)),
        ValueError,
        "Mixup cannot keep mask= true to its image",
    ),
    "predict: an array": (
        lambda: predict(nn.Linear(3, 2), wrong(SIGNALS.numpy())),
        TypeError,
        "x must be a tensor .* got ndarray",
    ),
    "last layer: a function": (
        lambda: bayesian_last_layer(wrong(len)),
        TypeError,
        "must be a torch module, got builtin",
    ),
    "x: list": (lambda: Shift(std=1.0)(wrong([1.0, 2.0])), TypeError, "x must be a tensor .* got list"),
    "x: number": (lambda: Shift(std=1.0)(torch.tensor(1.0)), ValueError, r"at least one example .* got shape \(\)"),
    "x: empty batch": (lambda: Shift(std=1.0)(torch.ones(0, 3)), ValueError, r"at least one example .* \(0, 3\)"),
    "x: integer signal": (lambda: Shift(std=1.0)(torch.ones(2, 3).long()), TypeError, "floating-point.* torch.int64"),
    "x: integer images": (
        lambda: Rotate(std=1.0)(torch.zeros(2, 3, 4, 4, dtype=torch.uint8)),
        TypeError,
        "Rotate needs floating-point inputs, got torch.uint8; convert them first",
    ),
    "x: 3-D images": (lambda: Rotate(std=1.0)(IMAGES[0]), ValueError, r"\(B, C, H, W\), got \(3, 5, 5\)"),
    "x: 3-D images, moved": (lambda: Translate(std=0.1)(IMAGES[0]), ValueError, r"\(B, C, H, W\), got \(3, 5, 5\)"),
    "x: tokens as floats": (
        lambda: TokenDropout(0.1, mask_id=1)(SIGNALS),
        TypeError,
        "TokenDropout needs integer token numbers .* got torch.float32",
    ),
    "x: tokens of one sentence": (
        lambda: TokenDropout(0.1, mask_id=1)(torch.arange(5)),
        (TypeError, ValueError),
        r"shape \(B, L\), got .* \(5,\)",
    ),
    "y: list": (lambda: Shift(std=1.0)(SIGNALS, wrong([0, 1, 0, 1])), TypeError, "y must be a tensor, .* got list"),
    "y: number": (lambda: Shift(std=1.0)(SIGNALS, torch.tensor(1)), ValueError, "one target per example"),
    "y: another length": (
        lambda: Shift(std=1.0)(SIGNALS, LABELS[:3]),
        ValueError,
        "one target per example: x has 4 rows and y has 3",
    ),
    "y: mixed, another length": (
        lambda: Shift(std=1.0)(SIGNALS, MixedTarget((LABELS[:3],), torch.ones(4, 1))),
        ValueError,
        "4 .* 3|3 .* 4",
    ),
    "y: mixed, weights of another number": (
        lambda: Shift(std=1.0)(SIGNALS, MixedTarget((LABELS, LABELS), torch.ones(4, 1))),
        ValueError,
        r"weights of shape \(4, 2\), one per row and label, got torch.float32 of shape \(4, 1\)",
    ),
    "y: mixed, whole weights": (
        lambda: Shift(std=1.0)(SIGNALS, MixedTarget((LABELS,), torch.ones(4, 1, dtype=torch.long))),
        ValueError,
        r"floating-point weights .* got torch.int64",
    ),
    "y: mixed, weights above 1": (
        lambda: Shift(std=1.0)(SIGNALS, mixed(1.5)),
        ValueError,
        r"weights of a MixedTarget must lie in \[0, 1\], got -0.5…1.5",
    ),
    "y: mixed, weights NaN": (
        lambda: Shift(std=1.0)(SIGNALS, mixed(float("nan"))),
        ValueError,
        r"\[0, 1\], got nan…nan",
    ),
    "y: mixed, weights of less than 1": (
        lambda: Shift(std=1.0)(SIGNALS, MixedTarget((LABELS, LABELS), torch.full((4, 2), 0.4))),
        ValueError,
        "the weights of a MixedTarget must sum to 1 in every row, one is off by 0.2",
    ),
    "y: mixed of nothing": (
        lambda: Shift(std=1.0)(SIGNALS, MixedTarget((), torch.ones(4, 0))),
        ValueError,
        "one tensor of labels or more, got none",
    ),
    "y: none for Mixup": (lambda: Mixup(alpha=1.0)(SIGNALS), ValueError, r"call augment\(x, y\)"),
    "samples: 0": (lambda: Shift(std=1.0)(SIGNALS, samples=0), ValueError, "samples .* at least 1, got 0"),
    "samples: fraction": (lambda: Shift(std=1.0)(SIGNALS, samples=wrong(1.5)), ValueError, "whole number.* got 1.5"),
    "generator: elsewhere": (
        lambda: Shift(std=1.0)(torch.empty(2, 3, device="meta"), generator=torch.Generator()),
        ValueError,
        "generator lives on cpu and x on meta",
    ),
    "generator: a seed": (
        lambda: Shift(std=1.0)(SIGNALS, generator=wrong(7)),
        TypeError,
        "generator.* int",
    ),
    "replay: missing component": (
        lambda: Shift(std=1.0)(SIGNALS, replay={}),
        ValueError,
        r"replay must hold .*\['shift'\], got \[\]",
    ),
    "replay: extra component": (
        lambda: Shift(std=1.0)(SIGNALS, replay={"shift": torch.zeros(4), "lam": torch.zeros(4)}),
        ValueError,
        r"replay must hold .*\['shift'\], got \['lam', 'shift'\]",
    ),
    "replay: short": (
        lambda: Shift(std=1.0)(SIGNALS, replay={"shift": torch.zeros(3)}),
        ValueError,
        r"one γ per row of the view, 4 .*got \{'shift': 3\}",
    ),
    "replay: for other samples": (
        lambda: Shift(std=1.0)(SIGNALS, samples=2, replay={"shift": torch.zeros(4)}),
        ValueError,
        r"one γ per row of the view, 8 .*got \{'shift': 4\}",
    ),
    "replay: one γ for all": (
        lambda: Shift(std=1.0)(SIGNALS, replay={"shift": torch.tensor(1.0)}),
        ValueError,
        r"one γ per row of the view, 4 .*got \{'shift': 0\}",
    ),
    "replay: NaN": (
        lambda: Shift(std=1.0)(SIGNALS, replay={"shift": torch.tensor([0.0, float("nan"), 0.0, 0.0])}),
        ValueError,
        "replay: shift must be finite, got nan",
    ),
    "replay: infinite": (
        lambda: Sequential(Shift(std=1.0))(SIGNALS, replay={"shift.shift": torch.full((4,), float("inf"))}),
        ValueError,
        "replay: shift.shift must be finite, got inf",
    ),
    "replay: a partner that is not there": (
        lambda: blend([1, 2, 3, 4]),
        ValueError,
        "replay: partner must hold row numbers in 0…3, got 1…4",
    ),
    "replay: a partner before the first": (lambda: blend([1, 2, 3, -1]), ValueError, "row numbers in 0…3, got -1…3"),
    "replay: half a partner": (lambda: blend([1.0, 2.0, 3.0, 0.5]), TypeError, "row numbers.* got torch.float32"),
    "replay: partners in pairs": (
        lambda: blend([[1], [2], [3], [0]]),
        ValueError,
        r"one row number per row, shape \(4,\), got \(4, 1\)",
    ),
    "replay: a view": (
        lambda: Shift(std=1.0)(SIGNALS, replay=wrong(View(SIGNALS))),
        TypeError,
        "replay.* View$",
    ),
    "replay: a number": (
        lambda: Shift(std=1.0)(SIGNALS, replay={"shift": wrong(1.0)}),
        TypeError,
        "replay.*shift.* float",
    ),
    "replay: another row shape": (
        lambda: GaussianNoise(std=1.0)(SIGNALS, replay={"noise": torch.zeros(4, 1)}),
        ValueError,
        r"replay.*noise.* \(4, 1\)",
    ),
    # ---- objective ---------------------------------------------------------------------------------------------
    "objective: num_data 0": (lambda: ELBO(num_data=0), ValueError, "num_data must be .* positive .* got 0"),
    "objective: num_data float": (lambda: ELBO(num_data=wrong(100.0)), ValueError, "num_data must be .* got 100.0"),
    "objective: num_data switch": (lambda: ELBO(num_data=True), ValueError, "num_data must be .* got True"),
    "objective: beta_theta": (lambda: ELBO(4, beta_theta=-1.0), ValueError, "beta_theta .* not negative, got -1.0"),
    "objective: beta_phi": (lambda: ELBO(4, beta_phi=float("nan")), ValueError, "beta_phi .* got nan"),
    "objective: beta_phi is text": (lambda: ELBO(4, beta_phi=wrong("1")), TypeError, "beta_phi.* (str|'1')"),
    "objective: bound": (lambda: ELBO(4, bound=wrong("iwae")), ValueError, "bound must be .*marginal.* got 'iwae'"),
    "objective: likelihood": (
        lambda: ELBO(4, likelihood="poisson"),
        ValueError,
        "likelihood must be one of .*'categorical'.* got 'poisson'",
    ),
    "objective: likelihood class": (
        lambda: ELBO(4, likelihood=wrong(optima.Gaussian)),
        ValueError,
        "likelihood must be",
    ),
    "objective: noise 0": (lambda: optima.Gaussian(noise=0.0), ValueError, r"Gaussian\(noise=…\) must lie in \(0, ∞\)"),
    "objective: two noises": (lambda: optima.Gaussian(noise=[1.0, 2.0]), ValueError, r"one number, got shape \(2,\)"),
    "objective: swapped": (lambda: ELBO(4)(wrong(View(SIGNALS)), wrong(SIGNALS)), TypeError, "View .* got Tensor"),
    "objective: output is a tuple": (
        lambda: ELBO(4)(wrong((SIGNALS,)), View(SIGNALS, LABELS)),
        TypeError,
        "output must be the tensor of logits.* got tuple",
    ),
    "objective: no target": (lambda: step(Shift(std=1.0), y=None), ValueError, r"no targets: call augment\(x, y\)"),
    "objective: rows": (
        lambda: step(Shift(std=1.0), lambda x: x[:3, :2]),
        ValueError,
        r"one row per row of view.x, 4, got shape \(3, 2\)",
    ),
    "objective: augment is a layer": (
        lambda: ELBO(4)(SIGNALS, View(SIGNALS, LABELS), augment=wrong(nn.Linear(2, 2))),
        TypeError,
        "augment.* Linear",
    ),
    "objective: model is a function": (
        lambda: ELBO(4)(SIGNALS, View(SIGNALS, LABELS), model=wrong(len)),
        TypeError,
        "model.* builtin",
    ),
    "objective: augment missing": (
        lambda: ELBO(4)(SIGNALS, Shift(std=learn(1.0))(SIGNALS, LABELS)),
        ValueError,
        "pass augment= so that its KL is counted",
    ),
    "objective: another augment": (
        lambda: ELBO(4)(SIGNALS, Shift(std=1.0)(SIGNALS, LABELS), augment=Shift(std=learn(1.0))),
        ValueError,
        "the data cannot move std",
    ),
    "reach: detached": (
        lambda: step(Shift(std=learn(1.0)), change=lambda view: replace(view, x=view.x.detach())),
        ValueError,
        "the data cannot move std: .*Was view.x detached",
    ),
    "reach: integers": (
        lambda: step(Rotate(std=learn(1.0)), x=IMAGES, change=lambda v: replace(v, x=(255 * v.x).byte().float())),
        ValueError,
        "the data cannot move std: .*turned into integers",
    ),
    "reach: one of two": (
        lambda: step(
            Sequential(GaussianNoise(std=learn(1.0)), Shift(std=learn(1.0))),
            change=lambda view: replace(view, x=view.x.detach() + view.gamma["shift.shift"][:, None]),
        ),
        ValueError,
        "the data cannot move gaussiannoise.std: ",
    ),
    "reach: no_grad": (drawn_without_grad, ValueError, "the data cannot move std: .*no_grad"),
    "reach: replay": (replayed, ValueError, "the data cannot move std: .*replayed"),
    "elbo: a matrix": (lambda: elbo(SIGNALS, 0.0, 0.0, 4), ValueError, r"shape \(B,\), got \(4, 3\)"),
    "elbo: no rows": (lambda: elbo(torch.zeros(0), 0.0, 0.0, 4), ValueError, r"shape \(B,\), got \(0,\)"),
    "elbo: a KL per row": (
        lambda: elbo(torch.zeros(4), torch.zeros(4), 0.0, 4),
        ValueError,
        r"kl_theta.* \(4,\)",
    ),
    "elbo: num_data 0": (lambda: elbo(torch.zeros(4), 0.0, 0.0, 0), ValueError, "num_data must be .* got 0"),
    "elbo: a list": (lambda: elbo(wrong([-1.0]), 0.0, 0.0, 4), TypeError, "log_lik must be a floating-.* got list"),
    "elbo: whole numbers": (lambda: elbo(LABELS, 0.0, 0.0, 4), TypeError, "log_lik must be a floating-.* torch.int64"),
    "elbo: NaN": (
        lambda: elbo(torch.tensor([0.0, 1.0, float("nan")]), 0.0, 0.0, 4),
        ValueError,
        r"log_lik of 1 of 3 examples is not a number \(the first is example 2\)",
    ),
    "elbo: num_data is text": (lambda: elbo(torch.zeros(4), 0.0, 0.0, wrong("a")), ValueError, "num_data .* got 'a'"),
    "elbo: num_data a fraction": (lambda: elbo(torch.zeros(4), 0.0, 0.0, wrong(10.5)), ValueError, "whole.* got 10.5"),
    "elbo: num_data a switch": (lambda: elbo(torch.zeros(1), 0.0, 0.0, True), ValueError, "num_data .* got True"),
    "elbo: num_data below B": (
        lambda: elbo(torch.zeros(4), 0.0, 0.0, 3),
        ValueError,
        "num_data is the number of training examples, 3, but log_lik holds 4",
    ),
    "elbo: a KL of text": (lambda: elbo(torch.zeros(4), wrong("0"), 0.0, 4), TypeError, "kl_theta must be .* got str"),
    "elbo: a KL of NaN": (
        lambda: elbo(torch.zeros(4), 0.0, torch.tensor(float("nan")), 4),
        ValueError,
        "kl_phi must be finite, got nan",
    ),
    "elbo: an infinite KL": (lambda: elbo(torch.zeros(4), float("inf"), 0.0, 4), ValueError, "kl_theta .* got inf"),
    "elbo: beta below 0": (
        lambda: elbo(torch.zeros(4), 0.0, 0.0, 4, beta_phi=-1.0),
        ValueError,
        "beta_phi must be finite and not negative, got -1.0",
    ),
    "elbo: beta NaN": (
        lambda: elbo(torch.zeros(4), 0.0, 0.0, 4, beta_theta=float("nan")),
        ValueError,
        "beta_theta must be finite .* got nan",
    ),
    "elbo: beta is text": (
        lambda: elbo(torch.zeros(4), 0.0, 0.0, 4, beta_theta=wrong("1")),
        TypeError,
        "beta_theta must be a number, got str",
    ),
    "elbo: draws in a list": (lambda: log_marginal(wrong([[0.0]])), TypeError, r"\(K, B\), got list"),
    "elbo: one axis": (lambda: log_marginal(torch.zeros(4)), ValueError, r"\(K, B\), got \(4,\)"),
    "elbo: no draws": (lambda: log_marginal(torch.zeros(0, 4)), ValueError, r"\(K, B\), got \(0, 4\)"),
    "elbo: advantage of one axis": (
        lambda: marginalization_advantage(torch.zeros(4)),
        ValueError,
        r"\(K, B\), got \(4,\)",
    ),
    # ---- targets -----------------------------------------------------------------------------------------------
    "target: out of range": (
        lambda: loss(SIGNALS, torch.tensor([0, 1, 2, 3])),
        ValueError,
        "class labels must lie in 0…2, the output's classes; got 0…3",
    ),
    "target: negative": (lambda: loss(SIGNALS, torch.tensor([0, 1, -100, 2])), ValueError, "0…2, .* got -100…2"),
    "target: float labels": (
        lambda: loss(SIGNALS, LABELS.float()),
        ValueError,
        r"class probabilities .*\(4, 3\), got \(4,\); for class numbers use y.long\(\)",
    ),
    "target: switches": (lambda: loss(SIGNALS, LABELS.bool()), TypeError, "whole numbers, got torch.bool"),
    "target: one-hot integers": (
        lambda: loss(SIGNALS, torch.eye(4, 3, dtype=torch.long)),
        ValueError,
        r"shape \(4,\), one per row of the output, got \(4, 3\)",
    ),
    "target: soft, fewer classes": (
        lambda: loss(SIGNALS, torch.full((4, 2), 0.5)),
        ValueError,
        r"logits' shape \(4, 3\), got \(4, 2\)",
    ),
    "target: soft, above 1": (lambda: loss(SIGNALS, torch.full((4, 3), 2.0)), ValueError, r"\[0, 1\], got 2…2"),
    "target: soft, NaN": (lambda: loss(SIGNALS, torch.full((4, 3), float("nan"))), ValueError, r"\[0, 1\], got nan"),
    "target: soft, several labels": (
        lambda: loss(SIGNALS, torch.tensor([[1.0, 1.0, 0.0]]).expand(4, 3)),
        ValueError,
        "sum to 1",
    ),
    "target: image logits": (lambda: loss(IMAGES, LABELS), ValueError, r"\(rows, classes\) .* got \(4, 3, 5, 5\)"),
    "target: one logit": (lambda: loss(SIGNALS[:, 0], LABELS), ValueError, r"\(rows, classes\) .* got \(4,\)"),
    "target: yes/no shape": (
        lambda: loss(SIGNALS, LABELS, "bernoulli"),
        ValueError,
        r"logits' shape \(4, 3\), got \(4,\)",
    ),
    "target: yes/no range": (
        lambda: loss(SIGNALS, torch.full((4, 3), -1), "bernoulli"),
        ValueError,
        r"Bernoulli target must lie in \[0, 1\], got -1…-1",
    ),
    "target: mixed, weights above 1": (lambda: loss(SIGNALS, mixed(1.5)), ValueError, r"\[0, 1\], got -0.5…1.5"),
    "target: mixed values": (
        lambda: loss(SIGNALS[:, 0], values(1.5), "gaussian"),
        ValueError,
        r"\[0, 1\], got -0.5…1.5",
    ),
    "target: mixed yes and no": (
        lambda: loss(SIGNALS[:, 0], values(-0.5), "bernoulli"),
        ValueError,
        r"\[0, 1\], got -0.5…1.5",
    ),
    "target: mixed, rows": (
        lambda: optima.Categorical().log_lik(SIGNALS, MixedTarget((LABELS,), torch.ones(3, 1))),
        ValueError,
        r"weights of shape \(4, 1\), .* \(3, 1\)",
    ),
    "target: column against row": (
        lambda: loss(SIGNALS[:, :1], SIGNALS[:, 0], "gaussian"),
        ValueError,
        r"output's shape \(4, 1\), got \(4,\)",
    ),
    # ---- θ -----------------------------------------------------------------------------------------------------
    "θ: prior_std": (lambda: BayesianLinear(2, 2, prior_std=0.0), ValueError, "prior_std must be .* got 0.0"),
    "θ: init_std": (lambda: BayesianLinear(2, 2, init_std=-1.0), ValueError, "init_std must be .* got -1.0"),
    "θ: prior_std is text": (
        lambda: BayesianLinear(2, 2, prior_std=wrong("1")),
        TypeError,
        "prior_std.* (str|'1')",
    ),
    "θ: no inputs": (lambda: BayesianLinear(0, 2), ValueError, "in_features must be a whole number, at least 1, got 0"),
    "θ: outputs below 0": (lambda: BayesianLinear(2, -1), ValueError, "out_features must be a whole .* got -1"),
    "θ: half an input": (lambda: BayesianLinear(wrong(2.5), 2), ValueError, "in_features must be a whole .* got 2.5"),
    "θ: inputs are a switch": (lambda: BayesianLinear(True, 2), ValueError, "in_features must be a whole .* got True"),
    "θ: unknown layer": (
        lambda: bayesian_last_layer(nn.Sequential(nn.Linear(2, 2)), layer="head"),
        ValueError,
        r"'head' is not a linear layer of the model; the linear layers are \['0'\]",
    ),
    "θ: unknown layer of a layer": (
        lambda: bayesian_last_layer(nn.Linear(2, 2), layer="head"),
        ValueError,
        "'head' is not a linear layer",
    ),
    "θ: no linear layer": (
        lambda: bayesian_last_layer(nn.Sequential(nn.ReLU())),
        ValueError,
        "Sequential has no nn.Linear layer",
    ),
    "predict: samples 0": (
        lambda: predict(nn.Linear(3, 2), SIGNALS, samples=0),
        ValueError,
        "samples must be at least 1, got 0",
    ),
    "predict: samples float": (
        lambda: predict(nn.Linear(3, 2), SIGNALS, samples=wrong(2.5)),
        ValueError,
        "samples.* 2.5",
    ),
    "predict: generator is a seed": (
        lambda: predict(nn.Linear(3, 2), SIGNALS, generator=wrong(3)),
        TypeError,
        "generator must be a torch.Generator, got int",
    ),
    "predict: augment is a layer": (
        lambda: predict(nn.Linear(3, 2), SIGNALS, samples=2, augment=wrong(nn.Linear(2, 2))),
        TypeError,
        "augment.* Linear",
    ),
    "predict: model is a function": (
        lambda: predict(wrong(len), SIGNALS, samples=2),
        TypeError,
        "model.* builtin",
    ),
    "predict: likelihood": (
        lambda: predict(nn.Linear(3, 2), SIGNALS, likelihood="softmax"),
        ValueError,
        "likelihood must be one of .* got 'softmax'",
    ),
    # ---- metrics -----------------------------------------------------------------------------------------------
    "metrics: logits": (lambda: metrics.ece(SIGNALS, LABELS), ValueError, "do not sum to 1 .*use softmax"),
    "metrics: probabilities of one class": (
        lambda: metrics.nll(PROBS[:, 0], LABELS[:2]),
        ValueError,
        r"\(rows, classes\) .* got \(2,\)",
    ),
    "metrics: no rows": (lambda: metrics.brier(PROBS[:0], LABELS[:0]), ValueError, r"at least one row, got \(0, 2\)"),
    "metrics: rows": (lambda: metrics.accuracy(PROBS, LABELS), ValueError, r"labels must be 2 .* got .*\(4,\)"),
    "metrics: one-hot labels": (
        lambda: metrics.accuracy(PROBS, PROBS),
        ValueError,
        "whole class numbers, got torch.float",
    ),
    "metrics: label out of range": (
        lambda: metrics.nll(PROBS, torch.tensor([0, 2])),
        ValueError,
        "labels must lie in 0…1, got 0…2",
    ),
    "metrics: NaN": (lambda: metrics.ece(PROBS * float("nan"), LABELS[:2]), ValueError, "must be a distribution"),
    "metrics: lists": (lambda: metrics.ece(wrong([[0.5, 0.5]]), wrong([0])), TypeError, "probs.* list"),
    "metrics: labels are a list": (lambda: metrics.nll(PROBS, wrong([0, 1])), TypeError, "labels.* list"),
    "metrics: bins 0": (lambda: metrics.ece(PROBS, LABELS[:2], bins=0), ValueError, "bins must be at least 1, got 0"),
    "metrics: bins float": (
        lambda: metrics.reliability(PROBS, LABELS[:2], bins=wrong(2.5)),
        ValueError,
        "bins.* 2.5",
    ),
}


@pytest.mark.parametrize(
    ("use", "error", "message"), [pytest.param(*row, id=name) for name, row in (BUILD | CALL).items()]
)
def test_wrong_use_raises_one_clear_error(use: Callable[[], object], error: type[Exception], message: str):
    with pytest.raises(error, match=message) as caught:
        use()
    assert "\n" not in str(caught.value), "one line, which a command line can print"


def test_the_table_is_complete_enough():
    assert len(BUILD | CALL) == len(BUILD) + len(CALL) >= 40


# ---- policies on disk ------------------------------------------------------------------------------------------


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """A saved policy whose JSON was changed by hand."""

    def prepare(stem: Path) -> None:
        optima.save(Rotate(std=learn(10.0)), stem)
        document = json.loads(stem.with_suffix(".json").read_text())
        change(document)
        stem.with_suffix(".json").write_text(json.dumps(document))

    return prepare


def truncated(stem: Path) -> None:
    optima.save(Rotate(std=learn(10.0)), stem)
    weights = stem.with_suffix(".safetensors")
    weights.write_bytes(weights.read_bytes()[:-8])


def foreign_weights(stem: Path) -> None:
    optima.save(Mixup(alpha=learn(0.2)), stem)
    weights = stem.with_suffix(".safetensors").read_bytes()
    optima.save(Rotate(std=learn(10.0)), stem)
    stem.with_suffix(".safetensors").write_bytes(weights)


def without_weights(stem: Path) -> None:
    optima.save(Rotate(std=learn(10.0)), stem)
    stem.with_suffix(".safetensors").unlink()


def a_folder_of_that_name(stem: Path) -> None:
    stem.mkdir()


def own_family(stem: Path) -> None:
    class Wobble(Shift):
        pass

    optima.save(Wobble(std=learn(1.0)), stem)


def text(content: bytes) -> Callable[[Path], None]:
    def prepare(stem: Path) -> None:
        stem.with_suffix(".json").write_bytes(content)

    return prepare


def std_of(document: dict[str, Any]) -> dict[str, Any]:
    return document["augment"]["arguments"]["std"]


FILES = {
    "missing": (lambda stem: None, FileNotFoundError, "no policy at .*policy.json"),
    "a folder": (lambda stem: stem.with_suffix(".json").mkdir(), (OSError, ValueError), "policy.json"),
    "the folder it is in": (
        a_folder_of_that_name,
        FileNotFoundError,
        "no policy at .*policy.json; .*policy is a folder: name the file in it, as in .*policy/policy",
    ),
    "weights missing": (without_weights, FileNotFoundError, "policy.safetensors is missing"),
    "not JSON": (text(b"{'a': 1}"), ValueError, "policy.json is not JSON"),
    "not text": (text(b"\xff\xfe\x00"), ValueError, "policy.json is not JSON"),
    "nested without end": (text(b"[" * 100_000), ValueError, "policy.json is not JSON"),
    "another JSON": (text(b'{"kind": "model"}'), ValueError, "policy.json is not a policy written by optima.save"),
    "a JSON list": (text(b"[]"), ValueError, "policy.json is not a policy written by optima.save"),
    "another schema": (edited(lambda d: d.update(schema=99)), ValueError, "has schema 99, this version reads 1"),
    "no description": (edited(lambda d: d.pop("augment")), ValueError, "policy.json .*augment"),
    "description is a list": (edited(lambda d: d.update(augment=[])), ValueError, "policy.json"),
    "no type": (edited(lambda d: d["augment"].pop("type")), ValueError, "policy.json .*type"),
    "no prior": (edited(lambda d: std_of(d).pop("prior")), ValueError, "policy.json .*prior"),
    "unknown family": (own_family, ValueError, r"'Wobble', which is not one of .*families="),
    "unknown argument": (
        edited(lambda d: d["augment"]["arguments"].update(degrees=3)),
        (TypeError, ValueError),
        r"policy.json: Rotate has no argument degrees",
    ),
    "no schema": (edited(lambda d: d.pop("schema")), ValueError, "policy.json is damaged: it lacks 'schema'"),
    "unknown estimator": (
        edited(lambda d: d["augment"]["arguments"].update(estimator={"estimator": "os.system"})),
        ValueError,
        "unknown estimator 'os.system'",
    ),
    "unknown prior": (
        edited(lambda d: std_of(d)["prior"].update(family="os.system")),
        ValueError,
        "unknown distribution 'os.system'",
    ),
    "unknown transform": (
        edited(lambda d: std_of(d)["prior"]["transforms"][0].update(transform="eval")),
        ValueError,
        "unknown transform 'eval'",
    ),
    "unknown support": (
        edited(lambda d: std_of(d)["support"].update(support="__import__")),
        ValueError,
        "unknown support '__import__'",
    ),
    "truncated weights": (truncated, ValueError, "policy.safetensors .* is damaged"),
    "another policy's weights": (foreign_weights, ValueError, "policy.safetensors does not belong to policy.json"),
}


@pytest.mark.parametrize(("prepare", "error", "message"), [pytest.param(*row, id=name) for name, row in FILES.items()])
def test_a_bad_policy_file_raises_one_clear_error(prepare, error: type[Exception], message: str, tmp_path: Path):
    prepare(tmp_path / "policy")
    with pytest.raises(error, match=message) as caught:
        optima.load(tmp_path / "policy")
    assert "\n" not in str(caught.value), "one line, which a command line can print"


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        pytest.param(nn.Linear(2, 2), "cannot save a Linear", id="a layer"),
        pytest.param(Rotate(std=learn(1.0)).prior(), r"at its prior is not saved", id="at its prior"),
    ],
)
def test_what_cannot_be_saved_is_refused_before_a_file_is_touched(policy: Any, message: str, tmp_path: Path):
    with pytest.raises(TypeError, match=message):
        optima.save(policy, tmp_path / "policy")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("", ValueError, "path must end in a name for the policy's two files, as in runs/policy, got ''"),
        (".", ValueError, "path must end in a name .* got '.'"),
        ("..", ValueError, "path must end in a name .* got '..'"),
        ("runs", IsADirectoryError, "runs is a folder; name the policy's two files in it, as in runs/policy"),
        ("runs/", IsADirectoryError, "runs/ is a folder; name the policy's .* as in runs/policy"),
        ("new/", IsADirectoryError, "new/ is a folder; name the policy's .* as in new/policy"),
        ("taken", IsADirectoryError, "taken.safetensors is a folder; choose another name"),
    ],
)
def test_a_policy_is_not_saved_beside_the_folder_that_was_named(
    path: str, error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for folder in ("runs", "taken.safetensors"):
        (tmp_path / folder).mkdir()
    with pytest.raises(error, match=message) as caught:
        optima.save(Rotate(std=1.0), path)
    assert "\n" not in str(caught.value), "one line, which a command line can print"
    assert sorted(entry.name for entry in tmp_path.rglob("*")) == ["runs", "taken.safetensors"]


def test_a_policy_may_be_saved_beside_a_folder_when_its_file_is_named(tmp_path: Path):
    (tmp_path / "runs").mkdir()
    optima.save(Rotate(std=1.0), tmp_path / "runs.json")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["runs", "runs.json", "runs.safetensors"]


def test_numbers_of_numpy_are_numbers():
    assert learn(1.0, scale=wrong(np.float32(0.5))).scale == 0.5
    assert float(elbo(torch.full((4,), -1.0), 0.0, 0.0, wrong(np.int64(10))).value) == -10.0
    assert BayesianLinear(wrong(np.int64(3)), 2)(SIGNALS).shape == (4, 2)
    assert type(ELBO(wrong(np.int64(100))).num_data) is int


def test_weights_that_are_shares_up_to_rounding_pass():
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        target = MixedTarget((LABELS,) * 3, torch.full((4, 3), 1 / 3, dtype=dtype))
        assert Shift(std=1.0)(SIGNALS, target).target is target
