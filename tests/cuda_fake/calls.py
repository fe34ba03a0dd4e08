"""Structures of the driver's interface, and helpers of tests that call the fake driver themselves."""

from __future__ import annotations

import ctypes

import pytest

from cuda_fake.fake import TEST_IMAGE, CudaFailure, FakeDriver, Launch


class Copy(ctypes.Structure):
    """CUDA_MEMCPY3D, as far as one-dimensional copies need it."""

    _fields_ = [
        ("src_place", ctypes.c_size_t * 4), ("src_type", ctypes.c_uint),
        ("src_host", ctypes.c_uint64), ("src_device", ctypes.c_uint64),
        ("src_rest", ctypes.c_uint64 * 4),
        ("dst_place", ctypes.c_size_t * 4), ("dst_type", ctypes.c_uint),
        ("dst_host", ctypes.c_uint64), ("dst_device", ctypes.c_uint64),
        ("dst_rest", ctypes.c_uint64 * 4),
        ("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("depth", ctypes.c_size_t),
    ]  # fmt: skip


class Set(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS"""

    _fields_ = [
        ("dst", ctypes.c_uint64), ("pitch", ctypes.c_size_t), ("value", ctypes.c_uint),
        ("element", ctypes.c_uint), ("width", ctypes.c_size_t), ("height", ctypes.c_size_t),
    ]  # fmt: skip


class Kernel(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS"""

    _fields_ = [
        ("function", ctypes.c_uint64), ("shape", ctypes.c_uint * 6), ("shared", ctypes.c_uint),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)), ("extra", ctypes.c_void_p),
        ("kern", ctypes.c_void_p), ("context", ctypes.c_void_p),
    ]  # fmt: skip


class PoolProps(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_uint), ("handles", ctypes.c_uint), ("location", ctypes.c_uint * 2),
        ("security", ctypes.c_void_p), ("max", ctypes.c_size_t), ("rest", ctypes.c_char * 56),
    ]  # fmt: skip


class MemoryProps(ctypes.Structure):
    """CUmemAllocationProp"""

    _fields_ = [
        ("type", ctypes.c_uint), ("handles", ctypes.c_uint), ("location", ctypes.c_uint * 2),
        ("security", ctypes.c_void_p), ("flags", ctypes.c_char * 8),
    ]  # fmt: skip


class Access(ctypes.Structure):
    _fields_ = [("location", ctypes.c_uint * 2), ("flags", ctypes.c_uint)]


def fails(driver: FakeDriver, result: int, name: str, *arguments: object) -> None:
    with pytest.raises(CudaFailure) as info:
        driver.call(name, *arguments)
    assert info.value.result == result, info.value


def kernel(driver: FakeDriver, name: bytes = b"k") -> tuple[int, int]:
    """Module and function of a registered kernel."""
    module = driver.make("cuModuleLoadData", TEST_IMAGE)
    return module, driver.make("cuModuleGetFunction", module, name)


def argument_list(*arguments: ctypes._SimpleCData) -> ctypes.Array:
    pointers = (ctypes.c_void_p * max(1, len(arguments)))(*map(ctypes.addressof, arguments))
    pointers.kept = arguments  # as long as the list
    return pointers


def launch(driver: FakeDriver, function: int, stream: int, *arguments: ctypes._SimpleCData) -> None:
    shape = [ctypes.c_uint(n) for n in (1, 1, 1, 1, 1, 1, 0)]
    driver.call("cuLaunchKernel", function, *shape, stream, argument_list(*arguments), None)


def add_one(launched: Launch) -> None:
    """float* x, int n: adds one to each of n numbers."""
    pointer = launched.argument(0, ctypes.c_uint64)
    count = launched.argument(1, ctypes.c_int)
    numbers = (ctypes.c_float * count.value).from_address(pointer.value)
    for i in range(count.value):
        numbers[i] += 1


def floats(address: int, count: int) -> list[float]:
    return list((ctypes.c_float * count).from_address(address))
