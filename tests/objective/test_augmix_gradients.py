"""The expected gradient that reaches AugMix's φ is that of the expectation, and planted bugs do not pass.

The example is a 4×4 image, the output a weighted sum r of its pixels, the log-likelihood −½ (t − r)². A chain moves r
by d, so that r = A + m Σ_w a_w d_w, and with E[m] = ½ the expectation needs E[m²], E[a²], E[a a'], E[d], E[d²].
The last two are sums over all chains of the few operations that a case allows, lattice levels enumerated and uniform
ones on a fine grid; their derivatives are central differences.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch
from scipy import stats
from torch import Tensor

import optima
from optima import learn
from optima.augment import augmix as family
from optima.augment.augmix import AugMix
from optima.augment.view import View
from optima.posterior import Learn, LearnedPhi
from optima.sampling import Draw, ScoreFunction
from optima.transforms.augmix import OPERATIONS, augmix
from tests.reference import GivenNoise, spread_uniforms

RTOL = 0.02
GRID = {0: 1, 1: 400, 2: 60, 3: 14}  # points per uniform level, by how many of them there are

_POSITIONS = torch.linspace(0, 1, 4, dtype=torch.float64)
# bright at the border, so that what moves darkens it
IMAGE = torch.stack([0.4 + 0.55 * (_POSITIONS[:, None] - _POSITIONS.roll(channel)).abs() for channel in range(3)])
WEIGHTS = 0.1 + 0.05 * (torch.arange(48, dtype=torch.float64) * 1.7).sin()

Params = dict[str, Tensor]


def read(x: Tensor) -> Tensor:
    return x.reshape(len(x), -1) @ WEIGHTS


@dataclass(frozen=True)
class Case:
    """What AugMix may do, and φ."""

    operations: tuple[str, ...]
    severity: float
    depth: int | None = None
    width: int = 1
    dirichlet: float = 0.8
    beta: float = 0.7
    depth_probs: tuple[float, float, float] = (0.5, 0.3, 0.2)
    target: float = 3.3
    log2_rows: int = 17

    def build(self) -> AugMix:
        def point(value: float | list[float]) -> Learn:
            return learn(value, posterior="point")

        return AugMix(
            severity=point(self.severity),
            width=self.width,
            depth=self.depth,
            dirichlet=self.dirichlet if self.width == 1 else point(self.dirichlet),
            beta=point(self.beta),
            depth_probs=None if self.depth is not None else point(list(self.depth_probs)),
            operations=self.operations,
        ).double()

    def params(self) -> Params:
        values = {"severity": self.severity, "beta": self.beta}
        if self.width > 1:
            values["dirichlet"] = self.dirichlet
        found = {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
        if self.depth is None:
            found["depth_probs"] = torch.tensor(self.depth_probs, dtype=torch.float64)
        return found


CASES = {
    "smooth, then posterize": Case(("rotate", "posterize"), 4.3, depth=2),
    "translate, then equalize": Case(("translate_x", "equalize"), 3.4, depth=2, log2_rows=16),
    "smooth alone": Case(("rotate", "contrast"), 2.6, depth=2),
    "everything learned": Case(("shear_y", "solarize"), 3.0, width=2, target=3.8),
}


# ---- the expectation -----------------------------------------------------------------------------------------------


def switched_on(severity: Tensor, k: int) -> Tensor:
    t = min(max((float(severity) - k + 0.5) / 2, 0.0), 1.0)
    return torch.tensor(3 * t**2 - 2 * t**3, dtype=torch.float64)


def levels(severity: Tensor, name: str, scored: bool, grid: int) -> list[tuple[Tensor, Tensor]]:
    """(ℓ, probability), the sign included."""
    if name in ("equalize", "autocontrast"):
        return [(torch.tensor(1.0).double(), torch.tensor(1.0).double())]
    if scored:
        on = torch.stack([switched_on(severity, k) for k in range(10)])
        pairs = [(torch.tensor(k + 0.5).double(), on[k] / on.sum()) for k in range(10) if on[k] > 0]
    else:
        pairs = [(0.1 + (severity - 0.1) * (i + 0.5) / grid, torch.tensor(1 / grid).double()) for i in range(grid)]
    if name in ("rotate", "shear_x", "shear_y", "translate_x", "translate_y"):
        pairs = [(sign * level, p / 2) for level, p in pairs for sign in (-1, 1)]
    return pairs


@cache
def moments_of(names: tuple[str, ...], value: float) -> Tensor:
    """E[d] and E[d²] of the chain of those operations."""
    severity = torch.tensor(value, dtype=torch.float64)
    jumps = [step for step, name in enumerate(names) if name in ("posterize", "solarize", "equalize")]
    scored = [bool(jumps) and step <= jumps[-1] for step in range(len(names))]
    flowing = sum(not on and name != "autocontrast" for name, on in zip(names, scored, strict=True))
    lists = [levels(severity, name, on, GRID[flowing]) for name, on in zip(names, scored, strict=True)]
    grids = torch.cartesian_prod(*(torch.stack([level for level, _ in each]) for each in lists)).view(-1, len(names))
    chances = torch.cartesian_prod(*(torch.stack([p for _, p in each]) for each in lists)).view(-1, len(names)).prod(1)
    rows, missing = len(grids), 3 - len(names)
    operation = torch.tensor([OPERATIONS.index(name) for name in names] + [0] * missing)
    moved = augmix(
        IMAGE.expand(rows, *IMAGE.shape),
        torch.ones(rows, 1).double(),
        torch.ones(rows).double(),
        torch.full((rows, 1), len(names)),
        operation.expand(rows, 1, 3),
        torch.nn.functional.pad(grids, (0, missing)).unsqueeze(1),
    )
    d = read(moved) - read(IMAGE[None])
    return torch.stack([chances @ d, chances @ d.square()])


def expected(case: Case, params: Params) -> Tensor:
    """E of the log-likelihood, up to a constant, from the definition alone."""
    severity, b, a, width = params["severity"], params["beta"], params.get("dirichlet", 1.0), case.width
    probs = {case.depth: 1.0} if case.depth else dict(enumerate(params["depth_probs"], 1))
    first = torch.zeros(2, dtype=torch.float64)
    for depth, p in probs.items():
        every = list(itertools.product(case.operations, repeat=depth or 1))
        first = first + p * torch.stack([moments_of(names, float(severity)) for names in every]).mean(0)
    mean_d, mean_d2 = first
    mean_m2 = (b + 1) / (2 * (2 * b + 1))
    mean_a2, mean_aa = (a + 1) / (width * (width * a + 1)), a / (width * (width * a + 1))
    second = width * mean_a2 * mean_d2 + width * (width - 1) * mean_aa * mean_d**2
    gap = read(IMAGE[None])[0] - case.target
    return -0.5 * (gap**2 + gap * mean_d + mean_m2 * second)


def exact_gradient(case: Case) -> dict[str, float]:
    """Along each φ; along depth_probs towards a depth of 1 and away from one of 3."""
    params = case.params()
    steps = {name: torch.ones_like(value) for name, value in params.items() if name != "depth_probs"}
    if "depth_probs" in params:
        steps["depth_probs"] = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64)
    h = 1e-4

    def at(name: str, size: float) -> Tensor:
        return expected(case, {**params, name: params[name] + size * steps[name]})

    return {name: float((at(name, h) - at(name, -h)) / (2 * h)) for name in steps}


# ---- the library ---------------------------------------------------------------------------------------------------


def noise(case: Case) -> GivenNoise:
    """Noise for all rows, spread evenly; the gamma draws are those of Gamma(α + 1, 1)."""
    k = case.width
    shapes = {"operation": (k, 3), "lattice": (k, 3), "level": (k, 3), "sign": (k, 3)}
    shapes |= {"weights.gamma": (k,), "weights.uniform": (k,)}
    shapes |= {f"blend.{side}.{part}": () for side in ("one", "zero") for part in ("gamma", "uniform")}
    if case.depth is None:
        shapes["depth"] = (k,)
    sizes = {name: torch.Size(shape).numel() for name, shape in shapes.items()}
    points = spread_uniforms(sum(sizes.values()), case.log2_rows)
    columns = dict(zip(sizes, points.split(list(sizes.values()), 1), strict=True))
    for name, column in columns.items():
        if name.endswith(".gamma"):
            alpha = case.dirichlet if name.startswith("weights") else case.beta
            columns[name] = torch.from_numpy(stats.gamma.ppf(column.numpy(), alpha + 1))
    return GivenNoise({name: column.reshape(-1, *shapes[name]) for name, column in columns.items()})


def library_gradient(case: Case) -> dict[str, float]:
    """What a training step would add to each φ, per example."""
    augment, rows = case.build(), 2**case.log2_rows
    target = torch.full((rows,), case.target, dtype=torch.float64)
    view = augment.extend(View(IMAGE.expand(rows, *IMAGE.shape), target), noise(case), None, "").settled()
    objective = optima.ELBO(num_data=rows, likelihood=optima.Gaussian(noise=1.0), beta_phi=0.0)
    objective._reached[augment] = 1  # a planted bug is to be judged by its number
    loss = objective(read(view.x), view, augment=augment).value
    learned = {name: view.phi[name] for name in case.params()}
    gradients = torch.autograd.grad(-loss, list(learned.values()), allow_unused=True, materialize_grads=True)
    found = {name: gradient.sum(0) for name, gradient in zip(learned, gradients, strict=True)}
    if "depth_probs" in found:
        found["depth_probs"] = found["depth_probs"][0] - found["depth_probs"][2]
    return {name: float(gradient) for name, gradient in found.items()}


def check(case: Case, exact: dict[str, float], rtol: float = RTOL) -> None:
    """Raise AssertionError unless the gradient is that of the expectation."""
    found = library_gradient(case)
    assert exact.keys() == found.keys()
    for name, value in exact.items():
        assert abs(value) > 1e-4, f"the case says nothing about {name}"
        assert found[name] == pytest.approx(value, rel=rtol), name


# ---- planted bugs --------------------------------------------------------------------------------------------------


def change_level(monkeypatch: pytest.MonkeyPatch, change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
    draw = family._draw_level
    monkeypatch.setattr(family, "_draw_level", lambda *given: change(*draw(*given)))


def detached_level(monkeypatch: pytest.MonkeyPatch) -> None:
    change_level(monkeypatch, lambda level, credit: (level.detach(), credit))


def no_credit_for_the_lattice(monkeypatch: pytest.MonkeyPatch) -> None:
    change_level(monkeypatch, lambda level, credit: (level, credit * 0.0))


def half_the_credit(monkeypatch: pytest.MonkeyPatch) -> None:
    change_level(monkeypatch, lambda level, credit: (level, credit * 0.5))


def pathwise_through_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family, "scored_steps", lambda operation, depth: torch.zeros_like(operation, dtype=torch.bool))


def only_the_discontinuous_step_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    jumps = family.DISCONTINUOUS
    monkeypatch.setattr(family, "scored_steps", lambda operation, depth: family._among(operation, jumps))


def no_credit_for_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = AugMix._draw_depth
    monkeypatch.setattr(AugMix, "_draw_depth", lambda self, phi, noise: (draw(self, phi, noise)[0], None))


def detached_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    transform = AugMix.transform
    monkeypatch.setattr(
        AugMix,
        "transform",
        lambda self, x, gamma: transform(self, x, gamma | {"weights": gamma["weights"].detach()}),
    )


def half_of_every_score(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = ScoreFunction.draw

    def halved(self: ScoreFunction, law, noise) -> Draw:
        value, log_prob = draw(self, law, noise)
        assert log_prob is not None
        return Draw(value, 0.5 * log_prob)

    monkeypatch.setattr(ScoreFunction, "draw", halved)


PLANTED = [
    (detached_level, "smooth alone"),
    (detached_level, "smooth, then posterize"),
    (no_credit_for_the_lattice, "smooth, then posterize"),
    (no_credit_for_the_lattice, "translate, then equalize"),
    (half_the_credit, "smooth, then posterize"),
    (half_the_credit, "translate, then equalize"),
    (pathwise_through_everything, "smooth, then posterize"),
    (only_the_discontinuous_step_scored, "smooth, then posterize"),
    (only_the_discontinuous_step_scored, "translate, then equalize"),
    (no_credit_for_depth, "everything learned"),
    (half_of_every_score, "everything learned"),
    (detached_weights, "everything learned"),
]


@pytest.fixture(scope="module")
def exact() -> dict[str, dict[str, float]]:
    return {name: exact_gradient(case) for name, case in CASES.items()}


@pytest.mark.parametrize("name", CASES)
def test_every_phi_gets_the_gradient_of_the_expectation(name: str, exact: dict[str, dict[str, float]]):
    check(CASES[name], exact[name])


def fewer_rows(name: str) -> Case:
    return replace(CASES[name], log2_rows=CASES[name].log2_rows - 2)


@pytest.mark.parametrize("name", CASES)
def test_fewer_rows_do_where_a_bug_is_planted(name: str, exact: dict[str, dict[str, float]]):
    check(fewer_rows(name), exact[name], rtol=0.06)


@pytest.mark.parametrize(("plant", "name"), PLANTED)
def test_a_planted_bug_is_caught(plant: Callable, name: str, exact, monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check(fewer_rows(name), exact[name], rtol=0.06)


def test_the_law_of_the_levels_does_not_ask_whether_severity_is_learned():
    augment = AugMix(severity=learn(3.0, posterior="point"), depth_probs=[0.2, 0.3, 0.5])
    levels_drawn = [
        each(torch.zeros(64, 3, 4, 4), generator=torch.Generator().manual_seed(0)).gamma["level"]
        for each in (augment, augment.frozen())
    ]
    torch.testing.assert_close(*levels_drawn)


def test_levels_before_a_jump_are_on_the_lattice_and_carry_no_path():
    augment = AugMix(severity=learn(3.0, posterior="point"))
    severity = dict(augment.named_phi())["severity"]
    assert isinstance(severity, LearnedPhi)
    gamma = augment(torch.zeros(4096, 3, 2, 2)).gamma
    scored = family.scored_steps(gamma["operation"], gamma["depth"])
    level = gamma["level"].abs()
    on = level[scored].detach()
    torch.testing.assert_close(on, on.floor() + 0.5)
    share = torch.stack([(on == k + 0.5).double().mean() for k in range(4)])
    torch.testing.assert_close(share, torch.tensor([0.333, 0.333, 0.281, 0.052]).double(), rtol=0.0, atol=0.02)
    slope = torch.autograd.grad(level[scored].sum(), severity.loc, allow_unused=True, retain_graph=True)[0]
    assert slope is None or float(slope) == 0.0
    free = level[~scored]
    assert float(free.detach().min()) >= 0.1
    assert float(free.detach().max()) <= 3.0
    assert float(torch.autograd.grad(free.sum(), severity.loc)[0]) > 0


@pytest.mark.parametrize("severity", [0.1, 0.5, 1.0, 2.9, 3.0, 9.99])
def test_the_score_of_the_lattice_has_a_bounded_second_moment(severity: float):
    s = torch.tensor(severity, dtype=torch.float64, requires_grad=True)
    law = family.lattice(s)
    probs = law.probs.detach()
    assert float(probs.sum()) == pytest.approx(1.0)
    second = 0.0
    for k in range(10):
        if probs[k] > 0:
            score = torch.autograd.grad(law.log_prob(torch.tensor(k)), s, retain_graph=True)[0]
            second += float(probs[k] * score**2)
    assert second < 3.0
    assert second > 1e-3 or severity <= 0.5  # and it never stands still, at a whole number least of all
