"""Cases, section 11: memory and lifetime.

Elsewhere: A91 is tests/runtime/test_lifetime.py::test_500_cycles_are_flat and
tests/gpu/test_gpu_cycles.py::test_200_load_cycles_leave_nothing; A97 with a full GPU is
tests/gpu/test_gpu_runtime.py::test_more_memory_than_the_gpu_has.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cudaexec

pytestmark = pytest.mark.torch

MIB = 1 << 20

MANY_CALLS = """
import ctypes, gc, os, sys
import numpy as np, cudaexec
path, calls, graphs = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True"
options = cudaexec.GraphOptions(warmup=1, max_graphs=64) if graphs else False
rng = np.random.default_rng(0)
sizes = [int(n) for n in rng.permutation(np.arange(2, 52))]

def usage():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/status") as f:
        fields = dict(line.split(":", 1) for line in f)
    with open("/proc/self/maps") as f:
        maps = sum(1 for _ in f)
    return int(fields["VmRSS"].split()[0]), maps, len(os.listdir("/proc/self/fd")), int(fields["Threads"])

def call(i):
    n = sizes[i % 50] if i < 250 else int(rng.choice(sizes))
    x = np.full((n, 16), i % 7, np.float32)
    wrong = i % 10
    try:
        if wrong == 3:
            module(np.zeros((n + 100, 16), np.float32))
        elif wrong == 6:
            module(x.astype(np.float64))
        elif wrong == 9:
            module(x, x)
        else:
            assert module(x).shape == (n, 16)
            return
    except cudaexec.InputError:
        return
    raise AssertionError("no error")

with cudaexec.load(path, cuda_graph=options) as module:
    for i in range(500):
        call(i)
    usage()
    start, held = usage(), module.memory_stats()["working_current"]
    for i in range(calls):
        call(i)
    end = usage()
    assert module.memory_stats()["working_current"] == held
assert end[1:] == start[1:], (start, end)
assert end[0] - start[0] <= 1024, (start, end)
"""


def test_a92_20000_calls_are_flat(program: Callable[[str], Path], on_gpu: bool) -> None:
    path = program("mlp")
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", MANY_CALLS, str(path), "20000", str(on_gpu)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.gpu
@pytest.mark.alone
def test_a92_calls_leave_no_gpu_memory(program: Callable[[str], Path]) -> None:
    def used() -> int:
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return total - free

    options = cudaexec.GraphOptions(warmup=1, max_graphs=64)
    inputs = [torch.randn(n, 16, device="cuda") for n in range(2, 52)]
    with cudaexec.load(program("mlp"), cuda_graph=options) as module:
        for i in range(3000):  # until all graphs are there, in place too
            module(inputs[i * 7 % 50])
        before = used()
        for i in range(20000):
            module(inputs[i * 7 % 50])
            if i % 100 == 0:
                with pytest.raises(cudaexec.ShapeError):
                    module(torch.zeros(1, 16, device="cuda"))
        assert used() == before


def test_a93_trim(program: Callable[[str], Path], on_gpu: bool) -> None:
    with cudaexec.load(program("widen")) as module:
        weights_only = module.memory_stats()
        x = torch.ones(64, device="cuda" if on_gpu else "cpu")
        y = module(x)
        held = module.memory_stats()["working_current"]
        assert held >= 64 * MIB
        module.trim()
        assert bool((y[:, 0] == 0.5).all())  # an output that is alive keeps its memory
        del y
        gc.collect()
        if on_gpu:
            torch.cuda.synchronize()
        assert module.trim() >= 64 * MIB
        stats = module.memory_stats()
        for name, nbytes in weights_only.items():
            if name != "working_peak":
                assert stats[name] == nbytes, name
        assert bool((module(x)[:, 0] == 0.5).all())


def things(path: Path) -> Iterator[Callable[[np.ndarray[Any, Any]], Any]]:
    """Ways to call a program that hold nothing but one object of it."""
    yield cudaexec.load(path).method("forward")
    yield cudaexec.load(path).session()
    yield cudaexec.load(path).session().method("forward")
    yield cudaexec.load(path).session().fork()
    yield cudaexec.load(path).__enter__()
    yield cudaexec.load(path).forward
    x, y = np.zeros((4, 16), np.float32), np.zeros((4, 16), np.float32)
    binding = cudaexec.load(path).method("forward").bind(x, y)

    def run(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        x[:] = values
        binding.run()
        return y

    yield run


def test_a96_parts_keep_the_whole(program: Callable[[str], Path]) -> None:
    path = program("mlp")
    x = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)
    with cudaexec.load(path) as module:
        expected = module(x)
    for thing in things(path):
        gc.collect()
        np.testing.assert_array_equal(thing(x), expected)
    specs, names = cudaexec.load(path).method("forward").inputs, iter(cudaexec.load(path).methods)
    state = cudaexec.load(path).state_dict()
    output = cudaexec.load(path)(memoryview(x))
    view, part = memoryview(output), output.numpy()[1:3]
    del output
    gc.collect()
    assert (specs[0].name, list(names)) == ("x", ["forward"])
    np.testing.assert_array_equal(view, expected)
    np.testing.assert_array_equal(part, expected[1:3])
    np.testing.assert_array_equal(
        (np.maximum(x @ state["first.weight"].numpy().T + state["first.bias"].numpy(), 0)).shape,
        (4, 32),
    )


def test_a97_after_running_out_of_memory(program: Callable[[str], Path], on_gpu: bool) -> None:
    options = cudaexec.LoadOptions(memory_limit=64 * MIB)
    device = "cuda" if on_gpu else "cpu"
    with cudaexec.load(program("widen"), options=options) as module:
        small = torch.arange(2.0, device=device)
        expected = module(small)
        before = module.memory_stats()
        for _ in range(20):
            with pytest.raises(MemoryError, match=f"{64 * MIB}") as caught:
                module(torch.ones(256, device=device))
            assert isinstance(caught.value, cudaexec.OutOfMemory)
            assert str(256 * MIB) in str(caught.value)
            assert torch.equal(module(small), expected)
        gc.collect()
        if on_gpu:
            torch.cuda.synchronize()
        assert module.memory_stats()["working_current"] == before["working_current"]
