"""Objects of the buffer protocol as inputs, and what is no tensor at all."""

import array
import ctypes
import sys
from typing import Any

import numpy as np
import pytest
from echo_methods import echo, tensor

import cudaexec


def run(value: Any, dtype: str, rank: int = 1) -> list[Any]:
    got = echo([tensor("x", dtype, (2,) * rank)])(value)
    assert type(got) is cudaexec.Tensor
    assert got.dtype == dtype
    return got.tolist()


def test_standard_types() -> None:
    assert run(b"\1\2\3", "uint8") == [1, 2, 3]
    assert run(bytearray(b"\1\2"), "uint8") == [1, 2]
    assert run(array.array("f", [1.5, 2.5]), "float32") == [1.5, 2.5]
    assert run(array.array("d", [1.5]), "float64") == [1.5]
    assert run(array.array("b", [-1]), "int8") == [-1]
    assert run(array.array("h", [-1]), "int16") == [-1]
    assert run(array.array("i", [-1]), "int32") == [-1]
    assert run(array.array("q", [-1]), "int64") == [-1]
    assert run((ctypes.c_float * 2)(1, 2), "float32") == [1.0, 2.0]


def test_memoryviews_with_strides() -> None:
    base = np.arange(12, dtype=np.int32).reshape(3, 4)
    for view in (base.T, base[:, ::2], base[::-1], base[:, ::-1], np.zeros((0, 2), np.int32)):
        assert run(memoryview(view), "int32", 2) == view.tolist()
    flags = np.array([True, False])
    assert run(memoryview(flags), "bool") == [True, False]
    assert run(memoryview(np.array([0.5], np.float16)), "float16") == [0.5]


def test_other_formats_are_refused() -> None:
    for value in (
        array.array("I", [1]),
        array.array("Q", [1]),
        memoryview(np.zeros(2, np.complex64)),
        memoryview(np.zeros(2, [("a", "f4"), ("b", "i4")])),
        memoryview(np.zeros(2, ">f4")),
        (ctypes.c_float.__ctype_be__ * 2)(1, 2),
    ):
        with pytest.raises(cudaexec.DtypeError, match="format"):
            run(value, "float32")


def test_buffers_are_released() -> None:
    data = bytearray(b"abcd")
    run(data, "uint8")
    data += b"e"  # a bytearray with exports cannot be resized
    with pytest.raises(cudaexec.DtypeError):
        run(memoryview(np.zeros(2, ">f4")), "float32")
    owner = bytearray(8)
    with pytest.raises(cudaexec.InputError):
        echo([tensor("x", "uint8", (8,)), tensor("y")])(owner, object())
    owner += b"x"


@pytest.mark.parametrize("value", ["text", object(), {1, 2}, None, lambda: 0, range(3)])
def test_other_objects_are_refused(value: Any) -> None:
    with pytest.raises(cudaexec.InputError, match="cannot be used as a tensor") as caught:
        run(value, "float32")
    assert "numpy array" in str(caught.value)


def test_cuda_array_interface_is_a_device_error() -> None:
    class CudaArray:
        __cuda_array_interface__ = {
            "shape": (2,),
            "typestr": "<f4",
            "data": (0, True),
            "version": 3,
        }

    with pytest.raises(cudaexec.DeviceError, match="CUDA"):
        run(CudaArray(), "float32")


def test_types_made_in_a_loop_do_not_pile_up() -> None:
    method = echo([tensor("x", "uint8", (2,))])
    for i in range(600):
        cls = type(f"Buffer{i}", (bytearray,), {})
        assert method(cls(b"ab")).tolist() == [97, 98]
    before = sys.getrefcount(cls)
    for _ in range(100):
        method(cls(b"ab"))
    assert sys.getrefcount(cls) == before
