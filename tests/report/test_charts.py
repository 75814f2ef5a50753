"""Charts: the right numbers, and SVG that can live inside a page."""

from __future__ import annotations

import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from scipy.stats import binomtest

from optima.metrics import reliability
from optima.report.charts import Trace, digit_strip, reliability_chart, trace_chart, wilson

TRACE = Trace("rotate.std (degrees)", [10.0, 5.0], [8.0, 4.0], [12.0, 6.0], 15.0, (6.0, 34.0))


def charts() -> list[str]:
    probs = torch.tensor([[0.9, 0.1], [0.4, 0.6], [1.0, 0.0]])
    bins = reliability(probs, torch.tensor([0, 0, 0]))
    return [reliability_chart({"none": bins, "learned": bins}, 'a "b" <c>'), trace_chart([TRACE, TRACE], "d")]


@pytest.mark.parametrize("hits", [0, 1, 17, 40])
def test_wilson_interval_is_scipys(hits: int):
    low, high = wilson(np.array([hits / 40]), np.array([40.0]))
    reference = binomtest(hits, 40).proportion_ci(0.9, "wilson")
    assert (low[0], high[0]) == pytest.approx((reference.low, reference.high), abs=1e-7)


@pytest.mark.parametrize("drawing", charts(), ids=["reliability", "trace"])
def test_a_chart_is_well_formed_and_refers_to_nothing_outside(drawing: str):
    root = ElementTree.fromstring(drawing)  # noqa: S314
    identifiers = [node.get("id") for node in root.iter() if node.get("id")]
    references = re.findall(r'(?:href="|url\()#([^")]+)', drawing)
    assert references
    assert set(references) <= set(identifiers)
    assert len(identifiers) == len(set(identifiers))
    outside = re.sub(r'xmlns(:xlink)?="[^"]*"', "", drawing)
    assert "http" not in outside


def test_charts_do_not_share_ids():
    first, second = ({node.get("id") for node in ElementTree.fromstring(c).iter()} - {None} for c in charts())  # noqa: S314
    assert not first & second


@pytest.mark.parametrize("drawing", charts(), ids=["reliability", "trace"])
def test_a_chart_takes_the_pages_ink(drawing: str):
    assert "currentColor" in drawing
    assert "#010203" not in drawing
    assert "#000000" not in drawing
    assert "#ffffff" not in drawing


def test_the_description_is_escaped():
    root = ElementTree.fromstring(charts()[0])  # noqa: S314
    assert root.get("aria-label") == 'a "b" <c>'


def test_the_trace_is_drawn_at_its_values():
    # two panels, each with one line for the median through two points
    root = ElementTree.fromstring(trace_chart([TRACE], "d"))  # noqa: S314
    words = {"".join(node.itertext()) for node in root.iter() if node.tag.endswith("text")}
    assert {"rotate.std (degrees)", "epoch", "the guess", "prior, 90 %", "q(φ), median"} <= words


def test_a_strip_holds_the_pixels():
    images = np.random.default_rng(0).random((2, 3, 4, 5))
    found = re.search(r"base64,([^\"]+)", digit_strip(images, "d"))
    assert found is not None
    picture = imread(io.BytesIO(base64.b64decode(found[1])), format="png")
    assert picture.shape == (2 * 5 - 1, 3 * 6 - 1, 4)
    np.testing.assert_allclose(picture[5:9, 6:11, 0], images[1, 1], atol=1 / 255)
    assert picture[4, :, 3].max() == 0  # the gap shows the page
