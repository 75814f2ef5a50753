"""The folder a verb writes to, checked before any work is done."""

from __future__ import annotations

import os
from pathlib import Path


def checked_folder(output: str) -> Path:
    """The folder, which need not exist yet, if it can be written to."""
    if not output:
        raise ValueError("--output must name a folder, got an empty name")
    path = Path(output)
    nearest = next(folder for folder in (path, *path.absolute().parents) if folder.exists() or folder.is_symlink())
    if not nearest.is_dir():
        raise NotADirectoryError(f"--output must be a folder, and {nearest} is a file")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(f"--output: no permission to write in {nearest}")
    return path
