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

import inspect
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.distributions.constraints import Constraint

from optima.augment.augmenter import Augmenter
from optima.augment.prior_gamma import kl_to_prior
from optima.augment.view import Target, View, credit_partners
from optima.distributions import map_tensors, tensors_of
from optima.posterior import FixedPhi, Learn, LearnedPhi, Number, Phi, PriorPhi
from optima.sampling import ESTIMATORS, Estimator, Pathwise, Relaxed, ScoreFunction, StraightThrough, as_noise, sample
from optima.streams import Noise
from optima.supports import Domain, words
from optima.transforms.operators import Operator, Plain

_KL_GAMMA_DRAWS = 32


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
    shown_as: ClassVar[str] = ""  # the name in messages, where it is not the class's
    keeps_masks: bool = False  # a label of a pixel stays true, because it is moved alike or nothing moves

    components: list[str]

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
        for name, prior in prior_gamma.items() if isinstance(prior_gamma, Mapping) else ():
            if not isinstance(prior, Distribution):
                raise TypeError(f"prior_gamma of {name} must be a distribution, got {type(prior).__name__}")
        self.estimator = self._chosen(estimator)
        self.phi_draws = phi_draws
        self.prior_gamma = prior_gamma
        self.domains: dict[str, Domain] = {}

    @abstractmethod
    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        """p(γ | φ), one distribution per named component of γ; φ holds one row per example."""

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        """T_γ(x)."""
        operator = self.operator(x, gamma)
        if operator is None:
            raise NotImplementedError(f"{type(self).__name__} must define transform(x, gamma)")
        return operator(x)

    def operator(self, x: Tensor, gamma: dict[str, Tensor]) -> Operator | None:
        """T_γ as an object that can join its neighbours, for x of this shape and type; None where it cannot."""
        return None

    def retarget(self, view: View, gamma: dict[str, Tensor]) -> Target | None:
        """The target that goes with T_γ(x), for the view before it; unchanged unless examples are mixed."""
        return view.target

    def draw_free(self, view: View, noise: Noise) -> dict[str, Tensor]:
        """Components of γ that do not depend on φ. Two names have a meaning: `partner` says which row each row is
        combined with, and `leader` whose draw of γ it shares (which is not recorded: γ is, as each row has it)."""
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
        labels: tuple[str, ...] = (),
    ) -> None:
        """Declare a hyperparameter; it becomes the submodule `name`. The arguments are those of `Domain`."""
        if hasattr(self, name):
            raise ValueError(f"{type(self).__name__}: a hyperparameter cannot be called {name!r}, which has a meaning")
        domain = Domain(support, unit, off, prior_scale, allows_off, shapes, labels)
        label = f"{self.shown_as or type(self).__name__}({name}=…)"
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
        if view.single and self.mixes:
            return view
        view = view if self._joins() else view.settled()
        self._check_mask(view)
        self.check(view)
        if replay is not None:
            gamma = {name: replay[f"{prefix}{name}"] for name in self.components}
            self._check_shapes(gamma, view.x)
            return self._applied(view, gamma, prefix)
        phi = self._draw_phi(view, noise)
        free = self.draw_free(view, noise)
        leader = free.pop("leader", None)
        gamma, log_prob = self._draw_gamma(view, phi, noise)
        if leader is not None:
            gamma = {name: value[leader] for name, value in gamma.items()}
        view = self._applied(view, {**gamma, **free}, prefix)
        named = {f"{prefix}{name}": value for name, value in phi.items()}
        return replace(view.scored(log_prob, leader), phi={**view.phi, **named})

    @property
    def mixes(self) -> bool:
        """Whether rows are combined with one another."""
        return "partner" in self.components

    def check_construction(self) -> None:
        lost = [name for name, value in vars(self).items() if isinstance(value, Learn)]
        if lost:
            raise TypeError(
                f"{type(self).__name__} keeps learn(...) as an attribute, where nothing learns it; declare it with"
                f' self.add_phi("{lost[0]}", {lost[0]}, support=…)'
            )
        given = [name for name, value in self.arguments.items() if isinstance(value, Learn)]
        if len(given) > sum(isinstance(phi, LearnedPhi) for _, phi in self.named_phi()):
            raise TypeError(
                f"{type(self).__name__} is given learn(...) for {', '.join(given)} and declares fewer with add_phi, so"
                " that nothing learns the rest"
            )
        laws = self._mean_laws()
        for name, law in laws.items():
            self._check_rows(name, law)
        free = self.draw_free(View(torch.empty(0)), as_noise(None))
        self.components = [*laws, *(name for name in free if name != "leader")]
        if not self._joins() and type(self).transform is Augmentation.transform:
            raise TypeError(f"{type(self).__name__} must define transform(x, gamma), which returns T_γ(x)")
        for law in laws.values():
            self._check_fit(law)
        for name, prior in self._priors_of_gamma(laws).items():
            self._check_prior(name, laws[name], prior)

    @torch.no_grad()
    def _mean_laws(self) -> dict[str, Distribution]:
        """p(γ | φ) at the posterior mean of φ, for two examples."""
        laws = self.p_gamma({name: torch.stack([phi.summary().mean] * 2) for name, phi in self.named_phi()})
        if not isinstance(laws, Mapping) or not all(isinstance(law, Distribution) for law in laws.values()):
            raise TypeError(
                f"{type(self).__name__}.p_gamma must return a dictionary of distributions, as in"
                f' {{"shift": Normal(0.0, phi["std"])}}, got {type(laws).__name__}'
            )
        return dict(laws)

    def _check_prior(self, name: str, law: Distribution, prior: Distribution) -> None:
        draws = sample(law, (256,), noise=torch.Generator().manual_seed(0))
        if prior.support is not None and not bool(prior.support.check(draws).all()):
            raise ValueError(
                f"{type(self).__name__}: prior_gamma of {name} is a {type(prior).__name__} over {words(prior.support)},"
                f" and {name} leaves that set, so that the KL would be infinite; give a prior that covers it"
            )
        try:
            kl_to_prior(law, prior, as_noise(torch.Generator().manual_seed(0)))
        except RuntimeError as error:
            shape = tuple(prior.batch_shape + prior.event_shape)
            raise ValueError(
                f"{type(self).__name__}: prior_gamma of {name} has shape {shape}, which does not fit γ's,"
                f" {tuple(law.batch_shape[1:])} per example"
            ) from error

    def _check_rows(self, name: str, law: Distribution) -> None:
        if tuple(law.batch_shape[:1]) != (2,):
            raise ValueError(
                f"{type(self).__name__}.p_gamma must give {name} one row per row of φ: for two examples its"
                f" batch_shape is {tuple(law.batch_shape)}; build it from phi, without reducing or indexing rows"
            )

    def _check_fit(self, law: Distribution) -> None:
        if problem := self.estimator.misfit(law):
            raise ValueError(f"{type(self).__name__}: {problem}; choose another estimator=")

    def kl_gamma(self, noise: Noise) -> Tensor:
        """E_q(φ) KL(p(γ | φ) ‖ p₀(γ)), over the components of γ that have a prior."""
        priors = chain.from_iterable(tensors_of(phi.prior) for _, phi in self.named_phi() if isinstance(phi, PriorPhi))
        device = next(
            (tensor.device for tensor in chain(self.parameters(), self.buffers(), priors)), torch.device("cpu")
        )
        phi = {
            name: phi.draw(_KL_GAMMA_DRAWS, dtype=torch.float32, device=device, noise=noise.named(name), watch=False)
            for name, phi in self.named_phi()
        }
        laws = self.p_gamma(phi)
        terms = []
        for name, prior in self._priors_of_gamma(laws).items():
            moved = map_tensors(prior, lambda tensor: tensor.to(device))
            terms.append(_per_row(kl_to_prior(laws[name], moved, noise.named(name))).mean())
        return torch.stack(terms).sum()

    def named_phi(self, prefix: str = "") -> Iterator[tuple[str, Phi]]:
        for name in self.domains:
            yield f"{prefix}{name}", getattr(self, name)

    def leaves(self, prefix: str = "") -> Iterator[tuple[str, Augmentation]]:
        yield prefix.removesuffix("."), self

    def _applied(self, view: View, gamma: dict[str, Tensor], prefix: str) -> View:
        if self.mixes:
            # what a row is made of has a gradient only if all rows have one from here on
            view = replace(view.settled(), learners=None)
        heard = gamma if view.learners is None else {n: view.learners.louder(part) for n, part in gamma.items()}
        operator = self.operator(view.x, heard) or Plain(self.transform, heard, together=self.mixes)
        if "partner" in gamma:
            view = credit_partners(view, gamma["partner"])
        named = {f"{prefix}{name}": value for name, value in gamma.items()}
        view = replace(view, target=self.retarget(view, gamma), gamma={**view.gamma, **named})
        return view.followed_by(operator)

    def _joins(self) -> bool:
        return type(self).operator is not Augmentation.operator

    def _check_mask(self, view: View) -> None:
        for name, given in (("mask", view.mask), ("boxes", view.boxes)):
            if given is not None and not self.keeps_masks:
                raise ValueError(
                    f"{type(self).__name__} cannot keep {name}= true to its image; leave the one or the other out"
                    " (an augmentation of your own says keeps_masks = True when no pixel moves)"
                )

    def _check_shapes(self, gamma: dict[str, Tensor], x: Tensor) -> None:
        for name, law in self._mean_laws().items():
            expected = x.shape if self.gamma_per == "element" else (len(x), *self.estimator.shape(law)[1:])
            if tuple(gamma[name].shape) != tuple(expected):
                raise ValueError(f"replay: {name} must have shape {tuple(expected)}, got {tuple(gamma[name].shape)}")

    def _draw_phi(self, view: View, noise: Noise) -> dict[str, Tensor]:
        """One φ per example, shared by that example's K draws of γ."""
        # a single row has no baseline: its score gradient says how likely the row was, and nothing about φ
        watch = len(view.x) > 1 or not isinstance(self.estimator, ScoreFunction)
        count = view.examples if self.phi_draws == "example" else 1
        x = view.x
        dtype = torch.promote_types(x.dtype, torch.float32) if x.is_floating_point() else torch.float32
        phi = {
            name: phi.draw(count, dtype=dtype, device=x.device, noise=noise.named(name), watch=watch)
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
        return gamma, credit

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


def _per_row(value: Tensor) -> Tensor:
    return value.flatten(1).sum(1) if value.ndim > 1 else value
