"""Image augmentations against kornia, torchvision, OpenCV and Pillow; forwards, and forwards and back to φ.

python -m benchmarks.images [--quick] [--torchvision-shim DIR]     measure; results go into the JSON of --output
python -m benchmarks.images --table [--write docs/benchmarks.md]   what the JSON says, as tables
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from benchmarks import contestants, families, options, tables, timing
from benchmarks.record import Record

QUICK = Path("runs/benchmarks/images-quick.json")
FULL = Path("docs/benchmarks/images.json")


def main(argv: list[str]) -> int:
    """Measure in one process per number of threads, or show what was measured."""
    asked = _arguments().parse_args(argv)
    options.settle(asked, quick=QUICK, full=FULL)
    if asked.table:
        options.show(tables.images(asked.output), asked.write, "images")
    elif asked.worker:
        return _measure(asked, asked.worker)
    else:
        # the first record is only opened here so that a file from elsewhere is refused before anything is measured
        Record(asked.output, "images", options.command("images", argv), fresh=asked.fresh).write()
        return options.per_thread("images", argv, asked.threads)
    return 0


def _arguments() -> argparse.ArgumentParser:
    parser = options.parser(__doc__ or "", rounds=11)
    parser.add_argument("--sizes", nargs="+", choices=("32", "224"), help="side of the images")
    parser.add_argument("--dtypes", nargs="+", choices=("float32", "bf16"))
    shim = os.environ.get("TORCHVISION_SHIM")
    parser.add_argument(
        "--torchvision-shim",
        type=Path,
        metavar="DIR",
        default=Path(shim) if shim else None,
        help="a folder whose torchvision_cpu makes a torchvision built for CUDA importable; also $TORCHVISION_SHIM",
    )
    return parser


def _measure(asked: argparse.Namespace, threads: int) -> int:
    """Every cell of this number of threads; how many failed."""
    warnings.simplefilter("ignore")  # the peers' own
    torch.set_num_threads(threads)
    record = Record(asked.output, "images", options.command("images", sys.argv[1:]))
    failed = 0
    for size, dtype in itertools.product(asked.sizes, asked.dtypes):
        on = families.batch(size, dtype)
        for family in asked.families:
            measure = functools.partial(_cell, family, on, threads, asked)
            failed += not options.measured(record, f"{family}/{size}/{dtype}/{threads}", asked.rounds, measure)
    return failed


def _cell(family: str, on: families.Batch, threads: int, asked: argparse.Namespace) -> dict[str, Any]:
    with contestants.cell(family, on, threads, asked.torchvision_shim) as cell:
        times, calls = timing.interleaved(cell.actions, asked.rounds)
    found = {name: {**timing.quartiles(times[name]), "calls": calls[name]} for name in times}
    return {"ms": found, "absent": cell.absent, "change": cell.change}


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
