"""Programs with code for a GPU: loading, calls from the host, choice of code and device, unloading."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cudaexec
from cuda_fake import programs
from cuda_fake.fake import FakeDriver
from cuda_fake.programs import Code, Method, Once
from cudaexec._core import _testing

cuda = _testing.cuda
X = np.arange(4, dtype=np.float32)


@pytest.fixture
def gpus(fake: FakeDriver) -> FakeDriver:
    """Two GPUs of sm_90 with the kernels of the fake programs."""
    fake.set_devices(2)
    programs.register_kernels(fake)
    return fake


@pytest.fixture
def write(once: Once, tmp_path: Path) -> Callable[..., Path]:
    """`write("SCALE", "COUNT")`: a program of one method each, named by the model in lower case."""

    def make(*models: str, unloads: bool = False) -> Path:
        methods = [
            Method(name.lower(), name, [Code(programs.code(once, name, unloads=unloads))])
            for name in models
        ]
        return programs.write(tmp_path / "-".join(models), methods)

    return make


def counts() -> dict[str, int]:
    gc.collect(1)
    return {**_testing.live_counts(), "modules": cuda.live_modules(),
            "shared": cuda.shared_weight_count(), "working": cuda.live_working_memory()}  # fmt: skip


@pytest.mark.parametrize("device", [None, "cuda", "cuda:0", "cuda:1"])
def test_host_arrays_in_and_out(
    gpus: FakeDriver, write: Callable[..., Path], device: str | None
) -> None:
    with cudaexec.load(write("SCALE"), device=device) as module:
        for i in range(3):
            y = module.method("scale")(X + i)
            assert isinstance(y, np.ndarray)
            np.testing.assert_array_equal(y, (X + i) * 2 + 0.5)
        stats = json.loads(module._describe()) if hasattr(module, "_describe") else module.stats()
        assert stats["device"] == (device if device == "cuda:1" else "cuda:0")
        assert stats["gpu"]["sm"] == 90
        memory = module.memory_stats()
        assert memory["weights_device"] == 4
        assert memory["weights_mapped"] == 4  # the constant of the host
    assert gpus.launches("fake_scale") == 3


def test_everything_is_released(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    before = counts()
    for unloads in (False, True):
        module = cudaexec.load(write("SCALE", "COUNT", unloads=unloads))
        module.method("scale")(X)
        module.method("count")(X)
        assert counts()["modules"] >= 2
        assert gpus.live()["modules"] >= 2
        module.close()
        assert counts() == before
        live = gpus.live()
        for kind in ("modules", "device_blocks", "pool_blocks", "host_blocks"):
            assert kind not in live, live
        assert gpus.used(0) == 0
        del module


def test_the_current_device_is_restored(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    def body() -> None:
        current = gpus.make("cuCtxGetCurrent")
        with cudaexec.load(write("SCALE"), device="cuda:1") as module:
            assert gpus.make("cuCtxGetCurrent") == current
            module.method("scale")(X)
            assert gpus.make("cuCtxGetCurrent") == current
        assert gpus.make("cuCtxGetCurrent") == current

    cuda.guarded(0, body)


def test_state_is_shared_by_methods(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("COUNT", "READ")) as module:
        count, read = module.method("count"), module.method("read")
        np.testing.assert_array_equal(read()[0], np.zeros(4))
        np.testing.assert_array_equal(count(X + 1), (X + 1) * 2)
        np.testing.assert_array_equal(count(X + 1), (X + 1) * 4)
        total, first = read()
        np.testing.assert_array_equal(total, (X + 1) * 2)
        assert first == 2
        assert module.memory_stats()["state"] == 16
        state = module.state_dict()
        np.testing.assert_array_equal(state["total"].numpy(), (X + 1) * 2)
        np.testing.assert_array_equal(state["w"].numpy(), [2])


def test_load_weights(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("SCALE", "COUNT", "READ")) as module:
        scale, count, read = (module.method(n) for n in ("scale", "count", "read"))
        old = scale(X), count(X)
        module.load_weights({"w": np.array([10], np.float32), "k": np.array([1], np.float32)})
        np.testing.assert_array_equal(scale(X), X * 10 + 1)
        np.testing.assert_array_equal(count(X), X * 20)
        module.load_weights({"total": np.full(4, 7, np.float32)})
        assert read()[1] == 7
        np.testing.assert_array_equal(count(X), (X + 7) * 10)
        np.testing.assert_array_equal(old[0], X * 2 + 0.5)
        with pytest.raises(cudaexec.ShapeError, match="'w'"):
            module.load_weights({"w": np.zeros(2, np.float32)})
