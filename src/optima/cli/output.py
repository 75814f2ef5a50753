"""What the verbs have in common before they work: what counts as wrong usage, and the folder they write to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

MOST_EPOCHS = 1_000_000


class UsageError(ValueError):
    """What was asked for cannot be done: one line and exit code 2."""


@contextmanager
def usage(*kinds: type[Exception]) -> Iterator[None]:
    """Whatever goes wrong in here is wrong usage; errors of those kinds alone, if any are given."""
    wrong = kinds or (ValueError, TypeError, OSError)
    try:
        yield
    except wrong as error:
        raise UsageError(sentence(error)) from error


def sentence(error: Exception) -> str:
    """What happened, in one line; an error of the operating system names its file."""
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return f"{where}{error.strerror}"
    said = " ".join(str(error).split())
    if isinstance(error, ValueError | TypeError | OSError | RuntimeError) and said:
        return said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def checked_range(option: str, value: int, low: int, high: int) -> None:
    """Raise unless an option's number lies in a range."""
    if value < low:
        raise ValueError(f"{option} must be at least {low}, got {value}")
    if value > high:
        raise ValueError(f"{option} must be at most {high}, got {value}")


def checked_folder(output: str) -> Path:
    """The folder, which need not exist yet, if it can be written to: it is made for a moment, to see."""
    if not output:
        raise ValueError("--output must name a folder, got an empty name")
    path = Path(os.path.abspath(output))  # noqa: PTH100  resolve() would follow a link that leads nowhere
    missing = []
    for folder in (path, *path.parents):
        if os.path.lexists(folder):
            break
        missing.append(folder)
    nearest = missing[-1].parent if missing else path
    if not nearest.is_dir():
        raise NotADirectoryError(f"--output must be a folder, and {nearest} is a file")
    made = []
    try:
        for folder in reversed(missing):
            folder.mkdir()
            made.append(folder)
        with TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UsageError(f"--output: cannot write to {output}: {error.strerror}") from error
    finally:
        with suppress(OSError):  # somebody else has put something there meanwhile
            for folder in reversed(made):
                folder.rmdir()
    return Path(output)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Name the folder in an error of the operating system that names no file, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(folder)
        raise
