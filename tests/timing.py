"""Measurements on machines where other processes run: such as the other workers of this test run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator

PATIENCE = 60.0  # seconds after which a measurement that never held has failed


def processors() -> list[int]:
    """Those this process may use."""
    return sorted(os.sched_getaffinity(0))


def rounds() -> Iterator[None]:
    """Rounds, at least one, until the patience is over.

    Noise only ever adds to a time: a round compares the smallest of each time so far and returns
    once they are as they should be. Code that is too slow never gets there.
    """
    end = time.monotonic() + PATIENCE
    yield
    while time.monotonic() < end:
        yield


def least_seconds(work: Callable[[], object], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def seconds_together(work: list[Callable[[], object]]) -> float:
    """Until all are through, each in a thread of its own on a processor of its own.

    Without that, the kernel may leave two threads on one processor while another process has the next.
    """
    allowed = processors()

    def run(processor: int, each: Callable[[], object]) -> None:
        os.sched_setaffinity(0, {processor})  # of the calling thread alone
        start.wait()
        each()

    start = threading.Barrier(len(work) + 1)
    threads = [
        threading.Thread(target=run, args=(allowed[i % len(allowed)], each))
        for i, each in enumerate(work)
    ]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def rate(duration: float) -> float:
    """Additions a second by this thread of Python, over `duration` seconds."""
    count = 0
    start = time.perf_counter()
    while time.perf_counter() - start < duration:
        count += 1
    return count / duration
