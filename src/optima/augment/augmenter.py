r"""What every augmentation and every composition of them can do: make a view, and say what q(φ) is and costs."""

from __future__ import annotations

import copy
import inspect
from abc import ABCMeta, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import torch
from torch import Tensor, nn

from optima.augment.checks import check_batch, check_boxes, check_mask, check_replay, check_share
from optima.augment.view import Learners, Target, View, repeated
from optima.posterior import FixedPhi, LearnedPhi, Phi, PriorPhi
from optima.sampling import as_noise
from optima.streams import Noise, Stream
from optima.supports import Domain

if TYPE_CHECKING:
    from optima.augment.base import Augmentation
    from optima.augment.summary import PolicySummary

_Augmenter = TypeVar("_Augmenter", bound="Augmenter")


class _Checked(ABCMeta):
    """Runs `check_construction` after the most derived `__init__`, and keeps the arguments for `optima.save`."""

    def __call__(cls: type[_Augmenter], *args: Any, **kwargs: Any) -> _Augmenter:  # pyright: ignore
        module = type.__call__(cls, *args, **kwargs)
        if "stream" not in vars(module):
            raise TypeError(f"{cls.__name__}.__init__ must begin with super().__init__(**options)")
        module.arguments = _arguments(cls.__init__, args, kwargs)
        module.check_construction()
        return module

    @property
    def __signature__(cls) -> inspect.Signature:
        """That of `__init__`, for `help` and for editors, which would otherwise show the one above."""
        signature = inspect.signature(cls.__init__)
        return signature.replace(parameters=list(signature.parameters.values())[1:])


def _learners(view: View, share: float, noise: Noise) -> Learners | None:
    """A random share of the examples, at least one, with all of their draws."""
    if view.x.requires_grad and torch.is_grad_enabled():
        raise ValueError("share would cut the gradient that x itself wants; detach x, or use share=1")
    count = max(1, round(share * view.examples))
    if count == view.examples:
        return None
    uniform = noise.named("share").uniform((view.examples,), dtype=torch.float64, device=view.x.device)
    start = torch.arange(view.samples, device=view.x.device).unsqueeze(1) * view.examples
    order = uniform.argsort()
    rows, others = ((start + part).flatten() for part in order.split([count, view.examples - count]))
    return Learners(rows, others, view.examples / count)


def _arguments(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a constructor was given, by name."""
    signature = inspect.signature(function)
    given = dict(signature.bind(None, *args, **kwargs).arguments)
    given.pop(next(iter(signature.parameters)))
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
        """The view after this augmentation; its draws are named `prefix` + component, and transforms may be pending."""

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
        mask: Tensor | None = None,
        boxes: Tensor | None = None,
        clean: bool = False,
        share: float = 1.0,
    ) -> View:
        """Draw φ and γ and apply T_γ; in `eval()` mode, change nothing unless γ is given as `replay`.

        Args:
            x: (B, …) inputs.
            y: the targets, needed by augmentations that mix examples.
            samples: K, the draws of γ per example; the view has K·B rows.
            generator: draw from this instead of the augmentation's own stream.
            replay: the `gamma` of an earlier view, to be applied again.
            mask: labels of the pixels, (B, H, W), to be moved as the images are, by the nearest pixel.
            boxes: (B, n, 4), left, top, right and bottom in pixels, to be moved likewise: what comes back is the
                smallest upright box around the moved one, cut at the border.
            clean: put the batch as it is before the K draws, for `ELBO(jsd=…)`.
            share: the share of the examples, drawn anew each time, from whose pictures φ learns; each counts the more.
                The expected gradient is the same, its variance higher, and the others' transforms cost no backward
                pass and no memory for one. Images and losses are those of share=1, except that a `generator` is used
                up in another order. What mixes examples or chooses among augmentations learns from all of them, and
                so does what follows it.
        """
        check_batch(x, y, samples, generator)
        check_mask(mask, x)
        check_boxes(boxes, x)
        self._check_clean(clean, mask, boxes)
        check_share(share)
        view = repeated(x, y, samples, mask, boxes)
        if replay is not None:
            check_replay(replay, set(self._components()), len(view.x))
        elif not self.training:
            return view.after(x, y) if clean else view
        noise = self.stream.noise() if generator is None else as_noise(generator)
        if share < 1.0:
            view = replace(view, learners=_learners(view, share, noise))
        with torch.autocast(x.device.type, enabled=False):  # it would round the matrices of a warp to half precision
            view = replace(self.extend(view, noise, replay, "").finished(), learners=None)
        return view.after(x, y) if clean else view

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
            mask: Tensor | None = None,
            boxes: Tensor | None = None,
            clean: bool = False,
            share: float = 1.0,
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
        with torch.autocast(x.device.type, enabled=False):
            return self.extend(View(x, single=True), noise, None, "").settled().x

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

    def _check_clean(self, clean: bool, mask: Tensor | None, boxes: Tensor | None) -> None:
        if not clean:
            return
        if mixing := [type(leaf).__name__ for _, leaf in self.leaves() if leaf.mixes]:
            raise ValueError(
                f"clean=True compares the draws with the batch as it is, whose labels {', '.join(mixing)} would mix;"
                " leave out one or the other"
            )
        if mask is not None or boxes is not None:
            raise ValueError("clean=True is for classification: leave out mask and boxes")

    def _with_phi(self, change) -> Self:
        twin = copy.deepcopy(self)
        for _, leaf in twin.leaves():
            for name, domain in leaf.domains.items():
                setattr(leaf, name, change(name, getattr(leaf, name), domain))
        return twin

    def _components(self) -> Iterator[str]:
        for prefix, leaf in self.leaves():
            yield from (f"{prefix}.{component}" if prefix else component for component in leaf.components)
