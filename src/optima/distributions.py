"""Any `torch.distributions` object as plain data: walk its tensors, write it to JSON and read it back.

Reading knows a closed list of families, transforms and constraints; a name outside it is refused, never imported.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import (
    Distribution,
    Independent,
    Normal,
    TransformedDistribution,
    constraints,
    kl_divergence,
    transforms,
)
from torch.distributions.constraints import Constraint
from torch.distributions.transforms import Transform

from optima.supports import same_support

_FAMILIES: dict[str, type[Distribution]] = {
    name: getattr(torch.distributions, name)
    for name in torch.distributions.__all__
    if inspect.isclass(getattr(torch.distributions, name))
    and issubclass(getattr(torch.distributions, name), Distribution)
}
_PLAIN_TRANSFORMS: dict[str, type[Transform]] = {
    t.__name__: t
    for t in (
        transforms.ExpTransform,
        transforms.SigmoidTransform,
        transforms.SoftplusTransform,
        transforms.TanhTransform,
        transforms.StickBreakingTransform,
        transforms.SoftmaxTransform,
    )
}
_PLAIN_CONSTRAINTS: dict[str, Constraint] = {
    "real": constraints.real,
    "positive": constraints.positive,
    "unit_interval": constraints.unit_interval,
    "simplex": constraints.simplex,
}

_INTERVALS: dict[str, Any] = {
    "interval": constraints.interval,
    "half_open_interval": constraints.half_open_interval,
    "greater_than": constraints.greater_than,
    "greater_than_eq": constraints.greater_than_eq,
    "less_than": constraints.less_than,
}
_DTYPES = {"float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16, "int32": torch.int32}


def map_tensors(value: Any, fn: Callable[[Tensor], Tensor]) -> Any:
    """A copy of a distribution (or of a part of one) with `fn` applied to every tensor in it."""
    if isinstance(value, Tensor):
        return fn(value)
    if isinstance(value, list | tuple):
        return type(value)(map_tensors(item, fn) for item in value)
    if isinstance(value, Distribution | Transform):
        twin = copy.copy(value)
        for name, part in vars(value).items():
            if name == "_inv":
                object.__setattr__(
                    twin, name, None
                )  # a transform's inverse points back at it, and would keep the old tensors
            elif isinstance(part, Tensor | Distribution | Transform | list | tuple):
                object.__setattr__(twin, name, map_tensors(part, fn))
        return twin
    return value


def tensors_of(value: Distribution | Transform) -> list[Tensor]:
    """Every tensor in a distribution or a transform."""
    found: list[Tensor] = []

    def collect(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(value, collect)
    return found


def kl(q: Distribution, p: Distribution) -> Tensor:
    """KL(q ‖ p) in closed form; raises NotImplementedError where torch knows none.

    Two Normals are done by hand, since torch.compile cannot trace torch's search for the right formula.
    """
    if isinstance(q, Normal) and isinstance(p, Normal):
        ratio = q.scale / p.scale
        return 0.5 * (ratio.square() + ((q.loc - p.loc) / p.scale).square() - 1.0) - ratio.log()
    return kl_divergence(q, p)


def without_validation(distribution: Distribution) -> Distribution:
    """A copy that does not check its arguments: such checks branch on the data, which a compiled graph cannot do."""
    twin = map_tensors(distribution, lambda tensor: tensor)
    part = twin
    while isinstance(part, Distribution):
        part._validate_args = False
        part = getattr(part, "base_dist", None)
    return twin


class LinearMap(Transform):
    """x ↦ L x for a lower triangular L, (…, n, n), with a positive diagonal."""

    domain = constraints.real_vector
    codomain = constraints.real_vector
    bijective = True

    def __init__(self, factor: Tensor):
        super().__init__()
        self.factor = factor

    def _call(self, x: Tensor) -> Tensor:
        return (self.factor @ x.unsqueeze(-1)).squeeze(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(self.factor, y.unsqueeze(-1), upper=False).squeeze(-1)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log det L."""
        return self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1).expand(x.shape[:-1])


# ---- distributions -----------------------------------------------------------------------------------------------


def distribution_to_json(distribution: Distribution) -> dict[str, Any]:
    """A distribution as JSON: its family and its parameters."""
    if isinstance(distribution, Independent):
        base = distribution_to_json(distribution.base_dist)
        return {"family": "Independent", "base": base, "dims": distribution.reinterpreted_batch_ndims}
    family = type(distribution).__name__
    if isinstance(distribution, TransformedDistribution) and family == "TransformedDistribution":
        return {
            "family": family,
            "base": distribution_to_json(distribution.base_dist),
            "transforms": [_transform_to_json(t) for t in distribution.transforms],
        }
    if _FAMILIES.get(family) is not type(distribution):
        raise TypeError(f"cannot save a prior of type {family}: use one of torch.distributions' own families")
    parameters = {name: _number(value) for name, value in _parameters(distribution).items()}
    written = {"family": family, "parameters": parameters}
    try:
        distribution_from_json(written)
    except (TypeError, ValueError) as error:
        raise TypeError(f"cannot save a prior of type {family}: its parameters are not plain numbers") from error
    return written


def _parameters(distribution: Distribution) -> dict[str, Any]:
    """The constructor's arguments, read back from the object."""
    names = [name for name in inspect.signature(type(distribution).__init__).parameters if name != "validate_args"]
    given = {name: getattr(distribution, name, None) for name in names}
    given = {name: value for name, value in given.items() if isinstance(value, Tensor | int | float)}
    for alternatives in (("logits", "probs"), ("scale_tril", "covariance_matrix", "precision_matrix")):
        present = [name for name in alternatives if name in given]
        # several forms of one parameter: keep the one the object was built from, or the first
        kept = next((name for name in present if name in vars(distribution)), present[0] if present else None)
        given = {name: value for name, value in given.items() if name not in alternatives or name == kept}
    return given


def distribution_from_json(data: dict[str, Any]) -> Distribution:
    """The distribution that `distribution_to_json` described."""
    family = data["family"]
    if family == "Independent":
        return Independent(distribution_from_json(data["base"]), int(data["dims"]))
    if family == "TransformedDistribution":
        return TransformedDistribution(
            distribution_from_json(data["base"]), [_transform_from_json(t) for t in data["transforms"]]
        )
    if family not in _FAMILIES:
        raise ValueError(f"unknown distribution {family!r} in the policy; expected a family of torch.distributions")
    parameters: dict[str, Any] = {name: _exact(value) for name, value in data["parameters"].items()}
    return _FAMILIES[family](**parameters)


def _transform_to_json(transform: Transform) -> dict[str, Any]:
    name = type(transform).__name__
    if name in _PLAIN_TRANSFORMS:
        return {"transform": name}
    if isinstance(transform, transforms.AffineTransform):
        return {"transform": name, "loc": _number(transform.loc), "scale": _number(transform.scale)}
    if isinstance(transform, transforms.ComposeTransform):
        return {"transform": name, "parts": [_transform_to_json(part) for part in transform.parts]}
    raise TypeError(f"cannot save a prior that uses {name}")


def _transform_from_json(data: dict[str, Any]) -> Transform:
    name = data["transform"]
    if name in _PLAIN_TRANSFORMS:
        return _PLAIN_TRANSFORMS[name]()
    if name == "AffineTransform":
        return transforms.AffineTransform(_exact(data["loc"]), _exact(data["scale"]))
    if name == "ComposeTransform":
        return transforms.ComposeTransform([_transform_from_json(part) for part in data["parts"]])
    raise ValueError(f"unknown transform {name!r} in the policy")


# ---- constraints -------------------------------------------------------------------------------------------------


def constraint_to_json(constraint: Constraint) -> dict[str, Any]:
    """A support as JSON."""
    for name, known in _PLAIN_CONSTRAINTS.items():
        if same_support(constraint, known):
            return {"support": name}
    for name, family in _INTERVALS.items():
        if type(constraint) is family:
            return {"support": name, **{end: _number(value) for end, value in vars(constraint).items()}}
    raise TypeError(f"cannot save the support {constraint}; use the simplex, the real line or an interval of it")


def constraint_from_json(data: dict[str, Any]) -> Constraint:
    """The support that `constraint_to_json` described."""
    name = data["support"]
    if name in _PLAIN_CONSTRAINTS:
        return _PLAIN_CONSTRAINTS[name]
    if name in _INTERVALS:
        return _INTERVALS[name](**{end: _exact(value) for end, value in data.items() if end != "support"})
    raise ValueError(f"unknown support {name!r} in the policy")


def _number(value: Any) -> Any:
    """A number, or a tensor with its precision where that is not float32."""
    if not isinstance(value, Tensor):
        return value
    plain = value.dtype in (torch.float32, torch.int64)
    return readable(value) if plain else {"dtype": str(value.dtype).removeprefix("torch."), "values": readable(value)}


def readable(tensor: Tensor) -> Any:
    """A tensor as JSON numbers; a float32 becomes the shortest decimal that rounds back to it."""
    values = tensor.detach().cpu()
    if values.dtype != torch.float32:
        return values.tolist()
    if values.ndim:
        return [readable(value) for value in values]
    return float(str(values.numpy()))


def _exact(value: Any) -> Any:
    if isinstance(value, dict):
        return torch.tensor(value["values"], dtype=_DTYPES[value["dtype"]])
    return torch.tensor(value) if isinstance(value, list | float) else value
