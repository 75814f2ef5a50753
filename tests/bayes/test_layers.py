"""The Bayesian last layer against explicit draws of its weights, and its KL against torch and quadrature."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from scipy import integrate, stats
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from optima import ELBO, BayesianLinear, Gaussian, Shift, bayesian_last_layer
from optima.bayes import kl_theta
from tests.reference import assert_unbiased


def layer(bias: bool = True, **options: float) -> BayesianLinear:
    """A layer with a different scale for every weight."""
    torch.manual_seed(3)
    built = BayesianLinear(3, 2, bias, **cast("Any", options)).double()
    with torch.no_grad():
        built.weight_log_scale.copy_(torch.linspace(-1.5, 0.2, 6).reshape(2, 3))
        if built.bias_log_scale is not None:
            built.bias_log_scale.copy_(torch.tensor([-0.5, -1.0]))
    return built


def weight_draws(built: BayesianLinear, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Explicit θ ~ q(θ)."""
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randn(count, 2, 3, dtype=torch.float64, generator=generator)
    weight = built.weight_loc + built.weight_log_scale.exp() * draw
    if built.bias_loc is None or built.bias_log_scale is None:
        return weight.detach(), torch.zeros(count, 2, dtype=torch.float64)
    draw = torch.randn(count, 2, dtype=torch.float64, generator=generator)
    return weight.detach(), (built.bias_loc + built.bias_log_scale.exp() * draw).detach()


X = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.1, -1.5]], dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False])
def test_moments_are_those_of_explicit_weight_draws(bias: bool):
    built = layer(bias)
    weight, shift = weight_draws(built, 200_000)
    outputs = torch.einsum("bi,soi->sbo", X, weight) + shift[:, None]
    mean, variance = (moment.detach() for moment in built.moments(X))
    # 200,000 draws: a mean off by a tenth or a variance off by 3 % is 8 standard errors out
    assert_unbiased(outputs, mean, detect=0.1)
    assert_unbiased((outputs - mean).square(), variance, detect=0.03)


@pytest.mark.parametrize("bias", [True, False])
def test_local_reparameterisation_has_the_moments(bias: bool):
    built = layer(bias).train()
    mean, variance = (moment.detach() for moment in built.moments(X))
    outputs = built.draw(X, 200_000, torch.Generator().manual_seed(1)).detach()
    assert outputs.shape == (200_000, 2, 2)
    assert_unbiased(outputs, mean, detect=0.1)
    assert_unbiased((outputs - mean).square(), variance, detect=0.03)


def test_the_moments_by_hand():
    built = BayesianLinear(1, 1).double()
    with torch.no_grad():
        for parameter, value in zip(built.parameters(), (2.0, math.log(0.3), -1.0, math.log(0.4)), strict=True):
            parameter.fill_(value)
    mean, variance = built.moments(torch.tensor([[3.0]], dtype=torch.float64))
    assert float(mean.detach()) == pytest.approx(2 * 3 - 1)
    assert float(variance.detach()) == pytest.approx(0.3**2 * 3**2 + 0.4**2)


def test_the_draw_has_the_gradient_of_explicit_weights():
    # E[tanh(out)] along every parameter: pathwise through the layer against pathwise through the weights
    built = layer()
    names, parameters = zip(*built.named_parameters(), strict=True)

    def gradients(draw: Callable[[torch.Generator], Tensor], seed: int) -> list[Tensor]:
        """One gradient per block of 2,000 draws."""
        generator = torch.Generator().manual_seed(seed)
        blocks = [torch.autograd.grad(draw(generator).tanh().mean(), parameters) for _ in range(200)]
        return [torch.stack(column).flatten(1) for column in zip(*blocks, strict=True)]

    def explicit(generator: torch.Generator) -> Tensor:
        assert built.bias_loc is not None
        assert built.bias_log_scale is not None
        noise = torch.randn(2000, 2, 4, dtype=torch.float64, generator=generator)
        weight = built.weight_loc + built.weight_log_scale.exp() * noise[..., :3]
        shift = built.bias_loc + built.bias_log_scale.exp() * noise[..., 3]
        return weight @ X[0] + shift

    local = gradients(lambda generator: built.draw(X[:1], 2000, generator), seed=1)
    for name, one, two in zip(names, local, gradients(explicit, seed=2), strict=True):
        stderr = (one.var(0) / len(one) + two.var(0) / len(two)).sqrt()
        assert float((8 * stderr).max()) < 0.03, f"no power for {name}"
        assert float(((one.mean(0) - two.mean(0)) / stderr).abs().max()) < 5, name


def test_rows_and_draws_are_independent():
    built = layer()
    outputs = built.draw(X, 20_000, torch.Generator().manual_seed(0)).detach().flatten(1)
    off_diagonal = torch.corrcoef(outputs.T) - torch.eye(4, dtype=torch.float64)
    assert float(off_diagonal.abs().max()) < 5 / 20_000**0.5


def test_training_draws_and_evaluation_is_the_mean():
    built = layer()
    assert not torch.equal(built.train()(X), built(X))
    assert torch.equal(built.eval()(X), built(X))
    assert built.bias_loc is not None
    torch.testing.assert_close(built(X), X @ built.weight_loc.T + built.bias_loc)


def test_any_leading_shape():
    built = layer()
    assert built.train()(X.expand(5, 2, 3)).shape == (5, 2, 2)
    assert built.draw(X[0], 4).shape == (4, 2)


def test_a_generator_decides_the_draw():
    built, before = layer(), torch.get_rng_state()
    one = built.draw(X, 3, torch.Generator().manual_seed(5))
    assert torch.equal(one, built.draw(X, 3, torch.Generator().manual_seed(5)))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_vanishing_variance_leaves_finite_gradients():
    built = layer(bias=False)
    with torch.no_grad():
        built.weight_log_scale.fill_(-500.0)
    built.draw(torch.zeros(1, 3, dtype=torch.float64), 2).sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in built.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bfloat16, torch.float16],
)
def test_large_features_in_low_precision(dtype: torch.dtype):
    built = BayesianLinear(4, 2).to(dtype)
    output = built.draw(torch.full((1, 4), 300.0, dtype=dtype), 5)
    assert output.dtype == dtype
    assert bool(output.isfinite().all())


def test_large_features_under_autocast():
    built = BayesianLinear(4, 2)
    with torch.autocast("cpu", dtype=torch.float16):
        output = built.draw(torch.full((1, 4), 300.0).half(), 5)
    assert bool(output.isfinite().all())


# ---- KL --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prior_std", [1.0, 0.1, 3.0])
@pytest.mark.parametrize("bias", [True, False])
def test_kl_is_torchs(bias: bool, prior_std: float):
    built = layer(bias, prior_std=prior_std)
    prior = Normal(torch.zeros((), dtype=torch.float64), prior_std)
    expected = kl_divergence(Normal(built.weight_loc, built.weight_log_scale.exp()), prior).sum()
    if built.bias_loc is not None and built.bias_log_scale is not None:
        expected = expected + kl_divergence(Normal(built.bias_loc, built.bias_log_scale.exp()), prior).sum()
    torch.testing.assert_close(built.kl(), expected, rtol=1e-10, atol=0.0)


def test_kl_is_the_integral():
    built = BayesianLinear(1, 1, bias=False, prior_std=0.7).double()
    with torch.no_grad():
        built.weight_loc.fill_(0.4)
        built.weight_log_scale.fill_(math.log(0.2))

    def integrand(w: float) -> float:
        log_q = stats.norm.logpdf(w, 0.4, 0.2)
        return float(math.exp(log_q) * (log_q - stats.norm.logpdf(w, 0.0, 0.7)))

    assert float(built.kl().detach()) == pytest.approx(integrate.quad(integrand, -3, 4)[0], rel=1e-9)


def test_kl_is_zero_at_the_prior_only():
    built = BayesianLinear(7, 4, prior_std=0.5)
    with torch.no_grad():
        for name, parameter in built.named_parameters():
            parameter.fill_(math.log(0.5) if name.endswith("log_scale") else 0.0)
    assert float(built.kl().detach()) == pytest.approx(0.0, abs=1e-6)
    with torch.no_grad():
        built.weight_loc[0, 0] = 0.1
    assert float(built.kl().detach()) == pytest.approx(0.5 * (0.1 / 0.5) ** 2, rel=1e-3)


def test_kl_stays_in_float32_in_low_precision():
    built = BayesianLinear(64, 10).bfloat16()
    assert built.kl().dtype == torch.float32
    built.kl().backward()
    assert all(bool(p.grad.isfinite().all()) for p in built.parameters() if p.grad is not None)


def test_kl_theta_sums_over_layers_and_counts_a_shared_one_once():
    one, two = layer(), layer(prior_std=2.0)
    torch.testing.assert_close(kl_theta(nn.Sequential(one, nn.ReLU(), two)), one.kl() + two.kl())
    torch.testing.assert_close(kl_theta(nn.Sequential(one, nn.Sequential(one))), one.kl())
    torch.testing.assert_close(kl_theta(one), one.kl())
    assert float(kl_theta(nn.Linear(2, 2))) == 0.0


# ---- the last layer --------------------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)
        self.body = nn.Sequential(nn.Linear(3, 4), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def test_the_new_head_has_the_old_mean():
    model = Net().double()
    before = copy.deepcopy(model)
    changed = bayesian_last_layer(model, "head", prior_std=0.5, init_std=0.02)
    assert changed is model
    head = model.head
    assert isinstance(head, BayesianLinear)
    assert head.weight_loc.dtype == torch.float64
    assert head.prior_std == 0.5
    torch.testing.assert_close(head.weight_log_scale.exp(), torch.full((2, 4), 0.02, dtype=torch.float64))
    torch.testing.assert_close(model.eval()(X), before.eval()(X))


def test_the_default_is_the_layer_registered_last():
    model = bayesian_last_layer(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2))))
    assert [type(m).__name__ for m in model.modules() if isinstance(m, nn.Linear | BayesianLinear)] == [
        "Linear",
        "BayesianLinear",
    ]


def test_a_linear_layer_alone_becomes_bayesian():
    linear = nn.Linear(3, 2, bias=False)
    built = bayesian_last_layer(linear)
    assert isinstance(built, BayesianLinear)
    assert built.bias_loc is None
    assert torch.equal(built.weight_loc, linear.weight)
    assert built.weight_loc.data_ptr() != linear.weight.data_ptr()


def test_a_model_in_evaluation_stays_there():
    model = bayesian_last_layer(Net().double().eval())
    assert torch.equal(model(X), model(X))


def test_a_checkpoint_of_the_changed_model_loads():
    model = bayesian_last_layer(Net(), "head")
    twin = bayesian_last_layer(Net(), "head")
    twin.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(X.float()), twin.eval()(X.float()))
    assert torch.equal(kl_theta(model), kl_theta(twin))


# ---- one θ for a whole step ------------------------------------------------------------------------------------------


def test_with_one_draw_per_step_equal_rows_have_equal_outputs():
    built = BayesianLinear(3, 2, init_std=0.5, draws="step")
    rows = torch.ones(6, 3)
    one, two = built(rows), built(rows)
    assert torch.equal(one, one[:1].expand_as(one))
    assert not torch.equal(one, two)
    assert torch.equal(built.eval()(rows), built(rows))


def test_with_one_draw_per_step_the_moments_are_the_same():
    built = layer()
    built.draws = "step"
    draws = torch.stack([built(X) for _ in range(20_000)]).detach()
    mean, variance = (part.detach() for part in built.moments(X))
    # centred far from zero, so that a relative error means something
    assert_unbiased(draws - mean + 5 * variance.sqrt(), 5 * variance.sqrt(), detect=0.02)
    assert_unbiased((draws - mean).square(), variance, detect=0.1)


def evidence_and_bound(samples: int, steps: int = 4000) -> tuple[float, float]:
    """y = w + ε with a transform that does nothing: log p(y), and the mean marginal estimate under q(w) = p(w)."""
    y = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    built = BayesianLinear(1, 1, bias=False, init_std=1.0, draws="step")
    torch.nn.init.zeros_(built.weight_loc)
    augment = Shift(std=1e-6)
    objective = ELBO(num_data=6, likelihood=Gaussian(noise=0.5), bound="marginal")
    total = 0.0
    with torch.no_grad():
        for _ in range(steps):
            view = augment(torch.ones(6, 1), y[:, None], samples=samples)
            loss = objective(built(view.x), view, model=built, augment=augment)
            assert loss.advantage is not None
            assert float(loss.advantage) < 1e-4, "the transform makes no difference, so there is no advantage"
            total += float(loss.elbo)
    covariance = torch.ones(6, 6) + 0.25 * torch.eye(6)
    evidence = torch.distributions.MultivariateNormal(torch.zeros(6), covariance).log_prob(y)
    return float(evidence), total / steps


def test_the_marginal_bound_stays_below_the_evidence():
    evidence, bound = evidence_and_bound(samples=8)
    assert bound < evidence
    # E log p(y | w) under the prior, in closed form: the K draws share their θ and add nothing here
    exact = 6 * (-0.5 * math.log(2 * math.pi * 0.25)) - 6 * (1 + 1) / (2 * 0.25)
    assert bound == pytest.approx(exact, abs=2.5)


def test_a_layer_that_draws_nothing_takes_the_marginal_bound():
    built, augment = BayesianLinear(1, 2).eval(), Shift(std=0.1)
    view = augment(torch.ones(4, 1), torch.tensor([0, 1, 0, 1]), samples=3)
    loss = ELBO(num_data=4, bound="marginal")(built(view.x), view, model=built, augment=augment)
    assert loss.advantage is not None
