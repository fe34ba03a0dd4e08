"""Calls as CUDA graphs give what calls without them do: inputs, outputs, state, streams, threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cudaexec
from cuda_fake import programs
from cuda_fake.fake import FakeDriver
from cuda_fake.graph_calls import LEGACY, WORK, X, graphs, host, on_gpu, phase, pointer
from cuda_fake.programs import Code, Method, Once
from cudaexec._core import _testing

cuda = _testing.cuda


def test_inputs_are_read_anew(emulated: FakeDriver, write: Callable[..., Path]) -> None:
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


def test_host_arrays(emulated: FakeDriver, open_size: Callable[..., Path]) -> None:
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
        emulated.clear_calls()
        scale(np.zeros(64, np.float32))
        names = [line.split("(")[0] for line in emulated.calls(*WORK)]
        assert names.count("cuStreamSynchronize") == 1
        assert "cuMemcpyHtoDAsync" not in names
        assert "cuMemcpyDtoHAsync" not in names
        assert "cuMemAllocFromPoolAsync" not in names
        for expected, y in kept:
            np.testing.assert_array_equal(y, expected)


def test_large_host_arrays(emulated: FakeDriver, once: Once, tmp_path: Path) -> None:
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
    emulated: FakeDriver, open_size: Callable[..., Path], vary: Callable[[str], None], what: str
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


@pytest.mark.parametrize("what", ["strides", "shape"])
def test_outputs_that_change_at_the_capture(
    emulated: FakeDriver, write: Callable[..., Path], vary: Callable[[str], None], what: str
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
    emulated: FakeDriver, write: Callable[..., Path], vary: Callable[[str], None]
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


def test_strided_and_misaligned_inputs(
    emulated: FakeDriver, open_size: Callable[..., Path]
) -> None:
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


def test_state_changes_once_a_call(emulated: FakeDriver, write: Callable[..., Path]) -> None:
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


def test_random_numbers(emulated: FakeDriver, write: Callable[..., Path]) -> None:
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


@pytest.mark.parametrize("model", ["SCALE", "COUNT"])
def test_streams(emulated: FakeDriver, write: Callable[..., Path], model: str) -> None:
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


def test_threads(emulated: FakeDriver, write: Callable[..., Path]) -> None:
    """Each call in flight has a container, and that its graphs, of its own."""
    emulated.set_log(False)
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
    emulated.set_log(True)


def test_other_device(emulated: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("SCALE"), device="cuda:1", cuda_graph=True) as module:
        for i in range(6):
            x = on_gpu(X + i, 1)
            y = module.method("scale")(x)
            assert y.device == "cuda:1"
            np.testing.assert_array_equal(host(y), (X + i) * 2 + 0.5)
            np.testing.assert_array_equal(module.method("scale")(X), X * 2 + 0.5)
            del x, y


def test_sessions(emulated: FakeDriver, write: Callable[..., Path]) -> None:
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
