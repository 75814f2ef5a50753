"""Families of colour and detail: what they draw and refuse, how they join, and that planted bugs lose the gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import optima
from optima import Sequential, learn
from optima.augment import Augmentation
from optima.augment.colour import Brightness, Contrast, Gamma, Hue, Saturation
from optima.augment.local import Blur, Erase
from optima.augment.view import View
from optima.sampling import as_noise
from optima.transforms import blur as blur_module
from optima.transforms import erase as erase_module
from optima.transforms.blur import blur
from optima.transforms.colour import GREY, ColourMap, PowerMap
from optima.transforms.erase import erase
from tests.objective.cases_colour import COLOUR_CASES
from tests.objective.test_gradients import check
from tests.reference import assert_unbiased

IMAGES = torch.rand(5, 3, 6, 8, generator=torch.Generator().manual_seed(0))
LINEAR: list[type[Any]] = [Brightness, Contrast, Saturation, Hue]
FAMILIES: list[type[Any]] = [*LINEAR, Gamma, Blur, Erase]
every_family = pytest.mark.parametrize("family", FAMILIES)


# ---- γ -----------------------------------------------------------------------------------------------------------


@every_family
@pytest.mark.parametrize("kind", ["std", "range"])
def test_each_draws_its_law_and_every_image_its_own(family: type[Any], kind: str):
    value = 20.0 if family is Hue else 0.4
    width = math.radians(value) if family is Hue else value
    law: dict[str, Any] = {kind: value}
    gamma = family(**law)(torch.zeros(20_000, 3, 1, 1)).gamma
    draws = next(iter(gamma.values())).double()
    one_sided = kind == "range" and family in (Blur, Erase)
    second = width**2 if kind == "std" else width**2 / 3
    assert_unbiased(draws.square(), second, detect=0.1)
    if one_sided:
        assert_unbiased(draws, width / 2, detect=0.1)
    else:
        assert abs(float(draws.mean())) < 5 * math.sqrt(second / len(draws))
    if kind == "range":
        assert -width * (not one_sided) <= float(draws.min()) < float(draws.max()) <= width


def test_a_box_is_anywhere_and_drawn_finely_in_half_precision():
    centre = Erase(0.2)(torch.zeros(20_000, 1, 1, 1, dtype=torch.bfloat16)).gamma["centre"].double()
    assert_unbiased(centre, 0.5, detect=0.05)
    assert_unbiased(centre.square(), 1 / 3, detect=0.06)
    assert abs(float(torch.corrcoef(centre.T)[0, 1])) < 5 / math.sqrt(20_000)
    assert len(centre[:, 0].unique()) > 15_000


@every_family
def test_a_width_of_nothing_is_no_augmentation(family: type[Any]):
    for kind in ("std", "range"):
        assert torch.equal(family(**{kind: 0.0})(IMAGES).x, IMAGES)


@pytest.mark.parametrize(
    ("augment", "transform"),
    [
        (Brightness(0.3), lambda x, g: ColourMap(brightness=g["log_factor"])(x)),
        (Contrast(0.3), lambda x, g: ColourMap(contrast=g["log_factor"])(x)),
        (Saturation(0.3), lambda x, g: ColourMap(saturation=g["log_factor"])(x)),
        (Hue(30.0), lambda x, g: ColourMap(hue=g["angle"])(x)),
        (Hue(30.0, clip=(0.2, 0.9)), lambda x, g: ColourMap(hue=g["angle"])(x).clamp(0.2, 0.9)),
        (Gamma(0.3), lambda x, g: PowerMap(g["log_exponent"])(x)),
        (Gamma(0.3, clip=(0.2, 0.9)), lambda x, g: PowerMap(g["log_exponent"])(x).clamp(0.2, 0.9)),
        (Blur(0.7), lambda x, g: blur(x, g["width"].abs())),
        (Erase(0.7), lambda x, g: erase(x, g["centre"], g["side"].abs()[:, None].expand(-1, 2))),
        (Erase(0.7, value="mean"), lambda x, g: erase(x, g["centre"], g["side"].abs()[:, None].expand(-1, 2), "mean")),
    ],
    ids=lambda part: type(part).__name__,
)
def test_each_applies_its_transform(augment: Augmentation, transform: Callable[[Tensor, dict[str, Tensor]], Tensor]):
    view = augment(IMAGES)
    assert torch.equal(view.x, transform(IMAGES, dict(view.gamma)))
    assert not torch.equal(view.x, IMAGES)


# ---- joined ------------------------------------------------------------------------------------------------------


def pending(augment: Sequential) -> list[str]:
    view = augment.extend(View(IMAGES), as_noise(None), None, "")
    return [type(operator).__name__ for operator in view.pending]


def test_neighbours_join_into_one_pass():
    linear = [Brightness(0.3), Contrast(0.3), Saturation(0.3), Hue(30.0)]
    assert pending(Sequential(*linear)) == ["ColourMap"]
    assert pending(Sequential(Gamma(0.3), Gamma(0.2))) == ["PowerMap"]
    assert pending(Sequential(Brightness(0.3), Gamma(0.3), Contrast(0.3))) == ["ColourMap", "PowerMap", "ColourMap"]
    assert pending(Sequential(Brightness(0.3, clip=(0, 1)), Contrast(0.3))) == ["ColourMap", "ColourMap"]
    assert pending(Sequential(Brightness(0.3), Contrast(0.3, clip=(0, 1)))) == ["ColourMap"]


@pytest.mark.parametrize("order", [LINEAR, LINEAR[::-1], [Contrast, Gamma, Brightness, Contrast], [Hue, Blur, Hue]])
def test_a_sequence_is_its_steps_one_after_another(order: list[type[Any]]):
    augment = Sequential(*(family(30.0 if family is Hue else 0.4) for family in order))
    view = augment(IMAGES, samples=2)
    x = IMAGES.repeat(2, 1, 1, 1)
    for name, step in augment.steps():
        gamma = {key.removeprefix(f"{name}."): value for key, value in view.gamma.items() if key.startswith(f"{name}.")}
        assert isinstance(step, Augmentation)
        x = step.transform(x, gamma)
    torch.testing.assert_close(view.x, x, rtol=0.0, atol=1e-6)


# ---- what is kept and refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [*LINEAR, Gamma, Blur])
def test_labels_of_pixels_stay(family: type[Any]):
    mask = torch.randint(4, (5, 6, 8))
    kept = family(0.5)(IMAGES, mask=mask).mask
    assert kept is not None
    assert torch.equal(kept, mask)


def test_what_is_erased_has_no_label():
    with pytest.raises(ValueError, match="Erase cannot keep"):
        Erase(0.3)(IMAGES, mask=torch.zeros(5, 6, 8, dtype=torch.int64))


@every_family
def test_images_are_asked_for(family: type[Any]):
    with pytest.raises(ValueError, match=f"{family.__name__} needs images of shape"):
        family(0.3)(torch.rand(4, 3))
    with pytest.raises(TypeError, match=f"{family.__name__} needs floating-point"):
        family(0.3)(torch.zeros(4, 3, 5, 5, dtype=torch.uint8))


def test_colours_are_asked_for_where_they_are_needed():
    for family in (Saturation, Hue):
        with pytest.raises(ValueError, match=f"{family.__name__} needs the channels red, green and blue, got 1"):
            family(0.3)(torch.rand(4, 1, 5, 5))
    for family in (Brightness, Contrast, Gamma, Blur, Erase):
        assert family(0.3)(torch.rand(4, 2, 5, 5)).x.shape == (4, 2, 5, 5)


@every_family
def test_one_width_is_given(family: type[Any]):
    with pytest.raises(TypeError, match=r"takes exactly one of std .* got neither"):
        family()
    with pytest.raises(TypeError, match=r"takes exactly one of std .* got both"):
        family(std=0.1, range=0.1)
    with pytest.raises(ValueError, match="must lie in"):
        family(std=-0.1)
    with pytest.raises(ValueError, match="support of Uniform moves"):
        family(range=learn(0.1), estimator="score_function")
    with pytest.raises(TypeError, match="has no argument strength"):
        family(0.1, strength=1)


def test_a_hue_ends_at_half_a_turn():
    with pytest.raises(ValueError, match="must lie in"):
        Hue(range=181.0)
    drawn = Hue(range=learn(170.0, scale=2.0))(IMAGES.repeat(50, 1, 1, 1)).phi["range"].detach()
    assert 170.0 < float(drawn.max()) < 180.0


@pytest.mark.parametrize("clip", [(1.0, 0.0), (0.0,), (0.0, math.inf), "01", 1.0, (0.0, 1.0, 2.0), (None, 1.0)])
@pytest.mark.parametrize("family", [*LINEAR, Gamma])
def test_a_clip_is_two_numbers(family: type[Any], clip: Any):
    with pytest.raises(ValueError, match="clip must be the lowest and the highest value"):
        family(0.1, clip=clip)


@pytest.mark.parametrize("value", ["median", math.nan, None, [0.5]])
def test_a_box_is_filled_with_a_number_or_the_mean(value: Any):
    with pytest.raises(ValueError, match='value must be a finite number or "mean"'):
        Erase(0.1, value=value)


def test_every_argument_comes_back_from_disk(tmp_path: Path):
    parts = [family(learn(0.2), clip=(0.0, 1.0)) for family in [*LINEAR, Gamma]]
    augment = Sequential(*parts, Blur(range=learn(1.0)), Erase(learn(0.2), value="mean"), Erase(range=0.2, value=0.5))
    optima.save(augment, tmp_path / "policy")
    again = optima.load(tmp_path / "policy", families=FAMILIES)
    generators = [torch.Generator().manual_seed(0) for _ in range(2)]
    assert torch.equal(again(IMAGES, generator=generators[0]).x, augment(IMAGES, generator=generators[1]).x)


# ---- planted bugs ------------------------------------------------------------------------------------------------


def detached_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    factor = ColourMap._factor
    monkeypatch.setattr(ColourMap, "_factor", lambda self, x, *names: factor(self, x, *names).detach())


def no_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ColourMap, "_offset", lambda self, x, grey: 0.0 * grey)


def mean_before_brightness(monkeypatch: pytest.MonkeyPatch) -> None:
    def offset(self: ColourMap, x: Tensor, grey: Tensor) -> Tensor:
        assert self.contrast is not None
        return (1.0 - self.contrast.exp()) * (x.mean((2, 3)) * torch.tensor(GREY, dtype=x.dtype)).sum(1)

    monkeypatch.setattr(ColourMap, "_offset", offset)


def detached_coverage(monkeypatch: pytest.MonkeyPatch) -> None:
    coverage = blur_module.coverage
    monkeypatch.setattr(blur_module, "coverage", lambda width, pixels: coverage(width, pixels).detach())


def whole_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    cover = erase_module.cover_box

    def rounded(centre: Tensor, sides: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
        rows, columns = cover(centre, sides, height, width)
        return rows.round(), columns.round()

    monkeypatch.setattr(erase_module, "cover_box", rounded)


PLANTED = [
    (detached_factor, "Brightness std", "pathwise"),
    (detached_factor, "Saturation range", "pathwise"),
    (no_mean, "Contrast std", "pathwise"),
    (no_mean, "Contrast std", "score_function"),
    (mean_before_brightness, "Four colours joined", "pathwise"),
    (detached_coverage, "Blur range", "pathwise"),
    (whole_pixels, "Erase range", "pathwise"),
]


@pytest.mark.parametrize(("plant", "name", "estimator"), PLANTED)
def test_a_planted_bug_is_caught(plant: Callable, name: str, estimator: str, monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError)):
        check(COLOUR_CASES[name], estimator, check_reach=False)
