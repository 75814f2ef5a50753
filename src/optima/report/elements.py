"""HTML elements whose every text is escaped. A `Markup` is the only thing that is not: it was built here."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files


class Markup(str):
    """HTML that is already safe."""

    __slots__ = ()


def text(content: str) -> Markup:
    """Plain text, escaped unless it is `Markup` already."""
    return content if isinstance(content, Markup) else Markup(escape(content))


def element(tag: str, *content: str, **attributes: str) -> Markup:
    """`<tag attributes>content</tag>`; a trailing underscore in an attribute's name is dropped, as in `class_`.

    Example:
        >>> element("p", "a < b", class_="note")
        '<p class="note">a &lt; b</p>'
    """
    named = "".join(f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"' for name, value in attributes.items())
    return Markup(f"<{tag}{named}>{''.join(text(part) for part in content)}</{tag}>")


def section(title: str, *content: Markup) -> Markup:
    """A heading and what belongs to it."""
    return element("section", element("h2", title), *content)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """A table whose first column names the rows; wide ones scroll on their own."""
    head = element("tr", *(element("th", cell, scope="col") for cell in header))
    body = [
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows
    ]
    return element("div", element("table", element("thead", head), element("tbody", *body)), class_="wide")


def figure(content: Markup, caption: str) -> Markup:
    """A picture and its caption."""
    return element("figure", content, element("figcaption", caption))


def image(data_uri: str, description: str) -> Markup:
    """An inline picture."""
    return Markup(f'<img src="{escape(data_uri)}" alt="{escape(description)}">')


def page(title: str, *content: Markup) -> str:
    """A whole document that loads nothing from anywhere."""
    style = files("optima.report").joinpath("style.css").read_text(encoding="utf-8")
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
    )
    body = element("body", element("main", *content))
    head = f"<head>{head}{element('title', title)}<style>\n{style}</style></head>"
    return f'<!doctype html>\n<html lang="en">\n{head}\n{body}\n</html>\n'
