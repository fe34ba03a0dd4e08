"""CUDA graphs on a real GPU: results of replays, state, random numbers, streams, other libraries' work."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import cudaexec

GRAPHS = cudaexec.GraphOptions(warmup=2)


class Net(nn.Module):
    """Views of one tensor, an input that comes back, a new one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 128)
        self.second = nn.Linear(128, 16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = torch.relu(self.first(x))
        y = self.second(hidden)
        return y, y[:, ::2], hidden.transpose(0, 1), x


class Count(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((1024,), 2.0))
        self.register_buffer("total", torch.zeros(1024))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * self.weight


class Noise(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)


class Pick(nn.Module):
    """A size that only the GPU knows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nonzero(x > 0)


def built(model: nn.Module, *args: torch.Tensor, dynamic: Any = None) -> SimpleNamespace:
    return SimpleNamespace(model=model.eval(), args=args, kwargs=None, dynamic_shapes=dynamic)


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(params=["triton", "cublas"])
def program(request: pytest.FixtureRequest, gpu_export: Callable[..., Path], net: Net) -> Path:
    sizes = {"x": {0: Dim("n", min=2, max=64)}}
    return gpu_export(
        f"graphs-net-{request.param}", built(net, torch.randn(8, 64), dynamic=sizes),
        gemm=request.param,
    )  # fmt: skip


@pytest.fixture
def counting(gpu_export: Callable[..., Path]) -> Path:
    return gpu_export("graphs-count", built(Count(), torch.ones(1024)))


def keys(module: cudaexec.Module) -> list[dict[str, Any]]:
    return module.stats()["methods"][0]["graphs"]["keys"]


def compare(found: Any, net: Net, x: torch.Tensor) -> None:
    with torch.no_grad():
        wanted = net.cuda()(x.cuda())
    net.cpu()
    for left, right in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.as_tensor(left).cuda(), right, rtol=1e-4, atol=1e-4)


def test_replays_are_right_and_outputs_last(program: Path, net: Net) -> None:
    with cudaexec.load(program, cuda_graph=GRAPHS) as module:
        kept = []
        for i in range(8):
            x = torch.randn(8, 64, device="cuda") + i
            kept.append((x, module(x)))
        assert [key["phase"] for key in keys(module)] == ["replay"], keys(module)
        for x, found in kept:
            compare(found, net, x)
        y, halves, _, _ = found
        assert halves.data_ptr() == y.data_ptr()
        # Refilled in place, strided, misaligned, on the host.
        x = torch.randn(8, 64, device="cuda")
        big = torch.randn(8 * 64 * 3 + 1, device="cuda")
        for _ in range(5):
            x.normal_()
            compare(module(x), net, x)
            for other in (big[1 : 1 + 512].view(8, 64), big[: 512 * 3].view(8, 192)[:, ::3],
                          big[:512].view(64, 8).t()):  # fmt: skip
                compare(module(other), net, other)
            array = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)
            compare(module(array), net, torch.from_numpy(array))
        assert {key["phase"] for key in keys(module)} == {"replay"}, keys(module)


def test_calls_on_the_same_memory(program: Path, net: Net) -> None:
    """In place, once there have been enough of them: right, with the input refilled and outputs kept."""
    with cudaexec.load(program, cuda_graph=GRAPHS) as module:
        inputs = [torch.randn(8, 64, device="cuda") for _ in range(2)]
        for i in range(120):
            x = inputs[i % 2]
            x.normal_()
            found = module(x)
            if i % 7 == 0:
                compare(found, net, x)
        [key] = keys(module)
        assert key["in_place"] > 20, key
        kept = []
        for i in range(20):
            x = inputs[i % 2]
            x.normal_()
            kept.append((x.clone(), module(x)))
        for x, found in kept:
            compare(found, net, x)
        y, halves, _, _ = found
        assert halves.data_ptr() == y.data_ptr()


def test_state_and_random_numbers_in_place(counting: Path, gpu_export: Callable[..., Path]) -> None:
    x = torch.ones(1024, device="cuda")
    with cudaexec.load(counting, cuda_graph=GRAPHS) as module:
        for i in range(80):
            assert bool((module(x) == 2 * (i + 1)).all()), i
        [key] = keys(module)
        assert key["in_place"] > 20, key
    path = gpu_export("graphs-noise", built(Noise(), torch.zeros(1000)))
    x = torch.zeros(1000, device="cuda")
    with cudaexec.load(path, cuda_graph=GRAPHS) as module, cudaexec.load(path) as plain:
        module.manual_seed(1)
        plain.manual_seed(1)
        for i in range(80):
            assert torch.equal(module(x), plain(x)), i


def test_shapes_have_graphs_of_their_own(program: Path, net: Net) -> None:
    options = cudaexec.GraphOptions(warmup=1, max_graphs=4)
    with cudaexec.load(program, cuda_graph=options) as module:
        for _ in range(4):
            for rows in (2, 7, 64):
                x = torch.randn(rows, 64, device="cuda")
                compare(module(x), net, x)
        assert {key["phase"] for key in keys(module)} == {"replay"}
        for rows in range(2, 20):
            x = torch.randn(rows, 64, device="cuda")
            compare(module(x), net, x)
    with cudaexec.load(program, cuda_graph="strict") as module:
        module(torch.randn(8, 64, device="cuda"))
        with pytest.raises(cudaexec.InputError, match="size 9 in dimension 0, captured with 8"):
            module(torch.randn(9, 64, device="cuda"))


def test_state_on_several_streams(counting: Path) -> None:
    streams = [torch.cuda.Stream() for _ in range(3)]
    x = torch.ones(1024, device="cuda")
    torch.cuda.synchronize()
    with cudaexec.load(counting, cuda_graph=GRAPHS) as module:
        method = module.method("forward")
        outputs = [method(x, stream=streams[i % 3]) for i in range(60)]
        torch.cuda.synchronize()
        for i, y in enumerate(outputs):
            assert bool((y == 2 * (i + 1)).all()), i
        assert [key["phase"] for key in keys(module)] == ["replay"]
        module.trim()
        assert bool((module(x) == 2 * 61).all())
        module.load_weights({"total": torch.zeros(1024), "weight": torch.full((1024,), 3.0)})
        for i in range(6):
            assert bool((module(x) == 3 * (i + 1)).all())


def test_random_numbers(gpu_export: Callable[..., Path]) -> None:
    path = gpu_export("graphs-noise", built(Noise(), torch.zeros(1000)))
    x = torch.zeros(1000, device="cuda")
    with cudaexec.load(path, cuda_graph=GRAPHS) as module, cudaexec.load(path) as plain:
        for seed in (1, 2, 1):
            module.manual_seed(seed)
            plain.manual_seed(seed)
            found = [module(x) for _ in range(6)]
            for left, right in zip(found, [plain(x) for _ in range(6)], strict=True):
                torch.testing.assert_close(left, right, rtol=0, atol=0)
            assert not bool((found[0] == found[1]).all())
        assert [key["phase"] for key in keys(module)] == ["replay"], keys(module)


def test_what_cannot_be_captured(gpu_export: Callable[..., Path]) -> None:
    """It runs without a graph, and leaves no stream of torch's in a capture."""
    path = gpu_export("graphs-pick", built(Pick(), torch.randn(100)))
    with cudaexec.load(path, cuda_graph=GRAPHS) as module:
        for _ in range(6):
            x = torch.randn(100, device="cuda")
            torch.testing.assert_close(module(x), torch.nonzero(x > 0))
            assert not torch.cuda.is_current_stream_capturing()
        [key] = keys(module)
        assert key["phase"] == "disabled"
        assert key["reason"]


def test_other_work_during_captures(program: Path, net: Net) -> None:
    """Another thread allocates, copies on the default stream and waits while shapes are captured."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def disturb() -> None:
        try:
            while not stop.is_set():
                a = torch.empty(1 << 20, device="cuda").fill_(1)
                b = a.cpu()
                assert float(b[0]) == 1
                torch.cuda.empty_cache()
                # Not the whole device: CUDA refuses that while any stream is being captured.
                torch.cuda.current_stream().synchronize()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        options = cudaexec.GraphOptions(warmup=1, max_graphs=32)
        with cudaexec.load(program, cuda_graph=options) as module:
            for rows in range(2, 22):
                x = torch.randn(rows, 64, device="cuda")
                for _ in range(3):
                    compare(module(x), net, x)
            reasons = [key.get("reason") for key in keys(module) if key["phase"] != "replay"]
            assert not reasons, (reasons, failures)
    finally:
        stop.set()
        thread.join()
    assert failures == []


def test_bindings(program: Path, net: Net, counting: Path) -> None:
    x, y = torch.randn(8, 64, device="cuda"), torch.empty(8, 16, device="cuda")
    half = torch.empty(8, 16, device="cuda")[:, ::2]
    hidden = torch.empty(8, 128, device="cuda").t()
    back = torch.empty(8, 64, device="cuda")
    with cudaexec.load(program, cuda_graph=True) as module:
        binding = module.method("forward").bind((x,), (y, half, hidden, back))
        for _ in range(5):
            x.normal_()
            binding.run()
            compare((y, half, hidden, back), net, x)
        [key] = keys(module)
        assert key["phase"] == "replay", key
    x, y = torch.ones(1024, device="cuda"), torch.empty(1024, device="cuda")
    with cudaexec.load(counting, cuda_graph=True) as module:
        binding = module.method("forward").bind((x,), (y,))
        for i in range(6):
            binding.run()
            assert bool((y == 2 * (2 * i + 1)).all())
            assert bool((module(x) == 2 * (2 * i + 2)).all())


@pytest.mark.alone
def test_memory_goes_back(program: Path) -> None:
    x = torch.randn(8, 64, device="cuda")

    def used() -> int:
        gc.collect()
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return total - free

    before = 0
    for i in range(30):
        with cudaexec.load(program, cuda_graph=GRAPHS) as module:
            for _ in range(5):
                module(x)
        if i == 10:
            before = used()
    assert used() <= before + (1 << 20)
