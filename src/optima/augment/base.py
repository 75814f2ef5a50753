r"""The base of every augmentation: φ ~ q(φ), γ ~ p(γ | φ), x' = T_γ(x).

A new augmentation says what its hyperparameters are, which distribution they give γ, and what γ does to x:

    class Gain(Augmentation):
        def __init__(self, std, **options):
            super().__init__(**options)
            self.add_phi("std", std, support=constraints.positive, off=0.0)

        def p_gamma(self, phi):
            return {"log_gain": Normal(0.0, phi["std"])}

        def transform(self, x, gamma):
            return x * gamma["log_gain"].exp().view(-1, 1)

Drawing, gradients, K samples, replay, the KL, the summary, saving and loading follow from that.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABCMeta, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.distributions.constraints import Constraint

from optima.augment.checks import check_batch, check_replay
from optima.augment.view import Target, View, credit_partners, repeated
from optima.distributions import kl, map_tensors
from optima.posterior import FixedPhi, Learn, LearnedPhi, Number, Phi, PriorPhi
from optima.sampling import (
    ESTIMATORS,
    Estimator,
    Pathwise,
    Relaxed,
    ScoreFunction,
    StraightThrough,
    as_noise,
    rsample,
)
from optima.streams import Noise, Stream
from optima.supports import Domain, bounds

if TYPE_CHECKING:
    from optima.augment.summary import PolicySummary

_Augmenter = TypeVar("_Augmenter", bound="Augmenter")

_KL_GAMMA_DRAWS = 32


class _Checked(ABCMeta):
    """Runs `check_construction` after the most derived `__init__`, and keeps the arguments for `optima.save`."""

    def __call__(cls: type[_Augmenter], *args: Any, **kwargs: Any) -> _Augmenter:  # pyright: ignore
        module = type.__call__(cls, *args, **kwargs)
        module.arguments = _arguments(cls.__init__, args, kwargs)
        module.check_construction()
        return module

    @property
    def __signature__(cls) -> inspect.Signature:
        """That of `__init__`, for `help` and for editors, which would otherwise show the one above."""
        signature = inspect.signature(cls.__init__)
        return signature.replace(parameters=list(signature.parameters.values())[1:])


def _arguments(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a constructor was given, by name."""
    signature = inspect.signature(function)
    given = dict(signature.bind(None, *args, **kwargs).arguments)
    given.pop("self")
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            given.update(given.pop(name, {}))
    return given


class Augmenter(nn.Module, metaclass=_Checked):
    """Anything that maps a batch to a `View`: an `Augmentation`, or a `Sequential` of them."""

    arguments: dict[str, Any]

    def __init__(self) -> None:
        super().__init__()
        self.stream = Stream()

    @abstractmethod
    def extend(self, view: View, noise: Noise, replay: Mapping[str, Tensor] | None, prefix: str) -> View:
        """The view after this augmentation; its draws are named `prefix` + component."""

    @abstractmethod
    def named_phi(self, prefix: str = "") -> Iterator[tuple[str, Phi]]:
        """Every hyperparameter, named."""

    @abstractmethod
    def leaves(self, prefix: str = "") -> Iterator[tuple[str, Augmentation]]:
        """Every single augmentation, named."""

    def forward(
        self,
        x: Tensor,
        y: Target | None = None,
        *,
        samples: int = 1,
        generator: torch.Generator | None = None,
        replay: Mapping[str, Tensor] | None = None,
    ) -> View:
        """Draw φ and γ and apply T_γ; in `eval()` mode, change nothing unless γ is given as `replay`.

        Args:
            x: (B, …) inputs.
            y: the targets, needed by augmentations that mix examples.
            samples: K, the draws of γ per example; the view has K·B rows.
            generator: draw from this instead of the augmentation's own stream.
            replay: the `gamma` of an earlier view, to be applied again.
        """
        check_batch(x, y, samples, generator)
        view = repeated(x, y, samples)
        if replay is not None:
            check_replay(replay, set(self._components()), len(view.x))
        elif not self.training:
            return view
        noise = self.stream.noise() if generator is None else as_noise(generator)
        return self.extend(view, noise, replay, "")

    if TYPE_CHECKING:
        # torch declares that the call of a module returns anything
        def __call__(
            self,
            x: Tensor,
            y: Target | None = None,
            *,
            samples: int = 1,
            generator: torch.Generator | None = None,
            replay: Mapping[str, Tensor] | None = None,
        ) -> View: ...

    def kl(self) -> Tensor:
        """KL(q(φ) ‖ p(φ)), plus KL(p(γ | φ) ‖ p₀(γ)) where there is a `prior_gamma`; nats, for the whole data set."""
        noise = self.stream.noise("kl")
        terms = [phi.kl(noise.named(name)) for name, phi in self.named_phi()]
        terms += [leaf.kl_gamma(noise.named(name)) for name, leaf in self.leaves() if leaf.prior_gamma is not None]
        return torch.stack([term.reshape(()) for term in terms]).sum() if terms else torch.zeros(())

    def check_construction(self) -> None:
        """Raise what can only be known once every hyperparameter is declared."""

    def draw_inputs(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """T_γ(x) for one draw of φ and γ, in either mode; augmentations that mix examples are left out."""
        noise = self.stream.noise("inputs") if generator is None else as_noise(generator)
        view = View(x)
        for prefix, leaf in self.leaves():
            if "partner" not in leaf.components():
                view = leaf.extend(view, noise.named(prefix), None, "")
        return view.x

    def learns(self) -> bool:
        """Whether any φ is to be learned."""
        return any(isinstance(phi, LearnedPhi) and phi.loc.requires_grad for _, phi in self.named_phi())

    def frozen(self) -> Self:
        """A copy with every φ fixed at its posterior mean."""
        return self._with_phi(lambda name, phi, domain: FixedPhi(name, phi.summary().mean, domain))

    def prior(self) -> Self:
        """A copy whose learned φ are drawn from their priors."""

        def at_prior(name: str, phi: Phi, domain: Domain) -> Phi:
            return PriorPhi(phi.p_phi(), phi.shape, phi.support) if isinstance(phi, LearnedPhi) else phi

        return self._with_phi(at_prior)

    def summary(self) -> PolicySummary:
        """A table of every φ: unit, prior, posterior, and whether the data moved it."""
        from optima.augment.summary import summarise_policy

        return summarise_policy(self)

    def get_extra_state(self) -> Tensor:
        return self.stream.state()

    def set_extra_state(self, state: Tensor) -> None:
        self.stream = Stream.from_state(state)

    def _with_phi(self, change) -> Self:
        twin = copy.deepcopy(self)
        for _, leaf in twin.leaves():
            for name, domain in leaf.domains.items():
                setattr(leaf, name, change(name, getattr(leaf, name), domain))
        return twin

    def _components(self) -> Iterator[str]:
        for prefix, leaf in self.leaves():
            yield from (f"{prefix}.{component}" if prefix else component for component in leaf.components())


class Augmentation(Augmenter):
    r"""One family: p(γ | φ) bound to a T_γ.

    Args:
        estimator: how φ gets its gradient through γ: "pathwise", "score_function", "relaxed", "straight_through" or
            an `Estimator`.
        phi_draws: one draw of φ per "example" (same expectation, less variance) or per "batch".
        prior_gamma: a prior p₀(γ), one distribution or one per component of γ. KL(p(γ | φ) ‖ p₀(γ)) is then added,
            once, and a `learn(..., posterior="point")` without a prior of its own gets none.
    """

    default_estimator: ClassVar[str] = "pathwise"
    estimators: ClassVar[tuple[type, ...]] = (Pathwise, ScoreFunction, Relaxed, StraightThrough)
    gamma_per: ClassVar[Literal["example", "element"]] = "example"

    def __init__(
        self,
        *,
        estimator: str | Estimator | None = None,
        phi_draws: Literal["example", "batch"] = "example",
        prior_gamma: Distribution | Mapping[str, Distribution] | None = None,
        **unknown: Any,
    ):
        super().__init__()
        self._refuse(unknown)
        if phi_draws not in ("example", "batch"):
            raise ValueError(f'phi_draws must be "example" or "batch", got {phi_draws!r}')
        if prior_gamma is not None and not isinstance(prior_gamma, Distribution | Mapping):
            raise TypeError(
                f"prior_gamma must be a distribution, or one per component of γ, got {type(prior_gamma).__name__}"
            )
        self.estimator = self._chosen(estimator)
        self.phi_draws = phi_draws
        self.prior_gamma = prior_gamma
        self.domains: dict[str, Domain] = {}

    @abstractmethod
    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        """p(γ | φ), one distribution per named component of γ; φ holds one row per example."""

    @abstractmethod
    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        """T_γ(x)."""

    def retarget(self, target: Target | None, gamma: dict[str, Tensor]) -> Target | None:
        """The target that goes with T_γ(x); unchanged unless examples are mixed."""
        return target

    def draw_free(self, view: View, noise: Noise) -> dict[str, Tensor]:
        """Components of γ that do not depend on φ. One called `partner` says which row each row is combined with."""
        return {}

    def matters(self, view: View) -> Tensor:
        """Where a per-element γ has any effect on x; elsewhere the score function owes it no credit, only variance."""
        return torch.ones_like(view.x, dtype=torch.bool)

    def check(self, view: View) -> None:
        """Raise when the batch is not of the kind this augmentation works on."""
        if not view.x.is_floating_point():
            raise TypeError(
                f"{type(self).__name__} needs floating-point inputs, got {view.x.dtype};"
                " convert them first, for example x.float() / 255"
            )

    def add_phi(
        self,
        name: str,
        value: Number | Learn,
        *,
        support: Constraint,
        unit: str = "",
        off: float | None = None,
        prior_scale: float = 1.0,
        allows_off: bool = True,
        shapes: tuple[tuple[int, ...], ...] = ((),),
    ) -> None:
        """Declare a hyperparameter; it becomes the submodule `name`. The arguments are those of `Domain`."""
        domain = Domain(support, unit, off, prior_scale, allows_off, shapes)
        label = f"{type(self).__name__}({name}=…)"
        phi = (
            LearnedPhi(label, value, domain, flat_prior=self.prior_gamma is not None and value.posterior == "point")
            if isinstance(value, Learn)
            else FixedPhi(label, value, domain)
        )
        if tuple(phi.shape) not in shapes:
            expected = "one number" if shapes == ((),) else "one number or a pair" if shapes == ((), (2,)) else shapes
            raise ValueError(f"{label} takes {expected}, got shape {tuple(phi.shape)}")
        self.domains[name] = domain
        self.add_module(name, phi)

    def extend(self, view: View, noise: Noise, replay: Mapping[str, Tensor] | None, prefix: str) -> View:
        self.check(view)
        if replay is not None:
            gamma = {name: replay[f"{prefix}{name}"] for name in self.components()}
            self._check_shapes(gamma, view.x)
            return self._applied(view, gamma, prefix)
        phi = self._draw_phi(view, noise)
        gamma, log_prob = self._draw_gamma(view, phi, noise)
        view = self._applied(view, gamma, prefix)
        credits = [credit for credit in (view.log_prob, log_prob) if credit is not None]
        log_prob = sum(credits[1:], start=credits[0]) if credits else None
        named = {f"{prefix}{name}": value for name, value in phi.items()}
        return replace(view, log_prob=log_prob, phi={**view.phi, **named})

    def components(self) -> list[str]:
        """The names of γ's components."""
        return [*self._mean_laws(), *self.draw_free(View(torch.empty(0)), as_noise(None))]

    def check_construction(self) -> None:
        laws = self._mean_laws()
        for law in laws.values():
            self._check_fit(law)
        self._priors_of_gamma(laws)

    @torch.no_grad()
    def _mean_laws(self) -> dict[str, Distribution]:
        """p(γ | φ) at the posterior mean of φ, for one example."""
        return self.p_gamma({name: phi.summary().mean.unsqueeze(0) for name, phi in self.named_phi()})

    def _check_fit(self, law: Distribution) -> None:
        if problem := self.estimator.misfit(law):
            raise ValueError(f"{type(self).__name__}: {problem}; choose another estimator=")

    def kl_gamma(self, noise: Noise) -> Tensor:
        """E_q(φ) KL(p(γ | φ) ‖ p₀(γ)), over the components of γ that have a prior."""
        device = next(chain(self.parameters(), self.buffers())).device
        phi = {
            name: phi.draw(_KL_GAMMA_DRAWS, dtype=torch.float32, device=device, noise=noise.named(name), watch=False)
            for name, phi in self.named_phi()
        }
        laws = self.p_gamma(phi)
        terms = [
            _per_row(_kl(laws[name], map_tensors(prior, lambda tensor: tensor.to(device)), noise.named(name))).mean()
            for name, prior in self._priors_of_gamma(laws).items()
        ]
        return torch.stack(terms).sum()

    def named_phi(self, prefix: str = "") -> Iterator[tuple[str, Phi]]:
        for name in self.domains:
            yield f"{prefix}{name}", getattr(self, name)

    def leaves(self, prefix: str = "") -> Iterator[tuple[str, Augmentation]]:
        yield prefix.removesuffix("."), self

    def _applied(self, view: View, gamma: dict[str, Tensor], prefix: str) -> View:
        x = self.transform(view.x, gamma).to(view.x.dtype)
        if view.x.ndim == 4 and view.x.is_contiguous(memory_format=torch.channels_last):
            x = x.contiguous(memory_format=torch.channels_last)
        if "partner" in gamma:
            view = credit_partners(view, gamma["partner"])
        named = {f"{prefix}{name}": value for name, value in gamma.items()}
        return replace(view, x=x, target=self.retarget(view.target, gamma), gamma={**view.gamma, **named})

    def _check_shapes(self, gamma: dict[str, Tensor], x: Tensor) -> None:
        for name, law in self._mean_laws().items():
            expected = x.shape if self.gamma_per == "element" else (len(x), *self.estimator.shape(law)[1:])
            if tuple(gamma[name].shape) != tuple(expected):
                raise ValueError(f"replay: {name} must have shape {tuple(expected)}, got {tuple(gamma[name].shape)}")

    def _draw_phi(self, view: View, noise: Noise) -> dict[str, Tensor]:
        """One φ per example, shared by that example's K draws of γ."""
        count = view.examples if self.phi_draws == "example" else 1
        x = view.x
        dtype = torch.promote_types(x.dtype, torch.float32) if x.is_floating_point() else torch.float32
        phi = {
            name: phi.draw(count, dtype=dtype, device=x.device, noise=noise.named(name))
            for name, phi in self.named_phi()
        }
        return {name: value.expand(view.examples, *value.shape[1:]) for name, value in phi.items()}

    def _draw_gamma(self, view: View, phi: dict[str, Tensor], noise: Noise) -> tuple[dict[str, Tensor], Tensor | None]:
        rows = {name: value.repeat(view.samples, *[1] * (value.ndim - 1)) for name, value in phi.items()}
        if self.gamma_per == "element":
            rows = {name: value.view(-1, *[1] * (view.x.ndim - 1)) for name, value in rows.items()}
        gamma: dict[str, Tensor] = {}
        credit: Tensor | None = None
        for name, law in self.p_gamma(rows).items():
            law = law.expand(view.x.shape) if self.gamma_per == "element" else law
            self._check_fit(law)
            gamma[name], log_prob = self.estimator.draw(law, noise.named(name))
            if log_prob is not None and log_prob.requires_grad:
                if self.gamma_per == "element":
                    log_prob = log_prob * self.matters(view).to(log_prob.dtype)
                log_prob = _per_row(log_prob)
                credit = log_prob if credit is None else credit + log_prob
        return {**gamma, **self.draw_free(view, noise)}, credit

    def _priors_of_gamma(self, laws: Mapping[str, Distribution]) -> Mapping[str, Distribution]:
        prior = self.prior_gamma
        if isinstance(prior, Distribution):
            if len(laws) != 1:
                raise ValueError(
                    f"prior_gamma must name its components, one of {sorted(laws)}, as in {{name: Normal(0, 0.2)}}"
                )
            return {next(iter(laws)): prior}
        unknown = set(prior or {}) - set(laws)
        if unknown:
            raise ValueError(f"prior_gamma has no component {sorted(unknown)}; γ has {sorted(laws)}")
        return prior or {}

    def _chosen(self, estimator: str | Estimator | None) -> Estimator:
        name = type(self).__name__
        if estimator is None:
            estimator = self.default_estimator
        if isinstance(estimator, str):
            if estimator not in ESTIMATORS:
                raise ValueError(f"{name}: unknown estimator {estimator!r}; expected one of {sorted(ESTIMATORS)}")
            estimator = ESTIMATORS[estimator]
        if not isinstance(estimator, self.estimators):
            fitting = [key for key, value in ESTIMATORS.items() if isinstance(value, self.estimators)]
            raise ValueError(f"{name}: {type(estimator).__name__} does not fit its γ; expected one of {fitting}")
        return estimator

    def _refuse(self, unknown: dict[str, Any]) -> None:
        if unknown:
            known = [p for p in inspect.signature(type(self).__init__).parameters if p not in ("self", "options")]
            known += [
                p for p in inspect.signature(Augmentation.__init__).parameters if p not in ("self", "unknown", *known)
            ]
            raise TypeError(
                f"{type(self).__name__} has no argument {', '.join(sorted(unknown))}; it takes {', '.join(known)}"
            )


def _kl(law: Distribution, prior: Distribution, noise: Noise) -> Tensor:
    """KL(law ‖ prior) per row: closed form where torch knows one, else one draw per row.

    The draw is unbiased up to rounding: a Beta(α, α) with α below 0.1 has mass closer to 1 than float64 can say.
    """
    try:
        return kl(law, prior)
    except NotImplementedError:
        precise = map_tensors(law, _widest)
        value = rsample(precise, noise=noise)
        limits = torch.finfo(value.dtype)
        value = _inwards(value, precise, limits.tiny**0.5, 8 * limits.eps)
        log_p = prior.log_prob(value)
        # torch rounds some densities to nothing well before the edge, Kumaraswamy's from 1e-8 on
        further = prior.log_prob(_inwards(value, precise, limits.eps**0.5, limits.eps**0.5))
        return precise.log_prob(value) - torch.where(log_p.isfinite(), log_p, further)


def _widest(tensor: Tensor) -> Tensor:
    """float64 where the device has it."""
    return tensor if tensor.device.type == "mps" or not tensor.is_floating_point() else tensor.double()


def _inwards(value: Tensor, law: Distribution, from_low: float, from_high: float) -> Tensor:
    """A draw that rounded onto an edge of its support, where a density may be infinite, moved off it."""
    ends = None if law.support is None else bounds(law.support)
    if ends is None:
        return value
    low, high = (torch.as_tensor(end, dtype=value.dtype, device=value.device) for end in ends)
    step = 8 * torch.finfo(value.dtype).eps
    above = torch.where(low.isfinite(), low + (step * low.abs()).clamp_min(from_low), low)
    below = torch.where(high.isfinite(), high - from_high * high.abs().clamp_min(step), high)
    return value.clamp(above, below)


def _per_row(value: Tensor) -> Tensor:
    return value.flatten(1).sum(1) if value.ndim > 1 else value
