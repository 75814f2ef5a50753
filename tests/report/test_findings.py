"""The demo's sentences follow the numbers, whoever wins."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch

from optima.augment.summary import COLLAPSED
from optima.experiments.three_ways import METHODS, Comparison
from optima.report.findings import as_json, differences, findings, nll_difference, scores


def with_confidence(comparison: Comparison, **confidence: float) -> Comparison:
    """The same runs, each giving the label this probability, a little more on every second image."""
    labels = comparison.test.labels
    wiggle = torch.where(torch.arange(len(labels)) % 2 == 0, 0.01, -0.01)
    runs = []
    for run in comparison.runs:
        right = confidence[run.name] + wiggle
        probs = ((1 - right) / 9)[:, None].repeat(1, 10)
        probs[torch.arange(len(labels)), labels] = right
        runs.append(dataclasses.replace(run, probs=probs))
    return dataclasses.replace(comparison, runs=runs)


def test_difference_is_the_mean_gap_and_its_interval(comparison: Comparison):
    none, _, learned = comparison.runs
    labels = comparison.test.labels
    gaps = []
    for p, q, label in zip(learned.probs.tolist(), none.probs.tolist(), labels.tolist(), strict=True):
        gaps.append(-math.log(p[label]) + math.log(q[label]))
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / (len(gaps) - 1))
    difference = nll_difference(learned, none, labels)
    assert difference.mean == pytest.approx(mean, abs=1e-9)
    assert difference.half_width == pytest.approx(1.96 * deviation / math.sqrt(len(gaps)), rel=1e-6)
    scored = scores(comparison)
    assert difference.mean == pytest.approx(scored["learned"].nll - scored["none"].nll, abs=1e-9)


def test_learned_is_called_better_only_where_it_is(comparison: Comparison):
    first = findings(with_confidence(comparison, none=0.5, fixed=0.8, learned=0.7))[0]
    assert "the best of the three here is fixed" in first
    # half of log (0.71 · 0.69 / 0.51 · 0.49) is 0.3366, and of log (0.81 · 0.79 / 0.71 · 0.69) 0.1336
    assert "minus none −0.337 ± 0.000, better; minus fixed +0.134 ± 0.000, worse" in first


def test_a_gap_within_its_interval_is_no_clear_difference(comparison: Comparison):
    same = with_confidence(comparison, none=0.7, fixed=0.7, learned=0.7)
    assert findings(same)[0].count("no clear difference") == 2
    assert all(gap.mean == 0 for gap in differences(same).values())


def test_every_strength_gets_its_verdict_in_the_summarys_words(comparison: Comparison):
    rows = comparison.learned_rows()
    sentences = findings(comparison)[1:]
    assert len(sentences) == len(rows) == 2
    for row, sentence in zip(rows, sentences, strict=True):
        assert sentence.startswith(f"{row.name} started at the guess")
        assert f"Verdict: {row.verdict}; {row.evidence}" in sentence


def test_a_collapse_is_called_a_collapse(comparison: Comparison, monkeypatch):
    rows = [row._replace(verdict=COLLAPSED) for row in comparison.learned_rows()]
    monkeypatch.setattr(Comparison, "learned_rows", lambda self: rows)
    for sentence in findings(comparison)[1:]:
        assert "Verdict: collapsed to no augmentation" in sentence
        assert "learned" not in sentence


def test_the_document_holds_every_number_and_is_json(comparison: Comparison):
    document = json.loads(json.dumps(as_json(comparison), allow_nan=False))
    assert (document["seed"], document["epochs"]) == (0, 1)
    assert (document["train_images"], document["test_images"]) == (300, 1497)
    assert list(document["methods"]) == list(METHODS)
    for name, score in scores(comparison).items():
        assert document["methods"][name]["nll"] == score.nll
        assert document["methods"][name]["seconds"] > 0
    assert [row["start"] for row in document["strengths"]] == [15.0, 0.1]
    assert set(document["versions"]) == {"optima", "torch", "numpy", "python"}
