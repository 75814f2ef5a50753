"""Resuming: what is finished is kept, what is broken or missing is run."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path

import pytest

from optima.experiments.seed_files import RunError, SeedFiles, read_json, write_json

NAMES = ("a", "b")


def numbers(calls: list, seed: int, name: str) -> dict[str, float]:
    calls.append((seed, name))
    return {"value": seed + len(name) / 10}


def plain_numbers(seed: int, name: str) -> dict[str, float]:
    return numbers([], seed, name)


def complete(folder: Path, seeds, calls: list, *, settings=None, force=False, ticks=None):
    files = SeedFiles(folder, settings or {"epochs": 3}, force=force)
    tick = (ticks if ticks is not None else []).append
    return files.complete(seeds, NAMES, partial(numbers, calls), processes=1, tick=tick)


def test_finished_seeds_are_not_run_again(tmp_path):
    calls, ticks = [], []
    first = complete(tmp_path, [0, 1], calls)
    calls.clear()
    second = complete(tmp_path, [0, 1, 2], calls, ticks=ticks)
    assert calls == [(2, "a"), (2, "b")]
    assert {seed: second[seed] for seed in first} == first
    assert second[2] == {"a": {"value": 2.1}, "b": {"value": 2.1}}
    assert sum(ticks) == 6


@pytest.mark.parametrize("remains", ["", '{"schema": 1, "runs": {"a": {"val', "[]", '{"schema": 1}'])
def test_a_half_written_seed_is_run_again(tmp_path, remains):
    complete(tmp_path, [0, 1], [])
    whole = (tmp_path / "seed-001.json").read_text()
    (tmp_path / "seed-001.json").write_text(remains)
    (tmp_path / ".seed-001.json.7.part").write_text(whole[:20])
    calls = []
    runs = complete(tmp_path, [0, 1], calls)
    assert calls == [(1, "a"), (1, "b")]
    assert (tmp_path / "seed-001.json").read_text() == whole
    assert runs[1] == json.loads(whole)["runs"]


def test_a_run_that_fails_loses_only_its_own_seed(tmp_path):
    def breaks(seed: int, name: str) -> dict[str, float]:
        if (seed, name) == (1, "b"):
            raise RuntimeError("out of memory")
        return plain_numbers(seed, name)

    with pytest.raises(RunError, match=r"^b, seed 1: RuntimeError: out of memory$"):
        SeedFiles(tmp_path, {"epochs": 3}).complete([0, 1], NAMES, breaks, processes=1, tick=lambda count: None)
    assert [path.name for path in tmp_path.iterdir()] == ["seed-000.json"]
    calls = []
    complete(tmp_path, [0, 1], calls)
    assert calls == [(1, "a"), (1, "b")]


def fails(seed: int, name: str) -> dict[str, float]:
    raise ValueError(f"no {name}")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_failure_of_a_run_is_told_from_a_refusal_of_the_folder(tmp_path, processes: int):
    files = SeedFiles(tmp_path, {})
    with pytest.raises(RunError, match=r"^[ab], seed 0: ValueError: no [ab]$"):
        files.complete([0], NAMES, fails, processes=processes, tick=lambda count: None)
    with pytest.raises(RunError, match=r"^seed 0: ValueError: .*JSON"):
        files.complete([0], ["a"], lambda seed, name: {"value": math.nan}, processes=1, tick=lambda count: None)
    assert list(tmp_path.iterdir()) == []


def test_what_is_counted_as_finished_is_on_disk(tmp_path):
    def look(count: int) -> None:
        seen.append((count, len(list(tmp_path.iterdir()))))

    seen: list[tuple[int, int]] = []
    SeedFiles(tmp_path, {}).complete([0], NAMES, plain_numbers, processes=1, tick=look)
    assert seen == [(0, 0), (1, 0), (1, 1)]


def test_force_runs_everything(tmp_path):
    complete(tmp_path, [0], [])
    calls = []
    complete(tmp_path, [0], calls, force=True, settings={"epochs": 4})
    assert calls == [(0, "a"), (0, "b")]
    document = read_json(tmp_path / "seed-000.json")
    assert document is not None
    assert document["settings"] == {"epochs": 4}


def test_other_settings_are_refused(tmp_path):
    complete(tmp_path, [0], [])
    calls = []
    with pytest.raises(ValueError, match=r"seed-000\.json was made with other settings; .* --force"):
        complete(tmp_path, [0], calls, settings={"epochs": 4})
    assert calls == []


def test_two_processes_give_the_same(tmp_path):
    files = SeedFiles(tmp_path / "two", {})
    runs = files.complete([0, 1, 2], NAMES, plain_numbers, processes=2, tick=lambda count: None)
    assert runs == complete(tmp_path / "one", [0, 1, 2], [])
    assert list(runs) == [0, 1, 2]
    assert sorted(path.name for path in files.folder.iterdir()) == [f"seed-00{seed}.json" for seed in range(3)]


def test_a_number_json_cannot_hold_leaves_the_old_file(tmp_path):
    path = tmp_path / "result.json"
    write_json(path, {"value": 1.0})
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"value": math.nan})
    assert read_json(path) == {"value": 1.0}
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]
