"""The runtime on a real GPU: streams and state, limits, closing under work in flight."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.export import Dim

import cudaexec


class Sum(nn.Module):
    """Adds its input to a buffer and returns the buffer times a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((1 << 20,), 2.0))
        self.register_buffer("total", torch.zeros(1 << 20))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * self.weight


class Widen(nn.Module):
    """A megabyte of output per element."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.unsqueeze(1).expand(-1, 1 << 18) * 2.0


@pytest.fixture
def sums(gpu_export: Callable[..., Path]) -> Path:
    built = SimpleNamespace(
        model=Sum(), args=(torch.ones(1 << 20),), kwargs=None, dynamic_shapes=None
    )
    return gpu_export("runtime-sum", built)


@pytest.fixture
def widen(gpu_export: Callable[..., Path]) -> Path:
    shapes = {"x": {0: Dim("n", min=2, max=512)}}
    built = SimpleNamespace(
        model=Widen(), args=(torch.ones(4),), kwargs=None, dynamic_shapes=shapes
    )
    return gpu_export("runtime-widen", built)


def test_state_follows_calls_on_other_streams(sums: Path) -> None:
    streams = [torch.cuda.Stream() for _ in range(4)]
    x = torch.ones(1 << 20, device="cuda")
    torch.cuda.synchronize()
    with cudaexec.load(sums) as module:
        method = module.method("forward")
        outputs = [method(x, stream=streams[i % 4]) for i in range(40)]
        torch.cuda.synchronize()
        for i, y in enumerate(outputs):
            assert bool((y == 2 * (i + 1)).all()), i
        total = module.state_dict()["total"].numpy()
        assert (total == 40).all()


def test_new_weights_meet_calls_in_flight(sums: Path) -> None:
    x = torch.ones(1 << 20, device="cuda")
    with cudaexec.load(sums) as module:
        before = module(x)
        module.load_weights({"weight": torch.full((1 << 20,), 5.0), "total": torch.zeros(1 << 20)})
        after = module(x)
        assert bool((before == 2).all())
        assert bool((after == 5).all())


def test_closing_waits_for_work_in_flight(widen: Path) -> None:
    x = torch.arange(512.0, device="cuda")
    for _ in range(5):
        module = cudaexec.load(widen)
        outputs = [module(x) for _ in range(4)]
        module.close()
        for y in outputs:
            assert bool((y == 2 * x[:, None]).all())


def test_memory_limit(widen: Path) -> None:
    options = cudaexec.LoadOptions(memory_limit=16 << 20)
    with cudaexec.load(widen, options=options) as module:
        for device in ("cpu", "cuda"):
            with pytest.raises(cudaexec.OutOfMemory, match=str(16 << 20)):
                module(torch.ones(64, device=device))
            y = module(torch.ones(8, device=device))
            assert bool((y == 2).all())
            del y
        torch.cuda.synchronize()
        assert module.memory_stats()["working_current"] == 0


@pytest.mark.alone
def test_more_memory_than_the_gpu_has(widen: Path) -> None:
    """The device runs out: OutOfMemory with sizes, then a smaller call works."""
    free, _ = torch.cuda.mem_get_info()
    hog = torch.empty(free - (300 << 20), dtype=torch.uint8, device="cuda")
    with cudaexec.load(widen) as module:
        with pytest.raises(cudaexec.OutOfMemory, match="bytes on cuda:0"):
            module(torch.ones(512))
        assert module(torch.ones(4)).shape == (4, 1 << 18)
    del hog
    torch.cuda.empty_cache()


@pytest.mark.two_gpus
def test_state_on_the_second_gpu(sums: Path) -> None:
    x = torch.ones(1 << 20, device="cuda:1")
    with cudaexec.load(sums, device="cuda:1") as module:
        assert bool((module(x) == 2).all())
        assert bool((module(x) == 4).all())
    assert torch.cuda.current_device() == 0
