r"""q(φ), p(φ) and the KL between them, for one augmentation hyperparameter φ.

    u ~ N(loc, scale²) on the real line,   φ = T(u),   T = biject_to(support)          posterior="normal"
    φ = T(loc)                                                                          posterior="point"

`learn(10.0)` only *describes* this; an augmentation turns the description into a `Phi` module, since it knows the
unit, the support and what "no augmentation" is. Three kinds of `Phi` share one interface: `LearnedPhi`, `FixedPhi`
and `PriorPhi`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import (
    Dirichlet,
    Distribution,
    Independent,
    Normal,
    TransformedDistribution,
    constraints,
)
from torch.distributions.constraints import Constraint

from optima.distributions import kl, map_tensors, tensors_of, without_validation
from optima.gradient_record import GradientRecord
from optima.intervals import Summary, log_mass, mass, summarise
from optima.sampling import as_noise, sample
from optima.streams import Noise
from optima.supports import Domain, bijection_of, bounds, choose_support, same_support, strictly_inside, words

Number = float | int | Tensor | list[float] | tuple[float, ...]

_KL_DRAWS = 64
_LEAST_MASS = 1e-3
_NEVER = 1e-12


@dataclass(frozen=True)
class Learn:
    """A hyperparameter to be learned, as described by `learn`."""

    init: Number
    prior: Distribution | None = None
    support: Constraint | None = None
    posterior: Literal["normal", "point"] = "normal"
    scale: float = 0.1


def learn(
    init: Number,
    *,
    prior: Distribution | None = None,
    support: Constraint | None = None,
    posterior: Literal["normal", "point"] = "normal",
    scale: float = 0.1,
) -> Learn:
    r"""Ask for a hyperparameter to be learned, starting from `init`.

    Args:
        init: where the centre of q(φ) starts, in the constrained space and in the augmentation's unit.
        prior: any `torch.distributions` distribution over φ. The default is Normal on the unconstrained line, centred
            on `init`.
        support: where φ lives. The default is the augmentation's, narrowed to the prior's support where that is
            smaller.
        posterior: "normal" for a distribution, "point" for a point estimate whose "KL" is −log p(φ).
        scale: standard deviation of q(φ) on the unconstrained line at the start.

    Example:
        >>> learn(0.2, support=constraints.unit_interval).init
        0.2
    """
    if posterior not in ("normal", "point"):
        raise ValueError(f'posterior must be "normal" or "point", got {posterior!r}')
    if prior is not None and not isinstance(prior, Distribution):
        raise TypeError(f"prior must be a torch.distributions.Distribution, got {type(prior).__name__}")
    if support is not None and not isinstance(support, Constraint):
        raise TypeError(f"support must be a torch.distributions constraint, got {type(support).__name__}")
    if isinstance(scale, bool) or not isinstance(scale, Real):
        raise TypeError(f"scale must be a number, got {type(scale).__name__}")
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"scale must be a positive finite number, got {scale}")
    if prior is not None:
        _check_finite("prior", prior)
    _as_tensor(init, "init")
    return Learn(init, prior, support, posterior, float(scale))


class Phi(nn.Module, ABC):
    """One hyperparameter φ: something that can be drawn, summarised, and has a KL to its prior."""

    shape: torch.Size

    @abstractmethod
    def draw(self, count: int, *, dtype: torch.dtype, device: torch.device, noise: Noise, watch: bool = True) -> Tensor:
        """`count` draws of φ, (count, *shape); `watch` records the gradient that comes back through them."""

    @abstractmethod
    def kl(self, noise: Noise | None = None) -> Tensor:
        """KL(q(φ) ‖ p(φ)) in nats; a scalar. `noise` feeds the estimate where there is no closed form."""

    @abstractmethod
    def summary(self) -> Summary:
        """Mean and 90 % interval of φ."""


class FixedPhi(Phi):
    """φ is a known number; its KL is 0."""

    value: Tensor

    def __init__(self, name: str, value: Number, domain: Domain):
        super().__init__()
        tensor = _as_tensor(value, name)
        inside = domain.support.check(tensor)
        if domain.allows_off and domain.off is not None:
            inside = inside | (tensor == domain.off)
        if not bool(inside.all()):
            raise ValueError(f"{name} must lie in {words(domain.support)}, got {value}")
        self.shape = tensor.shape
        self.register_buffer("value", tensor)

    def extra_repr(self) -> str:
        return str(self.value.tolist())

    def draw(self, count: int, *, dtype: torch.dtype, device: torch.device, noise: Noise, watch: bool = True) -> Tensor:
        return self.value.to(dtype).expand(count, *self.shape)

    def kl(self, noise: Noise | None = None) -> Tensor:
        return torch.zeros((), dtype=torch.promote_types(self.value.dtype, torch.float32), device=self.value.device)

    def summary(self) -> Summary:
        return Summary(self.value, self.value, self.value)


class PriorPhi(Phi):
    """φ is drawn from its prior; its KL is 0."""

    def __init__(self, prior: Distribution, shape: torch.Size, support: Constraint | None = None):
        super().__init__()
        self.shape = shape
        self.prior = _expanded(prior, shape)
        self.support = constraints.real if self.prior.support is None else self.prior.support
        if support is not None:
            self.support = support
        # so many that a draw which never falls inside the support is not a thing that happens
        outside = 1.0 - _checked_mass("φ", self.prior, self.support)
        self._attempts = 0 if outside <= 0 else math.ceil(math.log(_NEVER) / math.log(outside))

    def draw(self, count: int, *, dtype: torch.dtype, device: torch.device, noise: Noise, watch: bool = True) -> Tensor:
        values = sample(self.prior, (count,), noise=noise)
        for attempt in range(self._attempts):
            outside = ~self.support.check(values)
            for _ in self.prior.event_shape if self.support.event_dim == 0 else ():
                outside = outside.any(-1, keepdim=True)  # elements that belong together are drawn again together
            if not bool(outside.any()):
                break
            values = torch.where(outside, sample(self.prior, (count,), noise=noise.named(f"again{attempt}")), values)
        return values.to(dtype)

    def kl(self, noise: Noise | None = None) -> Tensor:
        return torch.zeros_like(self.summary().mean.sum())

    def summary(self) -> Summary:
        return summarise(self.prior, self.support)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PriorPhi:
        super()._apply(fn, recurse)
        self.prior = _move(self.prior, fn)
        return self


class LearnedPhi(Phi):
    r"""q(φ): Normal on the unconstrained line, or a point, pushed through the support's bijection.

    Shapes: `loc` and `log_scale` have the shape of the unconstrained φ; draws are (count, *shape of φ).

    Args:
        name: for messages.
        spec: what `learn` recorded.
        domain: what the augmentation knows.
        flat_prior: leave a point posterior without a prior of its own (when the prior is on γ).
    """

    def __init__(self, name: str, spec: Learn, domain: Domain, *, flat_prior: bool = False):
        super().__init__()
        init = _as_tensor(spec.init, name)
        self.shape = init.shape
        self.domain = domain
        self.posterior = spec.posterior
        if spec.prior is not None:
            _check_finite(f"{name}: the prior", spec.prior)
        self.support = choose_support(name, spec.support, spec.prior, domain)
        _check_start(name, spec.init, init, self.support)
        loc = self.bijection.inv(init)
        self.start = init
        self.start_scale = spec.scale
        self.loc = nn.Parameter(loc.clone())
        self.log_scale = nn.Parameter(torch.full_like(loc, math.log(spec.scale))) if self._is_normal else None
        self.prior = self._chosen_prior(name, spec, loc, flat=flat_prior)
        self.closed_form = self._is_normal and self.prior is not None and _shares_bijection(self.q_phi(), self.prior)
        # the prior counts only inside the support, as if cut to it; else a KL of 0 would not mean q = p
        self.log_prior_mass = 0.0
        if self.prior is not None and not self.closed_form:
            _checked_mass(name, self.prior, self.support)
            self.log_prior_mass = log_mass(self.prior, self.support)
        self._check_kl(name)
        self.record = GradientRecord(loc.shape)

    @torch.no_grad()
    def _check_kl(self, name: str) -> None:
        """Raise for a prior that is not a number, or 0, where q(φ) starts; every step would make NaN of φ."""
        kl = float(self.kl(as_noise(torch.Generator(self.loc.device).manual_seed(0))))
        if not math.isfinite(kl):
            raise ValueError(
                f"{name}: the KL to the prior is {kl} where learn({self.start.tolist()}) starts; give a"
                f" {type(self.prior).__name__} that is finite and positive there, or start elsewhere"
            )

    @property
    def _is_normal(self) -> bool:
        return self.posterior == "normal"

    @property
    def bijection(self) -> Any:
        """T: the unconstrained line → the support."""
        return bijection_of(self.support)

    def scale(self) -> Tensor:
        """Standard deviation of u; 0 for a point."""
        return torch.zeros_like(self.loc) if self.log_scale is None else self.log_scale.exp()

    def extra_repr(self) -> str:
        mean, low, high = (part.tolist() for part in self.summary())
        return f"mean={mean}, interval=({low}, {high}), posterior={self.posterior!r}, prior={self.prior}"

    def q_phi(self) -> Distribution:
        """q(φ) as a distribution over the constrained space (of a normal posterior)."""
        if self.log_scale is None:
            raise TypeError("a point posterior has no density; read its value from summary().mean")
        base = Normal(_full(self.loc), _full(self.log_scale).exp(), validate_args=False)
        event = self.bijection.domain.event_dim
        q_u = Independent(base, event) if event else base
        return TransformedDistribution(q_u, [self.bijection], validate_args=False)

    def p_phi(self) -> Distribution:
        """p(φ)."""
        if self.prior is None:
            raise TypeError("this φ has no prior of its own: the prior is on γ (prior_gamma)")
        return self.prior

    def from_noise(self, noise: Tensor) -> Tensor:
        """φ = T(loc + scale · noise): the draw with its randomness as an argument."""
        return self.bijection(self._unconstrained(noise))

    def draw(self, count: int, *, dtype: torch.dtype, device: torch.device, noise: Noise, watch: bool = True) -> Tensor:
        if self.log_scale is None:
            u = _full(self.loc).to(dtype).expand(count, *self.loc.shape).clone()
        else:
            u = self._unconstrained(noise.normal((count, *self.loc.shape), dtype=dtype, device=device))
        if watch and u.requires_grad:
            u.register_hook(self.record.add)
        return self.bijection(u)

    def _unconstrained(self, noise: Tensor) -> Tensor:
        if self.log_scale is None:
            return _full(self.loc).expand(noise.shape)
        return _full(self.loc) + _full(self.log_scale).exp() * noise

    def kl(self, noise: Noise | None = None, *, draws: int = _KL_DRAWS) -> Tensor:
        """KL(q ‖ p): closed form when both are Normal on the same unconstrained line, else an unbiased estimate.

        A point posterior gives −log p(φ), the MAP penalty, which is a KL only up to a constant.
        """
        if self.prior is None:
            return _full(self.loc).new_zeros(())
        if self.log_scale is None:
            return -self.prior.log_prob(self.bijection(_full(self.loc))).sum()
        if self.closed_form:
            return kl(_base(self.q_phi()), _base(self.prior)).sum()
        return self._kl_estimate(as_noise(None) if noise is None else noise, draws)

    def _kl_estimate(self, noise: Noise, draws: int) -> Tensor:
        """E_q[log q(φ) − log p(φ)], the entropy of u in closed form and the rest over antithetic pairs."""
        loc = _full(self.loc)
        half = noise.normal((draws // 2, *loc.shape), dtype=loc.dtype, device=loc.device)
        u = self._unconstrained(torch.cat([half, -half]))
        phi = self.bijection(u)
        # log q(φ) = log N(u) − log|dT/du|; without the second term φ would be drawn towards the edges of its support
        log_det = self.bijection.log_abs_det_jacobian(u, phi)
        log_p = self.p_phi().log_prob(phi)
        cross = _per_draw(log_p) + _per_draw(log_det)
        entropy = Normal(loc, self.scale().to(u.dtype), validate_args=False).entropy().sum()
        return self.log_prior_mass - entropy - cross.mean()

    @torch.no_grad()
    def summary(self) -> Summary:
        if self.log_scale is None:
            value = self.bijection(_full(self.loc)).detach().clone()  # the real line's bijection returns its argument
            return Summary(value, value, value)
        return summarise(self.q_phi())

    @torch.no_grad()
    def distance_from_start(self) -> float:
        """How far q(φ) has come from where it started: KL(q ‖ q at the start) in nats, a point taken as that wide."""
        start = self.bijection.inv(self.start.to(self.loc.device))
        width = torch.full_like(start, self.start_scale)
        now = Normal(_full(self.loc), width if self.log_scale is None else self.scale(), validate_args=False)
        return float(kl(now, Normal(start, width, validate_args=False)).sum())

    @torch.no_grad()
    def excess(self) -> float:
        """How far q(φ) is from its prior, in nats: the KL, or a point's drop of log p(φ) below the mode."""
        if self.prior is None:
            return math.nan
        if self.log_scale is not None:
            return float(self.kl(as_noise(torch.Generator(self.loc.device).manual_seed(0)), draws=4096))
        candidates = _mode_candidates(self.prior, self.support, self.start)
        peak = max(float(self.prior.log_prob(x).sum()) for x in candidates)
        return max(0.0, peak + float(self.kl()))

    def _chosen_prior(self, name: str, spec: Learn, loc: Tensor, *, flat: bool) -> Distribution | None:
        if spec.prior is None:
            return None if flat else self._default_prior(loc)
        _check_prior(name, spec.prior, self.shape)
        return without_validation(_expanded(spec.prior, self.shape))

    def _default_prior(self, loc: Tensor) -> Distribution:
        if same_support(self.support, constraints.simplex):
            # a Normal before the sticks are broken would favour whatever is named first
            return Dirichlet(self.shape[-1] * self.start, validate_args=False)
        base = Normal(loc.clone(), torch.full_like(loc, self.domain.prior_scale), validate_args=False)
        event = self.bijection.domain.event_dim
        p_u = Independent(base, event) if event else base
        return TransformedDistribution(p_u, [self.bijection], validate_args=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LearnedPhi:
        def but_not_to_half(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return tensor.to(moved.device) if moved.dtype in (torch.float16, torch.bfloat16) else moved

        # a step of an optimiser is smaller than half precision can say
        super()._apply(but_not_to_half, recurse)
        if self.prior is not None:
            self.prior = _move(self.prior, fn)
        return self


def _shares_bijection(q: Distribution, p: Distribution) -> bool:
    """Whether KL(q ‖ p) is the KL of two Normals on the same unconstrained line."""
    if not isinstance(q, TransformedDistribution):
        return False
    bijection = q.transforms
    if isinstance(p, Normal):
        return all(t == torch.distributions.transforms.identity_transform for t in bijection)
    return isinstance(p, TransformedDistribution) and p.transforms == bijection and isinstance(_base(p), Normal)


def _base(distribution: Distribution) -> Distribution:
    """The distribution of u under φ = T(u)."""
    if isinstance(distribution, TransformedDistribution):
        distribution = distribution.base_dist
    return distribution.base_dist if isinstance(distribution, Independent) else distribution


def _expanded(prior: Distribution, shape: torch.Size) -> Distribution:
    """One prior per element of φ, where the prior was given for all of them."""
    own = torch.Size((*prior.batch_shape, *prior.event_shape))
    return prior if own == shape or prior.event_shape else prior.expand(shape)


def _check_start(name: str, given: Number, init: Tensor, support: Constraint) -> None:
    if not bool(support.check(init).all()):
        raise ValueError(f"{name}: learn({given}) must start inside {words(support)}")
    if not strictly_inside(support, init):
        raise ValueError(f"{name}: learn({given}) sits on the edge of {words(support)}; start inside it")


def _check_finite(what: str, prior: Distribution) -> None:
    """Raise where a parameter is NaN or infinite, which torch lets pass in places: every KL would be as well."""
    for tensor in tensors_of(prior):
        if bool((wrong := ~tensor.isfinite()).any()):
            first = float(tensor[wrong][0])
            raise ValueError(f"{what} must have finite parameters, got a {type(prior).__name__} with {first}")


def _check_prior(name: str, prior: Distribution, expected: torch.Size) -> None:
    shape = torch.Size((*prior.batch_shape, *prior.event_shape))
    try:
        fits = torch.broadcast_shapes(shape, expected) == expected
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name}: the prior has shape {tuple(shape)} and φ has shape {tuple(expected)}; they must agree"
        )


def _checked_mass(name: str, prior: Distribution, support: Constraint) -> float:
    """The least probability that any element of the prior has inside the support."""
    least = float(mass(prior, support).min())
    if least < _LEAST_MASS:
        raise ValueError(
            f"{name}: the prior {type(prior).__name__} has only {least:.1g} of its mass in {words(support)};"
            " give one that reaches φ's support, or widen support="
        )
    return least


def _mode_candidates(prior: Distribution, support: Constraint, start: Tensor) -> list[Tensor]:
    """Points of the support at one of which the prior's density is close to its highest there."""
    summary = summarise(prior, support)
    points = [*(summary.low + (summary.high - summary.low) * t for t in torch.linspace(0, 1, 201)), start]
    with suppress(NotImplementedError):
        points.append(prior.mode)
    points = [point for point in points if bool(support.check(point).all())]
    # a density that falls or rises throughout has its mode on an edge, unless it is infinite there
    edges = [torch.as_tensor(end, dtype=start.dtype).expand_as(start) for end in bounds(support) or ()]
    return points + [edge for edge in edges if bool(prior.log_prob(edge).isfinite().all())]


def _per_draw(value: Tensor) -> Tensor:
    return value.flatten(1).sum(1) if value.ndim > 1 else value


def _full(tensor: Tensor) -> Tensor:
    """At least float32: φ and the KL never live in half precision."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _as_tensor(value: Number, name: str) -> Tensor:
    if isinstance(value, bool) or not isinstance(value, float | int | Tensor | list | tuple | np.generic):
        raise TypeError(f"{name} must be a number, a list of numbers or learn(...), got {type(value).__name__}")
    try:
        tensor = torch.as_tensor(value).detach()
    except (RuntimeError, TypeError, ValueError) as error:  # a list of words, or of rows of different lengths
        came = " ".join(repr(value).split())
        raise TypeError(f"{name} must be a number, a list of numbers or learn(...), got {came}") from error
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must be real numbers, got {tensor.dtype}")
    tensor = tensor.clone() if tensor.dtype == torch.float64 and isinstance(value, Tensor) else tensor.float()
    if not bool(tensor.isfinite().all()):
        raise ValueError(f"{name} must be finite, got {value}")
    return tensor


def _move(distribution: Distribution, fn: Callable[[Tensor], Tensor]) -> Distribution:
    """Follow the module to another device, but never below the prior's own precision."""
    device = fn(torch.empty(0)).device
    return map_tensors(distribution, lambda tensor: tensor.to(device))
