"""Thousands of calls over more shapes than there may be graphs, some of them wrong: nothing grows."""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path

import numpy as np
import psutil
import pytest

import cudaexec
from cuda_fake import programs
from cuda_fake.fake import FakeDriver, emulate_kernels
from cuda_fake.programs import Code, Method, Once
from cudaexec._core import _testing

cuda = _testing.cuda
SIZES = 50
PASSES = 100
CALLS = 4  # of a size in a row: two without a graph, a capture, a replay


def resident() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return psutil.Process(os.getpid()).memory_info().rss


def test_calls_over_many_shapes(gpus: FakeDriver, once: Once, tmp_path: Path) -> None:
    if not cuda.image_names():
        pytest.skip("built without nvcc: there is no device code")
    emulate_kernels()
    gpus.set_log(False)
    code = [Code(programs.code(once, "SCALE"))]
    path = programs.write(tmp_path, [Method("scale", "SCALE", code, None)])
    options = cudaexec.GraphOptions(warmup=2, max_graphs=8)
    values = np.arange(64, dtype=np.float32)
    with cudaexec.load(path, cuda_graph=options) as module:
        scale = module.method("scale")
        calls = errors = 0

        def one_pass() -> None:
            nonlocal calls, errors
            for size in range(1, SIZES + 1):
                for _ in range(CALLS):
                    calls += 1
                    if calls % 10 == 0:
                        errors += 1
                        with pytest.raises(cudaexec.InputError):
                            scale(values[:size], values[:size])
                        continue
                    x = values[:size] + calls
                    on_gpu = cuda.tensor_on(x)
                    found = scale(on_gpu).to_host().numpy() if calls % 2 else scale(x)
                    np.testing.assert_array_equal(found, x * 2 + 0.5)
            gpus.run_all()

        def state() -> tuple[object, ...]:
            gpus.run_all()
            return gpus.live(), gpus.used(0), module.memory_stats()["working_current"]

        one_pass()
        one_pass()
        before, memory = state(), resident()
        for _ in range(PASSES):
            one_pass()
        assert state() == before
        assert resident() - memory < 4 << 20
        [method] = module.stats()["methods"]
        assert (method["calls"], method["errors"], method["containers"]) == (calls - errors, 0, 1)
        assert len(method["graphs"]["keys"]) == 8
        assert method["graphs"]["evictions"] > SIZES * PASSES // 2
        assert method["graphs"]["failures"] == 0
