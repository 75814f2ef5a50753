"""The six-number affine law: its widths, its correlations, and the gradient of both."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

import optima
from optima import Affine, learn
from optima.augment.affine import PARTS, unit_rows
from optima.distributions import LinearMap
from tests.reference import GivenNoise, assert_close, gauss_hermite, gradient_of, spread_uniforms, to_normal

WIDTHS = [12.0, 0.2, 0.1, 8.0, 0.05, 0.15]
RADIANS = torch.tensor([12.0, 0.2, 0.1, 8.0, 0.05, 0.15]) * torch.tensor([math.pi / 180, 1, 1, math.pi / 180, 1, 1])
COUPLING = torch.linspace(-1.2, 1.5, 15)


def draws(augment: Affine, rows: int = 200_000) -> Tensor:
    phi = {name: phi.summary().mean.expand(rows, *phi.shape) for name, phi in augment.named_phi()}
    law = augment.p_gamma(phi)["affine"]
    return optima.sampling.sample(law, noise=torch.Generator().manual_seed(0)).double()


@pytest.mark.parametrize("coupling", [torch.zeros(15), COUPLING, torch.full((15,), 4.0)])
def test_couplings_give_every_row_length_one_and_a_factor(coupling: Tensor):
    factor = unit_rows(coupling)
    assert factor.norm(dim=1).tolist() == pytest.approx([1.0] * 6, rel=1e-6)
    assert bool((factor.triu(1) == 0).all())
    assert bool((factor.diagonal() > 0).all())
    if not bool(coupling.any()):
        assert torch.equal(factor, torch.eye(6))


def test_couplings_reach_every_correlation_matrix():
    noise = torch.randn(6, 6, dtype=torch.float64)
    covariance = noise @ noise.T + 0.1 * torch.eye(6, dtype=torch.float64)
    deviation = covariance.diagonal().sqrt()
    correlation = covariance / deviation / deviation[:, None]
    factor = torch.linalg.cholesky(correlation)
    row, column = torch.tril_indices(6, 6, -1)
    coupling = (factor / factor.diagonal()[:, None])[row, column]
    rebuilt = unit_rows(coupling)
    torch.testing.assert_close(rebuilt @ rebuilt.T, correlation)


@pytest.mark.parametrize("kind", ["std", "range"])
def test_a_width_stays_a_width_whatever_the_coupling(kind: str):
    widths: dict[str, Any] = {kind: WIDTHS}
    augment = Affine(**widths, covariance="full", coupling=COUPLING)
    sample = draws(augment)
    unit = unit_rows(COUPLING.double())
    third = 1.0 if kind == "std" else 1 / 3
    covariance = third * RADIANS.double()[:, None] * (unit @ unit.T) * RADIANS.double()
    observed = sample.T.cov()
    scale = RADIANS.double()[:, None] * RADIANS.double()
    # 5 standard errors of a covariance of 200,000 draws
    assert float(((observed - covariance) / scale).abs().max()) < 5 * 1.5 / math.sqrt(200_000)
    assert float(((observed / scale).fill_diagonal_(0.0)).abs().max()) > 0.2, "the case has no correlation to see"


def test_a_full_covariance_without_coupling_is_the_diagonal_one():
    full, diagonal = Affine(std=WIDTHS, covariance="full", coupling=[0.0] * 15), Affine(std=WIDTHS)
    x = torch.rand(4, 1, 9, 9)
    one, other = (a(x, generator=torch.Generator().manual_seed(1)).x for a in (full, diagonal))
    torch.testing.assert_close(one, other, rtol=0.0, atol=1e-6)


def test_its_law_has_the_density_of_a_linear_map():
    factor = (torch.rand(6, 6, dtype=torch.float64).tril() + torch.eye(6)).double()
    map_ = LinearMap(factor)
    x = torch.randn(3, 6, dtype=torch.float64)
    torch.testing.assert_close(map_.inv(map_(x)), x)
    jacobian = torch.autograd.functional.jacobian(map_, x[0])
    moved: Any = map_(x[0])
    assert float(map_.log_abs_det_jacobian(x[0], moved)) == pytest.approx(
        float(torch.linalg.slogdet(jacobian).logabsdet)  # pyright: ignore[reportArgumentType]
    )


WEIGHTS = torch.linspace(-1.0, 1.5, 6, dtype=torch.float64)


def exact_gradient() -> dict[str, Tensor]:
    """Of E cos(wᵀγ + 0.3), γ ~ N(0, Σ), by autograd through Σ and quadrature over the one number wᵀγ."""
    log_std = torch.tensor(WIDTHS, dtype=torch.float64).log().requires_grad_()
    coupling = COUPLING.double().requires_grad_()
    unit = torch.tensor([math.pi / 180, 1, 1, math.pi / 180, 1, 1], dtype=torch.float64)
    factor = (log_std.exp() * unit).unsqueeze(1) * unit_rows(coupling)
    spread = (factor.T @ (5 * WEIGHTS)).norm()
    nodes, weights = gauss_hermite(64)
    (weights * torch.cos(spread * nodes + 0.3)).sum().backward()
    assert log_std.grad is not None
    assert coupling.grad is not None
    return {"std.loc": log_std.grad, "coupling.loc": coupling.grad}


def check_gradient(estimator: str) -> None:
    """Over noise that fills space evenly, every element of the gradient that is not small, to within 1.5 %."""
    noise = to_normal(spread_uniforms(6, 18))
    rows = len(noise)
    augment = Affine(
        std=learn(WIDTHS, posterior="point"),
        covariance="full",
        coupling=learn(COUPLING, posterior="point"),
        estimator=estimator,
    ).double()
    locs = {name: p for name, p in augment.named_parameters() if name.endswith("loc")}
    law = augment.p_gamma(
        {"std": locs["std.loc"].exp().expand(rows, -1), "coupling": locs["coupling.loc"].expand(rows, -1)}
    )
    assert isinstance(law["affine"], MultivariateNormal)
    gamma, log_prob = augment.estimator.draw(law["affine"], GivenNoise({"": noise}))
    value = torch.cos(gamma @ (5 * WEIGHTS) + 0.3)
    surrogate = value if log_prob is None else (value.detach() - 0.5) * log_prob
    surrogate.mean().backward()
    for name, exact in exact_gradient().items():
        large = exact.abs() > 0.2 * exact.abs().max()
        assert_close(gradient_of(locs[name])[large], exact[large], rtol=0.015)


@pytest.mark.parametrize("estimator", ["pathwise", "score_function"])
def test_the_gradient_of_a_correlated_law(estimator: str):
    check_gradient(estimator)


def test_a_coupling_that_is_detached_is_caught(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("optima.augment.affine.unit_rows", lambda coupling: unit_rows(coupling.detach()))
    with pytest.raises(AssertionError):
        check_gradient("pathwise")


WRONG = {
    "five widths": (lambda: Affine(std=[1.0] * 5), ValueError, r"got shape \(5,\)"),
    "one width": (lambda: Affine(std=1.0), ValueError, r"got shape \(\)"),
    "both": (lambda: Affine(std=WIDTHS, range=WIDTHS), TypeError, "exactly one of std"),
    "covariance": (lambda: Affine(std=WIDTHS, covariance="block"), ValueError, '"diagonal" or "full", got'),  # pyright: ignore
    "coupling of a diagonal": (
        lambda: Affine(std=WIDTHS, coupling=[0.0] * 15),
        ValueError,
        'belongs to covariance="full"',
    ),
    "no width": (lambda: Affine(std=[0.0] * 6, covariance="full"), ValueError, "needs widths above 0"),
    "score of a cube": (
        lambda: Affine(range=learn(WIDTHS), covariance="full", estimator="score_function"),
        ValueError,
        "support of Uniform moves with φ",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_refused(name: str):
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call()


def test_a_part_of_no_width_is_left_out():
    gamma = Affine(std=[10.0, 0.0, 0.0, 0.0, 0.1, 0.0])(torch.rand(5, 1, 6, 6)).gamma["affine"]
    still = [part for part, column in zip(PARTS, gamma.unbind(1), strict=True) if not bool(column.any())]
    assert still == ["log_width", "log_height", "slant", "shift_down"]
