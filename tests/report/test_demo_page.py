"""The demo's page: complete, self-contained, and honest about whose text it prints."""

from __future__ import annotations

import re
from html import unescape

import pytest

from optima.experiments.three_ways import Comparison
from optima.report.demo import demo_page
from optima.report.findings import CAVEAT, findings, scores


@pytest.fixture(scope="module")
def document(comparison: Comparison) -> str:
    return demo_page(comparison)


def test_it_loads_nothing_and_runs_nothing(document: str):
    assert "<script" not in document
    assert "<link" not in document
    assert not re.findall(r"\son\w+=", document)
    addresses = re.findall(r'(?:src|href)="([^"]*)"', document)
    assert addresses
    assert all(address.startswith(("data:image/png;base64,", "#")) for address in addresses)
    assert set(re.findall(r'https?://[^"\s<]*', document)) == set(re.findall(r'xmlns(?::\w+)?="([^"]*)"', document))


def test_every_number_and_sentence_is_on_it(document: str, comparison: Comparison):
    read = unescape(document)
    for name, score in scores(comparison).items():
        cells = (f"{100 * score.accuracy:.2f} %", f"{score.nll:.3f}", f"{score.ece:.3f}")
        assert f'<th scope="row">{name}</th>' + "".join(f"<td>{cell}</td>" for cell in cells) in read
    assert all(sentence in read for sentence in (*findings(comparison), CAVEAT))


def test_it_shows_four_strips_and_two_charts(document: str):
    assert re.findall(r'alt="(\w+): ten digits', document) == ["original", "fixed", "learned", "prior"]
    assert document.count("<svg") == 2
    assert document.count("<figcaption>") == 3


def test_names_from_outside_are_escaped(comparison: Comparison, monkeypatch):
    hostile = "<script>x</script>"
    rows = [row._replace(unit=hostile, verdict=hostile, evidence=hostile) for row in comparison.learned_rows()]
    monkeypatch.setattr(Comparison, "learned_rows", lambda self: rows)
    document = demo_page(comparison)
    assert "<script" not in document
    assert "&lt;script&gt;x&lt;/script&gt;" in document
