"""Nothing that is printed can become markup, and a page loads nothing."""

from __future__ import annotations

from html.parser import HTMLParser

from optima.report.elements import Markup, element, figure, image, page, section, table, text

HOSTILE = "<script>alert(\"x\")</script> & 'more'"


class Reader(HTMLParser):
    """Collects tags and text; fails on an end tag that closes something else."""

    def __init__(self, document: str):
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(document)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_every_text_is_escaped():
    document = page(
        HOSTILE,
        section(HOSTILE, element("p", HOSTILE, title=HOSTILE)),
        table([HOSTILE], [[HOSTILE, HOSTILE]]),
        figure(image("data:image/png;base64,", HOSTILE), HOSTILE),
    )
    reader = Reader(document)
    assert "script" not in reader.tags
    assert reader.text.count(HOSTILE) == 7  # title, heading, paragraph, three cells, caption
    assert "<script" not in document


def test_an_attribute_cannot_be_left():
    assert element("p", title='" onclick="x') == '<p title="&quot; onclick=&quot;x"></p>'


def test_markup_is_escaped_once():
    inner = element("b", "a & b")
    assert element("p", inner) == "<p><b>a &amp; b</b></p>"
    assert text(inner) is inner
    assert text("<") == Markup("&lt;")


def test_elements_are_closed_in_order():
    reader = Reader(page("t", section("s", element("p", "x")), table(["a", "b"], [["c", "d"]])))
    assert not reader.open
    assert reader.tags[:3] == ["html", "head", "meta"]
    assert reader.tags.count("th") == 3  # two columns, one row


def test_a_page_brings_its_style_for_light_and_dark():
    document = page("t")
    assert "prefers-color-scheme: dark" in document
    for reference in ("http:", "https:", "url(", "@import", "<link", "src="):
        assert reference not in document
