"""Sessions on a real GPU: isolation, streams, graphs, memory, threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import cudaexec

SIZE = 1 << 20


class Recurrent(nn.Module):
    """Adds its input to a buffer that starts with other values than zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((SIZE,), 2.0))
        self.register_buffer("total", torch.zeros(SIZE))
        self.register_buffer("start", torch.arange(SIZE, dtype=torch.float32))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.total.add_(x)
        self.start.add_(x)
        return self.total * self.weight, self.start + 0


class Noise(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)


@pytest.fixture
def recurrent(gpu_export: Callable[..., Path]) -> Path:
    built = SimpleNamespace(
        model=Recurrent(), args=(torch.ones(SIZE),), kwargs=None, dynamic_shapes=None
    )
    return gpu_export("sessions-recurrent", built)


def check(outputs: tuple[torch.Tensor, torch.Tensor], count: float) -> None:
    begin = torch.arange(SIZE, dtype=torch.float32, device="cuda")
    assert (outputs[0] == 2 * count).all()
    assert (outputs[1] == begin + count).all()


@pytest.mark.parametrize("graphs", [False, True])
def test_isolation_reset_and_fork(recurrent: Path, graphs: bool) -> None:
    x = torch.ones(SIZE, device="cuda")
    with cudaexec.load(recurrent, cuda_graph=graphs) as module:
        a, b = module.session(), module.session()
        for step in range(1, 9):  # beyond warm-up and capture
            check(module(x), step)
            check(a(x), step)
            check(b(x * 3), 3 * step)
        copy = b.fork()
        a.reset()
        b.reset()
        for step in range(1, 9):
            check(a(x), step)
            check(copy(x), 24 + step)
            check(b(x), step)
        check(module(x), 9)
        if graphs:
            assert module.stats()["methods"][0]["graphs"]["replays"] > 0


@pytest.mark.parametrize("graphs", [False, True])
def test_reset_and_fork_follow_streams(recurrent: Path, graphs: bool) -> None:
    """Work that is still on a stream is neither lost nor overtaken."""
    x = torch.ones(SIZE, device="cuda")
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    with cudaexec.load(recurrent, cuda_graph=graphs) as module:
        session = module.session()
        for turn in range(20):
            stream = streams[turn % 3]
            with torch.cuda.stream(stream):
                torch.cuda._sleep(2_000_000)
                session(x)
            copy = session.fork()
            session.reset()
            with torch.cuda.stream(streams[(turn + 1) % 3]):
                outputs, copied = session(x), copy(x)
            torch.cuda.synchronize()
            check(outputs, 1)
            check(copied, 2)
            session.reset()
            copy.close()


def test_memory(recurrent: Path) -> None:
    """Eight sessions add their buffers and nothing else; closing gives them back."""
    x = torch.ones(SIZE, device="cuda")
    with cudaexec.load(recurrent) as module:
        module(x)
        torch.cuda.synchronize()
        module.trim()
        assert module.bytes_per_session == 8 * SIZE
        free = torch.cuda.mem_get_info()[0]
        sessions = [module.session() for _ in range(8)]
        for session in sessions:
            session(x)
        torch.cuda.synchronize()
        module.trim()
        taken = free - torch.cuda.mem_get_info()[0]
        assert module.memory_stats()["sessions"] == 8 * module.bytes_per_session
        # Each has a container, whose kernels are small modules; the pool takes whole chunks.
        assert taken < 8 * module.bytes_per_session + (96 << 20)
        for session in sessions:
            session.close()
        module.trim()
        assert module.memory_stats()["sessions"] == 0
        assert free - torch.cuda.mem_get_info()[0] < (32 << 20)


@pytest.mark.parametrize("graphs", [False, True])
def test_threads(recurrent: Path, graphs: bool) -> None:
    failures: list[BaseException] = []
    with cudaexec.load(recurrent, cuda_graph=graphs) as module:

        def work(i: int) -> None:
            try:
                with torch.cuda.stream(torch.cuda.Stream()):
                    x = torch.full((SIZE,), float(i), device="cuda")
                    session = module.session()
                    for _ in range(3):
                        for step in range(1, 31):
                            outputs = session(x)
                            if step % 10 == 0:
                                check(outputs, i * step)
                        session.reset()
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not failures


@pytest.mark.parametrize("graphs", [False, True])
def test_random_numbers(gpu_export: Callable[..., Path], graphs: bool) -> None:
    built = SimpleNamespace(
        model=Noise(), args=(torch.zeros(64),), kwargs=None, dynamic_shapes=None
    )
    x = torch.zeros(64, device="cuda")
    with cudaexec.load(gpu_export("sessions-noise", built), cuda_graph=graphs) as module:
        a, b = module.session(), module.session()
        a.manual_seed(7)
        b.manual_seed(7)
        first = [a(x) for _ in range(8)]
        fork = a.fork()
        for expected in first:
            assert torch.equal(b(x), expected)
        assert torch.equal(a(x), fork(x))
        assert not torch.equal(first[-1], first[-2])
        assert not torch.equal(module(x), first[0])


def test_closing_under_work_in_flight(recurrent: Path) -> None:
    x = torch.ones(SIZE, device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with cudaexec.load(recurrent) as module:
        for _ in range(10):
            session = module.session()
            with torch.cuda.stream(stream):
                torch.cuda._sleep(20_000_000)
                outputs = session(x)
            session.close()
            stream.synchronize()
            check(outputs, 1)
