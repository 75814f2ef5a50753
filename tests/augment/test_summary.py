"""The verdicts of the summary on cases whose answer is known: silent data, a clear push, a collapse, no training."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

import optima
from optima import Mixup, Rotate, Sequential, Shift, TokenDropout, Translate, View, learn
from optima.augment import Augmenter
from optima.augment.summary import (
    AT_PRIOR,
    COLLAPSED,
    DIVERGED,
    FIXED,
    MOVED,
    UNSETTLED,
    UNTRAINED,
    PolicySummary,
    Row,
)

ROWS, NUM_DATA = 16, 2000


def train(
    augment: Augmenter, misfit: Callable[[View], Tensor], *, steps: int = 200, lr: float = 0.05
) -> dict[str, Row]:
    """Adam on Σ misfit over the data set + KL; the rows of the summary afterwards."""
    optimizer = torch.optim.Adam(augment.parameters(), lr=lr)
    for _ in range(steps):
        view = augment(torch.zeros(ROWS, 1), torch.zeros(ROWS, dtype=torch.long))
        loss = misfit(view).mean() + augment.kl() / NUM_DATA
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {row.name: row for row in augment.summary().rows}


def silent(view: View) -> Tensor:
    """A gradient of mean zero whatever φ is: the data have no opinion."""
    return view.x[:, 0] * torch.randn(ROWS)


def towards(target: float) -> Callable[[View], Tensor]:
    return lambda view: 0.5 * (view.x[:, 0] - target).square()


def test_silent_data_leave_phi_at_its_prior():
    # q starts as the prior, and the optimiser's steps are too small to leave it
    rows = train(Shift(std=learn(1.0, scale=1.0), mean=learn(0.0, scale=1.0)), silent, lr=1e-3)
    assert [row.verdict for row in rows.values()] == [AT_PRIOR, AT_PRIOR]
    assert all(row.kl is not None and row.kl < 0.1 for row in rows.values())
    assert all(abs(row.z) < 4 for row in rows.values())  # pyright: ignore


def test_silent_data_and_a_posterior_still_far_from_its_prior():
    rows = train(Shift(std=learn(1.0, scale=0.1)), silent, steps=50, lr=1e-3)
    assert rows["std"].verdict == UNSETTLED
    assert "has not come to its prior" in rows["std"].evidence


@pytest.mark.parametrize(("target", "word"), [(4.0, "up"), (-4.0, "down")])
def test_a_clear_push_moves_phi(target: float, word: str):
    rows = train(Shift(std=0.1, mean=learn(0.01, scale=0.3)), towards(target))
    row = rows["mean"]
    assert row.verdict == MOVED
    assert row.mean == pytest.approx(target, abs=0.5)
    assert math.copysign(1, row.z) == math.copysign(1, target)  # pyright: ignore
    assert f"the data pushed it {word}" in row.evidence
    assert row.kl is not None
    assert row.kl > 5
    assert row.steps == 200
    assert rows["std"].verdict == FIXED


def test_a_spread_that_the_data_want_is_moved_and_not_collapsed():
    # E ½(γ² − 9)²: the best spread is of the order of 2, ten times the start
    rows = train(Shift(std=learn(0.2)), lambda view: 0.05 * (view.x[:, 0].square() - 9).square())
    assert rows["std"].verdict == MOVED
    assert rows["std"].mean > 1  # pyright: ignore
    assert "wider" in rows["std"].evidence


def test_a_spread_that_only_hurts_collapses_and_is_not_called_learned():
    rows = train(Shift(std=learn(1.0)), towards(0.0), steps=600)
    assert rows["std"].verdict == COLLAPSED
    assert "narrower" in rows["std"].evidence
    assert rows["std"].mean < 0.1  # pyright: ignore


@pytest.mark.parametrize("posterior", ["normal", "point"])
def test_a_phi_that_is_not_in_the_optimiser_is_never_called_moved(posterior: Any):
    # far from its prior from the start, so that the KL alone would not tell
    prior = Normal(0.0, 0.5)
    rows = train(Shift(std=0.1, mean=learn(2.0, prior=prior, posterior=posterior)), towards(4.0), lr=0.0)
    assert rows["mean"].verdict == UNSETTLED
    assert "is it in the optimizer?" in rows["mean"].evidence
    assert rows["mean"].kl is not None
    assert rows["mean"].kl > 0.1


def test_a_phi_that_has_become_nan_is_called_diverged(tmp_path: Path):
    augment = Shift(std=learn(1.0))
    train(augment, towards(0.0), steps=40)
    with torch.no_grad():
        next(augment.parameters()).fill_(math.nan)
    (row, _) = augment.summary().rows
    assert row.verdict == DIVERGED
    with pytest.raises(ValueError, match="cannot save std: not a number"):
        optima.save(augment, tmp_path / "policy")
    assert list(tmp_path.iterdir()) == []


def test_a_push_that_the_optimiser_ignores_is_not_settled():
    rows = train(Shift(std=0.1, mean=learn(0.0, scale=1.0)), towards(4.0), lr=0.0)
    assert rows["mean"].verdict == UNSETTLED
    assert "still at its prior" in rows["mean"].evidence


def test_a_discrete_phi_is_heard_through_its_score():
    tokens = torch.full((ROWS, 12), 7)
    augment = TokenDropout(learn(0.3), mask_id=0)
    optimizer = torch.optim.Adam(augment.parameters(), lr=0.1)
    for _ in range(300):
        view = augment(tokens)
        assert view.log_prob is not None
        cost = (view.x == 0).double().sum(1)
        loss = ((cost - cost.mean()) * view.log_prob).mean() + augment.kl() / NUM_DATA
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    row = augment.summary().rows[0]
    assert row.verdict == COLLAPSED
    assert "narrower" in row.evidence


@pytest.mark.parametrize(
    "augment",
    [
        Rotate(std=learn(10.0)),
        Mixup(alpha=learn(0.2, posterior="point")),
        Translate(std=learn([0.1, 0.2])),
        Rotate(std=learn(10.0, posterior="point"), prior_gamma=Normal(0.0, 0.2)),
    ],
)
def test_without_training_nothing_is_claimed(augment: Augmenter):
    row = augment.summary().rows[0]
    assert row.verdict == UNTRAINED
    assert row.steps == 0
    assert row.evidence == "no gradient of the data has reached it"


@pytest.mark.parametrize("scale", [1.0, 0.1])
@pytest.mark.parametrize(("steps", "count"), [(1, "1 step"), (3, "3 steps"), (31, "31 steps")])
def test_a_few_steps_are_too_few_to_say_anything(steps: int, count: str, scale: float):
    # at its prior, or far from it: z is 0 until there are 32 steps, which is no evidence of silence
    rows = train(Shift(std=learn(1.0, scale=scale)), towards(0.0), steps=steps, lr=1e-4)
    assert rows["std"].verdict == UNSETTLED
    assert rows["std"].evidence == f"only {count} of the data's gradient so far: too few to say"


def test_32_steps_are_enough_to_say_that_the_data_are_silent():
    rows = train(Shift(std=learn(1.0, scale=1.0)), silent, steps=32, lr=1e-4)
    assert rows["std"].verdict == AT_PRIOR
    assert "over 32 steps" in rows["std"].evidence


def test_copies_say_what_they_are():
    augment = Rotate(std=learn(10.0), mean=1.0)
    assert [row.verdict for row in augment.frozen().summary().rows] == [FIXED, FIXED]
    assert [row.verdict for row in augment.prior().summary().rows] == ["drawn from its prior", FIXED]


def test_the_table_names_units_priors_and_intervals():
    augment = Sequential(Rotate(std=learn(10.0, scale=0.5)), Mixup(alpha=0.2), Translate(std=learn([0.1, 0.2])))
    rows = augment.summary().rows
    assert [row.name for row in rows] == ["rotate.std", "rotate.mean", "mixup.alpha", "translate.std"]
    assert [row.unit for row in rows] == ["degrees", "degrees", "", "of the size"]
    # an angle is 180° · σ(u): its odds are log-normal
    low, high = (180 / (1 + 17 * math.exp(-step * 0.5)) for step in (-1.6449, 1.6449))
    assert (rows[0].low, rows[0].high) == pytest.approx((low, high), rel=1e-4)
    assert rows[2].kl is None
    assert rows[3].mean == pytest.approx([0.1 * math.exp(0.005), 0.2 * math.exp(0.005)], rel=1e-4)
    text = str(augment.summary())
    for expected in ("rotate.std", "degrees", "11.1 (4.53 … 21.3)", UNTRAINED, "0.2", "prior mean (90 %)"):
        assert expected in text
    widths = {len(line.rstrip()) > 0 for line in text.splitlines()}
    assert widths == {True}


def cells(text: str) -> list[list[str]]:
    """The lines of a table below its rule, cut where the columns are; evidence left out."""
    header, rule, *body = text.splitlines()
    starts = [match.start() for match in re.finditer("─+", rule)]
    lines = [line for line in (header, *body) if ": " not in line]
    return [[line[one:two].strip() for one, two in itertools.pairwise([*starts, None])] for line in lines]


def test_a_vector_has_a_line_for_every_element():
    _, whole, right, down = cells(str(Translate(std=learn([0.1, 0.2])).summary()))
    assert whole == ["std", "of the size", "", "", UNTRAINED]
    assert right == ["[1]", "", "0.165 (0.0193 … 0.518)", "0.101 (0.0848 … 0.118)", ""]
    assert down == ["[2]", "", "0.33 (0.0386 … 1.04)", "0.201 (0.17 … 0.236)", ""]


def test_elements_may_have_names_units_and_one_prior_together():
    row = Row(
        "move.std", "degrees, of the size", "on γ", [1.0, 0.1], [0.5, 0.1], [2.0, 0.1], 0.0, [0.0, 0.0], 0, FIXED, ""
    )
    _, whole, *elements = cells(str(PolicySummary([row], {"move.std": ("turn", "shift")})))
    assert whole == ["move.std", "", "on γ", "", FIXED]
    assert elements == [["turn", "degrees", "", "1 (0.5 … 2)", ""], ["shift", "of the size", "", "0.1", ""]]


def test_the_names_of_elements_come_from_the_augmentation():
    augment = Translate(std=learn([0.1, 0.2]))
    augment.domains["std"] = replace(augment.domains["std"], labels=("right", "down"))
    assert [line[0] for line in cells(str(augment.summary()))] == ["φ", "std", "right", "down"]


def test_a_mean_of_rounding_errors_is_printed_as_0():
    assert "0 (-1.64 … 1.64)" in str(Shift(std=1.0, mean=learn(0.0, scale=1.0)).summary())
    assert "1e-09 (9e-10 … 1.1e-09)" in str(
        PolicySummary([Row("p", "", "–", 1e-9, 9e-10, 1.1e-9, 0.0, None, 0, FIXED, "")])
    )


def test_many_elements_fit_on_a_screen():
    values = [1.2345e-5 * 10**number for number in range(15)]
    row = Row(
        "affine.coupling", "", "; ".join(["0 (-1.64 … 1.64)"] * 15), values, values, values, 0.0, None, 0, FIXED, ""
    )
    assert max(map(len, str(PolicySummary([row])).splitlines())) <= 100


def test_a_prior_on_gamma_is_named_and_measured():
    row = Rotate(std=learn(10.0, posterior="point"), prior_gamma=Normal(0.0, 0.2)).summary().rows[0]
    ratio = math.radians(10) / 0.2
    assert row.prior == "on γ"
    assert row.kl == pytest.approx(0.5 * (ratio**2 - 1) - math.log(ratio), rel=1e-4)


def test_rows_are_plain_data():
    augment = Sequential(Rotate(std=learn(10.0)), Translate(std=learn([0.1, 0.2])))
    augment(torch.rand(4, 1, 5, 5)).x.sum().backward()
    rows: list[dict[str, Any]] = json.loads(
        json.dumps([row._asdict() for row in augment.summary().rows], allow_nan=False)
    )
    assert rows[0]["name"] == "rotate.std"
    assert rows[2]["steps"] == 1
    assert len(rows[2]["z"]) == 2


def test_summaries_repeat_themselves():
    augment = Rotate(std=learn(10.0, prior=torch.distributions.Gamma(2.0, 0.2)))
    assert str(augment.summary()) == str(augment.summary())


def test_a_score_without_a_baseline_is_not_recorded():
    """One row, one draw and a rare γ: its gradient hardly varies, which would look like a push."""
    augment = TokenDropout(learn(0.005), mask_id=0)
    for _ in range(40):
        view = augment(torch.full((1, 4), 7))
        assert view.log_prob is not None
        view.log_prob.sum().backward()
    (row,) = augment.summary().rows
    assert row.verdict == UNTRAINED
    assert dict(augment.named_parameters())["p.loc"].grad is not None
