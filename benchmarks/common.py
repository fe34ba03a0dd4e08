"""Timing shared by the benchmarks: candidates interleaved in random order, median and spread."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Microseconds per call: median over the rounds, and the 10th and 90th percentile."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:9.2f} ({self.low:.2f}-{self.high:.2f})"


def measure(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int = 15,
    round_seconds: float = 0.03,
    warmup_seconds: float = 0.03,
) -> dict[str, Timing]:
    """Time candidates in `rounds` slices of `round_seconds`, in a new random order each round."""
    calls: dict[str, int] = {}
    for name, call in candidates.items():
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < warmup_seconds or count < 3:
            call()
            count += 1
        each = (time.perf_counter() - start) / count
        calls[name] = max(3, int(round_seconds / each))
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    order = list(candidates)
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            call, count = candidates[name], calls[name]
            call()
            start = time.perf_counter()
            for _ in range(count):
                call()
            samples[name].append((time.perf_counter() - start) / count * 1e6)
    result = {}
    for name, values in samples.items():
        values.sort()
        low, high = values[len(values) // 10], values[-1 - len(values) // 10]
        result[name] = Timing(statistics.median(values), low, high)
    return result
