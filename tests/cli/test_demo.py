"""`optima demo` from the outside: its files, its streams, its exit codes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import optima
from optima.cli import main
from optima.cli.demo import WRITTEN
from optima.cli.output import checked_folder

DEMO = ("demo", "--epochs", "1", "--output")


@pytest.fixture
def call(monkeypatch, capsys):
    """Run the command line in this process: (exit code, stdout, stderr)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["optima", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return run


def test_it_prints_tables_and_with_force_overwrites_four_files(call, tmp_path: Path):
    for name in WRITTEN:
        (tmp_path / name).write_text("mine")
    code, out, err = call(*DEMO, str(tmp_path), "--force")
    assert (code, err) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(WRITTEN)
    for name in WRITTEN:
        assert str(tmp_path / name) in out
        assert (tmp_path / name).read_bytes() != b"mine"
    for word in ("accuracy", "NLL", "ECE", "seconds", "none", "fixed", "learned", "rotate.std", "translate.std"):
        assert word in out
    strengths = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["strengths"]
    assert all(row["verdict"] in out for row in strengths)
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_json_is_all_of_stdout_and_what_the_files_hold(call, tmp_path: Path):
    folder = tmp_path / "new" / "folder"
    code, out, err = call(*DEMO, str(folder), "--json", "--seed", "5")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document == json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert document["seed"] == 5
    rows = [row for row in optima.load(folder / "policy").summary().rows if row.kl is not None]
    assert [(row.name, row.mean) for row in rows] == [(row["name"], row["mean"]) for row in document["strengths"]]


@pytest.mark.parametrize("name", WRITTEN)
def test_nothing_is_overwritten_without_force(call, tmp_path: Path, name: str):
    (tmp_path / name).write_text("mine")
    code, out, err = call(*DEMO, str(tmp_path))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert f"{tmp_path / name} exists" in err
    assert "--force" in err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: "mine"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--epochs", "0"), "--epochs must be at least 1, got 0"),
        (("--epochs", "-3"), "--epochs must be at least 1, got -3"),
        (("--epochs", "9" * 20), "--epochs must be at most 1000000, got 99999999999999999999"),
        (("--seed", "-1"), "--seed must be a whole number from 0"),
        (("--seed", str(2**63)), "--seed must be a whole number from 0"),
    ],
)
def test_a_wrong_number_is_one_line_and_code_2(call, tmp_path: Path, arguments, problem: str):
    code, out, err = call("demo", "--output", str(tmp_path / "demo"), *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"optima: {problem}")
    assert err.count("\n") == 1
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_an_output_that_is_a_file_is_refused_before_training(call, tmp_path: Path, below: str):
    (tmp_path / "taken").write_text("mine")
    code, out, err = call(*DEMO, str(tmp_path / "taken" / below), "--force")
    assert (code, out) == (2, "")
    assert err == f"optima: --output must be a folder, and {tmp_path / 'taken'} is a file\n"


NO_SUCH_PLACES = [
    pytest.param("n" * 300, "File name too long", id="too long"),
    pytest.param("/proc/nope/x", "No such file or directory", id="not for us"),
]


@pytest.mark.skipif(not Path("/proc").exists(), reason="a file system where nobody may make a folder")
@pytest.mark.parametrize(("place", "why"), NO_SUCH_PLACES)
def test_an_output_that_cannot_be_made_is_refused_before_training(call, monkeypatch, tmp_path: Path, place, why: str):
    monkeypatch.setattr("optima.experiments.three_ways.compare", stops(AssertionError("it trained")))
    output = os.path.join(tmp_path, place)  # noqa: PTH118  the second alone where it begins at the root
    assert call(*DEMO, output) == (2, "", f"optima: --output: cannot write to {output}: {why}\n")


def test_looking_whether_a_folder_can_be_made_leaves_nothing(tmp_path: Path):
    (tmp_path / "here").mkdir()
    assert checked_folder(f"{tmp_path}/here/new/../and/deeper") == tmp_path / "here/new/../and/deeper"
    assert list(tmp_path.rglob("*")) == [tmp_path / "here"]


def stops(error: BaseException) -> Any:
    def stop(*arguments: object, **options: object) -> None:
        raise error

    return stop


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("the training has diverged"), "the training has diverged"),
        (RuntimeError("out of memory:\n  tried to allocate"), "out of memory: tried to allocate"),
        (KeyError("angle"), "KeyError: 'angle'"),
        (MemoryError(), "MemoryError"),
        (OSError(errno.EACCES, "Permission denied", "digits.npz"), "digits.npz: Permission denied"),
    ],
)
def test_what_fails_after_the_start_is_one_line_and_code_1(call, monkeypatch, tmp_path: Path, error, line: str):
    monkeypatch.setattr("optima.experiments.three_ways.compare", stops(error))
    assert call(*DEMO, str(tmp_path / "new")) == (1, "", f"optima: {line}\n")
    assert not (tmp_path / "new").exists()


def test_a_full_disk_is_named(call, monkeypatch, tmp_path: Path):
    monkeypatch.setattr("optima.save", stops(OSError(errno.ENOSPC, "No space left on device")))
    assert call(*DEMO, str(tmp_path)) == (1, "", f"optima: {tmp_path}: No space left on device\n")


def test_an_interrupt_is_code_130_without_a_word(call, monkeypatch, tmp_path: Path):
    monkeypatch.setattr("optima.experiments.three_ways.compare", stops(KeyboardInterrupt()))
    assert call(*DEMO, str(tmp_path)) == (130, "", "")


def test_a_developer_gets_the_traceback(tmp_path: Path):
    code = (
        "import sys; sys.argv = ['optima', 'demo', '--output', sys.argv[1]]\n"
        "from optima import cli; from optima.experiments import three_ways\n"
        "three_ways.compare = None; cli.main()"
    )
    command = [sys.executable, "-X", "dev", "-W", "ignore", "-c", code, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "Traceback" in result.stderr


def test_a_folder_in_a_files_place_is_refused_even_with_force(call, tmp_path: Path):
    (tmp_path / "report.html").mkdir()
    code, _, err = call(*DEMO, str(tmp_path), "--force")
    assert code == 2
    assert "report.html is a folder" in err


def test_without_matplotlib_there_is_a_table_and_a_line_that_says_why(call, monkeypatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for module in ("optima.report.demo", "optima.report.charts"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    code, out, err = call(*DEMO, str(tmp_path))
    assert code == 0
    assert "pip install matplotlib" in err
    assert err.count("\n") == 1
    assert "accuracy" in out
    assert "report.html" not in out
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(set(WRITTEN) - {"report.html"})


def test_starting_the_command_line_imports_no_matplotlib():
    code = "import sys, optima.cli, optima.data; print([m for m in sys.modules if 'matplotlib' in m])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr) == ("[]\n", "")
