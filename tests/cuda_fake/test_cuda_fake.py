"""The fake driver itself: order of work, virtual memory, and what it calls misuse."""

from __future__ import annotations

import ctypes
import threading

import pytest

from cuda_fake import fake as fakes
from cuda_fake.calls import Access, MemoryProps, PoolProps, argument_list, fails, kernel, launch
from cuda_fake.fake import CudaFailure, FakeDriver, read

MIB = 1 << 20


# ---- work ----------------------------------------------------------------------------------------


def test_work_waits_until_it_is_needed(gpu: FakeDriver) -> None:
    stream = gpu.make("cuStreamCreate", 1)
    data = gpu.make("cuMemAlloc", 4)
    gpu.call("cuMemsetD8Async", data, ctypes.c_ubyte(7), 4, stream)
    assert read(data, 4) != b"\7\7\7\7"
    gpu.call("cuStreamSynchronize", stream)
    assert read(data, 4) == b"\7\7\7\7"
    gpu.call("cuMemFree", data)
    gpu.call("cuStreamDestroy", stream)


def test_polling_makes_time_pass(gpu: FakeDriver) -> None:
    stream, event = gpu.make("cuStreamCreate", 1), gpu.make("cuEventCreate", 0)
    data = gpu.make("cuMemAlloc", 4)
    for value in (1, 2, 3):
        gpu.call("cuMemsetD8Async", data, ctypes.c_ubyte(value), 4, stream)
    gpu.call("cuEventRecord", event, stream)
    questions = 0
    while True:
        try:
            gpu.call("cuEventQuery", event)
            break
        except CudaFailure as failure:
            assert failure.result == 600
            questions += 1
    assert questions == 4
    assert read(data, 1) == b"\3"
    gpu.call("cuMemFree", data)
    gpu.call("cuEventDestroy", event)
    gpu.call("cuStreamDestroy", stream)


def test_the_legacy_stream_waits_and_is_waited_for(gpu: FakeDriver) -> None:
    blocking, free = gpu.make("cuStreamCreate", 0), gpu.make("cuStreamCreate", 1)
    data = gpu.make("cuMemAlloc", 3)
    gpu.call("cuMemsetD8Async", data, ctypes.c_ubyte(1), 1, blocking)
    gpu.call("cuMemsetD8Async", data + 1, ctypes.c_ubyte(1), 1, free)
    gpu.call("cuMemsetD8Async", data + 2, ctypes.c_ubyte(1), 1, 0)
    gpu.call("cuStreamSynchronize", 0)
    assert read(data, 1) == b"\1"
    assert read(data + 1, 1) == b"\xcd"  # a non-blocking stream is not waited for
    gpu.call("cuStreamSynchronize", free)
    gpu.call("cuMemFree", data)
    gpu.call("cuStreamDestroy", blocking)
    gpu.call("cuStreamDestroy", free)


def test_work_of_a_destroyed_stream_is_still_done(gpu: FakeDriver) -> None:
    stream = gpu.make("cuStreamCreate", 1)
    data = gpu.make("cuMemAlloc", 1)
    gpu.call("cuMemsetD8Async", data, ctypes.c_ubyte(9), 1, stream)
    gpu.call("cuStreamDestroy", stream)
    gpu.call("cuCtxSynchronize")
    assert read(data, 1) == b"\x09"
    gpu.call("cuMemFree", data)


def test_faults_by_number_and_by_name(gpu: FakeDriver) -> None:
    gpu.fail("cuStreamCreate", 2, fakes.OUT_OF_MEMORY)
    gpu.fail(None, 4, fakes.INVALID_VALUE)
    first = gpu.make("cuStreamCreate", 1)
    fails(gpu, fakes.OUT_OF_MEMORY, "cuStreamCreate", ctypes.byref(ctypes.c_uint64()), 1)
    gpu.call("cuStreamSynchronize", first)
    fails(gpu, fakes.INVALID_VALUE, "cuStreamSynchronize", first)
    assert gpu.clear_faults() == 2
    gpu.call("cuStreamDestroy", first)
    assert any("-> injected 2" in call for call in gpu.calls("cuStreamCreate"))


# ---- misuse --------------------------------------------------------------------------------------


def test_use_after_free(gpu: FakeDriver) -> None:
    data = gpu.make("cuMemAlloc", 64)
    gpu.call("cuMemFree", data)
    fails(gpu, fakes.INVALID_VALUE, "cuMemsetD8Async", data, ctypes.c_ubyte(0), 1, 0)
    assert "named after it was freed" in gpu.take_misuse()[0]
    fails(gpu, fakes.INVALID_VALUE, "cuMemFree", data)
    assert "freed before" in gpu.take_misuse()[0]
    assert read(data, 1) == b"\xdd"


def test_work_that_runs_after_the_free_of_another_stream(gpu: FakeDriver) -> None:
    """The free was not ordered behind the work: nothing is wrong with any single call."""
    props = PoolProps(type=1, location=(1, 0))
    pool = gpu.make("cuMemPoolCreate", ctypes.byref(props))
    user, freer = gpu.make("cuStreamCreate", 1), gpu.make("cuStreamCreate", 1)
    data = gpu.make("cuMemAllocFromPoolAsync", 64, pool, user)
    gpu.call("cuStreamSynchronize", user)
    gpu.call("cuMemsetD8Async", data, ctypes.c_ubyte(0), 64, user)
    gpu.call("cuMemFreeAsync", data, freer)
    assert gpu.misuse() == []
    gpu.call("cuStreamSynchronize", freer)
    gpu.call("cuStreamSynchronize", user)
    assert "after its free was done" in gpu.take_misuse()[0]
    other = gpu.make("cuMemAllocFromPoolAsync", 64, pool, user)
    gpu.call("cuMemsetD8Async", other, ctypes.c_ubyte(0), 64, freer)
    gpu.call("cuStreamSynchronize", freer)
    assert "before its allocation was done" in gpu.take_misuse()[0]
    gpu.call("cuMemFreeAsync", other, user)
    for stream in (user, freer):
        gpu.call("cuStreamDestroy", stream)
    gpu.call("cuMemPoolDestroy", pool)


def test_out_of_bounds(gpu: FakeDriver) -> None:
    data = gpu.make("cuMemAlloc", 64)
    fails(gpu, fakes.INVALID_VALUE, "cuMemsetD8Async", data, ctypes.c_ubyte(0), 65, 0)
    assert "beyond the end of the allocation" in gpu.take_misuse()[0]
    gpu.call("cuMemFree", data)


def test_dead_and_foreign_handles(gpu: FakeDriver) -> None:
    stream, event = gpu.make("cuStreamCreate", 1), gpu.make("cuEventCreate", 0)
    gpu.call("cuStreamDestroy", stream)
    fails(gpu, fakes.INVALID_HANDLE, "cuStreamSynchronize", stream)
    assert "used after it was destroyed" in gpu.take_misuse()[0]
    fails(gpu, fakes.INVALID_HANDLE, "cuStreamSynchronize", event)
    assert "not a handle of this kind" in gpu.take_misuse()[0]
    fails(gpu, fakes.INVALID_HANDLE, "cuStreamDestroy", stream)
    gpu.take_misuse()
    gpu.call("cuEventDestroy", event)


def test_calls_without_a_context(gpu: FakeDriver) -> None:
    found: list[int] = []

    def run() -> None:
        for name in ("cuStreamCreate", "cuMemAlloc"):
            try:
                gpu.make(name, 1)
            except CudaFailure as failure:
                found.append(failure.result)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [201, 201]


def test_the_wrong_context() -> None:
    gpu = FakeDriver()
    gpu.reset()
    gpu.set_devices(2)
    first, second = (gpu.make("cuDevicePrimaryCtxRetain", index) for index in (0, 1))
    gpu.call("cuCtxPushCurrent", first)
    stream = gpu.make("cuStreamCreate", 1)
    gpu.call("cuCtxPushCurrent", second)
    data = gpu.make("cuMemAlloc", 4)
    fails(gpu, 201, "cuMemsetD8Async", data, ctypes.c_ubyte(0), 4, stream)
    assert "context is not current" in gpu.take_misuse()[0]
    gpu.reset()


def test_a_kernel_of_an_unloaded_module(gpu: FakeDriver) -> None:
    gpu.register_kernel("k", [])
    module, function = kernel(gpu)
    gpu.call("cuModuleUnload", module)
    with pytest.raises(CudaFailure):
        launch(gpu, function, 0)
    assert gpu.take_misuse() != []


def test_bad_launches(gpu: FakeDriver) -> None:
    gpu.register_kernel("k", [8])
    module, function = kernel(gpu)
    argument = argument_list(ctypes.c_uint64(1))
    for shape in ((0, 1, 1, 1, 1, 1, 0), (1, 1, 1, 1025, 1, 1, 0), (1, 1, 1, 1, 1, 1, 60_000)):
        numbers = [ctypes.c_uint(n) for n in shape]
        fails(gpu, fakes.INVALID_VALUE, "cuLaunchKernel", function, *numbers, 0, argument, None)
    gpu.call("cuFuncSetAttribute", function, ctypes.c_uint(8), ctypes.c_int(60_000))
    numbers = [ctypes.c_uint(n) for n in (1, 1, 1, 1, 1, 1, 60_000)]
    gpu.call("cuLaunchKernel", function, *numbers, 0, argument, None)
    gpu.call("cuModuleUnload", module)


# ---- virtual memory ------------------------------------------------------------------------------


def test_virtual_memory_grows_in_place(gpu: FakeDriver) -> None:
    props = MemoryProps(type=1, location=(1, 0))
    granule = gpu.make("cuMemGetAllocationGranularity", ctypes.byref(props), ctypes.c_uint(0))
    assert granule == 2 * MIB
    base = gpu.make("cuMemAddressReserve", 8 * granule, 0, 0, 0)
    assert gpu.used() == 0
    access = Access(location=(1, 0), flags=3)
    pages = []
    for index in range(2):
        page = gpu.make("cuMemCreate", granule, ctypes.byref(props), 0)
        gpu.call("cuMemMap", base + index * granule, granule, 0, page, 0)
        gpu.call("cuMemSetAccess", base + index * granule, granule, ctypes.byref(access), 1)
        pages.append(page)
    assert gpu.used() == 2 * granule
    # One fill over both pages.
    gpu.call("cuMemsetD8Async", base + granule - 4, ctypes.c_ubyte(3), 8, 0)
    gpu.call("cuStreamSynchronize", 0)
    assert read(base + granule - 4, 8) == b"\3" * 8
    # The second page again, at another address: both see the same bytes.
    gpu.call("cuMemMap", base + 4 * granule, granule, 0, pages[1], 0)
    gpu.call("cuMemSetAccess", base + 4 * granule, granule, ctypes.byref(access), 1)
    assert read(base + 4 * granule, 4) == b"\3" * 4
    gpu.call("cuMemUnmap", base, 2 * granule)
    gpu.call("cuMemUnmap", base + 4 * granule, granule)
    for page in pages:
        gpu.call("cuMemRelease", page)
    gpu.call("cuMemAddressFree", base, 8 * granule)
    assert gpu.used() == 0


def test_misuse_of_virtual_memory(gpu: FakeDriver) -> None:
    props = MemoryProps(type=1, location=(1, 0))
    granule = 2 * MIB
    base = gpu.make("cuMemAddressReserve", 2 * granule, 0, 0, 0)
    page = gpu.make("cuMemCreate", granule, ctypes.byref(props), 0)
    fails(gpu, 1, "cuMemsetD8Async", base, ctypes.c_ubyte(0), 4, 0)
    assert "not device memory" in gpu.take_misuse()[0]  # unmapped
    gpu.call("cuMemMap", base, granule, 0, page, 0)
    fails(gpu, 1, "cuMemsetD8Async", base, ctypes.c_ubyte(0), 4, 0)
    assert "without access" in gpu.take_misuse()[0]
    fails(gpu, 1, "cuMemMap", base + granule, granule, granule, page, 0)  # an offset
    fails(gpu, 1, "cuMemMap", base, granule, 0, page, 0)
    assert "mapped already" in gpu.take_misuse()[0]
    fails(gpu, 1, "cuMemAddressFree", base, 2 * granule)
    assert "still mapped" in gpu.take_misuse()[0]
    gpu.call("cuMemUnmap", base, granule)
    gpu.call("cuMemRelease", page)
    fails(gpu, 1, "cuMemMap", base, granule, 0, page, 0)
    assert "released before" in gpu.take_misuse()[0]
    gpu.call("cuMemAddressFree", base, 2 * granule)


def test_physical_memory_runs_out(gpu: FakeDriver) -> None:
    props = MemoryProps(type=1, location=(1, 0))
    fails(gpu, 2, "cuMemCreate", ctypes.byref(ctypes.c_uint64()), 9 << 30, ctypes.byref(props), 0)
