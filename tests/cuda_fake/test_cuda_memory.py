"""Device and pinned memory: the allocator contract, limits, captures, failures."""

from __future__ import annotations

import itertools
import threading

import pytest

import cudaexec
from cuda_fake import fake as fakes
from cuda_fake.fake import FakeDriver, read
from cudaexec._core import _testing

cuda = _testing.cuda
MIB = 1 << 20

KINDS = ["pool", "pinned"]


# ---- what every allocator does -----------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nbytes", [1, 63, 64, 4096, MIB + 1])
def test_memory_is_aligned_and_distinct(fake: FakeDriver, kind: str, nbytes: int) -> None:
    allocator = cuda.Allocator(kind)
    blocks = [allocator.allocate(nbytes) for _ in range(5)]
    assert all(block % 64 == 0 for block in blocks)
    ordered = sorted(blocks)
    assert all(b - a >= nbytes for a, b in itertools.pairwise(ordered))
    assert allocator.current == 5 * nbytes
    assert allocator.live_blocks == 5
    for block in blocks:
        allocator.deallocate(block, nbytes)
    assert allocator.current == 0
    assert allocator.live_blocks == 0
    assert allocator.peak == 5 * nbytes


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_refuses_and_a_smaller_request_works(fake: FakeDriver, kind: str) -> None:
    allocator = cuda.Allocator(kind, limit=1000)
    first = allocator.allocate(600)
    with pytest.raises(cudaexec.OutOfMemory, match="401 bytes asked for, 600 in use, limit 1000"):
        allocator.allocate(401)
    second = allocator.allocate(400)
    allocator.deallocate(first, 600)
    allocator.deallocate(second, 400)


@pytest.mark.parametrize("kind", KINDS)
def test_every_failing_call_leaves_nothing(fake: FakeDriver, kind: str) -> None:
    def use() -> None:
        allocator = cuda.Allocator(kind)
        block = allocator.allocate(100)
        assert allocator.live_blocks == 1
        allocator.deallocate(block, 100)
        assert allocator.live_blocks == 0

    for k in range(1, 100):
        with fake.failing(None, k, fakes.OUT_OF_MEMORY) as hits:
            failed = False
            try:
                use()
            except cudaexec.Error:
                failed = True
        reports, _ = _testing.cleanup_reports()
        assert fake.context_depth() == 0
        if hits == [0]:
            assert not failed
            break
        use()
        # Memory that could not be freed is reported; there is no other way to get rid of it.
        fake.run_all()
        live = fake.live()
        blocks = live.get("pool_blocks", 0) + live.get("host_blocks", 0)
        assert blocks <= len(reports), (k, live, reports)
        cuda.use_driver(fake.path)
        if reports:
            _testing.cleanup_reports()
            fake.reset()
        assert fake.live() == {}
    else:
        pytest.fail("never ran to its end")
    assert k > 5


@pytest.mark.parametrize("kind", KINDS)
def test_threads_allocate_at_once(fake: FakeDriver, kind: str) -> None:
    fake.set_log(False)
    allocator = cuda.Allocator(kind)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            stream = cuda.thread_stream(0)
            for nbytes in range(1, 200):
                block = allocator.allocate(nbytes, stream)
                allocator.deallocate(block, nbytes, stream)
            cuda.synchronize(0, stream)
        except BaseException as error:  # reported by the main thread
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert allocator.current == 0


# ---- the pool ------------------------------------------------------------------------------------


def test_the_pool_is_ours_and_keeps_memory(fake: FakeDriver) -> None:
    pool = cuda.Allocator("pool")
    block = pool.allocate(3 * MIB)
    assert len(fake.calls("cuMemPoolCreate")) == 1
    pool.deallocate(block, 3 * MIB)
    cuda.synchronize(0, 0)
    usage = cuda.pool_usage(0)
    assert usage["used"] == 0
    assert usage["reserved"] == 4 * MIB
    assert usage["used_peak"] == 3 * MIB
    assert fake.used() == 4 * MIB
    assert pool.trim() == 4 * MIB
    assert fake.used() == 0
    assert pool.trim() == 0


def test_memory_is_freed_on_its_stream(fake: FakeDriver) -> None:
    pool = cuda.Allocator("pool")
    stream = cuda.Stream(0)
    block = pool.allocate(64, stream.handle)
    pool.deallocate(block, 64, stream.handle)
    assert fake.calls("cuMemFreeAsync") == [f"cuMemFreeAsync({block:#x}, {stream.handle:#x})"]
    assert fake.calls("cuStreamSynchronize") == []


def test_out_of_memory_names_sizes_and_a_smaller_request_works(fake: FakeDriver) -> None:
    fake.set_devices(nbytes=100 * MIB)
    pool = cuda.Allocator("pool")
    held = pool.allocate(60 * MIB)
    with pytest.raises(cudaexec.OutOfMemory) as info:
        pool.allocate(50 * MIB)
    text = str(info.value)
    assert f"cannot allocate {50 * MIB} bytes on cuda:0" in text
    assert f"{60 * MIB} bytes in use" in text
    assert f"{40 * MIB} of {100 * MIB} free on the device" in text
    assert isinstance(info.value, MemoryError)
    assert pool.live_blocks == 1
    small = pool.allocate(30 * MIB)
    pool.deallocate(small, 30 * MIB)
    pool.deallocate(held, 60 * MIB)


def test_short_memory_is_trimmed_and_tried_again(fake: FakeDriver) -> None:
    """What our pool of another device keeps, or what is still being freed, is no reason to fail."""
    pool = cuda.Allocator("pool")
    stream = cuda.Stream(0)
    block = pool.allocate(64, stream.handle)
    with fake.failing("cuMemAllocFromPoolAsync", 1, fakes.OUT_OF_MEMORY) as hits:
        again = pool.allocate(64, stream.handle)
    assert hits == [1]
    assert len(fake.calls("cuMemPoolTrimTo")) == 1
    pool.deallocate(block, 64, stream.handle)
    pool.deallocate(again, 64, stream.handle)


def test_a_device_without_pools_is_refused(fake: FakeDriver) -> None:
    fake.set_support(0, pools=False)
    with pytest.raises(cudaexec.NotSupported, match=r"cuda:0 \(Fake GPU 0\) has no memory pools"):
        cuda.Allocator("pool")


def test_a_pool_per_device(fake: FakeDriver) -> None:
    fake.set_devices(2)
    pools = [cuda.Allocator("pool", index) for index in (0, 1)]
    blocks = [pool.allocate(64) for pool in pools]
    assert [cuda.pointer_info(block) for block in blocks] == [("device", 0), ("device", 1)]
    for pool, block in zip(pools, blocks, strict=True):
        pool.deallocate(block, 64)


def test_memory_outlives_a_stream_that_the_caller_destroyed(fake: FakeDriver) -> None:
    pool = cuda.Allocator("pool")
    stream = cuda.Stream(0)
    handle = stream.handle
    block = pool.allocate(64, handle)
    del stream
    pool.deallocate(block, 64, handle)
    assert len(fake.calls("cuMemFree")) == 1
    assert fake.take_misuse() != []  # the handle is dead; a real driver may not notice


# ---- captures ------------------------------------------------------------------------------------


def begin_capture(fake: FakeDriver, stream: int) -> None:
    cuda.guarded(0, lambda: fake.call("cuStreamBeginCapture", stream, fakes.CAPTURE_THREAD_LOCAL))


def end_capture(fake: FakeDriver, stream: int) -> int:
    """The graph."""
    import ctypes

    graph = ctypes.c_uint64()
    cuda.guarded(0, lambda: fake.call("cuStreamEndCapture", stream, ctypes.byref(graph)))
    return graph.value


def test_allocating_in_a_capture_is_refused_and_leaves_the_capture_alone(fake: FakeDriver) -> None:
    pool = cuda.Allocator("pool")
    stream = cuda.Stream(0)
    begin_capture(fake, stream.handle)
    assert cuda.is_capturing(0, stream.handle)
    with pytest.raises(cudaexec.CaptureError, match="cannot allocate 64 bytes.*being captured"):
        pool.allocate(64, stream.handle)
    graph = end_capture(fake, stream.handle)
    assert graph != 0
    assert not cuda.is_capturing(0, stream.handle)
    fake.call("cuGraphDestroy", graph)
    block = pool.allocate(64, stream.handle)
    pool.deallocate(block, 64, stream.handle)


def test_memory_freed_in_a_capture_is_freed_after_it(fake: FakeDriver) -> None:
    pool = cuda.Allocator("pool")
    stream = cuda.Stream(0)
    block = pool.allocate(64, stream.handle)
    begin_capture(fake, stream.handle)
    pool.deallocate(block, 64, stream.handle)
    assert pool.live_blocks == 0
    assert fake.calls("cuMemFreeAsync") == []
    assert fake.live()["pool_blocks"] == 1
    pool.trim()  # still not possible
    assert fake.live()["pool_blocks"] == 1
    fake.call("cuGraphDestroy", end_capture(fake, stream.handle))
    other = pool.allocate(64)
    assert len(fake.calls("cuMemFreeAsync")) == 1
    pool.deallocate(other, 64)


def test_trim_frees_what_a_capture_kept(fake: FakeDriver) -> None:
    pool = cuda.Allocator("pool")
    stream = cuda.Stream(0)
    block = pool.allocate(64, stream.handle)
    begin_capture(fake, stream.handle)
    pool.deallocate(block, 64, stream.handle)
    fake.call("cuGraphDestroy", end_capture(fake, stream.handle))
    pool.trim()
    stream.synchronize()
    assert pool.trim() == 2 * MIB
    assert fake.used() == 0


def test_the_default_stream_beside_a_capture_of_torchs(fake: FakeDriver) -> None:
    """While a stream that waits for the default stream is captured, the default one is taboo."""
    pool = cuda.Allocator("pool")
    block = pool.allocate(64, 0)
    theirs = cuda.guarded(0, lambda: fake.make("cuStreamCreate", 0))
    begin_capture(fake, theirs)
    with pytest.raises(cudaexec.CaptureError):
        pool.allocate(64, 0)
    pool.deallocate(block, 64, 0)
    graph = end_capture(fake, theirs)
    assert graph != 0  # their capture was not disturbed
    fake.call("cuGraphDestroy", graph)
    cuda.guarded(0, lambda: fake.call("cuStreamDestroy", theirs))
    pool.trim()


# ---- pinned --------------------------------------------------------------------------------------


def test_pinned_memory_copies_later(fake: FakeDriver) -> None:
    """The fake reads pinned memory when the copy is done, as a GPU does."""
    import ctypes

    pinned, pool = cuda.Allocator("pinned"), cuda.Allocator("pool")
    stream = cuda.Stream(0)
    host, device = pinned.allocate(4), pool.allocate(4, stream.handle)
    ctypes.memmove(host, b"old!", 4)
    cuda.copy(0, device, 0, host, -1, 4, stream.handle)
    ctypes.memmove(host, b"new!", 4)
    stream.synchronize()
    assert read(device, 4) == b"new!"
    pool.deallocate(device, 4, stream.handle)
    pinned.deallocate(host, 4)


def test_pinned_memory_without_a_gpu(fake: FakeDriver) -> None:
    fake.set_devices(0)
    with pytest.raises(cudaexec.DeviceError, match="no GPU is visible"):
        cuda.Allocator("pinned")


def test_a_failing_free_is_reported(fake: FakeDriver) -> None:
    pinned = cuda.Allocator("pinned")
    block = pinned.allocate(64)
    with fake.failing("cuMemFreeHost", 1, fakes.INVALID_VALUE):
        pinned.deallocate(block, 64)
    messages, _ = _testing.cleanup_reports()
    assert len(messages) == 1
    assert "cuMemFreeHost failed" in messages[0]
    pinned.deallocate(block, 64)
