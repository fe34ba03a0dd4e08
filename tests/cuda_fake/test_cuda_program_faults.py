"""Every driver call, allocation and shim of a load and of a call fails once: one typed error, nothing left."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Set
from pathlib import Path

import numpy as np
import pytest

import cudaexec
from cuda_fake import fake as fakes
from cuda_fake.fake import FakeDriver
from cudaexec._core import _testing

cuda = _testing.cuda
X = np.arange(4, dtype=np.float32)
SITES = ["allocate", "file", "dlopen", "shim", "container"]
# What the process keeps once it has used a GPU.
KEPT = ("contexts", "streams", "events", "pools")


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    _testing.disarm_fault()


@pytest.fixture
def gpu(gpus: FakeDriver, write: Callable[..., Path]) -> FakeDriver:
    """Two GPUs that have been used: what a process keeps exists."""
    for device in ("cuda:0", "cuda:1"):
        with cudaexec.load(write("SCALE"), device=device) as module:
            module.method("scale")(X)
    return gpus


def counts(driver: FakeDriver) -> dict[str, int]:
    gc.collect(1)
    live = driver.live()
    return {**_testing.live_counts(), **live, "modules held": cuda.live_modules(),
            "shared": cuda.shared_weight_count(), "working": cuda.live_working_memory(),
            "held": cuda.held_count(), "context": driver.context_depth()}  # fmt: skip


def check(module: cudaexec.Module) -> None:
    for name in module.methods:
        outputs = module.method(name)(X) if name != "read" else module.method(name)()
        if name == "scale":
            np.testing.assert_array_equal(outputs, X * 2 + 0.5)


# Where these fail, what they should have freed is lost; a warning says so.
FREES = {"cuMemFree", "cuMemFreeHost", "cuModuleUnload", "cuEventDestroy", "cuCtxPopCurrent"}


def calls_of(driver: FakeDriver, lost: Set[str] = FREES) -> list[tuple[str, int]]:
    """(entry, k) for every call since clear_calls() that may fail without a loss."""
    names = [line.split("(")[0] for line in driver.calls()]
    seen: Counter[str] = Counter()
    result = []
    for i, name in enumerate(names):
        seen[name] += 1
        selects_for_free = name == "cuCtxPushCurrent" and bool(
            (lost - {"cuCtxPopCurrent"} | {"cuMemFreeAsync"}) & set(names[i + 1 : i + 3])
        )
        if name not in lost and not selects_for_free:
            result.append((name, seen[name]))
    return result


def expect_type(error: cudaexec.Error, result: int) -> None:
    expected = cudaexec.OutOfMemory if result == fakes.OUT_OF_MEMORY else cudaexec.DeviceError
    assert isinstance(error, expected), error


@pytest.mark.parametrize("models", [("SCALE",), ("COUNT", "READ")])
@pytest.mark.parametrize("result", [fakes.OUT_OF_MEMORY, fakes.ILLEGAL_ADDRESS])
def test_driver_calls_of_a_load(
    gpu: FakeDriver, write: Callable[..., Path], models: tuple[str, ...], result: int
) -> None:
    path = write(*models)
    before = counts(gpu)
    gpu.clear_calls()
    module = cudaexec.load(path, device="cuda:1")
    planned = calls_of(gpu)
    module.close()
    del module
    failures = 0
    for name, k in planned:
        gpu.fail(name, k, result)
        try:
            module = cudaexec.load(path, device="cuda:1")
        except cudaexec.Error as error:
            assert gpu.clear_faults() == 1
            failures += 1
            expect_type(error, result)
            del error
        else:
            assert gpu.clear_faults() == 1, (name, k)
            _testing.cleanup_reports()
            with module:
                check(module)
            del module
        _testing.cleanup_reports()
        assert counts(gpu) == before, (name, k)
    assert failures > len(planned) // 2
    with cudaexec.load(path, device="cuda:1") as module:
        check(module)
    del module


@pytest.mark.parametrize("model", ["SCALE", "COUNT", "READ"])
@pytest.mark.parametrize("first", [True, False])
def test_driver_calls_of_a_call(
    gpu: FakeDriver, write: Callable[..., Path], model: str, first: bool
) -> None:
    """The first call of a container, which loads its kernels, and later ones."""
    path = write(model)
    inputs = () if model == "READ" else (X,)
    before = counts(gpu)

    def run(name: str | None = None, k: int = 0) -> list[tuple[str, int]]:
        with cudaexec.load(path, device="cuda:1") as module:
            method = module.method(model.lower())
            if not first:
                method(*inputs)
            loaded = counts(gpu)
            gpu.clear_calls()
            if name is not None:
                gpu.fail(name, k, fakes.ILLEGAL_ADDRESS)
            try:
                method(*inputs)
            except cudaexec.Error as error:
                assert gpu.clear_faults() == 1
                assert isinstance(error, cudaexec.DeviceError), (name, k, error)
                failed.append((name, k))
                del error
            else:
                planned = calls_of(gpu)
                assert gpu.clear_faults() == (name is not None), (name, k)
            _testing.cleanup_reports()
            # What a first call makes for good may exist or not; nothing of the call is left.
            after = counts(gpu)
            for kind in ("storages", "handles", "containers", "pool_blocks", "held", "context"):
                assert after.get(kind, 0) == loaded.get(kind, 0), (name, k, kind)
            outputs = method(*inputs)
            if model == "SCALE":
                np.testing.assert_array_equal(outputs, X * 2 + 0.5)
            del outputs
        del module, method
        _testing.cleanup_reports()
        assert counts(gpu) == before, (name, k)
        return [] if name is not None else planned

    failed: list[tuple[str | None, int]] = []
    planned = run()
    for name, k in planned:
        run(name, k)
    assert len(failed) > len(planned) // 2


@pytest.mark.parametrize("models", [("SCALE",), ("COUNT", "READ")])
def test_sites_of_a_load(
    gpu: FakeDriver, write: Callable[..., Path], models: tuple[str, ...]
) -> None:
    path = write(*models)
    before = counts(gpu)
    failures = 0
    for k in range(1, 500):
        _testing.arm_fault(SITES, k)
        try:
            module = cudaexec.load(path)
        except cudaexec.Error as error:
            _testing.disarm_fault()
            assert "injected fault" in str(error), error
            failures += 1
            del error
            assert counts(gpu) == before, k
            continue
        reached = _testing.disarm_fault()
        with module:
            check(module)
        del module
        assert counts(gpu) == before, k
        if reached < k:
            break
    assert failures > 10


@pytest.mark.parametrize("model", ["SCALE", "COUNT", "READ"])
def test_sites_of_a_call(gpu: FakeDriver, write: Callable[..., Path], model: str) -> None:
    inputs = () if model == "READ" else (X,)
    with cudaexec.load(write(model)) as module:
        method = module.method(model.lower())
        method(*inputs)
        before = counts(gpu)
        failures = 0
        for k in range(1, 500):
            module.trim()
            _testing.arm_fault(SITES, k)
            try:
                outputs = method(*inputs)
            except cudaexec.Error as error:
                _testing.disarm_fault()
                assert "injected fault" in str(error), error
                failures += 1
                del error
            else:
                reached = _testing.disarm_fault()
                del outputs
                if reached < k:
                    break
            assert counts(gpu) == before, k
            method(*inputs)
        assert failures >= 3


def test_cycles_are_flat(gpu: FakeDriver, write: Callable[..., Path]) -> None:
    """200 times load, call, close: nothing is left, on either GPU."""
    path = write("SCALE", "COUNT")
    gpu.set_log(False)
    before = counts(gpu)
    maps = 0
    for i in range(200):
        with cudaexec.load(path, device=f"cuda:{i % 2}") as module:
            module.method("scale")(X)
            module.method("count")(X)
        del module
        if i == 20:
            maps = len(Path("/proc/self/maps").read_text().splitlines())
    assert counts(gpu) == before
    assert len(Path("/proc/self/maps").read_text().splitlines()) <= maps + 2
    assert gpu.used(0) == gpu.used(1) == 0
    gpu.set_log(True)
