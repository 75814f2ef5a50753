"""What families of one symmetric width have in common."""

from __future__ import annotations

from torch import Tensor
from torch.distributions import Distribution, Normal, Uniform, constraints
from torch.distributions.constraints import Constraint

from optima.augment.base import Augmentation
from optima.augment.view import View
from optima.posterior import Learn, Number
from optima.transforms.geometry import Padding

_PADDINGS = ("zeros", "border", "reflection")


def add_width(
    owner: Augmentation,
    std: Number | Learn | None,
    range: Number | Learn | None,
    *,
    unit: str,
    shapes: tuple[tuple[int, ...], ...] = ((),),
    support: Constraint = constraints.positive,
    labels: tuple[str, ...] = (),
) -> str:
    """Declare the width of γ's distribution, given as exactly one of `std` and `range`; return which."""
    given = {name: value for name, value in (("std", std), ("range", range)) if value is not None}
    if len(given) != 1:
        raise TypeError(
            f"{type(owner).__name__} takes exactly one of std (Gaussian) and range (uniform),"
            f" got {'both' if given else 'neither'}"
        )
    name, value = next(iter(given.items()))
    owner.add_phi(name, value, support=support, unit=unit, off=0.0, shapes=shapes, labels=labels)
    return name


def spread(kind: str, centre: Tensor, width: Tensor) -> Distribution:
    """The Gaussian or uniform law of that width."""
    if kind == "std":
        return Normal(centre, width, validate_args=False)
    return Uniform(centre - width, centre + width, validate_args=False)


def checked_padding(padding: Padding) -> Padding:
    """The padding, if grid_sample knows it."""
    if padding not in _PADDINGS:
        raise ValueError(f"padding must be one of {_PADDINGS}, got {padding!r}")
    return padding


def check_images(owner: Augmentation, view: View) -> None:
    """Raise unless the batch is floating-point images."""
    if view.x.ndim != 4:
        raise ValueError(f"{type(owner).__name__} needs images of shape (B, C, H, W), got {tuple(view.x.shape)}")
    Augmentation.check(owner, view)
