"""Augmentations that combine two examples and their labels."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributions import Beta, Distribution, constraints

from optima.augment.base import Augmentation
from optima.augment.view import Target, View, mix_targets
from optima.augment.width import check_images
from optima.posterior import Learn, Number
from optima.sampling import Pathwise, ScoreFunction
from optima.streams import Noise
from optima.transforms.boxes import box_of_share, cover_box, whole_pixels
from optima.transforms.mixing import mix, paste

Mode = Literal["elem", "pair", "batch"]
_MODES = ("elem", "pair", "batch")


class Mixup(Augmentation):
    r"""Blend each example with another one (Zhang et al., 2018): x' = λ x + (1 − λ) x_j, λ ~ Beta(α, α), labels
    likewise.

    Under a true gradient the cross-entropy of mixed labels pulls α towards 0, because mixed labels have an entropy of
    their own that no model can undercut; `Categorical(subtract_floor=True)` takes it out.

    Args:
        alpha: concentration of the Beta; `learn(0.2, support=unit_interval)` is the paper's logit parameterisation.
        mode: how λ is shared. "elem": each example has its own. "pair": two examples are mixed with each other, with
            one λ. "batch": one λ for all.
    """

    estimators = (Pathwise, ScoreFunction)

    def __init__(self, alpha: Number | Learn, *, mode: Mode = "elem", **options: Any):
        super().__init__(**options)
        self.add_phi("alpha", alpha, support=constraints.positive, off=0.0, allows_off=False)
        self.mode: Mode = checked_mode(mode)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"lam": Beta(phi["alpha"], phi["alpha"], validate_args=False)}

    def draw_free(self, view: View, noise: Noise) -> dict[str, Tensor]:
        return draw_partners(view, noise, self.mode)

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        return mix(x, gamma["partner"], gamma["lam"])

    def retarget(self, view: View, gamma: dict[str, Tensor]) -> Target | None:
        return None if view.target is None else mix_targets(view.target, gamma["partner"], gamma["lam"])

    def check(self, view: View) -> None:
        check_mixable(self, view)
        super().check(view)


class CutMix(Augmentation):
    r"""Paste a box of another image into each one (Yun et al., 2019): λ ~ Beta(α, α), the box has 1 − λ of the area
    before it is cut at the border, and the label's weight is the share of the image that remains its own.

    Boxes cover pixels fractionally, so the weight is exactly the share of the picture, and both move smoothly with λ.
    With `boxes="whole"` they snap to whole pixels, as in the original; only the score function can see such a step.

    Args:
        alpha: concentration of the Beta.
        mode: as for `Mixup`; what is shared is the whole box, its place included.
        boxes: "exact" or "whole".
    """

    estimators = (Pathwise, ScoreFunction)

    def __init__(
        self,
        alpha: Number | Learn,
        *,
        mode: Mode = "elem",
        boxes: Literal["exact", "whole"] = "exact",
        **options: Any,
    ):
        if boxes not in ("exact", "whole"):
            raise ValueError(f'boxes must be "exact" or "whole", got {boxes!r}')
        if boxes == "whole":
            options.setdefault("estimator", "score_function")
        super().__init__(**options)
        self.add_phi("alpha", alpha, support=constraints.positive, off=0.0, allows_off=False)
        self.mode: Mode = checked_mode(mode)
        self.boxes = boxes
        if boxes == "whole" and not isinstance(self.estimator, ScoreFunction):
            raise ValueError(
                'CutMix: a box of whole pixels moves in steps, which have no pathwise gradient; use boxes="exact",'
                ' or estimator="score_function"'
            )

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        return {"lam": Beta(phi["alpha"], phi["alpha"], validate_args=False)}

    def draw_free(self, view: View, noise: Noise) -> dict[str, Tensor]:
        free = draw_partners(view, noise, self.mode)
        centre = noise.named("centre").uniform((len(view.x), 2), dtype=torch.float32, device=view.x.device)
        return {**free, "centre": centre[free["leader"]] if "leader" in free else centre}

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        return paste(x, gamma["partner"], *self._box(x, gamma))

    def retarget(self, view: View, gamma: dict[str, Tensor]) -> Target | None:
        if view.target is None:
            return None
        rows, columns = self._box(view.x, gamma)
        return mix_targets(view.target, gamma["partner"], 1.0 - rows.mean(1) * columns.mean(1))

    def check(self, view: View) -> None:
        check_mixable(self, view)
        check_images(self, view)

    def _box(self, x: Tensor, gamma: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Rows' and columns' shares of the pasted box."""
        height, width = x.shape[-2:]
        lam = gamma["lam"]
        centre, sides = gamma["centre"].to(lam), box_of_share(1.0 - lam)
        if self.boxes == "exact":
            return cover_box(centre, sides, height, width)
        rows, columns = cover_box(*whole_pixels(centre, sides, height, width), height, width)
        return rows.round(), columns.round()


def checked_mode(mode: Mode) -> Mode:
    """The mode, if there is such a one."""
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {_MODES}, got {mode!r}")
    return mode


def check_mixable(owner: Augmentation, view: View) -> None:
    """Raise where there is nothing to mix, rather than let examples pass unmixed."""
    name = type(owner).__name__
    if view.target is None:
        raise ValueError(f"{name} mixes the targets too: call augment(x, y)")
    if view.examples < 2:
        raise ValueError(
            f"{name} needs at least two examples to mix, got a batch of {view.examples}; use drop_last=True in the"
            " loader, or a batch size that does not leave one over"
        )


def draw_partners(view: View, noise: Noise, mode: Mode) -> dict[str, Tensor]:
    """Whom each row is mixed with, never itself, among the rows of the same draw; and whose λ it shares, if any's.

    "pair" joins rows two by two, and the last three in a ring where their number is odd.
    """
    shape, device = (view.samples, view.examples), view.x.device
    # argsort of uniforms, and not randperm, whose use as an index breaks torch.compile in torch 2.13
    order = noise.named("partner").uniform(shape, dtype=torch.float64, device=device).argsort(1)
    following, first = _ring(view.examples, mode)
    follower, head = (order[:, index.to(device)] for index in (following, first))
    start = torch.arange(view.samples, device=device).unsqueeze(1) * view.examples
    partner = (torch.empty_like(order).scatter(1, order, follower) + start).flatten()
    if mode == "elem":
        return {"partner": partner}
    return {"partner": partner, "leader": (torch.empty_like(order).scatter(1, order, head) + start).flatten()}


def _ring(examples: int, mode: Mode) -> tuple[Tensor, Tensor]:
    """For each place in the order: the place that is its partner, and the one whose draw it shares."""
    place = torch.arange(examples)
    if mode != "pair":
        return (place + 1) % max(examples, 1), torch.zeros_like(place)
    start = place - place % 2
    if examples % 2 and examples > 1:
        start[-3:] = examples - 3
    end = torch.cat([start[1:], place.new_tensor([-1])]) != start
    return torch.where(end, start, place + 1), start
