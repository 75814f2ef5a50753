"""What the README and the pages of docs/ show can be done: their Python runs, page by page, and prints what they say.

The blocks of a page run in order, in one process of their own, with warnings as errors. Two comments steer this:

    <!-- skip: reason -->     the Python block that follows is not run
    <!-- output -->           the text block that follows is what the Python block before it prints
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import optima
from optima import gradient_record
from optima.augment import summary

ROOT = Path(__file__).parents[1]
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = {str(path.relative_to(ROOT)): path for path in (*TOP, *DOCS)}
END = "\x1e"  # what the script prints after every block
FENCE = re.compile(
    r"(?P<mark><!--(?P<comment>[^>]*)-->\n+)?```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^```$", re.M | re.S
)


class Script(NamedTuple):
    """A page as a program: the same lines, but those that are not Python are empty."""

    source: str
    expected: list[str | None]


def script_of(page: str) -> Script:
    """The page's Python, and for each block what it should print, if the page says so."""
    lines = [""] * (page.count("\n") + 1)
    expected: list[str | None] = []
    for fence in FENCE.finditer(page):
        comment = (fence["comment"] or "").strip()
        if fence["language"] == "python" and not _skipped(comment):
            start = page.count("\n", 0, fence.start("body"))
            body = fence["body"].splitlines()
            lines[start : start + len(body)] = body
            lines[start + len(body)] = f"print({END!r}, end='', flush=True)"
            expected.append(None)
        elif comment == "output":
            assert expected, "an output without a block that prints it"
            expected[-1] = fence["body"]
    return Script("\n".join(lines) + "\n", expected)


def _skipped(comment: str) -> bool:
    if not comment.startswith("skip"):
        return False
    assert re.fullmatch(r"skip: \S.+", comment), "a skipped block needs a reason"
    return True


def run(page: str, folder: Path) -> None:
    """Raise AssertionError unless the page's program runs and prints what the page says."""
    script = script_of(page)
    program = folder / "page.py"
    program.write_text(script.source, encoding="utf-8")
    process = subprocess.run(
        [sys.executable, "-W", "error", program.name],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    printed = process.stdout.split(END)
    for said, shown in zip(script.expected, printed, strict=False):
        assert said is None or said.split() == shown.split(), f"the page says\n{said}\nand the code prints\n{shown}"


@pytest.mark.parametrize("name", [name for name, path in PAGES.items() if script_of(path.read_text("utf-8")).expected])
def test_the_code_of_a_page_runs(name: str, tmp_path: Path):
    run(PAGES[name].read_text("utf-8"), tmp_path)


def page(*blocks: str) -> str:
    return "\n\n".join(["A page.", *blocks]) + "\n"


PRINTS = "```python\nprint(1)\n```"


@pytest.mark.parametrize(
    "planted",
    [
        pytest.param(page("```python\nx = 1\n```", "```python\nassert x == 2\n```"), id="a block that fails"),
        pytest.param(page(PRINTS, "<!-- output -->\n\n```text\n2\n```"), id="an output that is not so"),
        pytest.param(page("```python\nimport warnings; warnings.warn('old')\n```"), id="a warning"),
        pytest.param(page(f"<!-- skip -->\n\n{PRINTS}"), id="a skip without a reason"),
    ],
)
def test_a_wrong_page_is_caught(planted: str, tmp_path: Path):
    with pytest.raises(AssertionError):
        run(planted, tmp_path)


def test_a_page_is_one_program_whose_errors_name_the_pages_line(tmp_path: Path):
    right = page("```python\nx = 1\n```", "<!-- skip: needs a planet -->\n\n```python\n1 / 0\n```", PRINTS)
    run(right + "\n<!-- output -->\n\n```text\n1\n```\n", tmp_path)
    wrong = right + "\n```python\n2 / 0\n```\n"
    line = wrong.count("\n", 0, wrong.index("2 / 0")) + 1
    with pytest.raises(AssertionError, match=f"line {line}"):
        run(wrong, tmp_path)


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str):
    path = PAGES[name]
    for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", path.read_text("utf-8")):
        assert target.startswith("http") or (path.parent / target).exists(), target


def test_every_public_name_is_in_the_reference():
    listed = set(re.findall(r"^::: optima\.(?:[\w.]+\.)?(\w+)$", PAGES["docs/api.md"].read_text("utf-8"), re.M))
    assert set(optima.__all__) - listed == {"__version__"}


def test_the_page_on_verdicts_gives_the_rules_of_the_code():
    text = PAGES["docs/verdicts.md"].read_text("utf-8")
    for verdict in (
        summary.MOVED,
        summary.AT_PRIOR,
        summary.COLLAPSED,
        summary.UNSETTLED,
        summary.UNTRAINED,
        summary.DIVERGED,
        summary.FIXED,
    ):
        assert f"`{verdict}`" in text
    rules = {
        "Z_HEARD": summary.Z_HEARD,
        "KL_MOVED": summary.KL_MOVED,
        "LEFT_START": summary.LEFT_START,
        "COLLAPSED_SHARE": summary.COLLAPSED_SHARE,
        "COLLAPSED_MASS": summary.COLLAPSED_MASS,
        "FIRST_BLOCK": gradient_record.FIRST_BLOCK,
    }
    for name, value in rules.items():
        assert f"| `{name}` | {value:g} |" in text
