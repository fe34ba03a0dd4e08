"""GPU operators over the fake driver and the fake cuBLAS, and with ``-m gpu`` on a GPU."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from cuda_fake.fake import FakeDriver, emulate_kernels, kernels
from cuda_ops.fake_cublas import FakeCublas
from cudaexec._core import _set_package_folders, _testing

if TYPE_CHECKING:
    from cuda_ops.device_call import World


def take_traps() -> int:
    """Threads that stopped at a failed check since the last call."""
    return int(kernels().emulation_take_traps())


@pytest.fixture(scope="session", autouse=True)
def _cheap_collections() -> None:
    """Keeps the collections after tests from visiting all of torch each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def fake(_cheap_collections: None) -> Iterator[FakeDriver]:
    """The fake as the process's driver. At the end nothing is alive and nothing was misused."""
    if not _testing.cuda.image_names():
        pytest.skip("built without nvcc: there is no device code")
    driver = FakeDriver()
    driver.reset()
    driver.set_devices(2)
    emulate_kernels()
    _testing.cuda.use_driver(driver.path)
    yield driver
    driver.clear_faults()
    gc.collect(1)
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
def cublas(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCublas]:
    """The fake cuBLAS over the fake driver."""
    library = FakeCublas()
    library.reset()
    monkeypatch.setenv("CUDAEXEC_CUBLAS", library.path)
    yield library
    fake.run_all()
    _testing.cuda.reset_cublas()
    assert library.misuse() == []
    assert library.live() == 0


@pytest.fixture
def fake_world(cublas: FakeCublas) -> Iterator[World]:
    from cuda_ops.device_call import World

    made = World()
    made.take_traps = take_traps
    take_traps()
    yield made
    made.close()
    assert take_traps() == 0


@pytest.fixture
def gpu_world() -> Iterator[World]:
    from cuda_ops.device_call import World

    if _testing.cuda.problem() is not None:
        pytest.skip("no NVIDIA GPU")
    _set_package_folders(sys.path)
    made = World()
    yield made
    made.close()


@pytest.fixture(params=["fake", pytest.param("gpu", marks=pytest.mark.gpu)])
def world(request: pytest.FixtureRequest) -> World:
    """The fake device, and with ``-m gpu`` a real one."""
    made: World = request.getfixturevalue(f"{request.param}_world")
    return made
