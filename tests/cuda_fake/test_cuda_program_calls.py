"""Calls of GPU programs: where inputs may be, where outputs are, and in which order work is done."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cudaexec
from cuda_fake.fake import FakeDriver
from cudaexec._core import _testing

cuda = _testing.cuda
X = np.arange(4, dtype=np.float32)
LEGACY = 1


def on_gpu(array: np.ndarray, index: int = 0, stream: int = LEGACY) -> cudaexec.Tensor:
    return cuda.tensor_on(array, index, stream)


def host(tensor: cudaexec.Tensor) -> np.ndarray:
    assert isinstance(tensor, cudaexec.Tensor)
    return tensor.numpy() if tensor.device == "cpu" else tensor.to_host().numpy()


def test_tensors_on_the_gpu_stay_there(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("SCALE"), device="cuda:1") as module:
        scale = module.method("scale")
        x = on_gpu(X, 1)
        gpus.clear_calls()
        y = scale(x)
        assert y.device == "cuda:1"
        assert gpus.calls("cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize") == []
        assert gpus.launches("fake_scale") == 0  # nothing waited for it
        np.testing.assert_array_equal(host(y), X * 2 + 0.5)
        z = scale(y)
        np.testing.assert_array_equal(host(z), (X * 2 + 0.5) * 2 + 0.5)
        np.testing.assert_array_equal(host(y), X * 2 + 0.5)
        del x, y, z


@pytest.mark.parametrize("given", ["none", "inputs", "chosen", "both"])
def test_order_of_streams(gpus: FakeDriver, write: Callable[..., Path], given: str) -> None:
    """The call sees what was put on the inputs' stream, and what follows there sees the call."""
    inputs, chosen = cuda.Stream(0), cuda.Stream(0)
    with cudaexec.load(write("SCALE")) as module:
        scale = module.method("scale")
        first = inputs.handle if given in ("inputs", "both") else LEGACY
        x = on_gpu(X, 0, first)  # its copy to the GPU waits on that stream
        y = scale(x, stream=chosen.handle) if given in ("chosen", "both") else scale(x)
        launch = gpus.calls("cuLaunchKernel")[-1]
        if given in ("chosen", "both"):
            assert f"{chosen.handle:#x})" in launch
            chosen.synchronize()
        elif given == "inputs":
            assert f"{inputs.handle:#x})" in launch
        np.testing.assert_array_equal(host(y), X * 2 + 0.5)
        del x, y
    del inputs, chosen


def test_a_stream_of_another_gpu(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    other = cuda.Stream(1)
    with cudaexec.load(write("SCALE")) as module:
        x = on_gpu(X)
        with pytest.raises(cudaexec.DeviceError, match=r"cuda:0.*cuda:1"):
            module.method("scale")(x, stream=other.handle)
        del x
    del other


def test_an_input_on_another_gpu(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("SCALE")) as module:
        x = on_gpu(X, 1)
        with pytest.raises(cudaexec.DeviceError, match=r"input 'x'.*cuda:0.*found.*cuda:1"):
            module.method("scale")(x)
        del x


def test_host_and_device_inputs_together(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    """`mode` is taken on the host by the program, x where it is: the outputs follow x."""
    with cudaexec.load(write("BUSY")) as module:
        busy = module.method("busy")
        x = on_gpu(X)
        y = busy(x, np.array(5))
        assert y.device == "cuda:0"
        np.testing.assert_array_equal(host(y), X * 2)
        with pytest.raises(cudaexec.DeviceError, match=r"input 'mode'.*expected.*cpu.*cuda:0"):
            busy(x, on_gpu(np.array(5)))
        del x, y


def test_strided_and_misaligned_inputs_are_copied(
    gpus: FakeDriver, write: Callable[..., Path]
) -> None:
    with cudaexec.load(write("SCALE")) as module:
        scale = module.method("scale")
        wide = np.arange(12, dtype=np.float32)
        np.testing.assert_array_equal(scale(wide[::3]), wide[::3] * 2 + 0.5)
        there = on_gpu(wide)
        aligned = cuda.view_of(there, [4], [1], 4)
        misaligned = cuda.view_of(there, [4], [1], 1)
        gpus.clear_calls()
        np.testing.assert_array_equal(host(scale(aligned)), wide[4:8] * 2 + 0.5)
        assert gpus.calls("cuMemcpyDtoDAsync") == []
        np.testing.assert_array_equal(host(scale(misaligned)), wide[1:5] * 2 + 0.5)
        assert len(gpus.calls("cuMemcpyDtoDAsync")) == 1
        del there, aligned, misaligned


def test_shims_on_the_gpu(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("BUSY")) as module:
        busy = module.method("busy")
        with pytest.raises(cudaexec.Error, match="boom from the model"):
            busy(X, np.array(1))
        with pytest.raises(cudaexec.ShapeError, match="one number"):
            busy(X, np.array(2))
        np.testing.assert_array_equal(busy(X, np.array(3)), X + [1, 0, 0, 0])
        np.testing.assert_array_equal(busy(X, np.array(5)), X * 2)


def test_state_follows_calls_on_other_streams(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    """Calls of one session on different streams see each other's writes, without waiting."""
    streams = [cuda.Stream(0) for _ in range(3)]
    with cudaexec.load(write("COUNT")) as module:
        count = module.method("count")
        x = on_gpu(np.ones(4, np.float32), 0, streams[0].handle)
        gpus.clear_calls()
        outputs = [count(x, stream=streams[i % 3].handle) for i in range(7)]
        assert gpus.calls("cuStreamSynchronize", "cuEventSynchronize") == []
        for i in reversed(range(7)):
            np.testing.assert_array_equal(host(outputs[i]), np.full(4, 2 * (i + 1)))
        del outputs, x
    del streams


def test_the_default_stream_of_each_thread(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    """Handle 2 is another stream in every thread; state is in order and outputs outlive threads."""
    kept: list[cudaexec.Tensor] = []
    with cudaexec.load(write("COUNT")) as module:
        count = module.method("count")

        def work() -> None:
            x = on_gpu(np.ones(4, np.float32), 0, 2)
            kept.append(count(x, stream=2))

        for _ in range(5):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        for i in reversed(range(5)):
            np.testing.assert_array_equal(host(kept[i]), np.full(4, 2 * (i + 1)))
        kept.clear()


def test_the_caller_may_drop_its_stream(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("COUNT", "SCALE")) as module:
        for _ in range(12):
            stream = cuda.Stream(0)
            module.method("count")(X, stream=stream.handle)
            module.method("scale")(X, stream=stream.handle)
            del stream
            gc.collect(0)
        np.testing.assert_array_equal(module.state_dict()["total"].numpy(), X * 12)


def test_threads(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    """Any number of threads call one method, each on a stream of its own."""
    with cudaexec.load(write("SCALE")) as module:
        scale = module.method("scale")
        failures: list[BaseException] = []

        def work(offset: int) -> None:
            try:
                for i in range(20):
                    x = X + offset * 100 + i
                    np.testing.assert_array_equal(scale(x), x * 2 + 0.5)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        module.trim()


def test_outputs_outlive_the_module(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    module = cudaexec.load(write("SCALE"))
    y = module.method("scale")(on_gpu(X))
    module.close()
    del module
    gc.collect(1)
    np.testing.assert_array_equal(host(y), X * 2 + 0.5)
    del y
    gc.collect(1)
    assert cuda.live_working_memory() == 0
