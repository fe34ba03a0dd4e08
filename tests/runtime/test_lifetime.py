"""Who keeps whom alive, and that unloading is complete."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cudaexec
from cudaexec import _core

pytestmark = pytest.mark.torch
Program = Callable[[str], Path]
X = np.ones((3, 8), np.float32)


def test_a_method_keeps_its_module(program: Program) -> None:
    expected = cudaexec.load(program("mlp_a"))(X)

    def method() -> object:
        return cudaexec.load(program("mlp_a")).method("forward")

    forward = method()
    gc.collect()
    np.testing.assert_array_equal(forward(X), expected)
    before = _core._testing.live_counts()["containers"]
    del forward
    gc.collect()
    assert _core._testing.live_counts()["containers"] == before - 1


@pytest.mark.parametrize("end", ["close", "drop"])
def test_outputs_outlive_the_module(program: Program, end: str) -> None:
    module = cudaexec.load(program("views"))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    outputs = module(x)
    state = module.state_dict()
    expected = [np.array(output, copy=True) for output in outputs]
    if end == "close":
        module.close()
    del module
    gc.collect()
    counts = _core._testing.live_counts()
    assert counts["containers"] == 0
    assert counts["shared_objects"] == 0
    for got, want in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(got, want)
    for got in outputs:
        got[...] = 0  # their memory is theirs to write
    np.testing.assert_array_equal(state["weight"].numpy(), np.arange(6).reshape(2, 3))


def test_trim_returns_memory(program: Program) -> None:
    with cudaexec.load(program("wide")) as module:
        y = module(np.ones(16, np.float32))
        stats = module.memory_stats()
        assert stats["working_current"] >= y.nbytes
        del y
        gc.collect()
        stats = module.memory_stats()
        assert stats["working_current"] == 0
        assert stats["cached"] >= 16 << 19
        assert module.trim() >= 16 << 19
        assert module.memory_stats()["cached"] == 0
        assert module(np.ones(2, np.float32)).shape == (2, 1 << 17)


CYCLES = """
import ctypes, gc, os, sys
import numpy as np
import cudaexec
path, cycles = sys.argv[1], int(sys.argv[2])
x = np.ones((3, 8), np.float32)
libc = ctypes.CDLL(None)

def usage():
    gc.collect()
    libc.malloc_trim(0)
    with open("/proc/self/maps") as f:
        maps = f.read()
    with open("/proc/self/status") as f:
        fields = dict(line.split(":", 1) for line in f)
    assert "memfd" not in maps and ".ptd" not in maps and ".pte" not in maps
    return (len(maps.splitlines()), len(os.listdir("/proc/self/fd")), int(fields["Threads"]),
            int(fields["VmRSS"].split()[0]))

expected = None
for cycle in range(cycles):
    with cudaexec.load(path) as module:
        y = module(x)
    expected = y if expected is None else expected
    assert np.array_equal(y, expected)
    if cycle in (10, 20):  # the first time, reading the numbers itself takes memory that stays
        start = usage()
end = usage()
assert end[:3] == start[:3], (start, end)
assert end[3] - start[3] <= 1024, (start, end)
"""


def test_500_cycles_are_flat(program: Program) -> None:
    command = [sys.executable, "-X", "faulthandler", "-c", CYCLES, str(program("mlp_a")), "500"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_many_sizes_stay_bounded(program: Program) -> None:
    """Calls of changing size, some of them refused, do not accumulate memory."""
    with cudaexec.load(program("wide")) as module:
        rng = np.random.default_rng(0)
        peak = 0
        for _ in range(300):
            rows = int(rng.integers(0, 66))
            try:
                module(np.ones(rows, np.float32))
            except cudaexec.ShapeError:
                assert rows in (0, 65)
            stats = module.memory_stats()
            assert stats["working_current"] == 0
            peak = max(peak, stats["cached"])
        assert peak <= 256 << 20
