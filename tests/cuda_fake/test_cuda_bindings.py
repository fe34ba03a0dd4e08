"""Bindings: calls on memory that was chosen once. What a method tells of itself."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cudaexec
from cuda_fake.fake import FakeDriver
from cudaexec._core import _testing

cuda = _testing.cuda
X = np.arange(4, dtype=np.float32)
GRAPHS = cudaexec.GraphOptions(warmup=3)


def fill(emulated: FakeDriver, tensor: cudaexec.Tensor, array: np.ndarray) -> None:
    """Writes an array into memory of the GPU, behind all work."""
    emulated.run_all()
    address = int(tensor.__cuda_array_interface__["data"][0])
    ctypes.memmove(address, array.ctypes.data, array.nbytes)


@pytest.mark.parametrize("graph", [False, True])
def test_on_the_gpu(emulated: FakeDriver, write: Callable[..., Path], graph: bool) -> None:
    """After one call without a graph a run is one launch, without a copy."""
    with cudaexec.load(write("SCALE"), cuda_graph=graph and GRAPHS) as module:
        x, y = cuda.tensor_on(X), cuda.tensor_on(np.zeros(4, np.float32))
        binding = module.method("scale").bind((x,), (y,))
        for i in range(5):
            fill(emulated, x, X + i)
            emulated.clear_calls()
            binding.run()
            names = [line.split("(")[0] for line in emulated.calls()]
            if graph and i >= 2:
                assert names.count("cuGraphLaunch") == 1
                assert not {"cuLaunchKernel", "cuMemcpyDtoDAsync", "cuMemAllocFromPoolAsync",
                            "cuGraphExecKernelNodeSetParams"} & set(names)  # fmt: skip
            np.testing.assert_array_equal(y.to_host().numpy(), (X + i) * 2 + 0.5)
        if graph:
            # Nothing but the program's own kernel.
            assert emulated.launches("cudaexec_batch_copy") == 0
            [key] = module.stats()["methods"][0]["graphs"]["keys"]
            assert key["inputs"].endswith("bound")
            assert key["phase"] == "replay"
        del x, y, binding


@pytest.mark.parametrize("graph", [False, True])
def test_arrays_of_the_host(emulated: FakeDriver, write: Callable[..., Path], graph: bool) -> None:
    with cudaexec.load(write("SCALE"), cuda_graph=graph) as module:
        wide = np.zeros(8, np.float32)
        x, y = X.copy(), wide[::2]
        binding = module.method("scale").bind(x, y)
        for i in range(5):
            x[:] = X + i
            binding.run()
            np.testing.assert_array_equal(wide[::2], (X + i) * 2 + 0.5)
            np.testing.assert_array_equal(wide[1::2], 0)
        del binding


@pytest.mark.parametrize("place", ["input", "output", "run"])
@pytest.mark.parametrize("graph", [False, True])
def test_streams(emulated: FakeDriver, write: Callable[..., Path], graph: bool, place: str) -> None:
    """A run follows what is on the streams of its memory, and is followed by it, outputs too."""
    stream = cuda.Stream(0)
    with cudaexec.load(write("SCALE"), cuda_graph=graph and GRAPHS) as module:
        scale = module.method("scale")
        x = cuda.tensor_on(X, 0, stream.handle if place == "input" else 1)
        y = cuda.tensor_on(X, 0, stream.handle if place == "output" else 1)
        binding = scale.bind((x,), (y,))
        before = X
        for i in range(5):
            fill(emulated, x, X + i)
            read = scale(y)  # on the stream of y; done when something waits for it
            binding.run(stream=stream.handle if place == "run" else None)
            np.testing.assert_array_equal(y.to_host().numpy(), (X + i) * 2 + 0.5)
            np.testing.assert_array_equal(read.to_host().numpy(), before * 2 + 0.5)
            before = (X + i) * 2 + 0.5
        del x, y, read, binding
    del stream


def test_misaligned_and_strided_memory(emulated: FakeDriver, write: Callable[..., Path]) -> None:
    """What the code cannot use in place is copied by nodes of the graph."""
    with cudaexec.load(write("SCALE"), cuda_graph=True) as module:
        source, target = (
            cuda.tensor_on(np.arange(16, dtype=np.float32)),
            cuda.tensor_on(np.zeros(16, np.float32)),
        )
        for start, step in ((1, 1), (0, 2), (3, 3)):
            x = cuda.view_of(source, [4], [step], start)
            y = cuda.view_of(target, [4], [step], start)
            binding = module.method("scale").bind({"x": x}, [y])
            for i in range(4):
                fill(emulated, source, np.arange(16, dtype=np.float32) + i)
                binding.run()
                expected = (np.arange(16, dtype=np.float32) + i)[start::step][:4] * 2 + 0.5
                np.testing.assert_array_equal(target.to_host().numpy()[start::step][:4], expected)
            del x, y, binding
        del source, target


def test_state_and_other_calls(emulated: FakeDriver, write: Callable[..., Path]) -> None:
    """Runs and calls share the state; new weights, trim and a second binding change nothing."""
    with cudaexec.load(write("COUNT"), cuda_graph=True) as module:
        count = module.method("count")
        x, y = cuda.tensor_on(X), cuda.tensor_on(np.zeros(4, np.float32))
        other = np.zeros(4, np.float32)
        first, second = count.bind((x,), (y,)), count.bind((X,), (other,))
        total = np.zeros(4, np.float32)
        for i in range(12):
            for binding, output in ((first, y), (second, other)):
                binding.run()
                total += X
                found = output if output is other else y.to_host().numpy()
                np.testing.assert_array_equal(found, total * 2)
            np.testing.assert_array_equal(count(X), (total := total + X) * 2)
            if i == 5:
                module.trim()
            if i == 8:
                module.load_weights({"total": np.zeros(4, np.float32)})
                total[:] = 0
        del x, y, first, second, binding, output, found
        gc.collect(0)


def test_wrong_memory(emulated: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("SCALE", "READ")) as module:
        bind = module.method("scale").bind
        x = X.copy()
        read_only = np.zeros(4, np.float32)
        read_only.flags.writeable = False
        for output, error, words in (
            (np.zeros(5, np.float32), cudaexec.ShapeError, "output 0: expected"),
            (np.zeros(4, np.float64), cudaexec.DtypeError, "output 0: expected float32"),
            (read_only, cudaexec.InputError, "read-only"),
            (np.zeros(4, np.float32)[::-1], cudaexec.InputError, "strides"),
            (np.broadcast_to(np.zeros(1, np.float32), 4), cudaexec.InputError, "read-only"),
            (x, cudaexec.InputError, "output 0 shares memory with input 'x'"),
            (b"1234", cudaexec.InputError, "can be written"),
            ((), cudaexec.InputError, "1 outputs, found 0"),
            (None, cudaexec.InputError, "no memory for it"),
        ):
            with pytest.raises(error, match=words):
                bind(x, output)
        away = cuda.tensor_on(np.zeros(4, np.float32), 1)
        with pytest.raises(cudaexec.DeviceError, match=r"cuda:1.*cuda:0"):
            bind(x, away)
        del away
        with pytest.raises(cudaexec.ShapeError):
            bind(np.zeros(5, np.float32), np.zeros(4, np.float32))
        y = np.zeros(4, np.float32)
        with pytest.raises(cudaexec.InputError, match="is no tensor: pass None"):
            module.method("read").bind((), (y, y))
        module.method("read").bind((), (y, None)).run()
        binding = bind(x, y)
        binding.run()
        np.testing.assert_array_equal(y, X * 2 + 0.5)
        overlapping = np.zeros(8, np.float32)
        with pytest.raises(cudaexec.InputError, match="shares memory"):
            bind(overlapping[:4], overlapping[2:6])
    with pytest.raises(cudaexec.ClosedError):
        binding.run()


def test_warmup(emulated: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("SCALE"), cuda_graph=True) as module:
        module.method("scale").warmup(X)
        [key] = module.stats()["methods"][0]["graphs"]["keys"]
        assert (key["phase"], key["calls"]) == ("replay", 4)
    with cudaexec.load(write("SCALE")) as module:
        module.method("scale").warmup(x=X)


def test_stats_of_a_method(emulated: FakeDriver, write: Callable[..., Path]) -> None:
    """A method's part of the module's, in any session; also once the module is closed."""
    with cudaexec.load(write("SCALE", "COUNT"), cuda_graph={"scale"}) as module:
        scale, count = module.method("scale"), module.session().method("count")
        for i in range(6):
            scale(X + i)
            with pytest.raises(cudaexec.ShapeError):
                count(X[:3])
        assert [scale.stats(), count.stats()] == module.stats()["methods"]
        found = scale.stats()
        assert (found["name"], found["calls"], found["errors"]) == ("scale", 6, 0)
        assert (found["graphs"]["captures"], found["graphs"]["replays"]) == (1, 2)
        assert found["graphs"]["keys"][0]["phase"] == "replay"
        assert (count.stats()["calls"], count.stats()["errors"]) == (6, 6)
        assert "graphs" not in count.stats()
    assert scale.stats()["calls"] == 6
