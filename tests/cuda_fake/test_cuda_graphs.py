"""CUDA graphs of calls: phases, keys, one launch a call, what has none, memory."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cudaexec
from cuda_fake import programs
from cuda_fake.fake import FakeDriver
from cuda_fake.graph_calls import LEGACY, WORK, X, graphs, host, on_gpu, phase
from cuda_fake.programs import Code, Method, Once
from cudaexec._core import _testing

cuda = _testing.cuda


def test_a_signature_is_captured_after_its_warm_up(
    emulated: FakeDriver, write: Callable[..., Path]
) -> None:
    with cudaexec.load(write("SCALE"), cuda_graph=True) as module:
        scale = module.method("scale")
        phases = []
        for i in range(6):
            x = on_gpu(X + i)
            np.testing.assert_array_equal(host(scale(x)), (X + i) * 2 + 0.5)
            phases.append(phase(module))
            del x
        assert phases == ["warmup", "warmup", "capture", "replay", "replay", "replay"]
        found = graphs(module, "scale")
        assert (found["captures"], found["replays"], found["failures"]) == (1, 2, 0)
        [key] = found["keys"]
        assert (key["inputs"], key["calls"], key["replays"]) == ("x float32[4]", 6, 2)
        assert key["nbytes"] > 0


@pytest.mark.parametrize("warmup", [1, 2])
def test_options(emulated: FakeDriver, write: Callable[..., Path], warmup: int) -> None:
    options = cudaexec.GraphOptions(methods=frozenset({"scale"}), warmup=warmup)
    with cudaexec.load(write("SCALE", "COUNT"), cuda_graph=options) as module:
        for _ in range(warmup + 1):
            module.method("scale")(X)
            module.method("count")(X)
        assert phase(module) == "replay"
        assert "graphs" not in module.stats()["methods"][1]
    with cudaexec.load(write("SCALE", "COUNT"), cuda_graph={"count"}) as module:
        assert "graphs" not in module.stats()["methods"][0]
        assert "graphs" in module.stats()["methods"][1]
    with pytest.raises(cudaexec.InputError, match=r"'nothing'.*'?scale"):
        cudaexec.load(write("SCALE"), cuda_graph={"nothing"})
    with pytest.raises(TypeError, match="cuda_graph"):
        cudaexec.load(write("SCALE"), cuda_graph="often")  # type: ignore[arg-type]
    for wrong in ({"warmup": 0}, {"max_graphs": 0}, {"methods": frozenset()}):
        with pytest.raises(ValueError, match=f"GraphOptions.{next(iter(wrong))}"):
            cudaexec.GraphOptions(**wrong)


def test_a_replay_is_one_launch(emulated: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("SCALE"), cuda_graph=True) as module:
        scale = module.method("scale")
        inputs = [on_gpu(X + i, 0, LEGACY) for i in range(8)]
        outputs = [scale(inputs[i]) for i in range(5)]
        emulated.clear_calls()
        outputs.append(scale(inputs[5]))
        names = [line.split("(")[0] for line in emulated.calls(*WORK)]
        assert names.count("cuGraphLaunch") == 1
        assert set(names) <= {
            "cuGraphLaunch", "cuGraphExecKernelNodeSetParams", "cuMemAllocFromPoolAsync"}  # fmt: skip
        assert names.count("cuGraphExecKernelNodeSetParams") == 2
        for i, y in enumerate(outputs):
            np.testing.assert_array_equal(host(y), (X + i) * 2 + 0.5)
        # Outputs that are dropped serve the next call.
        scale(inputs[5])
        emulated.clear_calls()
        y = scale(inputs[5])
        assert emulated.calls("cuMemAllocFromPoolAsync", "cuGraphExecKernelNodeSetParams") == []
        del y
        assert emulated.calls("cuMemFreeAsync") == []
        del outputs[-1]
        # The same address again: only the output's has changed.
        emulated.clear_calls()
        y = scale(inputs[5])
        assert len(emulated.calls("cuGraphExecKernelNodeSetParams")) == 1
        np.testing.assert_array_equal(host(y), (X + 5) * 2 + 0.5)
        del inputs, outputs, y


@pytest.mark.parametrize("what", ["item", "host", "device"])
def test_a_call_that_cannot_be_captured(
    emulated: FakeDriver,
    write: Callable[..., Path],
    vary: Callable[[str], None],
    capfd: pytest.CaptureFixture[str],
    what: str,
) -> None:
    """It runs without a graph, once; one line of the log says why; other methods keep theirs."""
    vary(what)
    cudaexec.set_log_level("info")
    try:
        with cudaexec.load(write("VARY", "COUNT"), cuda_graph=True) as module:
            total = np.zeros(4, np.float32)
            for i in range(7):
                total += X
                np.testing.assert_array_equal(host(module.method("vary")(X + i)[0]), (X + i) * 2)
                np.testing.assert_array_equal(host(module.method("count")(X)), total * 2)
            [key] = graphs(module, "vary")["keys"]
            assert (key["phase"], key["captures"], key["nbytes"]) == ("disabled", 0, 0)
            assert phase(module, "count") == "replay"
            assert graphs(module, "vary")["failures"] == 1
    finally:
        cudaexec.set_log_level("off")
    lines = [line for line in capfd.readouterr().err.splitlines() if "CUDA graph" in line]
    assert len(lines) == 1
    assert key["reason"] in lines[0]


def test_a_call_that_fails_anyway(
    emulated: FakeDriver, write: Callable[..., Path], vary: Callable[[str], None]
) -> None:
    """An error of the call itself says nothing about graphs."""
    with cudaexec.load(write("VARY"), cuda_graph=cudaexec.GraphOptions(warmup=1)) as module:
        method = module.method("vary")
        vary("fail")
        with pytest.raises(
            cudaexec.Error,
            match="boom",
        ):
            method(X)
        vary("")
        method(X)
        vary("fail")
        with pytest.raises(cudaexec.Error, match="boom"):
            method(X)
        assert phase(module, "vary") == "capture"
        vary("")
        for i in range(3):
            np.testing.assert_array_equal(host(method(X + i)[0]), (X + i) * 2)
        assert phase(module, "vary") == "replay"


def test_each_signature_has_its_own_graph(
    emulated: FakeDriver, open_size: Callable[..., Path]
) -> None:
    options = cudaexec.GraphOptions(warmup=1, max_graphs=3)
    with cudaexec.load(open_size("SCALE"), cuda_graph=options) as module:
        scale = module.method("scale")
        for _ in range(3):
            for size in (1, 5, 0):
                x = np.arange(size, dtype=np.float32)
                np.testing.assert_array_equal(scale(x), x * 2 + 0.5)
        assert graphs(module, "scale")["captures"] == 3
        # A fourth one takes the place of the least recent.
        for _ in range(3):
            np.testing.assert_array_equal(scale(X), X * 2 + 0.5)
        found = graphs(module, "scale")
        assert (found["captures"], found["evictions"]) == (4, 1)
        assert {key["inputs"].split(" on")[0] for key in found["keys"]} == {
            "x float32[5]", "x float32[0]", "x float32[4]"}  # fmt: skip
        replays = found["replays"]
        scale(np.arange(5, dtype=np.float32))
        assert graphs(module, "scale")["replays"] == replays + 1
        # More signatures in turn than are remembered: no graph, right results.
        for _ in range(3):
            for size in range(2, 12):
                x = np.arange(size, dtype=np.float32)
                np.testing.assert_array_equal(scale(x), x * 2 + 0.5)
        assert graphs(module, "scale")["captures"] == 4


def test_strict(emulated: FakeDriver, open_size: Callable[..., Path]) -> None:
    with cudaexec.load(open_size("SCALE"), cuda_graph="strict") as module:
        scale = module.method("scale")
        for _ in range(5):
            scale(X)
        with pytest.raises(
            cudaexec.InputError, match=r"input 'x' has size 5 in dimension 0, captured with 4"
        ):
            scale(np.zeros(5, np.float32))
        with pytest.raises(cudaexec.InputError, match=r"is on the GPU, captured on the host"):
            x = on_gpu(X)
            scale(x)
        del x
        gc.collect(0)
        np.testing.assert_array_equal(scale(X + 1), (X + 1) * 2 + 0.5)
        assert phase(module) == "replay"


def test_trim_and_close_give_everything_back(
    emulated: FakeDriver, write: Callable[..., Path]
) -> None:
    def alive() -> dict[str, int]:
        """Without what our kernels and ordering keep for good."""
        kept = ("streams", "events", "modules")
        return {kind: n for kind, n in emulated.live().items() if kind not in kept}

    with cudaexec.load(write("SCALE", "COUNT"), cuda_graph=True) as module:
        scale, count = module.method("scale"), module.method("count")
        scale(X)
        count(X)
        module.trim()
        before = alive()
        total = X.copy()
        for _ in range(5):
            scale(X)
            count(X)
            total += X
        assert phase(module) == phase(module, "count") == "replay"
        assert alive() != before
        emulated.clear_calls()
        module.trim()
        # The pool can only give back what the GPU has come to free.
        waits_and_trims = emulated.calls("cuStreamSynchronize", "cuMemPoolTrimTo")
        assert [call.split("(")[0] for call in waits_and_trims[-2:]] == [
            "cuStreamSynchronize",
            "cuMemPoolTrimTo",
        ]
        assert alive() == before
        assert phase(module) == phase(module, "count") == "capture"
        total += X
        np.testing.assert_array_equal(count(X), total * 2)
        np.testing.assert_array_equal(scale(X), X * 2 + 0.5)
        assert phase(module) == phase(module, "count") == "replay"
        assert graphs(module, "scale")["captures"] == 2
    assert {"pool_blocks", "graphs", "graph_execs", "host_blocks"} & set(alive()) == set()


def test_new_weights_get_new_graphs(emulated: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("SCALE", "COUNT"), cuda_graph=True) as module:
        for _ in range(5):
            module.method("scale")(X)
            module.method("count")(X)
        for factor in (3.0, 4.0):
            module.load_weights({"w": np.array([factor], np.float32),
                                 "total": np.zeros(4, np.float32)})  # fmt: skip
            for i in range(6):
                np.testing.assert_array_equal(module.method("scale")(X), X * factor + 0.5)
                np.testing.assert_array_equal(
                    module.method("count")(X), X * (i + 1) * np.float32(factor)
                )
        assert phase(module) == phase(module, "count") == "replay"


def test_refusals_by_the_file(emulated: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("BUSY"), cuda_graph=True) as module:
        for _ in range(5):
            np.testing.assert_array_equal(module.method("busy")(X, np.array(0)), X * 2)
        found = graphs(module, "busy")
        assert "input 'mode' on the host" in found["reason"]
        assert found["keys"] == []


def test_memory_is_shared_by_graphs(
    emulated: FakeDriver, once: Once, tmp_path: Path, vary: Callable[[str], None]
) -> None:
    """Graphs of falling sizes take the memory of the largest."""
    vary("temporary")
    method = Method("vary", "VARY", [Code(programs.code(once, "VARY"))], None)
    path = programs.write(tmp_path / "shared", [method])
    options = cudaexec.GraphOptions(warmup=1, max_graphs=64)
    with cudaexec.load(path, cuda_graph=options) as module:
        used = []
        for size in range(64, 32, -1):
            for _ in range(3):
                x = on_gpu(np.ones(size, np.float32))
                y, z = module.method("vary")(x)
                np.testing.assert_array_equal(host(y), np.full(size, 40.0))
                del x, y, z
            used.append(module.memory_stats()["working_current"])
        assert graphs(module, "vary")["captures"] == 32
        assert used[-1] == used[0]
