"""Every test here runs over the fake driver and leaves nothing behind."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cuda_fake import programs
from cuda_fake.fake import FakeDriver, emulate_kernels
from cuda_fake.foreign import Memory
from cuda_fake.programs import Code, Method, Once
from cudaexec._core import _testing


@pytest.fixture
def fake() -> Iterator[FakeDriver]:
    """The fake as the process's driver. At the end nothing of it is alive and nothing was misused."""
    driver = FakeDriver()
    driver.reset()
    _testing.cuda.use_driver(driver.path)
    yield driver
    driver.clear_faults()
    gc.collect(1)  # what the test held in cycles
    Memory.free_all()
    driver.run_all()
    _testing.cuda.use_driver("")
    try:
        assert driver.live() == {}
        assert driver.misuse() == []
        assert driver.context_depth() == 0
        assert _testing.cleanup_reports() == ([], 0)
    finally:
        driver.reset()


@pytest.fixture
def gpu() -> Iterator[FakeDriver]:
    """The fake with device 0's context current, without our library in between."""
    driver = FakeDriver()
    driver.reset()
    driver.call("cuInit", ctypes.c_uint(0))
    driver.call("cuCtxPushCurrent", driver.make("cuDevicePrimaryCtxRetain", 0))
    yield driver
    driver.clear_faults()
    driver.run_all()
    driver.make("cuCtxPopCurrent")
    driver.call("cuDevicePrimaryCtxRelease", 0)
    assert driver.misuse() == []
    assert driver.live() == {}
    driver.reset()


@pytest.fixture
def gpus(fake: FakeDriver) -> FakeDriver:
    """Two GPUs of sm_90 with the kernels of the fake programs."""
    fake.set_devices(2)
    programs.register_kernels(fake)
    return fake


@pytest.fixture
def emulated(gpus: FakeDriver) -> FakeDriver:
    """The same, which also run our own kernels, compiled for the CPU."""
    if not _testing.cuda.image_names():
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
