r"""Mean-field Gaussian layers: q(θ) = Π N(loc, scale²), p(θ) = Π N(0, prior_std²)."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, Literal
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn import functional

Draws = Literal["row", "step"]

_live: WeakSet[BayesianLinear] = WeakSet()


class BayesianLinear(nn.Module):
    r"""A linear layer with a Gaussian over each weight and bias.

    In `train()` mode the output is drawn by local reparameterisation (Kingma et al., 2015), one draw per row:

        out ~ N(x·loc_Wᵀ + loc_b,  x²·(scale_W²)ᵀ + scale_b²)

    With `draws="step"` one draw of the weights serves all rows: noisier, and needed where the K draws of γ of one
    example must meet the same θ (the marginal bound, the marginalisation advantage).

    In `eval()` mode the output is the mean. `optima.predict` averages draws.

    Args:
        in_features: size of each input row.
        out_features: size of each output row.
        bias: whether there is a bias, itself Gaussian.
        prior_std: standard deviation of the prior over every weight and bias.
        init_std: standard deviation of q(θ) at the start.
        draws: one draw of θ per "row" or per "step", while training.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        prior_std: float = 1.0,
        init_std: float = 0.01,
        draws: Draws = "row",
    ):
        super().__init__()
        if draws not in ("row", "step"):
            raise ValueError(f'draws must be "row" or "step", got {draws!r}')
        self.draws = draws
        for name, size in (("in_features", in_features), ("out_features", out_features)):
            if isinstance(size, bool) or not isinstance(size, Integral) or size < 1:
                raise ValueError(f"{name} must be a whole number, at least 1, got {size!r}")
        for name, value in (("prior_std", prior_std), ("init_std", init_std)):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name} must be a number, got {type(value).__name__}")
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a positive finite number, got {value}")
        _live.add(self)
        self.in_features, self.out_features, self.prior_std = in_features, out_features, prior_std
        start = nn.Linear(in_features, out_features, bias)
        self.weight_loc = nn.Parameter(start.weight.detach().clone())
        self.weight_log_scale = nn.Parameter(torch.full_like(self.weight_loc, math.log(init_std)))
        self.bias_loc = nn.Parameter(start.bias.detach().clone()) if bias else None
        self.bias_log_scale = nn.Parameter(torch.full((out_features,), math.log(init_std))) if bias else None

    @classmethod
    def from_linear(
        cls, linear: nn.Linear, *, prior_std: float = 1.0, init_std: float = 0.01, draws: Draws = "row"
    ) -> BayesianLinear:
        """A Bayesian layer whose mean is a trained linear layer."""
        sizes = linear.in_features, linear.out_features, linear.bias is not None
        layer = cls(*sizes, prior_std=prior_std, init_std=init_std, draws=draws)
        layer = layer.to(linear.weight).train(linear.training)
        with torch.no_grad():
            layer.weight_loc.copy_(linear.weight)
            if layer.bias_loc is not None:
                layer.bias_loc.copy_(linear.bias)
        return layer

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of the output given the input."""
        mean = functional.linear(x, self.weight_loc, self.bias_loc)
        # squares overflow half precision from 256 on, and autocast would go there by itself
        with torch.autocast(x.device.type, enabled=False):
            weight, bias = (_full(part) for part in (self.weight_log_scale, self.bias_log_scale))
            bias_variance = None if bias is None else (2 * bias).exp()
            variance = functional.linear(_full(x).square(), (2 * weight).exp(), bias_variance)
        return mean, variance

    def draw(self, x: Tensor, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Independent draws of the output, shape (samples, *output)."""
        mean, variance = self.moments(x)
        noise = torch.randn((samples, *mean.shape), dtype=variance.dtype, device=mean.device, generator=generator)
        # an input of zeros without a bias leaves a variance of 0, where the square root has no derivative
        return mean + (variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt() * noise).to(mean.dtype)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return self.moments(x)[0]
        return self.draw(x, 1).squeeze(0) if self.draws == "row" else self._with_one_theta(x)

    def _with_one_theta(self, x: Tensor) -> Tensor:
        weight = _drawn(self.weight_loc, self.weight_log_scale)
        bias = None if self.bias_loc is None else _drawn(self.bias_loc, self.bias_log_scale)
        return functional.linear(x, weight, bias)

    def kl(self) -> Tensor:
        """KL(q(θ) ‖ p(θ)) in nats, summed over weights and biases."""
        total = _kl_to_zero_mean(self.weight_loc, self.weight_log_scale, self.prior_std)
        if self.bias_loc is not None and self.bias_log_scale is not None:
            total = total + _kl_to_zero_mean(self.bias_loc, self.bias_log_scale, self.prior_std)
        return total

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        _live.add(self)  # a copy

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias_loc is not None}, prior_std={self.prior_std}"


def draws_per_row(model: nn.Module) -> bool:
    """Whether rows of one batch meet different draws of θ; in eval mode a layer draws none."""
    layers = (module for module in model.modules() if isinstance(module, BayesianLinear))
    return any(layer.training and layer.draws == "row" for layer in layers)


def live_layers() -> list[BayesianLinear]:
    """Every Bayesian layer there is."""
    return list(_live)


def _full(tensor: Any) -> Any:
    """At least float32."""
    return None if tensor is None else tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _drawn(loc: Tensor, log_scale: Any) -> Tensor:
    return loc + (_full(log_scale).exp() * torch.randn_like(_full(loc))).to(loc.dtype)


def _kl_to_zero_mean(loc: Tensor, log_scale: Tensor, prior_std: float) -> Tensor:
    loc, log_scale = _full(loc), _full(log_scale) - math.log(prior_std)
    return (0.5 * ((2 * log_scale).exp() + (loc / prior_std).square() - 1.0) - log_scale).sum()


def kl_theta(model: nn.Module) -> Tensor:
    """KL(q(θ) ‖ p(θ)) of a model: the sum over its Bayesian layers, 0 when it has none (Algorithm 2)."""
    terms = [module.kl() for module in model.modules() if isinstance(module, BayesianLinear)]
    return torch.stack(terms).sum() if terms else torch.zeros(())


def bayesian_last_layer(
    model: nn.Module,
    layer: str | None = None,
    *,
    prior_std: float = 1.0,
    init_std: float = 0.01,
    draws: Draws = "row",
) -> nn.Module:
    """Replace the last linear layer of `model` by a `BayesianLinear` with the same mean; the model is changed in
    place and returned.

    Args:
        model: any module with a linear head.
        layer: the head's name, as in `model.named_modules()`. The default is the linear layer registered last.
        prior_std: as in `BayesianLinear`.
        init_std: as in `BayesianLinear`.
        draws: as in `BayesianLinear`.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch module, got {type(model).__name__}")
    if isinstance(model, nn.Linear) and layer in (None, ""):
        return BayesianLinear.from_linear(model, prior_std=prior_std, init_std=init_std, draws=draws)
    linear = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    if not linear:
        raise ValueError(
            f"{type(model).__name__} has no nn.Linear layer; name a layer, or use BayesianLinear in the model"
        )
    name = layer if layer is not None else list(linear)[-1]
    if name not in linear:
        raise ValueError(f"{name!r} is not a linear layer of the model; the linear layers are {list(linear)}")
    parent, _, leaf = name.rpartition(".")
    head = BayesianLinear.from_linear(linear[name], prior_std=prior_std, init_std=init_std, draws=draws)
    setattr(model.get_submodule(parent), leaf, head)
    return model
