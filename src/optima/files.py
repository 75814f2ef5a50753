"""Files that are never half written."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Write aside, then rename: a crash leaves the old file or the new one."""
    data = content.encode() if isinstance(content, str) else content
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        if error.errno is None:
            raise
        # the file that was asked for, and not the one beside it
        raise type(error)(error.errno, error.strerror, str(path)) from error
    finally:
        aside.unlink(missing_ok=True)
