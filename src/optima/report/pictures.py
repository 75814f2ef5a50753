"""Pictures in and out: image files as tensors, which needs Pillow, and tensors as PNG, which needs nothing."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

LARGEST = 224
_FIRST_DIGIT = 2  # a nought and a one say little about turns and shifts


def bundled(count: int) -> tuple[Tensor, list[str]]:
    """Some of the bundled digits, (count, 1, 8, 8), and what they are called."""
    from optima.data import digits

    chosen = slice(_FIRST_DIGIT, _FIRST_DIGIT + count)
    return digits().images[chosen], [f"digit {label}" for label in digits().labels[chosen].tolist()]


def read_images(path: Path, count: int) -> tuple[Tensor, list[str]]:
    """Up to `count` images, (N, C, H, W) with values in [0, 1], and the names of their files.

    Of a folder, files spread evenly over the sorted list of all that it and its subfolders hold. A side longer than 224
    is scaled down and cropped about the centre, and every image is then brought to the first one's size. Grey images
    stay grey when all of them are.
    """
    pillow = _pillow()
    files = _files(path, pillow, count)
    pictures = [_read(file, pillow) for file in files]
    size = _shown_size(pictures[0].size)
    mode = "L" if all(picture.mode == "L" for picture in pictures) else "RGB"
    fitted = [_fitted(picture.convert(mode), size) for picture in pictures]
    names = [file.name for file in files]
    pixels = [torch.from_numpy(np.array(picture, dtype=np.float32) / 255) for picture in fitted]
    if mode == "L":
        return torch.stack(pixels).unsqueeze(1), names
    return torch.stack(pixels).permute(0, 3, 1, 2).contiguous(), names


def png(picture: Tensor) -> bytes:
    """One image (C, H, W), grey or of three colours, as the bytes of a PNG file; values beyond [0, 1] are cut off."""
    pixels = picture.detach().float().clamp(0, 1).mul(255).round().byte().permute(1, 2, 0).contiguous().numpy()
    height, width, channels = pixels.shape
    # each row is written as its difference from the one above, modulo 256 (filter 2), which compresses better
    rows = (pixels - np.concatenate([np.zeros_like(pixels[:1]), pixels[:-1]])).reshape(height, -1)
    data = np.concatenate([np.full((height, 1), 2, np.uint8), rows], 1).tobytes()
    header = struct.pack(">2I5B", width, height, 8, {1: 0, 3: 2}[channels], 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(data, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _pillow() -> ModuleType:
    try:
        from PIL import Image
    except Exception as error:  # a broken installation raises more than ImportError
        reason = str(error).partition("\n")[0]
        raise ValueError(f"--images needs Pillow ({reason}): pip install pillow") from error
    return Image


def _files(path: Path, pillow: ModuleType, count: int) -> list[Path]:
    if not path.exists():
        raise FileNotFoundError(f"--images: there is nothing at {path}")
    if path.is_file():
        return [path]
    endings = set(pillow.registered_extensions())
    found = sorted(file for file in path.rglob("[!.]*") if file.suffix.lower() in endings and file.is_file())
    if not found:
        raise FileNotFoundError(f"--images: no image in {path}, or in a folder below it")
    count = min(count, len(found))
    return [found[index * len(found) // count] for index in range(count)]


def _read(path: Path, pillow: ModuleType) -> Any:
    """The picture upright, over white where it is transparent, in mode L or RGB."""
    from PIL import ImageOps

    try:
        with pillow.open(path) as file:
            picture = ImageOps.exif_transpose(file)
            if picture.mode.startswith("I"):  # 16 bits, which a conversion would cut to 8 from the wrong end
                picture = pillow.fromarray((np.asarray(picture).clip(0, 65535) // 256).astype(np.uint8))
            if picture.has_transparency_data:
                picture = picture.convert("RGBA")
                picture = pillow.alpha_composite(pillow.new("RGBA", picture.size, "white"), picture)
            return picture.convert("L" if picture.mode in ("1", "L") else "RGB")
    except Exception as error:  # decoders of damaged files raise anything
        reason = " ".join(str(error).split())
        raise ValueError(f"--images: cannot read {path} as an image: {reason}") from error


def _shown_size(size: tuple[int, int]) -> tuple[int, int]:
    """Natural, up to the limit on each side."""
    shorter = min(1.0, LARGEST / min(size))
    width, height = (min(LARGEST, max(1, round(side * shorter))) for side in size)
    return width, height


def _fitted(picture: Any, size: tuple[int, int]) -> Any:
    if picture.size == size:
        return picture
    from PIL import ImageOps

    return ImageOps.fit(picture, size)
