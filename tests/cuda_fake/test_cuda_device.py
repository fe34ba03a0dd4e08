"""Devices: facts, contexts, copies, streams, and that a caller's device stays current."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import pytest

import cudaexec
from cuda_fake import fake as fakes
from cuda_fake.fake import FakeDriver, read
from cudaexec._core import _testing

cuda = _testing.cuda
CPU = -1


def buffer(data: bytes) -> tuple[ctypes.Array, int]:
    """Host bytes and their address."""
    held = ctypes.create_string_buffer(data, len(data))
    return held, ctypes.addressof(held)


@pytest.fixture
def two_gpus(fake: FakeDriver) -> FakeDriver:
    fake.set_devices(2, sm=80, sm_count=108, nbytes=1 << 30)
    return fake


def test_facts(two_gpus: FakeDriver) -> None:
    assert cuda.device_count() == 2
    facts = cuda.facts(1)
    assert facts["name"] == "Fake GPU 1"
    assert facts["sm"] == 80
    assert facts["sm_count"] == 108
    assert facts["total_nbytes"] == 1 << 30
    assert facts["virtual_memory"]
    assert facts["uuid"] == "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f"


def test_facts_create_no_context(two_gpus: FakeDriver) -> None:
    cuda.facts(0)
    assert two_gpus.live() == {}
    assert not cuda.has_context(0)


@pytest.mark.parametrize("index", [2, 63, 64, 99, -1])
def test_an_unknown_device_is_refused(two_gpus: FakeDriver, index: int) -> None:
    with pytest.raises(cudaexec.DeviceError, match=rf"cuda:{index} does not exist.*sees 2 GPUs"):
        cuda.facts(index)


def test_one_context_per_device(two_gpus: FakeDriver) -> None:
    first = cuda.context(0)
    assert cuda.context(0) == first
    assert cuda.context(1) != first
    assert two_gpus.live() == {"contexts": 2}


def test_copies_in_every_direction(two_gpus: FakeDriver) -> None:
    source, src = buffer(bytes(range(100)))
    target, dst = buffer(bytes(100))
    pools = [cuda.Allocator("pool", index) for index in range(2)]
    streams = [cuda.Stream(index) for index in range(2)]
    a, b = (pools[0].allocate(100, streams[0].handle) for _ in range(2))
    c = pools[1].allocate(100, streams[1].handle)
    cuda.order(0, streams[0].handle, 1, streams[1].handle)
    cuda.copy(0, a, 0, src, CPU, 100, streams[0].handle)
    cuda.copy(0, b, 0, a, 0, 100, streams[0].handle)
    cuda.copy(0, c, 1, b, 0, 100, streams[0].handle)
    cuda.order(1, streams[1].handle, 0, streams[0].handle)
    cuda.copy(1, dst, CPU, c, 1, 100, streams[1].handle)
    streams[1].synchronize()
    assert target.raw == source.raw
    for pool, data, stream in [
        (pools[0], a, streams[0]), (pools[0], b, streams[0]), (pools[1], c, streams[1])
    ]:  # fmt: skip
        pool.deallocate(data, 100, stream.handle)
    kinds = [call.split("(")[0] for call in two_gpus.calls() if call.startswith("cuMemcpy")]
    assert kinds == [
        "cuMemcpyHtoDAsync",
        "cuMemcpyDtoDAsync",
        "cuMemcpyPeerAsync",
        "cuMemcpyDtoHAsync",
    ]


def test_a_copy_that_is_elsewhere_is_refused(two_gpus: FakeDriver) -> None:
    with pytest.raises(cudaexec.DeviceError, match="cuda:0 cannot copy from cpu to cuda:1"):
        cuda.copy(0, 1, 1, 1, CPU, 4, 0)
    cuda.copy(0, 0, 0, 0, CPU, 0, 0)  # nothing to copy, no call
    assert two_gpus.calls("cuMemcpyHtoDAsync") == []


def test_a_caller_keeps_its_pageable_bytes_after_the_call(fake: FakeDriver) -> None:
    pool = cuda.Allocator("pool")
    stream = cuda.Stream(0)
    data = pool.allocate(4, stream.handle)
    source, src = buffer(b"abcd")
    cuda.copy(0, data, 0, src, CPU, 4, stream.handle)
    source.raw = b"ZZZZ"
    stream.synchronize()
    assert read(data, 4) == b"abcd"
    pool.deallocate(data, 4, stream.handle)


def test_zero(fake: FakeDriver) -> None:
    pool = cuda.Allocator("pool")
    data = pool.allocate(10)
    cuda.zero(0, data, 10, 0)
    cuda.zero(0, data, 0, 0)
    cuda.synchronize(0, 0)
    assert read(data, 10) == bytes(10)
    assert len(fake.calls("cuMemsetD8Async")) == 1
    pool.deallocate(data, 10)


# ---- the caller's device -----------------------------------------------------------------------


def operations() -> dict[str, Callable[[], object]]:
    """One of each kind of call on device 0, for tests that make it fail at every step."""

    def allocate_and_free() -> None:
        pool = cuda.Allocator("pool", 0)
        data = pool.allocate(64)
        pool.deallocate(data, 64)

    def copy() -> None:
        pool = cuda.Allocator("pool", 0)
        held, src = buffer(b"1234")
        data = pool.allocate(4)
        try:
            cuda.copy(0, data, 0, src, CPU, 4, 0)
            cuda.copy(0, src, CPU, data, 0, 4, 0)
            cuda.synchronize(0, 0)
        finally:
            pool.deallocate(data, 4)
        assert held.raw == b"1234"

    def events() -> None:
        first, second = cuda.Stream(0), cuda.Stream(0)
        event = cuda.Event(0)
        event.record(first.handle)
        event.make_wait(0, second.handle)
        cuda.order(0, first.handle, 0, second.handle)
        event.synchronize()
        event.is_done()

    return {
        "stream": lambda: cuda.Stream(0).synchronize(),
        "events": events,
        "thread_stream": lambda: cuda.thread_stream(0),
        "allocate": allocate_and_free,
        "copy": copy,
        "trim": lambda: cuda.Allocator("pool", 0).trim(),
        "free_nbytes": lambda: cuda.free_nbytes(0),
        "synchronize_all": lambda: cuda.synchronize_all(0),
        "capturing": lambda: cuda.is_capturing(0, 0),
        "pinned": lambda: cuda.Allocator("pinned").deallocate(
            cuda.Allocator("pinned").allocate(8), 8
        ),
    }


@pytest.mark.parametrize("name", operations())
@pytest.mark.parametrize("current", [None, 1])
def test_the_current_device_is_restored_also_when_a_call_fails(
    two_gpus: FakeDriver, name: str, current: int | None
) -> None:
    """Fails the k-th driver call for every k: typed error, same context, no leak, then it works."""
    operation = operations()[name]
    tolerated = 0
    for k in range(1, 200):
        other = 0
        if current is not None:
            other = cuda.context(current)
            two_gpus.call("cuCtxSetCurrent", other)
        with two_gpus.failing(None, k, fakes.INVALID_VALUE) as hits:
            failed = False
            try:
                operation()
            except cudaexec.Error:
                failed = True
        reports, dropped = _testing.cleanup_reports()
        assert dropped == 0
        assert two_gpus.make("cuCtxGetCurrent") == other, f"call {k}"
        assert two_gpus.context_depth() == (1 if other else 0), f"call {k}"
        if hits == [1]:
            operation()  # the next one works
            assert _testing.cleanup_reports() == ([], 0)
            assert two_gpus.make("cuCtxGetCurrent") == other
        # Each object that is left is one whose destruction was made to fail, and is reported.
        two_gpus.call("cuCtxSetCurrent", 0)
        two_gpus.run_all()
        cuda.use_driver(two_gpus.path)
        assert sum(two_gpus.live().values()) <= len(reports), f"call {k}: {two_gpus.live()}"
        if reports:
            _testing.cleanup_reports()
            two_gpus.reset()
            two_gpus.set_devices(2)
        if hits == [0]:
            assert not failed
            break
        # A failing call is an error, a report, or one whose answer is not needed.
        tolerated += not failed and not reports
    else:
        pytest.fail("the operation never ran to its end")
    assert k > 3
    assert tolerated <= 2


def test_a_device_stays_current_in_a_guard(two_gpus: FakeDriver) -> None:
    outer = cuda.context(1)
    two_gpus.call("cuCtxSetCurrent", outer)

    def body() -> int:
        inner = two_gpus.make("cuCtxGetCurrent")
        # Generated code selects a device and leaves it so.
        two_gpus.call("cuCtxSetCurrent", outer)
        return inner

    assert cuda.guarded(0, body) == cuda.context(0)
    assert two_gpus.make("cuCtxGetCurrent") == outer
    with pytest.raises(ZeroDivisionError):
        cuda.guarded(0, lambda: 1 // 0)
    assert two_gpus.make("cuCtxGetCurrent") == outer
    two_gpus.call("cuCtxSetCurrent", 0)


# ---- streams -----------------------------------------------------------------------------------


def test_order_makes_later_work_wait(fake: FakeDriver) -> None:
    pool = cuda.Allocator("pool")
    writer, reader = cuda.Stream(0), cuda.Stream(0)
    data = pool.allocate(4, writer.handle)
    held, src = buffer(b"new!")
    cuda.copy(0, data, 0, src, CPU, 4, writer.handle)
    cuda.order(0, reader.handle, 0, writer.handle)
    target, dst = buffer(b"....")
    cuda.copy(0, dst, CPU, data, 0, 4, reader.handle)
    assert target.raw == held.raw
    pool.deallocate(data, 4, reader.handle)


def test_forgotten_order_is_seen(fake: FakeDriver) -> None:
    """The fake does nothing early, so the mistake that order() prevents shows."""
    pool = cuda.Allocator("pool")
    writer, reader = cuda.Stream(0), cuda.Stream(0)
    data = pool.allocate(4, writer.handle)
    writer.synchronize()
    _, src = buffer(b"new!")
    cuda.copy(0, data, 0, src, CPU, 4, writer.handle)
    target, dst = buffer(b"....")
    cuda.copy(0, dst, CPU, data, 0, 4, reader.handle)
    assert target.raw != b"new!"
    pool.deallocate(data, 4, writer.handle)


def test_order_across_devices_and_default_streams(two_gpus: FakeDriver) -> None:
    pool = cuda.Allocator("pool", 0)
    data = pool.allocate(4, 0)
    _, src = buffer(b"abcd")
    cuda.copy(0, data, 0, src, CPU, 4, 0)  # on the legacy default stream, as torch uses it
    stream = cuda.Stream(1)
    cuda.order(1, stream.handle, 0, 0)
    copy = cuda.Allocator("pool", 1).allocate(4, stream.handle)
    cuda.copy(1, copy, 1, data, 0, 4, stream.handle)
    stream.synchronize()
    assert read(copy, 4) == b"abcd"
    cuda.order(0, 0, 1, stream.handle)
    pool.deallocate(data, 4, 0)
    cuda.Allocator("pool", 1).deallocate(copy, 4, stream.handle)


def test_order_of_a_stream_with_itself_is_nothing(fake: FakeDriver) -> None:
    stream = cuda.Stream(0)
    fake.clear_calls()
    cuda.order(0, stream.handle, 0, stream.handle)
    cuda.order(0, 0, 0, 1)  # 1 is the legacy default stream by its other name
    assert fake.calls("cuEventRecord", "cuStreamWaitEvent") == []


def test_ordering_makes_one_event_per_thread(fake: FakeDriver) -> None:
    first, second = cuda.Stream(0), cuda.Stream(0)
    for _ in range(10):
        cuda.order(0, second.handle, 0, first.handle)
    assert len(fake.calls("cuEventCreate")) == 1
    assert len(fake.calls("cuStreamWaitEvent")) == 10


def test_threads_have_streams_of_their_own_and_hand_them_on(two_gpus: FakeDriver) -> None:
    mine = cuda.thread_stream(0)
    assert cuda.thread_stream(0) == mine
    assert cuda.thread_stream(1) != mine
    found: list[int] = []
    gate = threading.Barrier(2)

    def run(wait: bool) -> None:
        found.append(cuda.thread_stream(0))
        assert cuda.thread_stream(0) in found
        if wait:
            gate.wait(10)

    together = [threading.Thread(target=run, args=(True,)) for _ in range(2)]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    assert len({mine, *found}) == 3
    for _ in range(5):  # one after another: the streams of ended threads are used again
        thread = threading.Thread(target=run, args=(False,))
        thread.start()
        thread.join()
    assert len(set(found)) == 2
    assert two_gpus.live()["streams"] == 4  # three of device 0, one of device 1


def test_events(fake: FakeDriver) -> None:
    stream = cuda.Stream(0)
    event = cuda.Event(0, timing=True)
    start = cuda.Event(0, timing=True)
    start.record(stream.handle)
    cuda.zero(0, 0, 0, stream.handle)
    event.record(stream.handle)
    assert not event.is_done()
    event.synchronize()
    assert event.is_done()
    assert event.milliseconds_since(start) > 0


def test_a_stream_is_recognised(two_gpus: FakeDriver) -> None:
    ours = cuda.Stream(1)
    assert cuda.device_of_stream(ours.handle) == 1
    for default in (0, 1, 2):
        assert cuda.device_of_stream(default) is None


def test_a_stream_of_a_device_nobody_used_yet(two_gpus: FakeDriver) -> None:
    cuda.device_count()
    primary = two_gpus.make("cuDevicePrimaryCtxRetain", 1)  # as another library does
    two_gpus.call("cuCtxPushCurrent", primary)
    theirs = two_gpus.make("cuStreamCreate", 1)
    two_gpus.make("cuCtxPopCurrent")
    assert cuda.device_of_stream(theirs) == 1
    two_gpus.call("cuStreamDestroy", theirs)
    two_gpus.call("cuDevicePrimaryCtxRelease", 1)


def test_pointers_are_recognised(two_gpus: FakeDriver) -> None:
    held, host = buffer(b"x")
    pool, pinned = cuda.Allocator("pool", 1), cuda.Allocator("pinned")
    data, locked = pool.allocate(100), pinned.allocate(100)
    managed = cuda.guarded(0, lambda: two_gpus.lib.fakecuda_alloc_managed(ctypes.c_uint64(64)))
    assert cuda.pointer_info(data) == ("device", 1)
    assert cuda.pointer_info(data + 99) == ("device", 1)
    assert cuda.pointer_info(locked) == ("pinned", 0)
    assert cuda.pointer_info(managed) == ("managed", 0)
    assert cuda.pointer_info(host) == ("pageable", -1)
    assert cuda.pointer_info(0) == ("pageable", -1)
    assert held.raw == b"x"
    pool.deallocate(data, 100)
    pinned.deallocate(locked, 100)


# ---- destructors ---------------------------------------------------------------------------------


def test_a_failing_destructor_is_reported_and_ends_the_object(fake: FakeDriver) -> None:
    stream = cuda.Stream(0)
    handle = stream.handle
    fake.fail("cuStreamDestroy", 1, fakes.INVALID_HANDLE)
    del stream
    fake.clear_faults()
    messages, dropped = _testing.cleanup_reports()
    assert len(messages) == 1
    assert "cuStreamDestroy failed: CUDA_ERROR_INVALID_HANDLE (400)" in messages[0]
    assert dropped == 0
    assert fake.context_depth() == 0
    fake.call("cuStreamDestroy", handle)  # what the failure left


def test_a_driver_that_is_shutting_down_is_no_failure(fake: FakeDriver) -> None:
    for entry in ("cuStreamDestroy", "cuCtxPushCurrent"):
        stream = cuda.Stream(0)
        handle = stream.handle
        fake.fail(entry, 1, 4)
        del stream
        fake.clear_faults()
        assert _testing.cleanup_reports() == ([], 0)
        fake.call("cuStreamDestroy", handle)


def test_reports_are_bounded(fake: FakeDriver) -> None:
    streams = [cuda.Stream(0) for _ in range(100)]
    handles = [stream.handle for stream in streams]
    fake.fail("cuStreamDestroy", 1, fakes.INVALID_HANDLE, repeat=True)
    streams.clear()
    fake.clear_faults()
    messages, dropped = _testing.cleanup_reports()
    assert len(messages) == 64
    assert dropped == 36
    for handle in handles:
        fake.call("cuStreamDestroy", handle)
