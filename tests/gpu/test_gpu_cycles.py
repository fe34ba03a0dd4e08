"""Memory of the GPU: one copy of the weights for all methods, nothing left behind, nothing grows."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from torch import nn
from torch.export import Dim

import cudaexec
import models

pytestmark = pytest.mark.alone

MIB = 1 << 20


def free_bytes() -> int:
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]


class Table(nn.Module):
    """1 GiB of weights, of which a call reads a few rows."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(256 * MIB // 256, 256))
        with torch.no_grad():
            self.table[:64] = torch.arange(64.0)[:, None]

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.table[rows].sum(0)


def export_table(path: Path, methods: dict[str, int], model: nn.Module) -> None:
    cudaexec.export(
        None,
        methods={name: (model, (torch.arange(n),)) for name, n in methods.items()},
        path=path,
        target="cuda",
        options=cudaexec.ExportOptions(progress=False),
    )


def used_by(path: Path, methods: dict[str, int]) -> int:
    """Bytes of the GPU that a loaded module takes after each of its methods ran."""
    before = free_bytes()
    module = cudaexec.load(path)
    for name, n in methods.items():
        rows = torch.arange(n, device="cuda")
        assert torch.equal(module.method(name)(rows), torch.full((256,), n * (n - 1) / 2).cuda())
    used = before - free_bytes()
    module.close()
    return used


def test_two_methods_hold_the_weights_once(tmp_path: Path) -> None:
    model = Table()
    one, two = {"a": 4}, {"a": 4, "b": 7}
    export_table(tmp_path / "one.pte", one, model)
    export_table(tmp_path / "two.pte", two, model)
    used_by(tmp_path / "one.pte", one)  # the context, the first pools
    first, second = used_by(tmp_path / "one.pte", one), used_by(tmp_path / "two.pte", two)
    assert first >= 1024 * MIB
    assert second <= first * 1.01
    assert free_bytes() >= 0


def maps() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def test_200_load_cycles_leave_nothing(gpu_export: Callable[..., Path]) -> None:
    case = next(case for case in models.CASES if case.name == "mlp_small")
    path = gpu_export("cycles", case.build(), gemm="triton")
    x = torch.randn(1, 64, device="cuda")

    def cycle() -> None:
        module = cudaexec.load(path)
        module(x)
        module.close()

    process = psutil.Process(os.getpid())
    for _ in range(20):
        cycle()
    gc.collect()
    torch.cuda.synchronize()
    before = (free_bytes(), maps(), process.num_fds(), process.num_threads())
    resident = process.memory_info().rss
    for _ in range(180):
        cycle()
    gc.collect()
    after = (free_bytes(), maps(), process.num_fds(), process.num_threads())
    assert after == before
    assert process.memory_info().rss - resident < 4 * MIB


class Pointwise(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1


def test_20000_calls_over_50_shapes_are_flat(gpu_export: Callable[..., Path]) -> None:
    """More shapes than there may be graphs, so that they are captured again and again; every tenth
    call is wrong."""
    sizes = {"x": {0: Dim("n", min=2, max=4096)}}
    case = SimpleNamespace(
        model=Pointwise().eval(), args=(torch.randn(8),), kwargs=None, dynamic_shapes=sizes
    )
    options = cudaexec.GraphOptions(warmup=1, max_graphs=8)
    process = psutil.Process(os.getpid())
    data = torch.arange(4096, dtype=torch.float32, device="cuda")
    with cudaexec.load(gpu_export("many-shapes", case), cuda_graph=options) as module:
        calls = 0

        def one_pass() -> None:
            nonlocal calls
            for size in range(8, 8 + 50 * 16, 16):
                for _ in range(8):
                    calls += 1
                    x = data[:size]
                    if calls % 10 == 0:
                        with pytest.raises(cudaexec.InputError):
                            module(x, x)
                    else:
                        found = module(x)
            assert torch.equal(found, x * 2 + 1)

        def state() -> tuple[int, int]:
            gc.collect()
            free = free_bytes()
            ctypes.CDLL(None).malloc_trim(0)
            return process.memory_info().rss, free

        one_pass()
        resident, free = state()
        while calls < 20_000:
            one_pass()
        after = state()
        assert after[0] - resident < 16 * MIB
        assert free - after[1] <= 4 * MIB
        graphs = module.stats()["methods"][0]["graphs"]
        assert len(graphs["keys"]) == 8
        assert (graphs["failures"], graphs["evictions"] > 1000) == (0, True)
