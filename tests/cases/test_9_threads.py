"""Cases, section 9: threads, streams, processes.

Elsewhere: A77 is tests/gpu/test_gpu_graphs.py::test_other_work_during_captures (and every call of a
capture over a fake driver in tests/cuda_fake/test_cuda_graph_faults.py). A79 is
tests/binding/test_bind_fork.py, tests/runtime/test_session_processes.py and, for GPUs,
tests/gpu/test_gpu_processes.py::test_a_forked_child_gets_an_error. Closing under calls (A78) is also
tests/runtime/test_runtime_threads.py and test_sessions.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import cudaexec
from timing import processors, rate, rounds, seconds_together

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def heavy(once: Callable[..., Path]) -> Path:
    """For the CPU, whatever the target: a call of some milliseconds, and 128 MiB of weights."""

    class Heavy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(256, 256) / 16)
            self.ballast = nn.Parameter(torch.zeros(1 << 25))
            self.register_buffer("total", torch.zeros(256, 256))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(12):
                x = torch.relu(x @ self.weight)
            self.total.add_(x * self.ballast[0].add(1))
            return self.total * 1

    def make(directory: Path) -> None:
        torch.manual_seed(0)
        cudaexec.export(
            Heavy(), (torch.randn(256, 256),), path=directory / "model.pte", target="cpu"
        )

    return once("cases-heavy", make) / "model.pte"


@pytest.fixture
def module(heavy: Path) -> Iterator[cudaexec.Module]:
    with cudaexec.load(heavy, options=cudaexec.LoadOptions(threads=1)) as module:
        yield module


@pytest.mark.skipif(len(processors()) < 2, reason="needs two processors")
def test_a72_sessions_run_at_the_same_time(module: cudaexec.Module) -> None:
    count = min(4, len(processors()))
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((256, 256), np.float32) for _ in range(count)]
    sessions = [module.session() for _ in inputs]

    def talk(i: int) -> None:
        sessions[i].reset()
        for _ in range(8):
            results[i] = sessions[i](inputs[i])

    results: dict[int, Any] = {}
    for i in range(count):
        talk(i)
    alone = dict(results)
    one = together = float("inf")
    for _ in rounds():
        one = min(one, *(seconds_together([lambda: talk(0)]) for _ in range(5)))
        together = min(together, seconds_together([lambda i=i: talk(i) for i in range(count)]))
        for i, result in results.items():
            np.testing.assert_array_equal(result, alone[i])
        if together < 0.8 * count * one:  # one after the other: at least `count`
            return
    raise AssertionError(f"{count} threads take {together} s, one takes {one} s")


@pytest.mark.skipif(len(processors()) < 2, reason="needs two processors")
@pytest.mark.parametrize("what", ["run", "load"])
def test_a73_other_threads_go_on(heavy: Path, module: cudaexec.Module, what: str) -> None:
    """A thread of pure Python keeps more than half of its pace."""
    x = np.zeros((256, 256), np.float32)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            if what == "run":
                module(x)
            else:
                cudaexec.load(heavy, options=cudaexec.LoadOptions(threads=1)).close()

    idle = busy = 0.0
    for _ in rounds():
        idle = max(idle, rate(0.05))
        stop.clear()
        thread = threading.Thread(target=work)
        thread.start()
        try:
            busy = max(busy, rate(0.1))
        finally:
            stop.set()
            thread.join()
        if busy > 0.5 * idle:
            return
    raise AssertionError(f"{busy} additions a second, {idle} when idle")


def run_options(on_gpu: bool) -> dict[str, Any]:
    """On a GPU, a stream that waits for no other."""
    return {"stream": torch.cuda.Stream()} if on_gpu else {}


def test_a75_a_call_right_after_load_or_an_update(
    program: Callable[[str], Path], on_gpu: bool
) -> None:
    """Never an old, a missing or a partly written weight."""
    x = torch.ones(4096, device="cuda" if on_gpu else "cpu")
    if on_gpu:
        torch.cuda.synchronize()
    for _ in range(10):
        with cudaexec.load(program("state")) as module:
            assert bool((module.method("scale")(x, **run_options(on_gpu)) == 1).all())
    with cudaexec.load(program("state")) as module:
        scale, options = module.method("scale"), run_options(on_gpu)
        outputs = []
        for i in range(500):
            module.load_weights({"weight": np.full(4096, i, np.float32)})
            outputs.append(scale(x, **options))
        if on_gpu:
            torch.cuda.synchronize()
        for i, output in enumerate(outputs):
            assert bool((output == i).all()), i


def test_a78_closing_and_dropping_under_calls(program: Callable[[str], Path]) -> None:
    """A call that has begun is finished, one that has not is a ClosedError; nothing waits forever."""
    x = torch.randn(64, 16)
    with cudaexec.load(program("mlp")) as module:
        expected = module(x)
    with ThreadPoolExecutor(3) as pool:
        for i in range(30):
            module = cudaexec.load(program("mlp"))
            dropped: list[cudaexec.Module] = [module]
            futures = [pool.submit(module, x) for _ in range(3)]
            futures[0].add_done_callback(lambda _, dropped=dropped: dropped.clear())
            futures[2].cancel()
            if i % 2:
                module.close()
            del module
            for future in futures:
                if future.cancelled():
                    continue
                error = future.exception(timeout=30)
                if error is None:
                    torch.testing.assert_close(future.result(), expected)
                else:
                    assert i % 2 and isinstance(error, cudaexec.ClosedError)


COUNT = """
import json, os, sys, threading
os.sched_setaffinity(0, set(list(os.sched_getaffinity(0))[: int(sys.argv[2])]))
import numpy as np, cudaexec
from cudaexec import LoadOptions
threads = int(sys.argv[3]) or None
module = cudaexec.load(sys.argv[1], device="cpu", options=LoadOptions(threads=threads))
x = np.ones((256, 256), np.float32)
for _ in range(3): module(x)
print(json.dumps(len(os.listdir("/proc/self/task"))))
"""


@pytest.mark.parametrize(
    ("cpus", "omp", "option", "expected"),
    [(1, None, 0, 1), (2, "1", 0, 1), (2, "999", 0, 2), (2, None, 1, 1), (1, "999", 999, 1)],
)
def test_a80_threads_stay_within_what_is_allowed(
    heavy: Path, cpus: int, omp: str | None, option: int, expected: int
) -> None:
    """Affinity, OMP_NUM_THREADS and `threads=`; cgroups are tests/aoti/test_threads.py."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("OMP_NUM_THREADS", None)
    if omp is not None:
        environment["OMP_NUM_THREADS"] = omp
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", COUNT, str(heavy), str(cpus), str(option)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == min(expected, len(processors()))
