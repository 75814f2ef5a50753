"""The file a benchmark writes: where and with what it ran, and one entry per cell, kept from one call to the next.

A cell is what was measured together, in turns. Cells that the file already has are not measured again, unless the code
they measured has changed since, or they had fewer rounds than are asked for now.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import Any

from optima.files import write_whole

ROOT = Path(__file__).parents[1]
SCHEMA = 1
PACKAGES = ("torch", "numpy", "kornia", "torchvision", "opencv-python-headless", "opencv-python", "pillow")
# what a number depends on, beside the versions; not the tables, nor the rest of the library
CODE = ("src/optima/*.py", "src/optima/augment", "src/optima/transforms", "src/optima/objective")
HARNESS = ("benchmarks/*.py",)
READERS = {
    "tables.py",
    "cost_tables.py",
    "results.py",
    "notes.py",
    "options.py",
    "record.py",
    "import_time.py",
    "__init__.py",
}


class Record:
    """One benchmark's results, written whole after every cell.

    Args:
        path: the JSON file.
        benchmark: its name, "images" or "learning_cost".
        command: what was typed, without paths.
        fresh: begin anew, whatever the file holds.
    """

    def __init__(self, path: Path, benchmark: str, command: str, *, fresh: bool = False):
        self.path = path
        self.code = digest()
        here = {"schema": SCHEMA, "benchmark": benchmark, "machine": machine(), "versions": versions()}
        self.data: dict[str, Any] = {**here, "command": command, "date": today(), "cells": {}, "skipped": {}}
        if path.exists() and not fresh:
            self._continue(here)

    def has(self, key: str, rounds: int) -> bool:
        """Whether the cell is there, measured on this code with at least that many rounds."""
        cell = self.data["cells"].get(key)
        return cell is not None and cell["code"] == self.code and cell["rounds"] >= rounds

    def keep(self, key: str, rounds: int, cell: dict[str, Any]) -> None:
        """Add a cell and write the file."""
        self.data["cells"][key] = {
            "code": self.code,
            "date": today(),
            "load": round(os.getloadavg()[0], 1),  # of the minute before: 1 and a little for one thread alone
            "rounds": rounds,
            **cell,
        }
        self.data["skipped"].pop(key, None)
        self.write()

    def skip(self, key: str, reason: str) -> None:
        """Note why a cell could not be measured; an older measurement of it goes."""
        self.data["cells"].pop(key, None)
        self.data["skipped"][key] = reason
        self.write()

    def write(self) -> None:
        """The file, whole."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, json.dumps(self.data, indent=1, ensure_ascii=False) + "\n")

    def _continue(self, here: dict[str, Any]) -> None:
        before = load(self.path)
        differs = [name for name, value in here.items() if before.get(name) != value]
        if differs:
            raise SystemExit(
                f"{self.path.name} was measured with another {', '.join(differs)}, and its numbers do not belong beside"
                " those of this run: say --fresh to begin anew, or give another --output"
            )
        self.data["cells"], self.data["skipped"] = before["cells"], before["skipped"]


def load(path: Path) -> dict[str, Any]:
    """What a file holds."""
    return json.loads(path.read_text(encoding="utf-8"))


def digest() -> str:
    """A short hash of the library's and the benchmark's source, as far as times depend on it."""
    found: set[Path] = set()
    for pattern in (*CODE, *HARNESS):
        path = ROOT / pattern
        found |= set(path.rglob("*.py")) if path.is_dir() else set(path.parent.glob(path.name))
    total = hashlib.sha256()
    for path in sorted(found):
        if path.parent.name != "benchmarks" or path.name not in READERS:
            total.update(path.read_bytes())
    return total.hexdigest()[:12]


def machine() -> dict[str, Any]:
    """The processor, and no name by which the machine could be told from others of its kind."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
    }


def versions() -> dict[str, str]:
    """Of Python and of whatever is measured, where installed."""
    found = {"python": platform.python_version(), "optima": importlib.metadata.version("optima")}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def today() -> str:
    """The date, in UTC."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def _cpu() -> str:
    """Name, family and model: a virtual machine's name alone often says no more than the maker."""
    fields: dict[str, str] = {}
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    name = fields.get("model name") or platform.processor() or platform.machine()
    if "cpu family" not in fields:
        return name
    flags = fields.get("flags", "").split()
    widest = next((word for flag, word in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags), "SSE")
    return f"{name}, family {fields['cpu family']} model {fields['model']}, {widest}"
