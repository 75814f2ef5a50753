"""Image files of all sorts become tensors of one size, and what is no image is refused by name."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from optima.report.pictures import read_images


def save(path: Path, pixels: np.ndarray, **options) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


def ramp(height: int, width: int, channels: int = 3) -> np.ndarray:
    pixels = np.arange(height * width * channels) * 7 % 256
    return pixels.astype(np.uint8).reshape(height, width, channels).squeeze()


def test_an_image_keeps_its_pixels_and_its_size(tmp_path: Path):
    save(tmp_path / "a.png", ramp(5, 7))
    images, names = read_images(tmp_path / "a.png", 4)
    assert (tuple(images.shape), names) == ((1, 3, 5, 7), ["a.png"])
    np.testing.assert_allclose(images[0].permute(1, 2, 0), ramp(5, 7) / 255, atol=1e-6)


def test_grey_stays_grey_only_among_its_like(tmp_path: Path):
    save(tmp_path / "a.png", ramp(5, 7, 1))
    save(tmp_path / "b.png", ramp(9, 9, 1))
    assert tuple(read_images(tmp_path, 4)[0].shape) == (2, 1, 5, 7)
    save(tmp_path / "c.png", ramp(5, 7))
    assert tuple(read_images(tmp_path, 4)[0].shape) == (3, 3, 5, 7)


@pytest.mark.parametrize(
    ("size", "shown"), [((300, 600), (224, 224)), ((100, 600), (100, 224)), ((448, 300), (224, 224))]
)
def test_a_large_one_is_scaled_and_cropped(tmp_path: Path, size: tuple[int, int], shown: tuple[int, int]):
    save(tmp_path / "a.png", np.full((*size, 3), 100, np.uint8))
    assert tuple(read_images(tmp_path, 1)[0].shape) == (1, 3, *shown)


def test_sixteen_bits_and_transparency(tmp_path: Path):
    save(tmp_path / "deep.png", np.array([[0, 65535], [32768, 256]], np.uint16))
    np.testing.assert_allclose(read_images(tmp_path / "deep.png", 1)[0][0, 0] * 255, [[0, 255], [128, 1]], atol=1e-4)
    clear = np.array([[[255, 0, 0, 0], [255, 0, 0, 255]]], np.uint8)
    save(tmp_path / "clear.png", clear)
    np.testing.assert_allclose(read_images(tmp_path / "clear.png", 1)[0][0, :, 0].T, [[1, 1, 1], [1, 0, 0]])


def test_a_turned_photograph_is_upright(tmp_path: Path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned by a quarter
    save(tmp_path / "a.png", ramp(4, 9), exif=exif)
    np.testing.assert_allclose(
        read_images(tmp_path, 1)[0][0].permute(1, 2, 0), np.rot90(ramp(4, 9), -1) / 255, atol=1e-6
    )


def test_a_folder_of_folders_is_sampled_evenly(tmp_path: Path):
    for name in ("cat/1.png", "cat/2.png", "dog/1.JPG", "dog/2.png", "fox/1.png", "fox/2.png"):
        save(tmp_path / name, ramp(3, 3))
    (tmp_path / "labels.txt").write_text("not an image")
    (tmp_path / ".hidden.png").write_text("nor this")
    assert read_images(tmp_path, 3)[1] == ["1.png", "1.JPG", "1.png"]
    assert len(read_images(tmp_path, 100)[1]) == 6


@pytest.mark.parametrize("content", [b"", b"text", b"\x89PNG\r\n\x1a\n half"])
def test_what_is_no_image_is_refused_by_name(tmp_path: Path, content: bytes):
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(ValueError, match=r"--images: cannot read .*a\.png as an image") as refused:
        read_images(tmp_path, 1)
    assert "\n" not in str(refused.value)


def test_an_image_cut_short_is_refused(tmp_path: Path):
    save(tmp_path / "a.png", np.random.default_rng(0).integers(0, 255, (64, 64), np.uint8))
    (tmp_path / "a.png").write_bytes((tmp_path / "a.png").read_bytes()[:2000])
    with pytest.raises(ValueError, match="cannot read"):
        read_images(tmp_path, 1)


def test_nothing_to_read(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="there is nothing at"):
        read_images(tmp_path / "none", 1)
    with pytest.raises(FileNotFoundError, match="no image in"):
        read_images(tmp_path, 1)


def test_without_pillow_it_says_what_to_install(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ValueError, match="pip install pillow"):
        read_images(tmp_path, 1)
