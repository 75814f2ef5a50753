"""A file is there whole or not at all."""

from __future__ import annotations

import pytest

from optima.files import write_whole


def test_the_text_arrives_and_nothing_else(tmp_path):
    write_whole(tmp_path / "a.txt", "φ\n")
    write_whole(tmp_path / "a.txt", "γ\n")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "γ\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_failure_leaves_the_old_file(tmp_path):
    write_whole(tmp_path / "a.txt", "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "a.txt", "\ud800")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
