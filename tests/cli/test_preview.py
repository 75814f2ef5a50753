"""`optima preview` from the outside: its file, its streams, its exit codes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import optima
from optima import learn
from optima.augment import Augmenter
from optima.cli import main

POLICY = optima.Sequential(optima.Rotate(std=learn(10.0)), optima.Mixup(alpha=0.4))


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """Run the command line in an empty folder, in this process: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["optima", "preview", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture
def run(tmp_path: Path) -> str:
    optima.save(POLICY, tmp_path / "run" / "policy")
    return "run"


def a_photo(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = (np.arange(24 * 20 * 3) * 11 % 256).astype(np.uint8).reshape(24, 20, 3)
    Image.fromarray(pixels).save(path)


def refused(result: tuple[int, str, str]) -> str:
    """The one line on standard error of a wrong usage."""
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.startswith("optima: ")
    assert err.count("\n") == 1
    return err


def test_it_writes_one_page_and_prints_a_table_and_its_place(call, run: str, tmp_path: Path):
    code, out, err = call(run)
    assert (code, err) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["preview.html", "run"]
    page = (tmp_path / "preview.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "digit 2" in page
    for word in ("rotate.std", "mixup.alpha", "not trained", "preview.html"):
        assert word in out


@pytest.mark.parametrize("name", ["run", "run/policy", "run/policy.json", "run/policy.safetensors"])
def test_a_run_or_a_policy_may_be_named(call, run: str, name: str):
    assert call(name)[0] == 0


def test_json_is_all_of_stdout(call, run: str, tmp_path: Path):
    code, out, err = call(run, "--json", "--quantiles", "3", "--count", "1", "--output", "new/a.html")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["kind"], found["images"]) == ("optima preview", ["digit 2"])
    rotate, mixup = found["augmentations"]
    assert [tile["place"] for tile in rotate["prior"]] == ["5 %", "50 %", "95 %"]
    assert mixup["prior"] is None
    assert (tmp_path / "new" / "a.html").exists()


def test_images_of_a_folder(call, run: str, tmp_path: Path):
    for name in ("a.png", "deeper/b.png", "c.png"):
        a_photo(tmp_path / "photos" / name)
    code, out, err = call(run, "--images", "photos", "--json", "--count", "2")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["images"], found["image_shape"]) == (["a.png", "c.png"], [3, 24, 20])


def test_a_single_image_is_its_own_partner(call, run: str, tmp_path: Path):
    a_photo(tmp_path / "a.png")
    optima.save(optima.Rotate(std=learn(10.0)), tmp_path / "alone")
    assert call("alone", "--images", "a.png")[0] == 0
    assert call(run, "--images", "a.png", "--force")[0] == 0


def test_a_picture_instead_of_a_page(call, run: str, tmp_path: Path):
    code, _, err = call(run, "--output", "preview.png")
    assert (code, err) == (0, "")
    picture = Image.open(io.BytesIO((tmp_path / "preview.png").read_bytes()))
    assert picture.width > 500
    assert len(np.unique(np.asarray(picture))) > 50


def test_the_same_seed_gives_the_same_page(call, run: str, tmp_path: Path):
    pages = []
    for seed in ("0", "0", "1"):
        assert call(run, "--force", "--seed", seed)[0] == 0
        pages.append((tmp_path / "preview.html").read_bytes())
    assert pages[0] == pages[1]
    assert pages[0] != pages[2]


def test_nothing_is_overwritten_without_force(call, run: str, tmp_path: Path):
    (tmp_path / "preview.html").write_text("mine")
    assert "--force" in refused(call(run))
    assert (tmp_path / "preview.html").read_text() == "mine"
    assert call(run, "--force")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--count", "0"), "--count must be at least 1, got 0"),
        (("--quantiles", "0"), "--quantiles must be from 1 to 15, got 0"),
        (("--quantiles", "16"), "--quantiles must be from 1 to 15, got 16"),
        (("--seed", "-1"), "--seed must be a whole number from 0"),
        (("--output", "preview.pdf"), "--output must end in .html or .png, got 'preview.pdf'"),
        (("--output", "run/policy.json/a.html"), "--output: run/policy.json is not a folder"),
        (("--images", "nowhere"), "--images: there is nothing at nowhere"),
        (("--images", "run"), "--images: no image in run"),
        (("--images", "run/policy.json"), "--images: cannot read run/policy.json as an image"),
    ],
)
def test_a_wrong_argument_is_one_line_and_writes_nothing(call, run: str, tmp_path: Path, arguments, problem: str):
    assert problem in refused(call(run, *arguments))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_policy_that_is_missing_or_damaged(call, run: str, tmp_path: Path):
    assert "no policy at nowhere.json" in refused(call("nowhere"))
    (tmp_path / "empty").mkdir()
    assert "no policy at empty/policy.json" in refused(call("empty"))
    (tmp_path / "run" / "policy.safetensors").write_bytes(b"damaged")
    assert "is damaged" in refused(call(run))
    (tmp_path / "run" / "policy.json").write_text("{")
    assert "is not JSON" in refused(call(run))
    assert not (tmp_path / "preview.html").exists()


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        (
            optima.TokenDropout(p=learn(0.1), mask_id=3),
            "a preview shows images, which this policy does not take: Token",
        ),
        (optima.Shift(std=learn(1.0)), "may be for signals, since Shift takes any; pass --images"),
    ],
)
def test_a_policy_that_is_not_for_images(call, tmp_path: Path, policy: Augmenter, problem: str):
    optima.save(policy, tmp_path / "other")
    assert problem in refused(call("other"))
    a_photo(tmp_path / "a.png")
    assert (call("other", "--images", "a.png")[0] == 0) == isinstance(policy, optima.Shift)


def test_without_matplotlib_there_is_a_page_and_no_picture(call, run: str, monkeypatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for module in ("optima.report.sheet", "optima.report.charts"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    assert "pip install matplotlib" in refused(call(run, "--output", "preview.png"))
    assert call(run)[0] == 0
    assert not (tmp_path / "preview.png").exists()


def test_a_page_of_digits_needs_neither_pillow_nor_matplotlib(run: str, tmp_path: Path):
    code = (
        "import sys; sys.modules['PIL'] = sys.modules['matplotlib'] = None; sys.argv = ['optima', 'preview', 'run'];"
        "from optima.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "preview.html").exists()
