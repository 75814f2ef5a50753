"""How long `import optima` takes beyond `import torch`: medians of interleaved fresh interpreters.

python benchmarks/import_time.py [repeats]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time


def seconds(code: str) -> float:
    """Wall-clock time of one interpreter that runs `code`."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603
    return time.perf_counter() - start


def main(repeats: int) -> None:
    """Print the two medians and the median of the differences of neighbours."""
    cases = {"torch": "import torch", "optima": "import torch, optima"}
    for code in cases.values():
        seconds(code)  # fill the file cache
    rounds = [{name: seconds(code) for name, code in cases.items()} for _ in range(repeats)]
    for name in cases:
        print(f"import {name}: {statistics.median(times[name] for times in rounds):.3f} s")  # noqa: T201
    extra = statistics.median(times["optima"] - times["torch"] for times in rounds)
    print(f"optima adds: {1000 * extra:.0f} ms")  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
