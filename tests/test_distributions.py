"""A distribution written as JSON and read back is the same distribution, or was refused when it was written."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Beta,
    Cauchy,
    Chi2,
    Dirichlet,
    Distribution,
    Exponential,
    FisherSnedecor,
    Gamma,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    Independent,
    InverseGamma,
    Kumaraswamy,
    Laplace,
    LKJCholesky,
    LogNormal,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    Pareto,
    RelaxedBernoulli,
    StudentT,
    TransformedDistribution,
    Uniform,
    VonMises,
    Weibull,
    Wishart,
    biject_to,
    constraints,
    transforms,
)
from torch.distributions import Categorical as Classes
from torch.distributions.constraints import Constraint

from optima.distributions import (
    constraint_from_json,
    constraint_to_json,
    distribution_from_json,
    distribution_to_json,
    map_tensors,
    readable,
    without_validation,
)


def through_json(distribution: Distribution) -> Distribution:
    return distribution_from_json(json.loads(json.dumps(distribution_to_json(distribution), allow_nan=False)))


def some(distribution: Distribution) -> Tensor:
    torch.manual_seed(0)
    return distribution.sample((7,))


PAIR = torch.tensor([0.3, 1.7])
FAMILIES = [
    Normal(0.1, 2.3),
    LogNormal(-1.2, 0.7),
    HalfNormal(0.3),
    HalfCauchy(0.3),
    Cauchy(0.1, 2.0),
    StudentT(3.0, 0.1, 2.0),
    Laplace(0.1, 2.0),
    Gumbel(0.1, 2.0),
    Uniform(-0.1, 2.3),
    Beta(0.7, 2.3),
    Kumaraswamy(0.7, 2.3),
    Gamma(0.7, 2.3),
    InverseGamma(0.7, 2.3),
    Exponential(2.3),
    Chi2(2.3),
    FisherSnedecor(2.3, 3.1),
    Weibull(0.7, 2.3),
    Pareto(0.7, 2.3),
    VonMises(torch.tensor(0.1), torch.tensor(2.3)),
    Dirichlet(torch.tensor([0.7, 1.1, 2.3])),
    Bernoulli(0.3),
    Normal(PAIR, 2 * PAIR),
    Independent(Normal(PAIR, PAIR), 1),
    TransformedDistribution(Normal(0.1, 0.7), [transforms.ExpTransform()]),
    TransformedDistribution(Normal(0.1, 0.7), [transforms.SigmoidTransform(), transforms.AffineTransform(0.1, 0.3)]),
    TransformedDistribution(Normal(PAIR, PAIR), [transforms.TanhTransform(), transforms.SoftplusTransform()]),
    TransformedDistribution(Normal(0.1, 0.7), [biject_to(constraints.interval(0.0, 0.5))]),
    TransformedDistribution(Independent(Normal(PAIR, PAIR), 1), [transforms.StickBreakingTransform()]),
]


@pytest.mark.parametrize("distribution", FAMILIES, ids=lambda d: f"{type(d).__name__}{tuple(d.batch_shape)}")
def test_round_trip_keeps_every_bit_of_the_density(distribution: Distribution):
    twin = through_json(distribution)
    assert type(twin) is type(distribution)
    assert twin.batch_shape == distribution.batch_shape
    assert twin.event_shape == distribution.event_shape
    assert torch.equal(twin.log_prob(some(distribution)), distribution.log_prob(some(distribution)))
    assert torch.equal(some(twin), some(distribution))


OTHER_FORMS = {
    "float64": Normal(torch.tensor(0.1, dtype=torch.float64), torch.tensor(0.7, dtype=torch.float64)),
    "logits": Bernoulli(logits=torch.tensor(0.3)),
    "temperature": RelaxedBernoulli(torch.tensor(0.5), torch.tensor(0.3)),
    "dimension": LKJCholesky(3, 1.0),
    "covariance": MultivariateNormal(torch.zeros(2), torch.tensor([[2.0, 0.3], [0.3, 1.0]])),
    "precision": MultivariateNormal(torch.zeros(2), precision_matrix=torch.tensor([[2.0, 0.3], [0.3, 1.0]])),
    "triangle": MultivariateNormal(torch.zeros(2), scale_tril=torch.tensor([[2.0, 0.0], [0.3, 1.0]])),
    "Wishart": Wishart(torch.tensor(3.0), torch.tensor([[2.0, 0.3], [0.3, 1.0]])),
}


@pytest.mark.filterwarnings("ignore:Singular sample detected")
@pytest.mark.parametrize("name", OTHER_FORMS)
def test_round_trip_of_other_parameterisations(name: str):
    distribution = OTHER_FORMS[name]
    twin = through_json(distribution)
    assert twin.batch_shape == distribution.batch_shape
    torch.testing.assert_close(
        twin.log_prob(some(distribution)), distribution.log_prob(some(distribution)), rtol=1e-6, atol=1e-5
    )
    if name != "precision":  # its triangle is what is written
        assert torch.equal(some(twin), some(distribution))


class Lumpy(Normal):
    """A family of the user's."""


@pytest.mark.parametrize(
    "distribution",
    [
        pytest.param(Lumpy(0.0, 1.0), id="own family"),
        pytest.param(
            TransformedDistribution(Uniform(0.0, 1.0), [transforms.SigmoidTransform().inv]), id="inverse transform"
        ),
        pytest.param(
            TransformedDistribution(Exponential(1.0), [transforms.PowerTransform(torch.tensor(2.0))]), id="power"
        ),
        pytest.param(MixtureSameFamily(Classes(torch.ones(2)), Normal(torch.zeros(2), torch.ones(2))), id="mixture"),
    ],
)
def test_what_cannot_be_read_back_is_refused_when_it_is_written(distribution: Distribution):
    with pytest.raises(TypeError, match="cannot save a prior"):
        distribution_to_json(distribution)


@pytest.mark.parametrize("name", ["Lumpy", "os.system", "Distribution.__init__", "torch.distributions.Normal", ""])
def test_reading_refuses_unknown_families(name: str):
    with pytest.raises(ValueError, match="unknown distribution"):
        distribution_from_json({"family": name, "parameters": {}})


@pytest.mark.parametrize("name", ["CatTransform", "Transform", "eval", "_InverseTransform"])
def test_reading_refuses_unknown_transforms(name: str):
    base = {"family": "Normal", "parameters": {"loc": 0.0, "scale": 1.0}}
    with pytest.raises(ValueError, match="unknown transform"):
        distribution_from_json({"family": "TransformedDistribution", "base": base, "transforms": [{"transform": name}]})


SUPPORTS = [
    constraints.real,
    constraints.positive,
    constraints.unit_interval,
    constraints.simplex,
    constraints.interval(0.0, 0.5),
    constraints.greater_than(5.0),
    Uniform(torch.tensor([0.1, 0.2]), torch.tensor([0.7, 0.9])).support,
]


@pytest.mark.parametrize("support", SUPPORTS, ids=str)
def test_supports_round_trip(support: Constraint):
    twin = constraint_from_json(json.loads(json.dumps(constraint_to_json(support))))
    u = torch.linspace(-3, 3, 8).reshape(4, 2)
    assert torch.equal(biject_to(twin)(u), biject_to(support)(u))


@pytest.mark.parametrize(
    "support",
    [
        pytest.param(constraints.nonnegative, id="at least 0"),
        pytest.param(Pareto(1.0, 1.0).support, id="at least 1"),
        pytest.param(constraints.half_open_interval(0.0, 0.5), id="half open"),
    ],
)
def test_half_open_supports_round_trip(support: Constraint):
    twin = constraint_from_json(constraint_to_json(support))
    u = torch.linspace(-3, 3, 8)
    assert torch.equal(biject_to(twin)(u), biject_to(support)(u))


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))], ids=["copy", "pickle"])  # noqa: S301
@pytest.mark.parametrize("support", SUPPORTS, ids=str)
def test_a_copied_support_is_written_too(support: Constraint, twin: Any):
    u = torch.linspace(-3, 3, 8).reshape(4, 2)
    read = constraint_from_json(constraint_to_json(twin(support)))
    assert torch.equal(biject_to(read)(u), biject_to(support)(u))


def test_reading_refuses_unknown_supports():
    with pytest.raises(ValueError, match="unknown support 'integer'"):
        constraint_from_json({"support": "integer"})
    with pytest.raises(TypeError, match="cannot save the support"):
        constraint_to_json(constraints.boolean)


def test_a_float32_is_written_as_people_write_it():
    assert readable(torch.tensor([0.05, 1e-30])) == [0.05, 1e-30]
    assert readable(torch.tensor([[0.1]], dtype=torch.float64)) == [[0.1]]
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0)) * torch.logspace(-30, 30, 1000)
    assert torch.equal(torch.tensor(json.loads(json.dumps(readable(values)))), values)


@pytest.mark.parametrize("distribution", FAMILIES, ids=lambda d: f"{type(d).__name__}{tuple(d.batch_shape)}")
def test_map_tensors_reaches_the_parameters_and_leaves_the_original_alone(distribution: Distribution):
    before = distribution.log_prob(some(distribution))
    doubled = map_tensors(distribution, lambda tensor: tensor.double())
    assert type(doubled) is type(distribution)
    assert doubled.log_prob(some(distribution).double()).dtype == torch.float64
    torch.testing.assert_close(doubled.log_prob(some(distribution).double()).float(), before, rtol=1e-4, atol=1e-5)
    assert torch.equal(distribution.log_prob(some(distribution)), before)


@pytest.mark.parametrize("support", SUPPORTS[:6], ids=str)
def test_map_tensors_survives_a_transform_whose_inverse_was_used(support: Constraint):
    bijection = biject_to(support)
    held = bijection.inv  # from now on the two point at each other
    u = torch.tensor([0.1, 0.2])
    prior = TransformedDistribution(Normal(torch.zeros(2), torch.ones(2)), [bijection])
    value = bijection(u)
    assert torch.equal(map_tensors(prior, lambda t: t.clone()).log_prob(value), prior.log_prob(value))
    torch.testing.assert_close(held(value), u)


def test_validation_is_switched_off_in_the_copy_only():
    prior = Independent(TransformedDistribution(Normal(PAIR, PAIR), [transforms.ExpTransform()]), 1)
    quiet = without_validation(prior)
    outside = -torch.ones(2)
    with pytest.raises(ValueError, match="support"):
        prior.log_prob(outside)
    assert not bool(quiet.log_prob(outside).isfinite())
    assert torch.distributions.Distribution._validate_args
