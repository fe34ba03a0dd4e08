"""Captures and graphs of the fake driver."""

from __future__ import annotations

import ctypes
import threading

import pytest

from cuda_fake import fake as fakes
from cuda_fake.calls import (
    Copy,
    Kernel,
    PoolProps,
    Set,
    add_one,
    argument_list,
    fails,
    floats,
    kernel,
    launch,
)
from cuda_fake.fake import TEST_IMAGE, CudaFailure, FakeDriver, read

# ---- captures and graphs -------------------------------------------------------------------------


def begin(gpu: FakeDriver, stream: int, mode: int = fakes.CAPTURE_THREAD_LOCAL) -> None:
    gpu.call("cuStreamBeginCapture", stream, ctypes.c_uint(mode))


def end(gpu: FakeDriver, stream: int) -> int:
    graph = ctypes.c_uint64()
    gpu.call("cuStreamEndCapture", stream, ctypes.byref(graph))
    return graph.value


def nodes_of(gpu: FakeDriver, graph: int) -> list[int]:
    count = ctypes.c_size_t()
    gpu.call("cuGraphGetNodes", graph, None, ctypes.byref(count))
    nodes = (ctypes.c_uint64 * count.value)()
    gpu.call("cuGraphGetNodes", graph, nodes, ctypes.byref(count))
    return list(nodes)


def test_a_captured_graph_replays_and_takes_new_addresses(gpu: FakeDriver) -> None:
    gpu.register_kernel("k", [8, 4], add_one)
    module, function = kernel(gpu)
    stream = gpu.make("cuStreamCreate", 1)
    source, work, target, other = (gpu.make("cuMemAlloc", 16) for _ in range(4))
    begin(gpu, stream)
    gpu.call("cuMemcpyDtoDAsync", work, source, 16, stream)
    launch(gpu, function, stream, ctypes.c_uint64(work), ctypes.c_int(4))
    gpu.call("cuMemcpyDtoDAsync", target, work, 16, stream)
    graph = end(gpu, stream)
    assert gpu.launches("k") == 0
    nodes = nodes_of(gpu, graph)
    kinds = []
    for node in nodes:
        kind = ctypes.c_uint()
        gpu.call("cuGraphNodeGetType", node, ctypes.byref(kind))
        kinds.append(kind.value)
    assert kinds == [1, 0, 1]
    exec_ = gpu.make("cuGraphInstantiateWithFlags", graph, 0)
    (ctypes.c_float * 4).from_address(source)[:] = [1, 2, 3, 4]
    gpu.call("cuGraphLaunch", exec_, stream)
    gpu.call("cuStreamSynchronize", stream)
    assert floats(target, 4) == [2, 3, 4, 5]

    copy = Copy()
    gpu.call("cuGraphMemcpyNodeGetParams", nodes[0], ctypes.byref(copy))
    assert (copy.src_type, copy.src_device, copy.dst_device, copy.width) == (2, source, work, 16)
    (ctypes.c_float * 4).from_address(other)[:] = [10, 20, 30, 40]
    copy.src_device = other
    gpu.call("cuGraphExecMemcpyNodeSetParams", exec_, nodes[0], ctypes.byref(copy), 0)
    gpu.call("cuGraphLaunch", exec_, stream)
    gpu.call("cuStreamSynchronize", stream)
    assert floats(target, 4) == [11, 21, 31, 41]

    parameters = Kernel()
    gpu.call("cuGraphKernelNodeGetParams", nodes[1], ctypes.byref(parameters))
    assert parameters.function == function
    assert ctypes.c_int.from_address(parameters.arguments[1]).value == 4
    arguments = argument_list(ctypes.c_uint64(work), ctypes.c_int(2))
    parameters.arguments = arguments
    gpu.call("cuGraphExecKernelNodeSetParams", exec_, nodes[1], ctypes.byref(parameters))
    gpu.call("cuGraphLaunch", exec_, stream)
    gpu.call("cuStreamSynchronize", stream)
    assert floats(target, 4) == [11, 21, 30, 40]
    assert gpu.launches("k") == 3

    # What the real driver refuses: nothing to copy, rows, host memory where a device's was.
    for change in ({"width": 0}, {"height": 2}, {"src_type": 1}):
        wrong = Copy.from_buffer_copy(copy)
        for field, value in change.items():
            setattr(wrong, field, value)
        fails(gpu, fakes.INVALID_VALUE, "cuGraphExecMemcpyNodeSetParams", exec_, nodes[0],
              ctypes.byref(wrong), 0)  # fmt: skip
    gpu.call("cuGraphExecDestroy", exec_)
    gpu.call("cuGraphDestroy", graph)
    for data in (source, work, target, other):
        gpu.call("cuMemFree", data)
    gpu.call("cuStreamDestroy", stream)
    gpu.call("cuModuleUnload", module)


def test_a_graph_built_by_hand(gpu: FakeDriver) -> None:
    data = gpu.make("cuMemAlloc", 8)
    graph = gpu.make("cuGraphCreate", 0)
    fill = Set(dst=data, value=5, element=4, width=1, height=1)
    first = gpu.make("cuGraphAddMemsetNode", graph, None, 0, ctypes.byref(fill), 0)
    copy = Copy(src_type=2, src_device=data, dst_type=2, dst_device=data + 4, width=4, height=1,
                depth=1)  # fmt: skip
    before = ctypes.c_uint64(first)
    gpu.make("cuGraphAddMemcpyNode", graph, ctypes.byref(before), 1, ctypes.byref(copy), 0)
    exec_ = gpu.make("cuGraphInstantiateWithFlags", graph, 0)
    gpu.call("cuGraphLaunch", exec_, 0)
    gpu.call("cuStreamSynchronize", 0)
    assert read(data, 8) == b"\5\0\0\0\5\0\0\0"
    fill.value = 6
    gpu.call("cuGraphExecMemsetNodeSetParams", exec_, first, ctypes.byref(fill), 0)
    gpu.call("cuGraphLaunch", exec_, 0)
    gpu.call("cuStreamSynchronize", 0)
    assert read(data, 8) == b"\6\0\0\0\6\0\0\0"
    gpu.call("cuGraphExecDestroy", exec_)
    gpu.call("cuGraphDestroy", graph)
    gpu.call("cuMemFree", data)


def test_a_second_stream_joins_and_must_come_back(gpu: FakeDriver) -> None:
    origin, side = gpu.make("cuStreamCreate", 1), gpu.make("cuStreamCreate", 1)
    fork, join = gpu.make("cuEventCreate", 0), gpu.make("cuEventCreate", 0)
    data = gpu.make("cuMemAlloc", 4)
    for rejoin in (True, False):
        begin(gpu, origin)
        gpu.call("cuEventRecord", fork, origin)
        gpu.call("cuStreamWaitEvent", side, fork, 0)
        gpu.call("cuMemsetD8Async", data, ctypes.c_ubyte(1), 4, side)
        if rejoin:
            gpu.call("cuEventRecord", join, side)
            gpu.call("cuStreamWaitEvent", origin, join, 0)
            graph = end(gpu, origin)
            assert len(nodes_of(gpu, graph)) == 1
            gpu.call("cuGraphDestroy", graph)
        else:
            fails(gpu, 904, "cuStreamEndCapture", origin, ctypes.byref(ctypes.c_uint64()))
        gpu.call("cuStreamSynchronize", side)  # neither stream is capturing any more
    gpu.call("cuMemFree", data)
    for event in (fork, join):
        gpu.call("cuEventDestroy", event)
    for stream in (origin, side):
        gpu.call("cuStreamDestroy", stream)


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("cuStreamSynchronize", 900),
        ("cuStreamQuery", 900),
        ("cuCtxSynchronize", 900),
        ("cuMemAlloc", 900),
        ("cuModuleLoadData", 900),
        ("cuEventQuery", 900),
        ("cuEventSynchronize", 907),
    ],
)
def test_calls_that_end_a_capture(gpu: FakeDriver, name: str, result: int) -> None:
    stream, event = gpu.make("cuStreamCreate", 1), gpu.make("cuEventCreate", 0)
    begin(gpu, stream)
    gpu.call("cuEventRecord", event, stream)
    out = ctypes.c_uint64()
    arguments = {
        "cuStreamSynchronize": [stream],
        "cuStreamQuery": [stream],
        "cuCtxSynchronize": [],
        "cuMemAlloc": [ctypes.byref(out), 4],
        "cuModuleLoadData": [ctypes.byref(out), TEST_IMAGE],
        "cuEventQuery": [event],
        "cuEventSynchronize": [event],
    }[name]
    fails(gpu, result, name, *arguments)
    fails(gpu, 901, "cuStreamEndCapture", stream, ctypes.byref(out))
    assert out.value == 0
    gpu.call("cuStreamSynchronize", stream)
    gpu.call("cuEventDestroy", event)
    gpu.call("cuStreamDestroy", stream)


def test_memory_is_neither_made_nor_freed_in_a_capture(gpu: FakeDriver) -> None:
    props = PoolProps(type=1, location=(1, 0))
    pool = gpu.make("cuMemPoolCreate", ctypes.byref(props))
    stream = gpu.make("cuStreamCreate", 1)
    data = gpu.make("cuMemAllocFromPoolAsync", 64, pool, stream)
    begin(gpu, stream)
    fails(gpu, 801, "cuMemAllocFromPoolAsync", ctypes.byref(ctypes.c_uint64()), 64, pool, stream)
    fails(gpu, 801, "cuMemFreeAsync", data, stream)
    assert all("graph node" in line for line in gpu.take_misuse())
    gpu.call("cuGraphDestroy", end(gpu, stream))
    gpu.call("cuMemFreeAsync", data, stream)
    gpu.call("cuStreamDestroy", stream)
    gpu.call("cuMemPoolDestroy", pool)


def test_modes_of_captures_and_threads(gpu: FakeDriver) -> None:
    """A global capture forbids unsafe calls of every thread, a thread-local one its own."""
    context = ctypes.c_uint64()
    gpu.call("cuCtxGetCurrent", ctypes.byref(context))
    stream = gpu.make("cuStreamCreate", 1)

    def other_thread(mode: int) -> int:
        results: list[int] = []

        def run() -> None:
            gpu.call("cuCtxPushCurrent", context.value)
            wanted = ctypes.c_uint(mode)
            gpu.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(wanted))
            try:
                gpu.call("cuMemFree", gpu.make("cuMemAlloc", 4))
                results.append(0)
            except CudaFailure as failure:
                results.append(failure.result)
            gpu.make("cuCtxPopCurrent")

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return results[0]

    for mode, thread_mode, result in [
        (fakes.CAPTURE_THREAD_LOCAL, fakes.CAPTURE_GLOBAL, 0),
        (fakes.CAPTURE_GLOBAL, fakes.CAPTURE_THREAD_LOCAL, 0),
        (fakes.CAPTURE_GLOBAL, fakes.CAPTURE_RELAXED, 0),
        (fakes.CAPTURE_GLOBAL, fakes.CAPTURE_GLOBAL, 900),
    ]:
        begin(gpu, stream, mode)
        assert other_thread(thread_mode) == result
        if result == 0:
            gpu.call("cuGraphDestroy", end(gpu, stream))
        else:
            fails(gpu, 901, "cuStreamEndCapture", stream, ctypes.byref(ctypes.c_uint64()))
    gpu.call("cuStreamDestroy", stream)


def test_a_capture_ends_on_its_own_stream_and_thread(gpu: FakeDriver) -> None:
    context = ctypes.c_uint64()
    gpu.call("cuCtxGetCurrent", ctypes.byref(context))
    stream = gpu.make("cuStreamCreate", 1)
    fails(gpu, 401, "cuStreamEndCapture", stream, ctypes.byref(ctypes.c_uint64()))
    begin(gpu, stream)
    fails(gpu, 401, "cuStreamBeginCapture", stream, ctypes.c_uint(1))
    results: list[int] = []

    def run() -> None:
        gpu.call("cuCtxPushCurrent", context.value)
        try:
            end(gpu, stream)
        except CudaFailure as failure:
            results.append(failure.result)
        gpu.make("cuCtxPopCurrent")

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert results == [908]
    gpu.call("cuGraphDestroy", end(gpu, stream))
    fails(gpu, 900, "cuStreamBeginCapture", 0, ctypes.c_uint(1))  # the default stream
    gpu.call("cuStreamDestroy", stream)
