"""Accuracy and speed of the vector functions that generated CPU code calls: docs/accuracy.md.

    python benchmarks/bench_vector_functions.py [--count 200000]

Largest error in ULP over the ranges of tests/ops/test_sleef.py and over random bit patterns, and
nanoseconds per element on arrays of 4096, the call of each vector through a pointer included.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/ops"))
import test_sleef as cases


def nanoseconds(function: Callable[[], object], size: int) -> float:
    """Time per element of the fastest of seven calls."""
    best = float("inf")
    for _ in range(7):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best / size * 1e9


def error(name: str, level: str, dtype: type, count: int) -> float:
    """Largest error in ULP."""
    unary = name in cases.UNARY
    suffix, function, ranges = (cases.UNARY if unary else cases.BINARY)[name]
    if function is None:
        count = min(count, 50_000)
    worst = 0.0
    for seed in range(len(ranges) + 1):
        if seed < len(ranges):
            x = cases.operands(dtype, ranges[seed], seed, count)
            y = cases.operands(dtype, (-9, 9), 50 + seed, count)
        else:
            x, y = cases.any_bits(dtype, 7, count), cases.any_bits(dtype, 8, count)
        operands = (x,) if unary else (x, y)
        ours = cases.run(level, name + suffix, *operands)
        worst = max(worst, cases.max_ulp(ours, cases.reference(name, function, *operands)))
    return worst


def speed(name: str, level: str, dtype: type) -> float:
    """Nanoseconds per element."""
    unary = name in cases.UNARY
    suffix, _, ranges = (cases.UNARY if unary else cases.BINARY)[name]
    x = cases.operands(dtype, ranges[0], 1, 4096)
    y = None if unary else cases.operands(dtype, (-9, 9), 2, 4096)
    return nanoseconds(lambda: cases.run(level, name + suffix, x, y), x.size)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200_000, help="values per range")
    count = parser.parse_args().count
    columns = [(level, dtype) for dtype in (np.float32, np.float64) for level in cases.LEVELS]
    heads = [f"{np.dtype(dtype).name} {level}" for level, dtype in columns]
    print("| function | " + " | ".join(heads) + " | ns: " + ", ".join(heads) + " |")
    print("|---" * (len(heads) + 2) + "|")
    for name in [*cases.UNARY, *cases.BINARY]:
        errors = [f"{error(name, level, dtype, count):.2f}" for level, dtype in columns]
        times = [f"{speed(name, level, dtype):.1f}" for level, dtype in columns]
        print(f"| {name} | " + " | ".join(errors) + f" | {', '.join(times)} |", flush=True)


if __name__ == "__main__":
    main()
