"""Every test here runs over the fake driver and leaves nothing behind."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator

import pytest

from cuda_fake.fake import FakeDriver
from cuda_fake.foreign import Memory
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
