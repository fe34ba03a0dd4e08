"""Cases, section 10: CUDA graphs.

On the CPU the same calls run without graphs: what a graph may not change has to hold there too.
Elsewhere: every driver call of a capture failing (A88) is tests/cuda_fake/test_cuda_graph_faults.py;
what cannot be captured (A84), memory shared by graphs (A90) and new graphs after changes (A85) are
also tests/cuda_fake/test_cuda_graphs.py, over a fake driver.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cudaexec

pytestmark = pytest.mark.torch

Load = Callable[..., cudaexec.Module]
MIB = 1 << 20


@pytest.fixture
def load(program: Callable[[str], Path], on_gpu: bool) -> Load:
    """`load("mlp")` opens that program, on a GPU with graphs after two calls of a signature."""

    def open_program(name: str, **options: Any) -> cudaexec.Module:
        graphs = cudaexec.GraphOptions(warmup=2, max_graphs=options.pop("max_graphs", 8))
        return cudaexec.load(program(name), cuda_graph=graphs if on_gpu else False, **options)

    return open_program


@pytest.fixture
def device(on_gpu: bool) -> str:
    return "cuda" if on_gpu else "cpu"


def graphs(module: cudaexec.Module, method: str) -> list[dict[str, Any]]:
    """What the statistics say of a method's signatures; nothing on the CPU."""
    [found] = [each for each in module.stats()["methods"] if each["name"] == method]
    return found.get("graphs", {}).get("keys", [])


def captures(module: cudaexec.Module, method: str) -> int:
    return sum(key["captures"] for key in graphs(module, method))


def replays(module: cudaexec.Module, method: str, on_gpu: bool) -> None:
    """Fail unless the method's one signature has its graph, where there are graphs."""
    phases = [key["phase"] for key in graphs(module, method)]
    assert phases == (["replay"] if on_gpu else []), graphs(module, method)


def same(got: Any, expected: torch.Tensor) -> None:
    torch.testing.assert_close(torch.as_tensor(got).cpu(), expected.cpu(), rtol=1e-5, atol=1e-5)


def plain(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * 3


def test_a81_outputs_stay(load: Load, on_gpu: bool, device: str) -> None:
    inputs = [torch.randn(64, device=device) for _ in range(10)]
    with load("uncapturable") as module:
        method = module.method("plain")
        kept = [method(x) for x in inputs]
        hosts = [method(x.cpu().numpy()) for x in inputs]
        replays_of_both = [key["phase"] for key in graphs(module, "plain")]
        assert replays_of_both == (["replay", "replay"] if on_gpu else [])
        for x, y, host in zip(inputs, kept, hosts, strict=True):
            same(y, plain(x))
            same(host, plain(x))
        # Memory that the caller chose is the exception: each run writes it.
        y = torch.empty(64, device=device)
        binding = method.bind(inputs[0], y)
        for x in inputs[1:]:
            inputs[0].copy_(x)
            binding.run()
            same(y, plain(x))


def test_a82_outputs_are_inputs(load: Load, on_gpu: bool, device: str) -> None:
    with load("uncapturable") as first, load("mlp") as second:
        method = first.method("plain")
        x = torch.randn(64, device=device)
        for _ in range(6):
            same(method(method(x)), plain(plain(x)))
        replays(first, "plain", on_gpu)
        x = torch.rand(64, device=device)
        y = x
        for _ in range(100):
            y = method(y) / 3  # relu of what is positive: x itself
        same(y, x)
        z = torch.randn(4, 16, device=device)
        expected = second(second(z))
        for _ in range(5):
            rows = method(z.reshape(64)).reshape(4, 16)  # one module's output to another
            same(second(rows), second(plain(z)))
            same(second(second(z)), expected)


def test_a83_inputs_are_read_by_every_call(load: Load, on_gpu: bool, device: str) -> None:
    with load("uncapturable") as module:
        method = module.method("plain")
        for _ in range(8):
            x = torch.randn(64, device=device)
            same(method(x), plain(x))
        for i in range(8):
            x.fill_(i - 3)
            same(method(x), plain(x))
        array = np.zeros(64, np.float32)
        for i in range(8):
            array[:] = i
            np.testing.assert_array_equal(method(array), np.full(64, 3 * i))
        addresses = set()
        for i in range(8):  # freed, and new at the same address
            x = torch.full((64,), float(i), device=device)
            addresses.add(x.data_ptr())
            same(method(x), plain(x))
            del x
        for i in range(8):
            np.testing.assert_array_equal(method(np.full(64, i, np.float32)), np.full(64, 3 * i))
        if on_gpu:
            assert len(addresses) < 8
            assert {key["phase"] for key in graphs(module, "plain")} == {"replay"}


def test_a84_what_cannot_be_captured(load: Load, on_gpu: bool, device: str) -> None:
    with load("uncapturable") as module:
        for _ in range(6):
            x = torch.randn(64, device=device)
            same(module.method("pick")(x), x[x > 0])
            same(module.method("mask")(x), x[x > 0] * 2)
            same(module.method("plain")(x), plain(x))
        same(module.method("pick")(-x.abs()), x[:0])
        replays(module, "plain", on_gpu)
        for name in ("pick", "mask"):
            for key in graphs(module, name):
                assert (key["phase"], key["captures"]) == ("disabled", 0)
                assert key["reason"]


def test_a85_a_graph_meets_changes(load: Load, on_gpu: bool, device: str) -> None:
    """Each change costs at most one capture more, and the next call is right."""
    x = torch.randn(4096, device=device)
    with load("state") as module:
        scale = module.method("scale")

        def settle(weight: float) -> None:
            before = captures(module, "scale")
            for _ in range(5):
                same(scale(x), x * weight)
            replays(module, "scale", on_gpu)
            assert captures(module, "scale") <= before + 1

        settle(1)
        for weight in (2.0, 3.0):
            module.load_weights({"weight": torch.full((4096,), weight)})
            settle(weight)
        module.trim()
        settle(3)
        session = module.session()
        one = torch.ones(64, device=device)
        for i in range(5):
            for owner, factor in ((module, 1), (session, 2)):
                same(owner.method("total")(one * factor), one * (2 * factor * (i + 1)))
            same(session.method("scale")(x), x * 3)
        session.reset()
        same(session.method("total")(one), one * 2)
        same(module.method("total")(one), one * 12)


@pytest.mark.gpu
def test_a88_a_capture_without_memory(load: Load) -> None:
    """Whatever the limit leaves room for: right answers, a usable stream, memory given back."""
    rows = 8
    for limit in (17, 25, 33, 48):
        options = cudaexec.LoadOptions(memory_limit=limit * MIB)
        with load("widen", options=options) as module:
            right = 0
            for i in range(8):
                x = torch.full((rows,), float(i), device="cuda")
                try:
                    y = module(x)
                except cudaexec.OutOfMemory as error:
                    assert str(limit * MIB) in str(error)
                else:
                    right += 1
                    torch.testing.assert_close(y[:, -1], x * (1 << 17), rtol=1e-3, atol=1e-3)
                    del y
                assert not torch.cuda.is_current_stream_capturing()
                assert float(torch.ones(4, device="cuda").sum()) == 4
                small = module(torch.ones(2, device="cuda"))
                assert float(small[0, 0]) == 0.5
                del small
            assert right == 8 or limit < 48, (limit, right)
            torch.cuda.synchronize()
            module.trim()
            stats = module.memory_stats()
            assert (stats["working_current"], stats["cached"]) == (0, 0)


@pytest.mark.gpu
@pytest.mark.alone
def test_a90_many_sizes_cost_as_much_as_the_largest(load: Load) -> None:
    """Nothing is captured at the start; 32 decreasing sizes share memory."""

    def used() -> int:
        gc.collect()
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return total - free

    def capture(module: cudaexec.Module, rows: int) -> None:
        x = torch.ones(rows, device="cuda")
        for _ in range(4):
            y = module(x)
            assert float(y[-1, 0]) == 0.5
            del y

    with load("widen", max_graphs=64) as module:
        assert graphs(module, "forward") == []
        start = used()
        capture(module, 64)
        largest = used() - start
        for rows in range(62, 0, -2):
            capture(module, rows)
        assert {key["phase"] for key in graphs(module, "forward")} == {"replay"}
        assert len(graphs(module, "forward")) == 32
        # Half of it is for what a graph itself takes, a few hundred KiB each.
        assert used() - start <= 1.5 * largest, (used() - start, largest)
        module.trim()
        assert used() - start <= 8 * MIB
