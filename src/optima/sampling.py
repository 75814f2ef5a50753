r"""Draws from a `torch.distributions.Distribution` that honour a source of noise and have the right gradient.

    rsample(distribution, shape)         value with a pathwise gradient
    sample(distribution, shape)          value without one
    PATHWISE, SCORE_FUNCTION, Relaxed    how a draw lets the gradient reach the distribution's parameters

torch's own `Beta` and `Dirichlet` pile mass up in the middle for concentrations below 0.01 and take no generator.
Here they are built from log-gammas:

    log G(α) = log Γ-draw(α + 1) + log U / α,     Beta = sigmoid(log G₁ − log G₀),     Dirichlet = softmax(log G)

(the shape augmentation of Marsaglia & Tsang, 2000), which neither underflows nor loses its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Beta,
    Categorical,
    Dirichlet,
    Distribution,
    Independent,
    MultivariateNormal,
    Normal,
    Pareto,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
    TransformedDistribution,
    Uniform,
    constraints,
)
from torch.distributions.relaxed_bernoulli import LogitRelaxedBernoulli
from torch.distributions.relaxed_categorical import ExpRelaxedCategorical
from torch.nn import functional

from optima.distributions import tensors_of
from optima.streams import GeneratorNoise, Noise
from optima.supports import contains

Sampler = Callable[[Distribution, torch.Size, Noise], Tensor]


class Draw(NamedTuple):
    """A draw of γ. `log_prob` is log p(γ | φ) where the score function needs it; None where the draw is pathwise."""

    value: Tensor
    log_prob: Tensor | None


# ---- samplers ----------------------------------------------------------------------------------------------------


def rsample(
    distribution: Distribution, shape: Sequence[int] = (), *, noise: Noise | torch.Generator | None = None
) -> Tensor:
    """Draw with a gradient towards the distribution's parameters.

    Args:
        distribution: anything reparameterised, including `Beta` and `Dirichlet` from 1e-4 to 100.
        shape: the sample shape, in front of the batch shape.
        noise: a source of noise or a generator; torch's global generator when None.

    Example:
        >>> rsample(Normal(0.0, 1.0), (3,), noise=torch.Generator().manual_seed(0)).shape
        torch.Size([3])
    """
    if not _has_rsample(distribution):
        raise TypeError(
            f"{type(distribution).__name__} is discrete or has no rsample, so φ would get no gradient;"
            " use the score function or a relaxed estimator"
        )
    return _draw(distribution, torch.Size(shape), as_noise(noise))


def sample(
    distribution: Distribution, shape: Sequence[int] = (), *, noise: Noise | torch.Generator | None = None
) -> Tensor:
    """Draw without a gradient, from any distribution."""
    with torch.no_grad():
        return _draw(distribution, torch.Size(shape), as_noise(noise))


def as_noise(noise: Noise | torch.Generator | None) -> Noise:
    """A generator, or None for torch's global one, as a source of noise."""
    return GeneratorNoise(noise) if noise is None or isinstance(noise, torch.Generator) else noise


def _has_rsample(distribution: Distribution) -> bool:
    return bool(distribution.has_rsample)


def _draw(distribution: Distribution, shape: torch.Size, noise: Noise) -> Tensor:
    for family, sampler in _SAMPLERS.items():
        if isinstance(distribution, family):
            return sampler(distribution, shape, noise)
    return _forked(distribution, shape, noise)


def _forked(distribution: Distribution, shape: torch.Size, noise: Noise) -> Tensor:
    """Any other family: its own sampler under a forked global generator, seeded from `noise`."""
    seed = int(noise.uniform((), dtype=torch.float64, device=torch.device("cpu")) * 2**52)
    devices = {tensor.device for tensor in tensors_of(distribution) if tensor.device.type != "cpu"}
    with ExitStack() as forks:
        forks.enter_context(torch.random.fork_rng(devices=[]))
        for device in devices:
            forks.enter_context(torch.random.fork_rng(devices=[device], device_type=device.type))
            torch.get_device_module(device.type).manual_seed(seed)
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the devices that are not forked
        return distribution.rsample(shape) if distribution.has_rsample else distribution.sample(shape)


def _normal(distribution: Normal, shape: torch.Size, noise: Noise) -> Tensor:
    loc, scale = distribution.loc, distribution.scale
    return loc + scale * noise.normal(distribution._extended_shape(shape), dtype=loc.dtype, device=loc.device)


def _uniform(distribution: Uniform, shape: torch.Size, noise: Noise) -> Tensor:
    low, high = distribution.low, distribution.high
    return low + (high - low) * noise.uniform(distribution._extended_shape(shape), dtype=low.dtype, device=low.device)


def _multivariate_normal(distribution: MultivariateNormal, shape: torch.Size, noise: Noise) -> Tensor:
    loc = distribution.loc
    standard = noise.normal(distribution._extended_shape(shape), dtype=loc.dtype, device=loc.device)
    return loc + (distribution._unbroadcasted_scale_tril @ standard.unsqueeze(-1)).squeeze(-1)


def log_gamma(concentration: Tensor, noise: Noise) -> Tensor:
    """log of a Gamma(concentration, 1) draw, finite and differentiable where the draw itself would underflow."""
    shifted = concentration.detach() + 1.0
    draw = noise.named("gamma").gamma(shifted)
    # value: the draw; gradient: implicit reparameterisation, −(∂F/∂α)/p (Figurnov et al., 2018)
    draw = draw + (concentration - concentration.detach()) * torch.ops.aten._standard_gamma_grad(shifted, draw)
    uniform = noise.named("uniform").uniform(
        concentration.shape, dtype=concentration.dtype, device=concentration.device
    )
    return draw.log() + torch.log1p(-uniform) / concentration


def _beta_logit(distribution: Beta, shape: torch.Size, noise: Noise) -> Tensor:
    size = distribution._extended_shape(shape)
    one = log_gamma(distribution.concentration1.expand(size), noise.named("one"))
    zero = log_gamma(distribution.concentration0.expand(size), noise.named("zero"))
    return one - zero


def _beta(distribution: Beta, shape: torch.Size, noise: Noise) -> Tensor:
    return torch.sigmoid(_beta_logit(distribution, shape, noise))


def _dirichlet_log(distribution: Dirichlet, shape: torch.Size, noise: Noise) -> Tensor:
    concentration = distribution.concentration.expand(distribution._extended_shape(shape))
    return log_gamma(concentration, noise).log_softmax(-1)


def _dirichlet(distribution: Dirichlet, shape: torch.Size, noise: Noise) -> Tensor:
    return _dirichlet_log(distribution, shape, noise).exp()


def _bernoulli(distribution: Bernoulli, shape: torch.Size, noise: Noise) -> Tensor:
    probs = distribution.probs
    uniform = noise.uniform(distribution._extended_shape(shape), dtype=probs.dtype, device=probs.device)
    return (uniform < probs).to(probs.dtype)


def _categorical(distribution: Categorical, shape: torch.Size, noise: Noise) -> Tensor:
    probs = distribution.probs
    uniform = noise.uniform(distribution._extended_shape(shape), dtype=probs.dtype, device=probs.device)
    below = uniform.unsqueeze(-1) >= probs.cumsum(-1)
    # the last cumulative probability may round to less than 1, which must not become a class of its own
    return below[..., :-1].sum(-1)


def _logit_relaxed_bernoulli(distribution: LogitRelaxedBernoulli, shape: torch.Size, noise: Noise) -> Tensor:
    logits = distribution.logits
    uniform = _open_uniform(distribution._extended_shape(shape), logits, noise)
    return (logits + uniform.log() - torch.log1p(-uniform)) / distribution.temperature


def _exp_relaxed_categorical(distribution: ExpRelaxedCategorical, shape: torch.Size, noise: Noise) -> Tensor:
    logits = distribution.logits
    gumbel = -torch.log(-torch.log(_open_uniform(distribution._extended_shape(shape), logits, noise)))
    return ((logits + gumbel) / distribution.temperature).log_softmax(-1)


def _open_uniform(shape: torch.Size, like: Tensor, noise: Noise) -> Tensor:
    """Uniform on (0, 1): both ends are moved inwards by one rounding step, since their logarithm is infinite."""
    limits = torch.finfo(like.dtype)
    return noise.uniform(shape, dtype=like.dtype, device=like.device).clamp(limits.tiny, 1.0 - limits.eps)


def _independent(distribution: Independent, shape: torch.Size, noise: Noise) -> Tensor:
    return _draw(distribution.base_dist, shape, noise)


def _transformed(distribution: TransformedDistribution, shape: torch.Size, noise: Noise) -> Tensor:
    value: Any = _draw(distribution.base_dist, shape, noise)
    for transform in distribution.transforms:
        value = transform(value)
    return value


# In the order they are tried: LogNormal and the relaxed families are TransformedDistributions.
_SAMPLERS: dict[type[Distribution], Callable[..., Tensor]] = {
    Normal: _normal,
    Uniform: _uniform,
    MultivariateNormal: _multivariate_normal,
    Beta: _beta,
    Dirichlet: _dirichlet,
    Bernoulli: _bernoulli,
    Categorical: _categorical,
    LogitRelaxedBernoulli: _logit_relaxed_bernoulli,
    ExpRelaxedCategorical: _exp_relaxed_categorical,
    Independent: _independent,
    TransformedDistribution: _transformed,
}


# ---- how a draw lets the gradient through ------------------------------------------------------------------------


class Estimator(Protocol):
    """How a draw of γ lets the gradient reach φ."""

    def misfit(self, distribution: Distribution) -> str | None:
        """Why this estimator cannot serve the distribution, or None when it can."""
        ...

    def draw(self, distribution: Distribution, noise: Noise) -> Draw:
        """One draw of the distribution's batch."""
        ...

    def shape(self, distribution: Distribution) -> torch.Size:
        """The shape of one draw's value."""
        ...


@dataclass(frozen=True)
class Pathwise:
    """γ = g(φ, noise): unbiased and of low variance. For continuous γ and a transform that is smooth in γ."""

    def misfit(self, distribution: Distribution) -> str | None:
        if _has_rsample(distribution):
            return None
        return f"{type(distribution).__name__} is discrete and has no pathwise gradient"

    def draw(self, distribution: Distribution, noise: Noise) -> Draw:
        return Draw(rsample(distribution, noise=noise), None)

    def shape(self, distribution: Distribution) -> torch.Size:
        return distribution.batch_shape + distribution.event_shape


@dataclass(frozen=True)
class ScoreFunction:
    """γ drawn without a gradient, weighted by ∇ log p(γ | φ): unbiased for any T, of higher variance.

    The support of γ must not move with φ: the edges of a Uniform would contribute to the gradient and are not in its
    density.
    """

    def misfit(self, distribution: Distribution) -> str | None:
        part: Any = distribution
        while isinstance(part, Independent | TransformedDistribution):
            part = part.base_dist
        moved = part is not distribution and any(t.requires_grad for t in _tensors_of_transforms(distribution))
        everywhere = part.support is not None and contains(part.support, constraints.real)
        if isinstance(part, Uniform | Pareto) or (moved and not everywhere):
            return f"the support of {type(part).__name__} moves with φ, which its density does not show"
        return None

    def draw(self, distribution: Distribution, noise: Noise) -> Draw:
        return Draw(*_scored(distribution, noise))

    def shape(self, distribution: Distribution) -> torch.Size:
        return distribution.batch_shape + distribution.event_shape


def _scored(distribution: Distribution, noise: Noise) -> tuple[Tensor, Tensor]:
    """A draw and its log-density, up to terms free of φ.

    Beta and Dirichlet draws round to exactly 0 or 1 at small concentrations, where their density is infinite; the
    density of the logit (of the logarithms) differs by a Jacobian that does not involve φ, and stays finite.
    """
    if isinstance(distribution, Beta):
        with torch.no_grad():
            logit = _beta_logit(distribution, torch.Size(), noise)
        a, b = distribution.concentration1, distribution.concentration0
        log_beta = torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)
        return torch.sigmoid(logit), a * functional.logsigmoid(logit) + b * functional.logsigmoid(-logit) - log_beta
    if isinstance(distribution, Dirichlet):
        with torch.no_grad():
            log_value = _dirichlet_log(distribution, torch.Size(), noise)
        a = distribution.concentration
        log_beta = torch.lgamma(a).sum(-1) - torch.lgamma(a.sum(-1))
        return log_value.exp(), (a * log_value).sum(-1) - log_beta
    if isinstance(distribution, Independent):
        value, log_prob = _scored(distribution.base_dist, noise)
        return value, log_prob.flatten(log_prob.ndim - distribution.reinterpreted_batch_ndims).sum(-1)
    if isinstance(distribution, TransformedDistribution) and not any(
        tensor.requires_grad for tensor in _tensors_of_transforms(distribution)
    ):
        value, log_prob = _scored(distribution.base_dist, noise)
        for transform in distribution.transforms:
            value = transform(value)
        return cast("Tensor", value), log_prob  # the Jacobians do not involve φ either
    value = sample(distribution, noise=noise)
    return value, distribution.log_prob(value)


def _tensors_of_transforms(distribution: Distribution) -> list[Tensor]:
    """The tensors that T has, in a distribution of T(base) at whatever depth."""
    found: list[Tensor] = []
    while isinstance(distribution, Independent | TransformedDistribution):
        if isinstance(distribution, TransformedDistribution):
            found += [tensor for transform in distribution.transforms for tensor in tensors_of(transform)]
        distribution = distribution.base_dist
    return found


@dataclass(frozen=True)
class Relaxed:
    """Discrete γ replaced by a Gumbel-softmax draw (Jang et al., 2017; Maddison et al., 2017).

    The gradient is exact for the *relaxed* model, in which γ is a soft number in (0, 1) (a point of the simplex for a
    Categorical); against the discrete model it is biased, less so at a low temperature, where its variance grows.
    """

    temperature: float = 0.5

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature must be positive, got {self.temperature}")

    def misfit(self, distribution: Distribution) -> str | None:
        if isinstance(distribution, Bernoulli | Categorical):
            return None
        return f"{type(distribution).__name__} is continuous and needs no relaxation"

    def draw(self, distribution: Distribution, noise: Noise) -> Draw:
        return Draw(rsample(self._soft(distribution), noise=noise), None)

    def shape(self, distribution: Distribution) -> torch.Size:
        soft = self._soft(distribution)  # a class number becomes a row of shares
        return soft.batch_shape + soft.event_shape

    def _soft(self, distribution: Distribution) -> Distribution:
        temperature = torch.tensor(self.temperature)
        if isinstance(distribution, Bernoulli):
            return RelaxedBernoulli(temperature, logits=distribution.logits, validate_args=False)
        if isinstance(distribution, Categorical):
            return RelaxedOneHotCategorical(temperature, logits=distribution.logits, validate_args=False)
        raise TypeError(self.misfit(distribution))


@dataclass(frozen=True)
class StraightThrough:
    """Discrete γ forwards, the relaxed draw's derivative backwards: γ stays exact, the gradient is BIASED."""

    temperature: float = 0.5

    def misfit(self, distribution: Distribution) -> str | None:
        return Relaxed(self.temperature).misfit(distribution)

    def draw(self, distribution: Distribution, noise: Noise) -> Draw:
        soft = Relaxed(self.temperature).draw(distribution, noise).value
        if isinstance(distribution, Bernoulli):
            hard = (soft > 0.5).to(soft.dtype)
        else:
            hard = functional.one_hot(soft.argmax(-1), soft.shape[-1]).to(soft.dtype)
        return Draw(hard + (soft - soft.detach()), None)  # the bracket is exactly 0; without it 1 may round below 1

    def shape(self, distribution: Distribution) -> torch.Size:
        return Relaxed(self.temperature).shape(distribution)


ESTIMATORS: dict[str, Estimator] = {
    "pathwise": Pathwise(),
    "score_function": ScoreFunction(),
    "relaxed": Relaxed(),
    "straight_through": StraightThrough(),
}
