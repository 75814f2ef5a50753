"""`optima reproduce`, end to end with a few epochs."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from optima.cli import app, main
from optima.experiments.regression import METHODS

FEW = ("--epochs", "3")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """One process, since starting another takes seconds, and few draws of γ to predict with."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr("optima.experiments.regression_run.AVERAGED_DRAWS", 2)


def reproduce(*arguments: object):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)], catch_exceptions=False)


def fails(monkeypatch, capsys, *arguments: object, code: int = 2) -> str:
    """What the command line says on standard error when it exits with 2, or another code."""
    monkeypatch.setattr(sys, "argv", ["optima", "reproduce", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == code
    return capsys.readouterr().err


def test_a_table_a_figure_and_every_number(tmp_path):
    pytest.importorskip("matplotlib")
    result = reproduce("regression", "--seeds", 1, *FEW, "--output", tmp_path)
    assert result.exit_code == 0
    assert all(method.label in result.stdout for method in METHODS.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "regression-balance.png",
        "regression.json",
        "regression.png",
        "seed-000.json",
    ]
    summary = json.loads((tmp_path / "regression.json").read_text())
    seed = json.loads((tmp_path / "seed-000.json").read_text())
    for name in METHODS:
        assert summary["methods"][name]["per_seed"]["0"]["test_mse"] == pytest.approx(
            seed["runs"][name]["test_mse"], rel=1e-5
        )
    assert summary["settings"]["epochs"] == 3
    assert summary["versions"].keys() >= {"optima", "torch"}


def test_json_is_all_that_is_printed(tmp_path):
    result = reproduce("regression", "--seeds", 1, *FEW, "--output", tmp_path, "--json")
    assert json.loads(result.stdout) == json.loads((tmp_path / "regression.json").read_text())
    assert result.stderr == ""


def test_a_second_call_runs_only_what_is_missing(tmp_path, monkeypatch):
    first = json.loads(reproduce("regression", "--seeds", 2, *FEW, "--output", tmp_path, "--json").stdout)
    (tmp_path / "seed-001.json").write_text('{"schema": 1, "runs": {"none"')
    asked = []
    genuine = sys.modules["optima.experiments.regression_study"].run
    monkeypatch.setattr(
        "optima.experiments.regression_study.run",
        lambda seed, name, settings: asked.append(seed) or genuine(seed, name, settings),
    )
    second = json.loads(reproduce("regression", "--seeds", 2, *FEW, "--output", tmp_path, "--json").stdout)
    assert asked == [1] * len(METHODS)
    assert (
        second["methods"]["learned-noise"]["overall"]["test_mse"]
        == (first["methods"]["learned-noise"]["overall"]["test_mse"])
    )


def test_results_of_more_seeds_are_not_overwritten(tmp_path, monkeypatch, capsys):
    reproduce("regression", "--seeds", 2, *FEW, "--output", tmp_path)
    before = (tmp_path / "regression.json").read_text()
    message = fails(monkeypatch, capsys, "regression", "--seeds", 1, *FEW, "--output", tmp_path)
    assert "holds 2 seeds, 1 of which" in message
    assert (tmp_path / "regression.json").read_text() == before
    assert reproduce("regression", "--seeds", 1, *FEW, "--output", tmp_path, "--force").exit_code == 0
    assert json.loads((tmp_path / "regression.json").read_text())["seeds"] == [0]


def test_other_settings_need_force(tmp_path, monkeypatch, capsys):
    reproduce("regression", "--seeds", 1, *FEW, "--output", tmp_path)
    message = fails(monkeypatch, capsys, "regression", "--seeds", 1, "--epochs", 4, "--output", tmp_path)
    assert "other settings" in message
    assert "--force" in message


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("imagenet",), "unknown experiment 'imagenet'; expected one of: regression"),
        (("regression", "--seeds", 0), "--seeds must be at least 1, got 0"),
        (("regression", "--epochs", -1), "--epochs must be at least 1, got -1"),
        (("regression", "--epochs", 10**20), "--epochs must be at most 1000000, got 100000000000000000000"),
        (("regression", "--seeds", 10**20), "--seeds must be at most 10000, got 100000000000000000000"),
        (("regression", "--scale", "huge"), "--scale must be one of small, full, got 'huge'"),
    ],
)
def test_wrong_usage_is_one_clear_line(arguments, says, tmp_path, monkeypatch, capsys):
    message = fails(monkeypatch, capsys, *arguments, "--output", tmp_path / "new")
    assert message == f"optima: {says}\n"
    assert not (tmp_path / "new").exists()


def test_an_output_that_is_a_file_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "taken").write_text("")
    message = fails(monkeypatch, capsys, "regression", "--seeds", 1, *FEW, "--output", tmp_path / "taken")
    assert "taken" in message
    assert message.count("\n") == 1


def test_an_output_that_cannot_be_made_is_refused_before_the_first_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("optima.experiments.regression_study.study", stops(AssertionError("it ran")))
    message = fails(monkeypatch, capsys, "regression", *FEW, "--output", tmp_path / ("n" * 300))
    assert message == f"optima: --output: cannot write to {tmp_path / ('n' * 300)}: File name too long\n"


def stops(error: BaseException):
    def stop(*arguments: object, **options: object) -> None:
        raise error

    return stop


def test_a_run_that_fails_is_code_1_and_says_which(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("optima.experiments.regression_study.run", stops(ValueError("x has NaN")))
    message = fails(monkeypatch, capsys, "regression", "--seeds", 1, "--output", tmp_path, code=1)
    assert message == "optima: none, seed 0: ValueError: x has NaN\n"


def test_a_disk_that_is_full_is_code_1_and_named(tmp_path, monkeypatch, capsys):
    full = stops(OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr("optima.experiments.seed_files.write_whole", full)
    message = fails(monkeypatch, capsys, "regression", "--seeds", 1, *FEW, "--output", tmp_path, code=1)
    assert message == f"optima: {tmp_path}: No space left on device\n"


def test_without_matplotlib_the_numbers_are_still_written(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "optima.experiments.regression_figure", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"] or ["matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    result = reproduce("regression", "--seeds", 1, *FEW, "--output", tmp_path)
    assert result.exit_code == 0
    assert "pip install matplotlib" in result.stderr
    assert result.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["regression.json", "seed-000.json"]


def test_the_command_line_starts_without_matplotlib():
    code = "import sys, optima.cli; print(any(name.startswith('matplotlib') for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
