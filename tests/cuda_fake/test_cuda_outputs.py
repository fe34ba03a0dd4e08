"""cudaexec.Tensor on a GPU for its consumers: DLPack, the table of C functions, the array interface,
and the way to the host."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cudaexec
from binding.fake_dlpack import DLManagedTensorVersioned, DLTensor, capsule_name, read_capsule
from cuda_fake.fake import FakeDriver
from cuda_fake.foreign import LEGACY, PER_THREAD, Table, fetch, table_of, waits
from cudaexec._core import _testing

cuda = _testing.cuda
A = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
ORDER = ("cuEventRecord", "cuStreamWaitEvent")

needs_device_code = pytest.mark.skipif(
    not cuda.image_names(), reason="built without nvcc: there is no device code"
)


@pytest.fixture
def streams(fake: FakeDriver) -> Iterator[list[Any]]:
    made = [cuda.Stream(0) for _ in range(2)]
    yield made
    gc.collect(1)
    fake.run_all()
    made.clear()


@pytest.fixture
def ours(streams: list[Any]) -> Iterator[list[cudaexec.Tensor]]:
    """A list with one tensor on cuda:0 that is ready on the first stream; `pop()` it to drop it."""
    held = [cuda.tensor_on(A, 0, streams[0].handle)]
    yield held
    held.clear()


# ---- what a tensor tells -----------------------------------------------------------------------


def test_properties(ours: list[cudaexec.Tensor], fake: FakeDriver) -> None:
    x = ours[0]
    assert (x.device, x.dtype, x.shape, x.strides) == ("cuda:0", "float32", (2, 3), (3, 1))
    assert (x.nbytes, x.ndim, len(x)) == (24, 2, 2)
    assert repr(x) == "cudaexec.Tensor(float32[2, 3], device=cuda:0)"
    assert x.__dlpack_device__() == (2, 0)
    assert waits(fake) == []


def test_the_way_to_the_host(ours: list[cudaexec.Tensor], fake: FakeDriver) -> None:
    x = ours[0]
    host = x.to_host()
    assert (host.device, host.tolist()) == ("cpu", A.tolist())
    assert host.to_host() is host
    assert len(fake.calls("cuMemcpyDtoHAsync")) == 1
    assert x.tolist() == A.tolist()
    one = cuda.view_of(x, [], [], 4)
    assert (one.item(), float(one), int(one), bool(one)) == (5.0, 5.0, 5, True)


def test_host_views_are_refused(ours: list[cudaexec.Tensor], fake: FakeDriver) -> None:
    x = ours[0]
    for view in (x.numpy, x.__array__, lambda: np.asarray(x), lambda: np.array(x, np.float64)):
        with pytest.raises(cudaexec.DeviceError, match=r"on cuda:0 .*to_host\(\)"):
            view()
    with pytest.raises(BufferError, match=r"to_host\(\)"):
        memoryview(x)
    with pytest.raises(cudaexec.InputError, match="only a tensor of one element"):
        x.item()
    assert fake.calls("cuMemcpyDtoHAsync") == []


def test_strides_on_the_way_to_the_host(ours: list[cudaexec.Tensor], fake: FakeDriver) -> None:
    x = ours[0]
    turned = cuda.view_of(x, [3, 2], [1, 3]).to_host()
    assert (turned.strides, turned.tolist()) == ((1, 3), A.T.tolist())
    row = cuda.view_of(x, [3], [1], 3)
    assert row.tolist() == A[1].tolist()
    assert cuda.view_of(x, [0, 3], [3, 1]).to_host().shape == (0, 3)
    assert fake.calls("cuLaunchKernel") == []


@needs_device_code
def test_scattered_elements_are_packed_on_the_gpu(
    ours: list[cudaexec.Tensor], fake: FakeDriver
) -> None:
    host = cuda.view_of(ours[0], [2], [3], 1).to_host()
    assert host.strides == (1,)
    assert len(fake.calls("cuLaunchKernel")) == 1


# ---- __cuda_array_interface__ ------------------------------------------------------------------


def test_the_array_interface(ours: list[cudaexec.Tensor], streams: list[Any]) -> None:
    x = ours[0]
    found = x.__cuda_array_interface__
    address = found["data"][0]
    assert found == {
        "shape": (2, 3), "typestr": "<f4", "data": (address, False), "version": 3,
        "strides": None, "stream": streams[0].handle,
    }  # fmt: skip
    assert fetch(address, A, streams[0].handle).tolist() == A.tolist()
    turned = cuda.view_of(x, [3, 2], [1, 3], 0).__cuda_array_interface__
    assert (turned["shape"], turned["strides"]) == ((3, 2), (4, 12))
    row = cuda.view_of(x, [3], [1], 3).__cuda_array_interface__
    assert row["data"] == (address + 12, False)
    empty = cuda.view_of(x, [0], [1]).__cuda_array_interface__
    assert empty["data"] == (0, False)


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
)
def test_types_of_the_array_interface(fake: FakeDriver, dtype: str) -> None:
    array = np.ones(3, dtype)
    x = cuda.tensor_on(array)
    assert x.__cuda_array_interface__["typestr"] == array.dtype.str
    assert x.__cuda_array_interface__["stream"] == LEGACY
    assert x.tolist() == array.tolist()


def test_tensors_without_an_array_interface(fake: FakeDriver) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    half = cuda.tensor_on(np.ones(2, ml_dtypes.bfloat16))
    for x in (half, half.to_host()):
        assert not hasattr(x, "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="bfloat16.*use DLPack"):
        _ = half.__cuda_array_interface__


# ---- __dlpack__ --------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [None, 1, 2, "side", "own"])
def test_capsules_are_ready_on_the_consumers_stream(
    ours: list[cudaexec.Tensor], streams: list[Any], fake: FakeDriver, stream: Any
) -> None:
    handles = {None: 1, "side": streams[1].handle, "own": streams[0].handle}
    consumer = handles.get(stream, stream)
    fake.clear_calls()
    capsule = ours[0].__dlpack__(
        stream=handles[stream] if isinstance(stream, str) else stream, max_version=(1, 0)
    )
    assert capsule_name(capsule) == "dltensor_versioned"
    assert (fake.calls(*ORDER) == []) is (stream == "own")
    assert waits(fake) == []
    described = read_capsule(capsule).dl_tensor
    assert (described.device.device_type, described.device.device_id) == (2, 0)
    assert fetch(described.data, A, consumer).tolist() == A.tolist()


def test_no_ordering_on_request(ours: list[cudaexec.Tensor], fake: FakeDriver) -> None:
    fake.clear_calls()
    capsule = ours[0].__dlpack__(stream=-1)
    assert capsule_name(capsule) == "dltensor"
    del capsule
    assert fake.calls(*ORDER) == []


@pytest.mark.parametrize("stream", [0, -2, True, "1", 1.0, 1 << 70])
def test_other_streams_are_refused(ours: list[cudaexec.Tensor], stream: Any) -> None:
    with pytest.raises(cudaexec.InputError, match="__dlpack__: stream is .*0 is ambiguous"):
        ours[0].__dlpack__(stream=stream)


@pytest.mark.parametrize("consumer", [LEGACY, PER_THREAD, "side"])
def test_memory_is_freed_after_the_consumers_work(
    ours: list[cudaexec.Tensor], streams: list[Any], fake: FakeDriver, consumer: Any
) -> None:
    reader = streams[1].handle if consumer == "side" else consumer
    own = streams[0].handle
    capsule = ours[0].__dlpack__(stream=reader)
    pinned = cuda.Allocator("pinned")
    target = pinned.allocate(A.nbytes)
    cuda.copy(0, target, -1, read_capsule(capsule).dl_tensor.data, 0, A.nbytes, reader)
    ours.clear()
    assert fake.calls("cuMemFreeAsync") == []
    del capsule
    assert len(fake.calls("cuMemFreeAsync")) == 1
    cuda.synchronize(0, own)
    assert fake.misuse() == []
    got = np.frombuffer((ctypes.c_char * A.nbytes).from_address(target), np.float32)
    assert got.tolist() == A.ravel().tolist()
    del got
    pinned.deallocate(target, A.nbytes)


def test_capsules_that_nobody_takes(ours: list[cudaexec.Tensor], fake: FakeDriver) -> None:
    before = _testing.live_counts()["storages"]
    for _ in range(100):
        ours[0].__dlpack__(stream=1)
        ours[0].__dlpack__(stream=2, max_version=(1, 0))
    assert _testing.live_counts()["storages"] == before
    ours.clear()
    assert _testing.live_counts()["storages"] == before - 1


def test_copies(ours: list[cudaexec.Tensor], streams: list[Any], fake: FakeDriver) -> None:
    x = ours[0]
    own = x.__cuda_array_interface__["data"][0]
    for copy, shared in [(None, True), (False, True), (True, False)]:
        capsule = x.__dlpack__(stream=streams[1].handle, max_version=(1, 0), copy=copy)
        managed = read_capsule(capsule)
        assert (managed.dl_tensor.data == own) is shared
        assert managed.flags == (0 if shared else 2)
        assert fetch(managed.dl_tensor.data, A, streams[1].handle).tolist() == A.tolist()
    assert x.__dlpack__(dl_device=(2, 0), stream=1) is not None


def test_exports_to_the_host(ours: list[cudaexec.Tensor], fake: FakeDriver) -> None:
    x = ours[0]
    for copy in (None, True):
        capsule = x.__dlpack__(dl_device=(1, 0), copy=copy, max_version=(1, 0))
        managed = read_capsule(capsule)
        assert (managed.dl_tensor.device.device_type, managed.flags) == (1, 2)
        got = (ctypes.c_float * 6).from_address(managed.dl_tensor.data)
        assert list(got) == A.ravel().tolist()
    assert np.from_dlpack(x, device="cpu").tolist() == A.tolist()
    with pytest.raises(BufferError, match="copy=False"):
        x.__dlpack__(dl_device=(1, 0), copy=False)


@pytest.mark.parametrize("device", [(2, 1), (3, 0), (13, 0), (8, 0)])
def test_exports_to_other_devices(ours: list[cudaexec.Tensor], device: tuple[int, int]) -> None:
    with pytest.raises(BufferError, match=rf"on cuda:0 cannot be exported.*\({device[0]}"):
        ours[0].__dlpack__(dl_device=device, stream=1)


# ---- the table of C functions ------------------------------------------------------------------


@pytest.fixture
def table() -> Table:
    return table_of(cudaexec.Tensor)


def current(table: Table, kind: int, index: int) -> int:
    out = ctypes.c_void_p()
    assert table.stream(kind, index, ctypes.byref(out)) == 0
    return out.value or 0


def test_the_table_names_the_threads_stream(fake: FakeDriver, table: Table) -> None:
    assert current(table, 2, 0) == cuda.thread_stream(0)
    assert current(table, 1, 0) == 0
    with pytest.raises(cudaexec.DeviceError, match="cuda:7 does not exist"):
        table.stream(2, 7, ctypes.byref(ctypes.c_void_p()))


def test_tensors_of_the_table_are_ready_there(
    ours: list[cudaexec.Tensor], fake: FakeDriver, table: Table
) -> None:
    out = ctypes.POINTER(DLManagedTensorVersioned)()
    assert table.from_object(ours[0], ctypes.byref(out)) == 0
    address = out.contents.dl_tensor.data
    assert fetch(address, A, current(table, 2, 0)).tolist() == A.tolist()
    ours.clear()
    assert fake.calls("cuMemFreeAsync") == []
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(out.contents.deleter)(ctypes.addressof(out.contents))
    assert len(fake.calls("cuMemFreeAsync")) == 1


def test_views_of_the_table_are_followed(
    ours: list[cudaexec.Tensor], streams: list[Any], fake: FakeDriver, table: Table
) -> None:
    view = DLTensor()
    for _ in range(3):
        assert table.view(ours[0], ctypes.byref(view)) == 0
    assert (view.device.device_type, view.ndim) == (2, 2)
    reader = current(table, 2, 0)
    pinned = cuda.Allocator("pinned")
    target = pinned.allocate(A.nbytes)
    cuda.copy(0, target, -1, view.data, 0, A.nbytes, reader)
    ours.clear()
    cuda.synchronize(0, streams[0].handle)  # frees
    cuda.synchronize(0, reader)
    assert fake.misuse() == []
    pinned.deallocate(target, A.nbytes)


def test_the_table_allocates_and_takes_tensors(fake: FakeDriver, table: Table) -> None:
    prototype = DLTensor()
    shape = (ctypes.c_int64 * 2)(2, 3)
    prototype.shape = shape
    prototype.ndim = 2
    prototype.device.device_type = 2
    prototype.dtype.code, prototype.dtype.bits, prototype.dtype.lanes = 2, 32, 1
    out = ctypes.POINTER(DLManagedTensorVersioned)()
    assert table.allocate(ctypes.byref(prototype), ctypes.byref(out), None, None) == 0
    address = out.contents.dl_tensor.data
    cuda.copy(0, address, 0, A.ctypes.data, -1, A.nbytes, current(table, 2, 0))
    made = ctypes.c_void_p()
    assert table.to_object(out, ctypes.byref(made)) == 0
    x = ctypes.cast(made, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(x))
    assert (type(x), x.device, x.tolist()) == (cudaexec.Tensor, "cuda:0", A.tolist())
    assert x.__cuda_array_interface__["stream"] == cuda.thread_stream(0)
