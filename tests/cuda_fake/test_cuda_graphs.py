"""Calls as CUDA graphs: phases, results, memory, streams."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudaexec
from cuda_fake import programs
from cuda_fake.fake import FakeDriver, emulate_kernels
from cuda_fake.programs import Code, Method, Once
from cudaexec._core import _testing

cuda = _testing.cuda
X = np.arange(4, dtype=np.float32)
LEGACY = 1
WORK = ("cuLaunchKernel", "cuMemcpyHtoDAsync", "cuMemcpyDtoDAsync", "cuMemcpyDtoHAsync",
        "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuStreamSynchronize", "cuEventSynchronize",
        "cuStreamWaitEvent", "cuPointerGetAttributes", "cuGraphLaunch",
        "cuGraphExecKernelNodeSetParams", "cuStreamBeginCapture")  # fmt: skip


@pytest.fixture
def gpu(gpus: FakeDriver) -> FakeDriver:
    if not cuda.image_names():
        pytest.skip("built without nvcc: there is no device code")
    emulate_kernels()
    return gpus


@pytest.fixture
def vary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """`vary(what)` chooses what programs of the model VARY do from now on."""
    yield lambda what: monkeypatch.setenv("FAKE_VARY", what)
    os.environ.pop("FAKE_VARY", None)


@pytest.fixture
def open_size(once: Once, tmp_path: Path) -> Callable[..., Path]:
    """As `write`, for inputs of any size up to 64."""

    def make(*models: str) -> Path:
        methods = [Method(name.lower(), name, [Code(programs.code(once, name))], None)
                   for name in models]  # fmt: skip
        return programs.write(tmp_path / ("open-" + "-".join(models)), methods)

    return make


def on_gpu(array: np.ndarray, index: int = 0, stream: int = LEGACY) -> cudaexec.Tensor:
    return cuda.tensor_on(array, index, stream)


def host(tensor: Any) -> np.ndarray:
    if isinstance(tensor, np.ndarray):
        return tensor
    return tensor.numpy() if tensor.device == "cpu" else tensor.to_host().numpy()


def graphs(module: cudaexec.Module, method: str) -> dict[str, Any]:
    [entry] = [m for m in module.stats()["methods"] if m["name"] == method]
    return entry["graphs"]


def phase(module: cudaexec.Module, method: str = "scale") -> str:
    [key] = graphs(module, method)["keys"]
    return key["phase"]


def test_a_signature_is_captured_after_its_warm_up(
    gpu: FakeDriver, write: Callable[..., Path]
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
def test_options(gpu: FakeDriver, write: Callable[..., Path], warmup: int) -> None:
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


def test_a_replay_is_one_launch(gpu: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("SCALE"), cuda_graph=True) as module:
        scale = module.method("scale")
        inputs = [on_gpu(X + i, 0, LEGACY) for i in range(8)]
        outputs = [scale(inputs[i]) for i in range(5)]
        gpu.clear_calls()
        outputs.append(scale(inputs[5]))
        names = [line.split("(")[0] for line in gpu.calls(*WORK)]
        assert names.count("cuGraphLaunch") == 1
        assert set(names) <= {
            "cuGraphLaunch", "cuGraphExecKernelNodeSetParams", "cuMemAllocFromPoolAsync"}  # fmt: skip
        assert names.count("cuGraphExecKernelNodeSetParams") == 2
        for i, y in enumerate(outputs):
            np.testing.assert_array_equal(host(y), (X + i) * 2 + 0.5)
        # Outputs that are dropped serve the next call.
        scale(inputs[5])
        gpu.clear_calls()
        y = scale(inputs[5])
        assert gpu.calls("cuMemAllocFromPoolAsync", "cuGraphExecKernelNodeSetParams") == []
        del y
        assert gpu.calls("cuMemFreeAsync") == []
        del outputs[-1]
        # The same address again: only the output's has changed.
        gpu.clear_calls()
        y = scale(inputs[5])
        assert len(gpu.calls("cuGraphExecKernelNodeSetParams")) == 1
        np.testing.assert_array_equal(host(y), (X + 5) * 2 + 0.5)
        del inputs, outputs, y


def test_inputs_are_read_anew(gpu: FakeDriver, write: Callable[..., Path]) -> None:
    """The same tensor refilled, one at a freed address, outputs fed back."""
    with cudaexec.load(write("SCALE"), cuda_graph=True) as module:
        scale = module.method("scale")
        array = X.copy()
        for i in range(8):
            array[:] = i
            np.testing.assert_array_equal(scale(array), np.full(4, 2 * i + 0.5, np.float32))
        x = on_gpu(X)
        expected = X
        for _ in range(20):
            x = scale(x)
            expected = expected * 2 + np.float32(0.5)
            if _ == 10:
                x, expected = on_gpu(X), X
        np.testing.assert_array_equal(host(x), expected)
        del x


def test_host_arrays(gpu: FakeDriver, open_size: Callable[..., Path]) -> None:
    """Outputs come back to the host, small and large, without pinning a call's arrays."""
    with cudaexec.load(open_size("SCALE"), cuda_graph=True) as module:
        scale = module.method("scale")
        kept = []
        for i in range(6):
            x = np.arange(64, dtype=np.float32) + i
            y = scale(x)
            assert isinstance(y, np.ndarray)
            kept.append((x * 2 + 0.5, y))
        assert phase(module) == "replay"
        gpu.clear_calls()
        scale(np.zeros(64, np.float32))
        names = [line.split("(")[0] for line in gpu.calls(*WORK)]
        assert names.count("cuStreamSynchronize") == 1
        assert "cuMemcpyHtoDAsync" not in names
        assert "cuMemcpyDtoHAsync" not in names
        assert "cuMemAllocFromPoolAsync" not in names
        for expected, y in kept:
            np.testing.assert_array_equal(y, expected)


def test_large_host_arrays(gpu: FakeDriver, once: Once, tmp_path: Path) -> None:
    """More than the arguments of a kernel carry, more than is staged: copied around the launch."""
    method = Method("scale", "SCALE", [Code(programs.code(once, "SCALE"))], 40000)
    path = programs.write(tmp_path / "large", [method])
    with cudaexec.load(path, cuda_graph=True) as module:
        scale = module.method("scale")
        for i in range(6):
            x = np.arange(40000, dtype=np.float32) + i
            np.testing.assert_array_equal(scale(x), x * 2 + 0.5)
            strided = np.repeat(x, 2)[::2]
            np.testing.assert_array_equal(scale(strided), x * 2 + 0.5)
        assert {key["phase"] for key in graphs(module, "scale")["keys"]} == {"replay"}


@pytest.mark.parametrize("what", ["", "temporary", "same", "input", "cpu"])
def test_outputs(
    gpu: FakeDriver, open_size: Callable[..., Path], vary: Callable[[str], None], what: str
) -> None:
    """Values, shapes, strides and shared memory are those of calls without a graph."""
    vary(what)
    path = open_size("VARY")
    with (
        cudaexec.load(path, cuda_graph=cudaexec.GraphOptions(warmup=1)) as module,
        cudaexec.load(path) as plain,
    ):
        for size in (6, 0, 1):
            kept = []
            for i in range(5):
                x = on_gpu(np.arange(size, dtype=np.float32) + i)
                wanted = plain.method("vary")(x)
                found = module.method("vary")(x)
                for left, right in zip(wanted, found, strict=True):
                    assert (left.shape, left.strides, left.device) == (
                        right.shape, right.strides, right.device)  # fmt: skip
                if size == 6:
                    shared = [pointer(t[1]) - pointer(t[0]) in (0, 4) for t in (wanted, found)]
                    assert shared == [what in ("", "temporary", "same")] * 2
                kept.append(([host(t).copy() for t in wanted], found))
                del x, wanted, found
            for values, outputs in kept:
                for left, right in zip(values, outputs, strict=True):
                    np.testing.assert_array_equal(host(right), left)
            del kept, outputs
        assert {key["phase"] for key in graphs(module, "vary")["keys"]} == {"replay"}


def pointer(tensor: cudaexec.Tensor) -> int:
    if tensor.device == "cpu":
        return 0
    return int(tensor.__cuda_array_interface__["data"][0])


@pytest.mark.parametrize("what", ["strides", "shape"])
def test_outputs_that_change_at_the_capture(
    gpu: FakeDriver, write: Callable[..., Path], vary: Callable[[str], None], what: str
) -> None:
    """The captured call returns another layout than the run before: that of its own work counts."""
    vary(what)
    options = cudaexec.GraphOptions(warmup=2)
    with cudaexec.load(write("VARY"), cuda_graph=options) as module:
        method = module.method("vary")
        layouts = []
        for i in range(6):
            x = on_gpu(X + i)
            _, y = method(x)
            layouts.append((y.shape, y.strides))
            np.testing.assert_array_equal(host(y), ((X + i) * 2)[1:][:: y.strides[0]][: y.shape[0]])
            del x, y, _
        assert layouts[0] != layouts[1]
        assert len(set(layouts[2:])) == 1


def test_outputs_are_nobody_elses(
    gpu: FakeDriver, write: Callable[..., Path], vary: Callable[[str], None]
) -> None:
    """An output that aliases the input or a constant is a copy; the input is never written."""
    vary("input")
    with cudaexec.load(write("VARY"), cuda_graph=cudaexec.GraphOptions(warmup=1)) as module:
        for _ in range(4):
            x = on_gpu(X)
            y, w = module.method("vary")(x)
            assert pointer(y) != pointer(x)
            np.testing.assert_array_equal(host(y), X)
            np.testing.assert_array_equal(host(w), [2.0])
            del x, y, w


def test_strided_and_misaligned_inputs(gpu: FakeDriver, open_size: Callable[..., Path]) -> None:
    with cudaexec.load(open_size("SCALE"), cuda_graph=cudaexec.GraphOptions(warmup=1)) as module:
        scale = module.method("scale")
        for i in range(4):
            wide = np.arange(40, dtype=np.float32) + i
            there = on_gpu(wide)
            for start, step in ((0, 1), (1, 1), (2, 1), (0, 3), (1, 3), (4, 3)):
                view = cuda.view_of(there, [8], [step], start)
                expected = wide[start::step][:8] * 2 + 0.5
                np.testing.assert_array_equal(host(scale(view)), expected)
                del view
            del there
        keys = graphs(module, "scale")["keys"]
        assert {key["phase"] for key in keys} == {"replay"}
        assert {key["inputs"] for key in keys} == {
            "x float32[8]", "x float32[8] aligned to 4 bytes", "x float32[8] aligned to 8 bytes",
            "x float32[8] strides [3]", "x float32[8] strides [3] aligned to 4 bytes",
        }  # fmt: skip


def test_state_changes_once_a_call(gpu: FakeDriver, write: Callable[..., Path]) -> None:
    """Methods share state, with and without graphs."""
    with cudaexec.load(write("COUNT", "READ"), cuda_graph=True) as module:
        count, read = module.method("count"), module.method("read")
        total = np.zeros(4, np.float32)
        for i in range(8):
            total += X + i
            x = on_gpu(X + i) if i % 2 else X + i
            np.testing.assert_array_equal(host(count(x)), total * 2)
            values, first = read()
            np.testing.assert_array_equal(values, total)
            assert first == int(total[0])
            del x
        np.testing.assert_array_equal(host(module.state_dict()["total"]), total)
        assert {key["phase"] for key in graphs(module, "count")["keys"]} == {"replay"}
        # Its number is read on the host, which no capture allows.
        [key] = graphs(module, "read")["keys"]
        assert key["phase"] == "disabled"
        assert "item" in key["reason"] or "host" in key["reason"]


def test_random_numbers(gpu: FakeDriver, write: Callable[..., Path]) -> None:
    """Replays differ, and are what calls without a graph draw."""
    path = write("RANDOM")
    with (
        cudaexec.load(path, cuda_graph=True) as module,
        cudaexec.load(path) as plain,
    ):
        for seed in (3, 4, 3):
            module.manual_seed(seed)
            plain.manual_seed(seed)
            drawn = [host(module.method("random")()).copy() for _ in range(7)]
            wanted = [host(plain.method("random")()).copy() for _ in range(7)]
            np.testing.assert_array_equal(drawn, wanted)
            assert len({tuple(each) for each in drawn}) == 7
        assert phase(module, "random") == "replay"


@pytest.mark.parametrize("what", ["item", "host", "device"])
def test_a_call_that_cannot_be_captured(
    gpu: FakeDriver,
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
    gpu: FakeDriver, write: Callable[..., Path], vary: Callable[[str], None]
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


def test_each_signature_has_its_own_graph(gpu: FakeDriver, open_size: Callable[..., Path]) -> None:
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


def test_strict(gpu: FakeDriver, open_size: Callable[..., Path]) -> None:
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


def test_trim_and_close_give_everything_back(gpu: FakeDriver, write: Callable[..., Path]) -> None:
    def alive() -> dict[str, int]:
        """Without what our kernels and ordering keep for good."""
        kept = ("streams", "events", "modules")
        return {kind: n for kind, n in gpu.live().items() if kind not in kept}

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
        gpu.clear_calls()
        module.trim()
        # The pool can only give back what the GPU has come to free.
        waits_and_trims = gpu.calls("cuStreamSynchronize", "cuMemPoolTrimTo")
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


def test_new_weights_get_new_graphs(gpu: FakeDriver, write: Callable[..., Path]) -> None:
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


@pytest.mark.parametrize("model", ["SCALE", "COUNT"])
def test_streams(gpu: FakeDriver, write: Callable[..., Path], model: str) -> None:
    """Calls on several streams, whose graphs share memory: each sees the work before it."""
    streams = [cuda.Stream(0) for _ in range(3)]
    with cudaexec.load(write(model), cuda_graph=cudaexec.GraphOptions(warmup=1)) as module:
        method = module.method(model.lower())
        total = np.zeros(4, np.float32)
        kept = []
        for i in range(12):
            stream = streams[i % 3].handle if i % 4 else LEGACY
            array = X + i
            total += array
            x = on_gpu(array, 0, streams[(i + 1) % 3].handle)
            y = method(x, stream=stream) if i % 2 else method(x)
            kept.append((y, array * 2 + 0.5 if model == "SCALE" else total * 2))
            del x, y
        for y, expected in kept:
            np.testing.assert_array_equal(host(y), expected)
        assert phase(module, model.lower()) == "replay"
        del kept, y
    del streams


def test_threads(gpu: FakeDriver, write: Callable[..., Path]) -> None:
    """Each call in flight has a container, and that its graphs, of its own."""
    gpu.set_log(False)
    with cudaexec.load(
        write("SCALE", "COUNT"), cuda_graph=cudaexec.GraphOptions(warmup=1)
    ) as module:
        barrier = threading.Barrier(4)
        wrong: list[object] = []

        def work(number: int) -> None:
            barrier.wait()
            for i in range(25):
                array = X + 100 * number + i
                if not np.array_equal(module.method("scale")(array), array * 2 + 0.5):
                    wrong.append((number, i))
                module.method("count")(np.ones(4, np.float32))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        np.testing.assert_array_equal(host(module.state_dict()["total"]), np.full(4, 100.0))
    gpu.set_log(True)


def test_other_device(gpu: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("SCALE"), device="cuda:1", cuda_graph=True) as module:
        for i in range(6):
            x = on_gpu(X + i, 1)
            y = module.method("scale")(x)
            assert y.device == "cuda:1"
            np.testing.assert_array_equal(host(y), (X + i) * 2 + 0.5)
            np.testing.assert_array_equal(module.method("scale")(X), X * 2 + 0.5)
            del x, y


def test_refusals_by_the_file(gpu: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("BUSY"), cuda_graph=True) as module:
        for _ in range(5):
            np.testing.assert_array_equal(module.method("busy")(X, np.array(0)), X * 2)
        found = graphs(module, "busy")
        assert "input 'mode' on the host" in found["reason"]
        assert found["keys"] == []


def test_memory_is_shared_by_graphs(
    gpu: FakeDriver, once: Once, tmp_path: Path, vary: Callable[[str], None]
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


def test_sessions(gpu: FakeDriver, write: Callable[..., Path]) -> None:
    """Each session has graphs over its own state: interleaved, reset, forked, closed."""
    with cudaexec.load(write("COUNT"), cuda_graph=cudaexec.GraphOptions(warmup=1)) as module:
        holders = [module, module.session(), module.session()]
        totals = [np.zeros(4, np.float32) for _ in holders]
        for i in range(5):
            for k, holder in enumerate(holders):
                totals[k] += X + 10 * k + i
                found = holder.method("count")(X + 10 * k + i)
                np.testing.assert_array_equal(found, totals[k] * 2)
        assert [key["phase"] for key in graphs(module, "count")["keys"]] == ["replay"] * 3
        holders[1].reset()
        other = holders[2].fork()
        np.testing.assert_array_equal(holders[1].method("count")(X), X * 2)
        np.testing.assert_array_equal(other.method("count")(X), (totals[2] + X) * 2)
        np.testing.assert_array_equal(holders[2].method("count")(X), (totals[2] + X) * 2)
        holders[2].close()
        np.testing.assert_array_equal(other.method("count")(X), (totals[2] + 2 * X) * 2)
        np.testing.assert_array_equal(module.method("count")(X), (totals[0] + X) * 2)
        assert len(graphs(module, "count")["keys"]) == 3
        del other, holders, holder
