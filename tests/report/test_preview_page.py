"""The strips show the γ they say they show, under the law they say it has; and the page shows the strips."""

from __future__ import annotations

import base64
import io
import math
import re
from html import unescape
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import optimize, special, stats
from torch import Tensor
from torch.distributions import Bernoulli, Distribution, Normal, constraints

import optima
from optima import learn
from optima.augment import Augmentation, Augmenter
from optima.augment.augmix import AugMix
from optima.report import quantiles
from optima.report.layouts import Tile
from optima.report.pictures import png
from optima.report.preview import Preview, as_json, explanation, labels, preview_page
from optima.report.strips import Strips, at_prior, draws, strips
from optima.transforms import rotate

IMAGE = torch.rand(3, 12, 10, generator=torch.Generator().manual_seed(1))
PARTNER = torch.rand(3, 12, 10, generator=torch.Generator().manual_seed(2))
LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]


class Jump(Augmentation):
    """A γ that is discrete in part, and one of whose components φ has no say in."""

    def __init__(self, std: Any, **options: Any):
        super().__init__(**options)
        self.add_phi("std", std, support=constraints.positive, off=0.0)

    def p_gamma(self, phi: dict[str, Tensor]) -> dict[str, Distribution]:
        half = torch.full_like(phi["std"], 0.5)
        return {"up": Bernoulli(half, validate_args=False), "size": Normal(torch.zeros_like(half), phi["std"])}

    default_estimator = "score_function"

    def transform(self, x: Tensor, gamma: dict[str, Tensor]) -> Tensor:
        return x + (gamma["size"] * (2 * gamma["up"] - 1)).view(-1, 1, 1, 1)


def shown(policy: Augmenter, **options: Any) -> Strips:
    return strips(policy, IMAGE, PARTNER, count=5, seed=0, **options)[0]


def amounts(tiles: list[Tile], name: str) -> np.ndarray:
    return np.array([tile.amount[name] for tile in tiles]).squeeze()


def normal_mixture_quantile(level: float) -> float:
    """Of γ ~ Normal(0, φ²) with log φ ~ Normal(0, ½²), by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    scales, weights = np.exp(0.5 * nodes), weights / weights.sum()
    return float(optimize.root_scalar(lambda x: weights @ stats.norm.cdf(x / scales) - level, bracket=(-50, 50)).root)


def check_quantiles() -> None:
    strip = shown(optima.Shift(std=learn(1.0, scale=0.5)))
    found, exact = amounts(strip.learned, "shift"), np.array([normal_mixture_quantile(level) for level in LEVELS])
    np.testing.assert_allclose(found, exact, atol=0.16)  # five standard errors at the ends; the bug is off by 1.3


def test_the_pictures_are_at_the_quantiles_of_gamma_with_phi_integrated_out():
    check_quantiles()


def test_noise_of_gamma_that_is_phis_over_again_is_caught(monkeypatch):
    def both_from_one_seed(leaf: Augmentation, generator: torch.Generator):
        seed = generator.initial_seed()
        laws = leaf.p_gamma(quantiles.draw_phi(leaf, quantiles.as_noise(generator)))
        again = torch.Generator().manual_seed(seed)
        return laws, {name: optima.sampling.sample(law, noise=again) for name, law in laws.items()}

    monkeypatch.setattr("optima.report.layouts.draw_gamma", both_from_one_seed)
    with pytest.raises(AssertionError):
        check_quantiles()


def test_a_picture_is_what_its_numbers_do():
    strip = shown(optima.Rotate(std=learn(10.0)))
    assert (strip.how, strip.units) == ("gamma", {"angle": "degrees"})
    for tile in (*strip.learned, *(strip.prior or [])):
        angle = torch.tensor([math.radians(tile.amount["angle"][0])])
        torch.testing.assert_close(tile.image, rotate(IMAGE[None], angle)[0], atol=1e-4, rtol=0)


def test_the_prior_is_the_priors():
    strip = shown(optima.Shift(std=learn(0.01, prior=torch.distributions.LogNormal(0.0, 0.01))))
    assert strip.prior is not None
    np.testing.assert_allclose(amounts(strip.prior, "shift"), stats.norm.ppf(LEVELS), atol=0.09)
    np.testing.assert_allclose(amounts(strip.learned, "shift"), 0.01 * stats.norm.ppf(LEVELS), atol=0.0009)


def test_a_prior_on_gamma_stands_in_where_phi_has_none():
    strip = shown(optima.Shift(std=learn(0.01, posterior="point"), prior_gamma=Normal(0.0, 2.0)))
    assert strip.prior is not None
    np.testing.assert_allclose(amounts(strip.prior, "shift"), 2 * stats.norm.ppf(LEVELS), atol=0.18)


def test_a_vector_is_ordered_by_its_norm_and_points_one_way():
    strip = shown(optima.Translate(std=0.1))
    shifts = amounts(strip.learned, "shift")
    assert strip.how == "norm"
    # |γ| / 0.1 is Rayleigh; a picture may be 1/64 of the draws off its level
    for norm, level in zip(np.linalg.norm(shifts, axis=1), LEVELS, strict=True):
        assert abs(stats.rayleigh.cdf(norm / 0.1) - level) < 0.025
    np.testing.assert_allclose(np.degrees(np.arctan2(shifts[:, 1], shifts[:, 0])), 45.0, atol=10.0)


def test_a_direction_that_is_left_out_leaves_a_number_to_be_ordered():
    strip = shown(optima.Translate(std=[0.1, 0.0]))
    np.testing.assert_allclose(amounts(strip.learned, "shift")[:, 0], 0.1 * stats.norm.ppf(LEVELS), atol=0.009)


def test_a_sign_that_makes_no_difference_is_not_shown_twice():
    strip = shown(optima.CropResize(std=0.2))
    assert strip.how == "size"
    np.testing.assert_allclose(amounts(strip.learned, "log_side"), 0.2 * stats.halfnorm.ppf(LEVELS), atol=0.02)
    assert shown(optima.Scale(std=0.2)).how == "gamma"


@pytest.mark.parametrize("estimator", ["score_function", "relaxed"])
def test_a_discrete_gamma_shows_its_values_and_their_probabilities(estimator: str):
    strip = shown(optima.Flip(p=0.3, estimator=estimator))
    assert (strip.how, strip.prior) == ("cases", None)
    assert [(tile.place, tile.amount) for tile in strip.learned] == [
        ("70 %", {"flipped": [0.0]}),
        ("30 %", {"flipped": [1.0]}),
    ]
    torch.testing.assert_close(strip.learned[0].image, IMAGE)
    torch.testing.assert_close(strip.learned[1].image, IMAGE.flip(-1))
    assert labels(strip, strip.learned) == ["flipped = 0", "flipped = 1"]


def test_a_choice_shows_what_is_chosen():
    policy = optima.OneOf(optima.Shift(std=0.1), optima.Mixup(alpha=5.0), probs=learn([0.75, 0.25], posterior="point"))
    first, *rest = strips(optima.Sequential(policy), IMAGE, PARTNER, count=3, seed=0)
    assert (first.how, [each.name for each in rest]) == ("branches", ["oneof.shift", "oneof.mixup"])
    assert labels(first, first.learned) == ["shift", "mixup"]
    assert [tile.place for tile in first.learned] == ["75 %", "25 %"]
    moved, mixed = (tile.image - IMAGE for tile in first.learned)
    torch.testing.assert_close(moved, moved.mean().expand_as(moved))
    share = (mixed / (PARTNER - IMAGE)).median()
    torch.testing.assert_close(mixed, share * (PARTNER - IMAGE), atol=1e-5, rtol=0)


def test_a_maybe_shows_the_image_as_it_is():
    strip = shown(optima.Maybe(optima.Shift(std=0.1), p=0.2))
    assert labels(strip, strip.learned) == ["as it is", "shift"]
    torch.testing.assert_close(strip.learned[0].image, IMAGE)
    assert not torch.allclose(strip.learned[1].image, IMAGE)


def test_noise_is_the_same_at_every_strength():
    strip = shown(optima.GaussianNoise(std=learn(0.1, scale=0.5)))
    assert strip.how == "phi"
    assert strip.prior is not None
    unit = [(tile.image - IMAGE) / tile.amount["std"][0] for tile in (*strip.learned, *strip.prior)]
    for other in unit[1:]:
        torch.testing.assert_close(other, unit[0], atol=1e-4, rtol=1e-4)
    exact = 0.1 * np.exp(0.5 * stats.norm.ppf(LEVELS))
    np.testing.assert_allclose(amounts(strip.learned, "std"), exact, rtol=0.06)


@pytest.mark.parametrize("mode", ["elem", "pair", "batch"])
def test_a_mixture_is_with_the_partner_whatever_is_shared(mode: Any):
    strip = shown(optima.Mixup(alpha=0.8, mode=mode))
    lam = amounts(strip.learned, "lam")
    np.testing.assert_allclose(lam, stats.beta.ppf(LEVELS, 0.8, 0.8), atol=0.03)
    for tile, share in zip(strip.learned, lam, strict=True):
        torch.testing.assert_close(tile.image, share * IMAGE + (1 - share) * PARTNER, atol=1e-5, rtol=0)


def test_what_phi_has_no_say_in_is_the_same_in_all_pictures():
    strip = shown(optima.CutMix(alpha=2.0))
    pasted = [(tile.image != IMAGE).any(0) for tile in strip.learned]  # λ rises, so the box shrinks
    assert pasted[0].sum() > pasted[-1].sum()
    assert all(bool((small <= large).all()) for large, small in pairwise(pasted))


@pytest.mark.parametrize("std", [0.1, learn(0.1)])
def test_a_family_it_has_never_seen(std: Any):
    strip = shown(Jump(std))
    assert strip.how == ("draws" if std == 0.1 else "phi")
    assert (strip.prior is None) == (std == 0.1)
    assert len({tuple(tile.image.flatten().tolist()) for tile in strip.learned}) == 5


def test_a_phi_that_no_law_shows_is_shown_at_its_own_quantiles():
    strip = shown(AugMix(severity=learn(5.0, scale=1.0), dirichlet=1.0, beta=1.0))
    assert strip.how == "phi"
    severity = amounts(strip.learned, "severity")
    assert (np.diff(severity) > 0).all()
    # the logit over (0.1, 10) is Normal
    exact = 0.1 + 9.9 * special.expit(special.logit(4.9 / 9.9) + stats.norm.ppf(LEVELS))
    np.testing.assert_allclose(severity, exact, atol=0.15)
    assert labels(strip, strip.learned)[0] == "1.7"  # what is fixed is not repeated below every picture


def test_draws_are_ordered_by_how_much_they_change_the_image():
    strip = shown(Jump(0.1))
    change = [float((tile.image - IMAGE).abs().mean()) for tile in strip.learned]
    assert change == sorted(change)
    assert labels(strip, strip.learned) == [""] * 5  # the same φ everywhere is said once
    assert "std 0.10" in explanation(strip)


def test_numbers_of_several_units_keep_theirs():
    strip = shown(optima.Affine(std=[20.0, 1e-6, 1e-6, 20.0, 1e-6, 1e-6]))
    largest = amounts(strip.learned, "affine")[-1]
    assert largest[0] ** 2 + largest[3] ** 2 > 400
    text = labels(strip, strip.learned)[-1].split(", ")
    assert [part.endswith("°") for part in text] == [True, False, False, True, False, False]


def test_a_policy_is_left_as_it_was():
    policy = optima.Sequential(optima.Rotate(std=learn(10.0)), optima.Mixup(alpha=learn(0.2))).eval()
    before = policy.state_dict()
    first, second = (strips(policy, IMAGE, PARTNER, count=3, seed=4) for _ in range(2))
    draws(policy, torch.stack([IMAGE, PARTNER]), count=2, seed=0)
    assert not policy.training
    torch.testing.assert_close(policy.state_dict(), before, rtol=0, atol=0)
    for one, other in zip(first, second, strict=True):
        assert [tile.amount for tile in one.learned] == [tile.amount for tile in other.learned]


def test_draws_are_of_the_whole_policy():
    policy = optima.Sequential(optima.Shift(std=learn(0.1)), optima.Flip(p=1.0))
    drawn = draws(policy, torch.stack([IMAGE, PARTNER]), count=3, seed=0)
    assert drawn.shape == (3, 2, 3, 12, 10)
    moved = drawn - torch.stack([IMAGE, PARTNER]).flip(-1)
    torch.testing.assert_close(moved, moved.mean((2, 3, 4), keepdim=True).expand_as(moved))
    assert len(moved.mean((2, 3, 4)).unique()) == 6


# ---- the page ----------------------------------------------------------------------------------------------------


def document(policy: Augmenter, name: str = "runs/demo") -> Preview:
    images = torch.stack([IMAGE, PARTNER])
    prior = draws(at_prior(policy), images, count=3, seed=0) if policy.learns() else None
    return Preview(
        name,
        ["a.png", "b.png"],
        policy.summary().rows,
        images,
        strips(policy, *images, count=3, seed=0),
        draws(policy, images, count=3, seed=0),
        prior,
        0,
    )


POLICY = optima.Sequential(optima.Rotate(std=learn(10.0)), optima.Translate(std=learn([0.1, 0.2])), optima.Flip(p=0.5))


def test_the_page_shows_every_picture_and_number():
    preview = document(POLICY)
    page = unescape(preview_page(preview))
    found = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    pictures = [np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))) for data in found]
    expected = [*preview.originals]
    for strip in preview.strips:
        for tiles in (strip.learned, strip.prior or []):
            expected += [tile.image for tile in tiles]
            assert all(f"<small>{text}</small>" in page for text in (labels(strip, tiles) if tiles else []))
    assert preview.prior is not None
    expected += [d for i in range(2) for drawn in (preview.learned, preview.prior) for d in drawn[:, i]]
    assert len(pictures) == len(expected) == 2 + 6 + 6 + 2 + 12
    for picture, tensor in zip(pictures, expected, strict=True):
        exact = 255 * tensor.clamp(0, 1).permute(1, 2, 0).numpy()
        np.testing.assert_allclose(picture, exact, atol=0.501)
    for word in ("rotate.std", "translate.std", "flip.p", "learned", "prior", "fixed", "not trained"):
        assert f">{word}<" in page


def test_the_page_loads_nothing_and_escapes_names():
    page = preview_page(document(POLICY, "<script>x</script>"))
    assert "<script" not in page
    assert all(source.startswith("data:image/png;base64,") for source in re.findall(r'(?:src|href)="([^"]*)"', page))
    assert "http" not in page


def test_a_policy_that_learns_nothing_has_no_prior_beside_it():
    page = preview_page(document(optima.Sequential(optima.Rotate(std=10.0))))
    assert ">prior<" not in page
    assert ">fixed<" in page


def test_what_cannot_be_seen_is_said():
    grey = IMAGE.mean(0, keepdim=True).expand(3, -1, -1) * 0
    (strip,) = strips(optima.Rotate(std=10.0), grey, grey, count=3, seed=0)
    assert strip.unchanged
    assert not shown(optima.Rotate(std=10.0)).unchanged


def test_the_numbers_as_json_are_the_strips():
    preview = document(POLICY)
    found = as_json(preview)
    assert [part["name"] for part in found["augmentations"]] == ["rotate", "translate", "flip"]
    assert found["augmentations"][0]["learned"][0]["amount"] == preview.strips[0].learned[0].amount
    assert found["augmentations"][2]["prior"] is None
    assert [row["name"] for row in found["strengths"]] == ["rotate.std", "rotate.mean", "translate.std", "flip.p"]


@pytest.mark.parametrize(
    ("numbers", "unit", "text"),
    [
        ([-34.6, -0.04, 9.2], "degrees", ["−35°", "0°", "9°"]),
        ([-9.74, -0.04, 4.0], "degrees", ["−9.7°", "0.0°", "4.0°"]),
        ([0.0, 0.4961, 1.0], "", ["0.00", "0.50", "1.00"]),
        ([0.0, 0.0, 0.0], "", ["0", "0", "0"]),
    ],
)
def test_numbers_are_rounded_to_what_the_strip_can_show(numbers: list[float], unit: str, text: list[str]):
    tiles = [Tile(IMAGE, "", {"a": [number]}) for number in numbers]
    assert labels(Strips("", "", "gamma", {"a": unit}, tiles, None), tiles) == text


@pytest.mark.parametrize("channels", [1, 3])
def test_a_png_holds_the_pixels(channels: int):
    picture = torch.linspace(-0.2, 1.2, channels * 7 * 5).reshape(channels, 7, 5)
    read = np.asarray(Image.open(io.BytesIO(png(picture))))
    assert read.shape == ((7, 5) if channels == 1 else (7, 5, 3))
    exact = 255 * picture.clamp(0, 1).permute(1, 2, 0).numpy()
    np.testing.assert_allclose(read.reshape(7, 5, channels), exact, atol=0.501)
