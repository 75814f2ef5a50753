r"""`ELBO`: from a model's output and a view to a loss that can be stepped on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from optima.augment.augmenter import Augmenter
from optima.augment.view import Target, View
from optima.bayes.layers import draws_per_row, kl_theta
from optima.likelihoods import Categorical, Likelihood, as_likelihood
from optima.objective import estimators
from optima.objective.consistency import jensen_shannon
from optima.objective.elbo import (
    check_weight,
    checked_num_data,
    elbo,
    jensen,
    log_marginal,
    marginalization_advantage,
    naive,
)
from optima.objective.reach import is_bayesian, unreached
from optima.posterior import LearnedPhi

Bound = Literal["jensen", "marginal", "naive"]
_CHECK_EVERY = 100  # a walk over autograd's graph costs about as much as building it
_BOUNDS = {"jensen": jensen, "marginal": log_marginal, "naive": naive}


@dataclass(frozen=True)
class Loss:
    """One step's loss and its parts. All but `value` are detached, ready to log.

    Args:
        value: −ELBO / N; its gradient is the step's gradient for θ and for every q(φ).
        elbo: nats, for the whole data set; higher is better.
        data_fit: N/B Σ ℓ_i.
        kl_theta: KL(q(θ) ‖ p(θ)).
        kl_phi: KL(q(φ) ‖ p(φ)).
        advantage: Δ_φ, mean over the batch, nats per example; None for one draw per example, or where a Bayesian layer
            draws a θ per row, whose spread would count as well.
        jsd: the Jensen–Shannon divergence of the views of an example, mean over the batch, in nats; None without one.
    """

    value: Tensor
    elbo: Tensor
    data_fit: Tensor
    kl_theta: Tensor
    kl_phi: Tensor
    advantage: Tensor | None
    jsd: Tensor | None = None

    def backward(self) -> None:
        """Accumulate the gradients of `value`."""
        self.value.backward()


class ELBO(nn.Module):
    r"""−ELBO / N of a batch.

    Args:
        num_data: N, the number of training examples (before augmentation).
        likelihood: "categorical", "bernoulli", "gaussian", or a `Likelihood`; one with learned parameters belongs
            into the optimizer.
        beta_theta: weight of KL(q(θ) ‖ p(θ)); 1 is the bound.
        beta_phi: weight of KL(q(φ) ‖ p(φ)); 1 is the bound. The paper's scripts divide this KL by the batch size:
            `beta_phi = N / B`.
        bound: "jensen" (the paper's), "marginal" (log of the mean over K draws, tighter), or "naive", which is no
            bound at all: the K draws are counted as K examples, the baseline that overcounts the evidence.
        jsd: weight of AugMix's consistency term. The likelihood is then that of the batch as it is, and every example
            pays `jsd` times the Jensen–Shannon divergence between what the model says of it and of its K draws; call
            `augment(x, y, samples=2, clean=True)`. A penalty, so that the value is no bound. AugMix uses 12.
    """

    def __init__(
        self,
        num_data: int,
        likelihood: str | Likelihood = "categorical",
        *,
        beta_theta: float = 1.0,
        beta_phi: float = 1.0,
        bound: Bound = "jensen",
        jsd: float = 0.0,
    ):
        super().__init__()
        num_data = checked_num_data(num_data)
        for name, weight in (("beta_theta", beta_theta), ("beta_phi", beta_phi), ("jsd", jsd)):
            check_weight(name, weight)
        if not isinstance(bound, str) or bound not in _BOUNDS:
            raise ValueError(f'bound must be "jensen", "marginal" or "naive", got {bound!r}')
        self.num_data, self.beta_theta, self.beta_phi, self.bound = num_data, beta_theta, beta_phi, bound
        self.likelihood, self.jsd = as_likelihood(likelihood), jsd
        if jsd and bound != "jensen":
            raise ValueError(
                f'jsd takes the likelihood of the batch as it is, which has no bound="{bound}"; leave one of them out'
            )
        if jsd and not isinstance(self.likelihood, Categorical):
            raise ValueError(
                f"jsd compares class probabilities, and {type(self.likelihood).__name__} gives none;"
                ' use likelihood="categorical"'
            )
        self._reached: WeakKeyDictionary[Augmenter, int] = WeakKeyDictionary()
        self._knows_theta = False

    def forward(
        self, output: Tensor, view: View, *, model: nn.Module | None = None, augment: Augmenter | None = None
    ) -> Loss:
        """The loss of one batch.

        Args:
            output: the model's output on `view.x`.
            view: what the augmentation returned.
            model: for KL(q(θ) ‖ p(θ)).
            augment: for KL(q(φ) ‖ p(φ)); required when it learns.
        """
        _check_modules(model, augment)
        target = self._checked_target(output, view, augment)
        same_theta = model is None or not draws_per_row(model)
        if self.bound == "marginal" and view.samples > 1 and not same_theta:
            raise ValueError(
                "the marginal bound needs one θ for the draws of γ of an example, and this model draws one per row:"
                ' build its Bayesian layers with draws="step", or use bound="jensen"'
            )
        divergence: Tensor | None = None
        if view.clean:
            log_lik = self.likelihood.log_lik(output[: view.examples], target).unsqueeze(0)
            divergence = jensen_shannon(output.view(1 + view.samples, view.examples, -1))
        else:
            log_lik = self.likelihood.log_lik(output, target).view(view.samples, view.examples)
        _check_numbers(log_lik, output, view)
        per_example = (
            self._surrogate(log_lik, view) if divergence is None else self._consistent(log_lik, divergence, view)
        )
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            self._check_modes(per_example, model, augment)
            if augment is not None:
                self._check_reach(per_example, view, augment)
        theta = self.likelihood.kl() if model is None else kl_theta(model) + self.likelihood.kl()
        phi = torch.zeros(()) if augment is None else augment.kl()
        terms = elbo(per_example, theta, phi, self.num_data, beta_theta=self.beta_theta, beta_phi=self.beta_phi)
        value, data, theta, phi = (term.detach() for term in terms)
        if divergence is not None:
            return Loss(
                -terms.value / self.num_data,
                value,
                self.num_data * log_lik.detach().mean(),
                theta,
                phi,
                None,
                divergence.detach().mean(),
            )
        advantage = marginalization_advantage(log_lik.detach()).mean() if same_theta and view.samples > 1 else None
        return Loss(-terms.value / self.num_data, value, data, theta, phi, advantage)

    if TYPE_CHECKING:
        # torch declares that the call of a module returns anything
        def __call__(
            self, output: Tensor, view: View, *, model: nn.Module | None = None, augment: Augmenter | None = None
        ) -> Loss: ...

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_reached": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_reached": WeakKeyDictionary()})

    def _surrogate(self, log_lik: Tensor, view: View) -> Tensor:
        """ℓ_i with the right gradient, (B,)."""
        value = _BOUNDS[self.bound](log_lik)
        if view.log_prob is None:
            return estimators.pathwise(value)
        signal = self._signal(log_lik.detach(), view)
        return estimators.score_function(value, signal, view.log_prob.view_as(log_lik))

    def _consistent(self, log_lik: Tensor, divergence: Tensor, view: View) -> Tensor:
        """log p(y | x) − jsd · JSD with the right gradient, (B,): the K draws of an example share one signal."""
        value = log_lik[0] - self.jsd * divergence
        if view.log_prob is None:
            return estimators.pathwise(value)
        signal = value.detach() - estimators.leave_one_out_batch(value.detach())
        owed = view.log_prob.view(view.samples, view.examples)
        return estimators.score_function(value, signal.expand_as(owed), owed)

    def _signal(self, log_lik: Tensor, view: View) -> Tensor:
        if view.samples == 1:
            return log_lik - estimators.leave_one_out_batch(log_lik[0], view.sources)
        if self.bound == "marginal":
            return estimators.marginal_signal(log_lik)
        centred = log_lik - estimators.leave_one_out_draws(log_lik)
        return centred / view.samples if self.bound == "jensen" else centred

    def _checked_target(self, output: Tensor, view: View, augment: Augmenter | None) -> Target:
        if not isinstance(view, View):
            raise TypeError(f"the second argument is the View that augment(x, y) returned, got {type(view).__name__}")
        if not isinstance(output, Tensor):
            raise TypeError(f"output must be the tensor of logits or predictions, got {type(output).__name__}")
        if view.target is None:
            raise ValueError("the view has no targets: call augment(x, y)")
        if view.clean != bool(self.jsd):
            raise ValueError(
                "this view begins with the batch as it is, which is for the consistency term: pass jsd= to ELBO"
                if view.clean
                else f"jsd={self.jsd} compares the draws with the batch as it is: call augment(x, y, clean=True)"
            )
        if view.examples > self.num_data:
            raise ValueError(
                f"num_data is the number of training examples, {self.num_data}, but this batch alone has"
                f" {view.examples}; pass len(train_set), not the number of batches"
            )
        if output.ndim == 0 or len(output) != len(view.x):
            raise ValueError(
                f"output must have one row per row of view.x, {len(view.x)}, got shape {tuple(output.shape)}"
            )
        if augment is None and any(draw.requires_grad for draw in view.phi.values()):
            raise ValueError(
                "this view was drawn by an augmentation that learns: pass augment= so that its KL is counted"
            )
        if augment is not None and view.phi:
            _check_same_policy(view, augment)
        return view.target

    def _check_modes(self, per_example: Tensor, model: nn.Module | None, augment: Augmenter | None) -> None:
        if augment is not None and not augment.training and augment.learns():
            raise ValueError(
                "augment is in eval mode, where it changes nothing and only the prior would move q(φ):"
                " call augment.train(), or evaluate under torch.no_grad()"
            )
        if model is None and not self._knows_theta:
            if is_bayesian(per_example):
                raise ValueError("the output comes from a Bayesian layer: pass model= so that its KL is counted")
            self._knows_theta = True

    def _check_reach(self, per_example: Tensor, view: View, augment: Augmenter) -> None:
        """Now and then: is every φ that learns connected to the data term? A φ whose branch no row of this batch has
        chosen is asked about at the next step."""
        steps = self._reached.get(augment, 0)
        if not view.gamma or (steps % _CHECK_EVERY and view.phi):
            self._reached[augment] = steps + 1
            return
        lost = unreached(per_example, augment)
        missed = tuple(name for name in lost if name.startswith(view.idle)) if view.idle else ()
        if lost := [name for name in lost if name not in missed]:
            raise ValueError(
                f"the data cannot move {', '.join(lost)}: no gradient leads from the likelihood to it."
                " Was view.x detached, turned into integers, replayed, or drawn under no_grad?"
                " Mend that, or give a plain number instead of learn(...)"
            )
        if not missed:
            self._reached[augment] = steps + 1


def _check_same_policy(view: View, augment: Augmenter) -> None:
    """Raise where another augmentation drew the view, whose KL would then not be counted."""
    known = dict(augment.named_phi())
    if set(view.phi) != set(known):
        raise ValueError(
            f"augment= is not what drew this view: the view's φ are {sorted(view.phi)}, and its own are"
            f" {sorted(known)}; pass the augmentation that made the view, and join several in a Sequential"
        )
    fixed = [name for name, draw in view.phi.items() if draw.requires_grad and not isinstance(known[name], LearnedPhi)]
    if fixed:
        raise ValueError(
            f"augment= is not what drew this view: there {', '.join(fixed)} is learned, and here it is fixed;"
            " pass the augmentation that made the view"
        )


def _check_numbers(log_lik: Tensor, output: Tensor, view: View) -> None:
    """Raise for a NaN, which would turn every parameter into one. Looking would make an accelerator's host wait."""
    if log_lik.device.type != "cpu" or torch.compiler.is_compiling() or not bool(log_lik.isnan().any()):
        return
    parts = {"view.x": view.x, "the model's output": output, "the targets": view.target}
    guilty = next((n for n, part in parts.items() if isinstance(part, Tensor) and bool(part.isnan().any())), None)
    where = log_lik.isnan().any(0).nonzero().flatten().tolist()
    raise ValueError(
        f"the log-likelihood of {len(where)} of {view.examples} examples is not a number (the first is example"
        f" {where[0]})" + (f", because {guilty} has NaN" if guilty else "") + "; nothing was updated"
    )


def _check_modules(model: nn.Module | None, augment: Augmenter | None) -> None:
    if model is not None and not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch module, got {type(model).__name__}")
    if augment is not None and not isinstance(augment, Augmenter):
        raise TypeError(f"augment must be an augmentation or a Sequential of them, got {type(augment).__name__}")
