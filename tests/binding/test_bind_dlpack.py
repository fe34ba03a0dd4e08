"""DLPack in both directions: capsules old and new, odd fields, and who frees what."""

import gc
from typing import Any

import numpy as np
import pytest
from echo_methods import echo, tensor
from fake_dlpack import Producer, capsule_name, read_capsule

import cudaexec
from cudaexec import _core

A = np.arange(6, dtype=np.float32).reshape(2, 3)


def run(value: Any, dtype: str = "float32", rank: int = 2) -> Any:
    return echo([tensor("x", dtype, (2,) * rank)])(value)


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("array", [A, A.T, A[:, ::2], A[::-1], A[:0], np.array(3, np.float32)])
def test_producers_of_both_generations(versioned: bool, array: np.ndarray) -> None:
    producer = Producer(array, versioned=versioned)
    got = run(producer, rank=array.ndim)
    assert type(got) is cudaexec.Tensor
    assert got.tolist() == array.tolist()
    assert producer.deleted == producer.exported == 1


def test_read_only_tensors_are_read() -> None:
    assert run(Producer(A, flags=1)).tolist() == A.tolist()


def test_no_strides_means_row_major() -> None:
    assert run(Producer(A, no_strides=True)).tolist() == A.tolist()


def test_byte_offsets() -> None:
    producer = Producer(A[1], byte_offset=4, data=A[1].ctypes.data - 4)
    assert run(producer, rank=1).tolist() == A[1].tolist()


def test_pinned_host_memory_counts_as_the_cpu() -> None:
    assert run(Producer(A, device=(3, 0))).tolist() == A.tolist()


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"device": (8, 0)}, cudaexec.DeviceError, "device type 8"),
        ({"dtype": (2, 32, 4)}, cudaexec.DtypeError, "lanes 4"),
        ({"dtype": (6, 1, 1)}, cudaexec.DtypeError, "bits 1"),
        ({"dtype": (5, 64, 1)}, cudaexec.DtypeError, "code 5"),
        ({"dtype": (1, 16, 1)}, cudaexec.DtypeError, "bits 16"),
        ({"shape": (-1, 3)}, cudaexec.ShapeError, "negative size"),
        ({"shape": (2**62, 3)}, cudaexec.ShapeError, "address space"),
        ({"ndim": -1}, cudaexec.ShapeError, "-1 dimensions"),
        ({"data": 0}, cudaexec.InputError, "no memory"),
    ],
)
@pytest.mark.parametrize("versioned", [True, False])
def test_odd_tensors_are_refused_and_freed(
    fields: dict[str, Any], error: type[Exception], message: str, versioned: bool
) -> None:
    producer = Producer(A, versioned=versioned, **fields)
    with pytest.raises(error, match=message):
        run(producer)
    assert producer.deleted == producer.exported == 1


def test_a_newer_major_version_is_refused_and_freed() -> None:
    producer = Producer(A, version=(2, 0))
    with pytest.raises(cudaexec.NotSupported, match=r"2\.0"):
        run(producer)
    assert producer.deleted == 1
    assert run(Producer(A, version=(1, 9))).tolist() == A.tolist()


def test_bool_and_uint8_are_not_the_same() -> None:
    flags = np.array([[True, False]])
    assert run(Producer(flags), "bool").tolist() == [[True, False]]
    # What a producer calls uint8 stays uint8; the dtype check of a real method then refuses it.
    assert run(Producer(flags.view(np.uint8)), "uint8").dtype == "uint8"


def test_capsules_are_taken_once() -> None:
    for versioned in (True, False):
        producer = Producer(A, versioned=versioned)
        options = {"max_version": (1, 0)} if versioned else {}
        capsule = producer.__dlpack__(**options)
        assert run(capsule).tolist() == A.tolist()
        assert capsule_name(capsule).startswith("used_dltensor")
        with pytest.raises(ValueError, match="consumed before"):
            run(capsule)
        assert producer.deleted == 1


def test_failing_producers() -> None:
    class Broken:
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("cannot export\nlong story")

    class Wrong:
        def __dlpack__(self, **options: Any) -> Any:
            return 3

    class Interrupted:
        def __dlpack__(self, **options: Any) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(cudaexec.InputError, match=r"'x'.*BufferError: cannot export$"):
        run(Broken())
    with pytest.raises(cudaexec.InputError, match="returned an int; expected a capsule"):
        run(Wrong())
    with pytest.raises(KeyboardInterrupt):
        run(Interrupted())


def test_a_failing_later_input_frees_the_earlier_ones() -> None:
    producer = Producer(A)
    with pytest.raises(cudaexec.InputError, match="'y'"):
        echo([tensor("x"), tensor("y")])(producer, object())
    assert producer.deleted == 1


def output() -> Any:
    return run(memoryview(A))


def test_export_old_and_new() -> None:
    ours = output()
    for options, name in [
        ({}, "dltensor"),
        ({"max_version": None}, "dltensor"),
        ({"max_version": (0, 8)}, "dltensor"),
        ({"max_version": (1, 0)}, "dltensor_versioned"),
        ({"max_version": (9, 9)}, "dltensor_versioned"),
    ]:
        assert capsule_name(ours.__dlpack__(**options)) == name
    assert ours.__dlpack_device__() == (1, 0)


def test_export_describes_the_tensor() -> None:
    ours = output()
    capsule = ours.__dlpack__(max_version=(1, 0))
    managed = read_capsule(capsule)
    assert (managed.version.major, managed.flags) == (1, 0)
    described = managed.dl_tensor
    assert described.data == ours.numpy().ctypes.data
    assert (described.device.device_type, described.device.device_id) == (1, 0)
    assert (described.dtype.code, described.dtype.bits, described.dtype.lanes) == (2, 32, 1)
    assert [described.shape[i] for i in range(described.ndim)] == [2, 3]
    assert [described.strides[i] for i in range(described.ndim)] == [3, 1]
    flags = echo([tensor("x", "bool", ())])(True)
    capsule = flags.__dlpack__()
    assert read_capsule(capsule).dl_tensor.dtype.code == 6
    half = echo([tensor("x", "bfloat16", ())])(1.0)
    capsule = half.__dlpack__()
    assert read_capsule(capsule).dl_tensor.dtype.code == 4


def test_export_copy() -> None:
    ours = output()
    address = ours.numpy().ctypes.data
    for copy, shared in [(None, True), (False, True), (True, False)]:
        capsule = ours.__dlpack__(max_version=(1, 0), copy=copy)
        managed = read_capsule(capsule)
        assert (managed.dl_tensor.data == address) is shared
        assert managed.flags == (0 if shared else 2)
    copied = np.from_dlpack(ours, copy=True)
    copied[:] = -1
    assert ours.tolist() == A.tolist()


def test_export_to_other_devices_is_refused() -> None:
    ours = output()
    assert capsule_name(ours.__dlpack__(dl_device=(1, 0))) == "dltensor"
    with pytest.raises(BufferError, match=r"\(2, 0\)"):
        ours.__dlpack__(dl_device=(2, 0))
    with pytest.raises(cudaexec.InputError, match="stream"):
        ours.__dlpack__(stream=1)


def test_capsules_keep_the_memory_and_free_it() -> None:
    live = _core._testing.live_counts
    before = live()["storages"]
    array = np.from_dlpack(output())
    gc.collect()
    assert array.tolist() == A.tolist()
    assert live()["storages"] == before + 1
    del array
    assert live()["storages"] == before
    for options in ({}, {"max_version": (1, 0)}, {"copy": True}):
        ours = output()
        for _ in range(1000):
            ours.__dlpack__(**options)
        del ours
        assert live()["storages"] == before


def test_a_capsule_goes_round() -> None:
    ours = output()
    for options in ({}, {"max_version": (1, 0)}):
        assert run(ours.__dlpack__(**options)).tolist() == A.tolist()


def test_the_exchange_table_is_on_the_type() -> None:
    import ctypes

    table = cudaexec.Tensor.__dlpack_c_exchange_api__
    assert capsule_name(table) == "dlpack_exchange_api"
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    address = pointer(table, b"dlpack_exchange_api")
    words = (ctypes.c_uint32 * 2).from_address(address)
    assert tuple(words) == (1, 3)
    functions = (ctypes.c_void_p * 5).from_address(address + 16)
    assert all(functions)
    ours = output()
    before = _core._testing.live_counts()["storages"]
    # from_py_object, then to_py_object: a second Tensor over the same memory.
    managed = ctypes.c_void_p()
    from_object = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(functions[1])
    assert from_object(ours, ctypes.addressof(managed)) == 0
    again = ctypes.c_void_p()
    to_object = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(functions[2])
    assert to_object(managed, ctypes.addressof(again)) == 0
    second = ctypes.cast(again, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(second))
    assert type(second) is cudaexec.Tensor
    second.numpy()[0, 0] = 42
    assert ours.tolist()[0][0] == 42
    del second, ours
    gc.collect()
    assert _core._testing.live_counts()["storages"] == before - 1
