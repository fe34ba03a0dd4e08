"""Shims called as generated code calls them, on tensors they make themselves."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from ctypes import POINTER, byref, c_bool, c_double, c_float, c_int64, c_uint16, c_void_p

import pytest
from libraries import LIB, SHIMS, testing

CODES = {"uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4}
CODES |= {"float16": 5, "float32": 6, "float64": 7, "bool": 11, "bfloat16": 15}
FORMATS = {"uint8": "B", "int8": "b", "int16": "h", "int32": "i", "int64": "q"}
FORMATS |= {"float16": "e", "float32": "f", "float64": "d", "bool": "?", "bfloat16": "H"}
shims = ctypes.CDLL(str(LIB / SHIMS))


def int64s(values: Sequence[int]) -> ctypes.Array[c_int64]:
    return (c_int64 * max(len(values), 1))(*values)


def call(name: str, *arguments: object) -> int:
    return getattr(shims, f"aoti_torch_{name}")(*arguments)


class Handles:
    """Makes tensors and deletes them all in the end."""

    def __init__(self) -> None:
        self.all: list[c_void_p] = []

    def make(self, name: str, *arguments: object) -> c_void_p:
        handle = c_void_p()
        assert call(name, *arguments, byref(handle)) == 0, name
        self.all.append(handle)
        return handle

    def empty(self, dtype: str, sizes: Sequence[int], strides: Sequence[int]) -> c_void_p:
        code = CODES[dtype]
        rank = c_int64(len(sizes))
        return self.make("empty_strided", rank, int64s(sizes), int64s(strides), code, 0, -1)

    def tensor(self, dtype: str, values: Sequence[float], sizes: Sequence[int]) -> c_void_p:
        strides = [1] * len(sizes)
        for i in range(len(sizes) - 2, -1, -1):
            strides[i] = strides[i + 1] * sizes[i + 1]
        handle = self.empty(dtype, sizes, strides)
        data = struct.pack(f"<{len(values)}{FORMATS[dtype]}", *values)
        ctypes.memmove(pointer(handle), data, len(data))
        return handle

    def view(
        self, of: c_void_p, sizes: Sequence[int], strides: Sequence[int], offset: int
    ) -> c_void_p:
        rank = c_int64(len(sizes))
        arguments = (of, rank, int64s(sizes), int64s(strides), c_int64(offset))
        return self.make("_reinterpret_tensor", *arguments)


def pointer(handle: c_void_p) -> int:
    result = c_void_p()
    assert call("get_data_ptr", handle, byref(result)) == 0
    return result.value or 0


def number(name: str, handle: c_void_p, *arguments: object) -> int:
    result = c_int64(-77)
    assert call(name, handle, *arguments, byref(result)) == 0
    return result.value


def dims(name: str, handle: c_void_p) -> list[int]:
    result = POINTER(c_int64)()
    assert call(name, handle, byref(result)) == 0
    return [result[i] for i in range(number("get_dim", handle))]


def elements(dtype: str, handle: c_void_p) -> list[float]:
    """All elements in row-major order."""
    sizes, strides = dims("get_sizes", handle), dims("get_strides", handle)
    places = [0]
    for size, stride in zip(sizes, strides, strict=True):
        places = [p + i * stride for p in places for i in range(size)]
    form = f"<{FORMATS[dtype]}"
    width = struct.calcsize(form)
    start = pointer(handle)
    return [struct.unpack(form, ctypes.string_at(start + p * width, width))[0] for p in places]


@pytest.fixture
def handles() -> Iterator[Handles]:
    before = testing.live_counts()
    made = Handles()
    yield made
    for handle in made.all:
        assert call("delete_tensor_object", handle) == 0
    assert testing.live_counts() == before


@pytest.mark.parametrize("dtype", CODES)
def test_codes(dtype: str) -> None:
    assert call(f"dtype_{dtype}") == CODES[dtype]
    size = shims.aoti_torch_dtype_element_size
    size.restype = ctypes.c_size_t
    assert size(CODES[dtype]) == struct.calcsize(f"<{FORMATS[dtype]}")


def test_other_codes() -> None:
    """Initialisers of generated code ask for codes of types that programs cannot use."""
    expected = {"dtype_complex64": 9, "dtype_float8_e4m3fn": 24, "dtype_uint64": 29}
    expected |= {"device_type_cpu": 0, "device_type_cuda": 1, "device_type_privateuse1": 20}
    expected |= {"layout_strided": 0, "layout__mkldnn": 3, "memory_format_channels_last": 2}
    assert {name: call(name) for name in expected} == expected
    assert shims.cudaexec_shims_abi_version() >= 1


def test_attributes(handles: Handles) -> None:
    tensor = handles.tensor("int16", range(24), [2, 3, 4])
    view = handles.view(tensor, [4, 2], [1, 12], 4)
    assert dims("get_sizes", view) == [4, 2]
    assert dims("get_strides", view) == [1, 12]
    assert elements("int16", view) == [4, 16, 5, 17, 6, 18, 7, 19]
    numbers = {"get_dim": 2, "get_numel": 8, "get_storage_offset": 4}
    numbers |= {"get_storage_size": 48, "get_storage_numel": 24}
    assert {name: number(name, view) for name in numbers} == numbers
    assert number("get_size", view, c_int64(-1)) == 2
    assert number("get_stride", view, c_int64(1)) == 12
    for name, expected in (("get_dtype", 2), ("get_device_type", 0), ("get_device_index", 0)):
        code = ctypes.c_int32(-1)
        assert call(name, view, byref(code)) == 0
        assert code.value == expected
    for name, expected in (("is_defined", True), ("is_contiguous", False)):
        flag = c_bool()
        assert call(name, view, byref(flag)) == 0
        assert flag.value is expected
    assert call("get_size", view, c_int64(2), byref(c_int64())) == 1


def test_an_undefined_tensor(handles: Handles) -> None:
    handle = handles.make("new_uninitialized_tensor")
    flag = c_bool(True)
    assert call("is_defined", handle, byref(flag)) == 0
    assert not flag.value
    assert call("assign_tensors", handles.tensor("int8", [5], [1]), handle) == 0
    assert elements("int8", handle) == [5]


class TestViews:
    def test_offsets_add_up(self, handles: Handles) -> None:
        tensor = handles.tensor("float32", range(10), [10])
        inner = handles.view(handles.view(tensor, [6], [1], 3), [2], [2], 1)
        assert number("get_storage_offset", inner) == 4
        assert elements("float32", inner) == [4, 6]

    def test_outside_is_refused(self, handles: Handles) -> None:
        tensor = handles.tensor("float32", range(10), [10])
        for sizes, strides, offset in (([11], [1], 0), ([2], [9], 1), ([1], [1], -1)):
            arguments = (c_int64(1), int64s(sizes), int64s(strides), c_int64(offset))
            assert call("_reinterpret_tensor", tensor, *arguments, byref(c_void_p())) == 1

    def test_an_empty_view_may_start_behind_the_end(self, handles: Handles) -> None:
        tensor = handles.tensor("float32", range(6), [2, 3])
        assert number("get_numel", handles.view(tensor, [0, 2], [3, 1], 7)) == 0

    def test_parts_of_a_pool(self, handles: Handles) -> None:
        pool = handles.tensor("uint8", range(32), [32])
        code = CODES["int32"]
        arguments = (c_int64(1), int64s([2]), int64s([1]))
        part = handles.make("_alloc_from_pool", pool, c_int64(8), code, *arguments)
        assert elements("int32", part) == [0x0B0A0908, 0x0F0E0D0C]
        for at in (2, 28):  # between elements; beyond the end
            wrong = (pool, c_int64(at), code, *arguments, byref(c_void_p()))
            assert call("_alloc_from_pool", *wrong) == 1

    def test_memory_of_others(self, handles: Handles) -> None:
        memory = (c_float * 6)(*range(6))
        arguments = (c_int64(2), int64s([2, 2]), int64s([3, 1]), c_int64(1), 6, 0, -1)
        view = handles.make("create_tensor_from_blob", memory, *arguments)
        assert elements("float32", view) == [1, 2, 4, 5]
        assert call("create_tensor_from_blob", None, *arguments, byref(c_void_p())) == 1
        nothing = (c_int64(1), int64s([0]), int64s([1]), c_int64(0), 6, 0, -1)
        assert elements("float32", handles.make("create_tensor_from_blob", None, *nothing)) == []

    def test_opaque_layouts_are_refused(self) -> None:
        memory = (c_float * 1)()
        result = c_void_p()
        arguments = (c_int64(1), int64s([1]), int64s([1]), c_int64(0), 6, 0, -1, byref(result))
        assert call("create_tensor_from_blob_v2", memory, *arguments, 3, None, c_int64(0)) == 1


class TestCopies:
    def test_clone_keeps_the_order_of_dimensions(self, handles: Handles) -> None:
        tensor = handles.tensor("float32", range(24), [2, 3, 4])
        turned = handles.view(tensor, [4, 3, 2], [1, 4, 12], 0)
        copy = handles.make("clone", turned)
        assert dims("get_strides", copy) == [1, 4, 12]  # dense: as they are
        part = handles.view(tensor, [2, 2, 2], [1, 4, 12], 0)
        copy = handles.make("clone", part)
        assert dims("get_strides", copy) == [1, 2, 4]  # gaps closed
        assert elements("float32", copy) == elements("float32", part)
        assert pointer(copy) != pointer(part)

    def test_clone_can_keep_gaps_and_overlaps(self, handles: Handles) -> None:
        tensor = handles.tensor("int32", range(8), [8])
        for sizes, strides in (([3], [2]), ([2, 3], [0, 1])):
            view = handles.view(tensor, sizes, strides, 1)
            copy = handles.make("clone_preserve_strides", view)
            assert dims("get_strides", copy) == strides
            assert number("get_storage_offset", copy) == 0
            assert elements("int32", copy) == elements("int32", view)

    def test_copy_broadcasts_and_converts(self, handles: Handles) -> None:
        target = handles.tensor("float32", [0] * 6, [2, 3])
        assert call("copy_", target, handles.tensor("int64", [1, 2, 3], [3]), 0) == 0
        assert elements("float32", target) == [1, 2, 3, 1, 2, 3]
        assert call("copy_", target, handles.tensor("bool", [True, False], [2, 1]), 0) == 0
        assert elements("float32", target) == [1, 1, 1, 0, 0, 0]
        assert call("copy_", target, handles.tensor("float32", [1, 2], [2]), 0) == 1

    def test_copy_reads_before_it_writes(self, handles: Handles) -> None:
        tensor = handles.tensor("int32", range(6), [6])
        start, end = handles.view(tensor, [5], [1], 0), handles.view(tensor, [5], [1], 1)
        assert call("copy_", end, start, 0) == 0
        assert elements("int32", tensor) == [0, 0, 1, 2, 3, 4]
        square = handles.tensor("int32", range(4), [2, 2])
        assert call("copy_", square, handles.view(square, [2, 2], [1, 2], 0), 0) == 0
        assert elements("int32", square) == [0, 2, 1, 3]

    def test_zero(self, handles: Handles) -> None:
        tensor = handles.tensor("float64", range(1, 7), [2, 3])
        assert call("zero_", handles.view(tensor, [2, 2], [3, 1], 1)) == 0
        assert elements("float64", tensor) == [1, 0, 0, 4, 0, 0]
        assert call("zero_", tensor) == 0
        assert elements("float64", tensor) == [0] * 6


class TestScalars:
    @pytest.mark.parametrize(
        ("name", "result", "dtype", "value", "expected"),
        [
            ("int64", c_int64, "int64", -(2**63), -(2**63)),
            ("int64", c_int64, "float64", -2.9, -2),
            ("int64", c_int64, "float32", 9.3e18, None),
            ("int64", c_int64, "float64", float("nan"), None),
            ("int8", ctypes.c_int8, "int32", 127, 127),
            ("int8", ctypes.c_int8, "int32", 128, None),
            ("uint8", ctypes.c_uint8, "int16", -1, None),
            ("uint8", ctypes.c_uint8, "bool", True, 1),
            ("uint16", c_uint16, "int32", 65535, 65535),
            ("uint64", ctypes.c_uint64, "float64", 2.0**63, 2**63),
            ("uint64", ctypes.c_uint64, "float64", 2.0**64, None),
            ("bool", c_bool, "float16", 0.5, True),
            ("bool", c_bool, "int64", 0, False),
            ("float32", c_float, "float64", 0.5, 0.5),
            ("float32", c_float, "float64", 1e300, None),
            ("float32", c_float, "float64", float("inf"), float("inf")),
            ("float64", c_double, "bfloat16", 0x3FC0, 1.5),
            ("float64", c_double, "float16", 1.5, 1.5),
            ("float16", c_uint16, "float32", 1.5, 0x3E00),
            ("float16", c_uint16, "float32", 7e4, None),
            ("bfloat16", c_uint16, "int32", 3, 0x4040),
        ],
    )
    def test_item(
        self, handles: Handles, name: str, result: type, dtype: str, value: float, expected: object
    ) -> None:
        """`name` is the type that is wanted; None: the value does not fit it."""
        read = result()
        code = call(f"item_{name}", handles.tensor(dtype, [value], []), byref(read))
        assert (code, read.value if code == 0 else None) == (int(expected is None), expected)

    def test_item_of_several(self, handles: Handles) -> None:
        assert call("item_int64", handles.tensor("int64", [1, 2], [2]), byref(c_int64())) == 1
        single = c_int64()
        assert call("item_int64", handles.tensor("int64", [7], [1, 1]), byref(single)) == 0
        assert single.value == 7

    @pytest.mark.parametrize(
        ("dtype", "argument"),
        [
            ("int64", c_int64(-5)),
            ("int8", ctypes.c_int8(-5)),
            ("uint8", ctypes.c_uint8(200)),
            ("bool", c_bool(True)),
            ("float32", c_float(0.5)),
            ("float64", c_double(0.1)),
        ],
    )
    def test_to_tensor(self, handles: Handles, dtype: str, argument: object) -> None:
        tensor = handles.make(f"scalar_to_tensor_{dtype}", argument)
        assert dims("get_sizes", tensor) == []
        assert elements(dtype, tensor) == [argument.value]


def test_modes() -> None:
    assert not call("grad_mode_is_enabled")
    call("grad_mode_set_enabled", True)
    assert not call("grad_mode_is_enabled")


def test_sharing(handles: Handles) -> None:
    tensor = handles.tensor("int32", [1], [1])
    for name in ("new_tensor_handle", "assign_tensors_out"):
        other = handles.make(name, tensor)
        assert other.value != tensor.value
        assert pointer(other) == pointer(tensor)


def test_what_is_refused() -> None:
    result = c_void_p()
    bad = [
        (c_int64(1), int64s([1]), int64s([1]), 9, 0, -1),  # complex64
        (c_int64(1), int64s([1]), int64s([1]), 6, 1, 0),  # CUDA
        (c_int64(1), int64s([-1]), int64s([1]), 6, 0, -1),
        (c_int64(2), int64s([2**40, 2**40]), int64s([2**40, 1]), 6, 0, -1),
        (c_int64(-1), int64s([]), int64s([]), 6, 0, -1),
    ]
    for arguments in bad:
        assert call("empty_strided", *arguments, byref(result)) == 1
        assert result.value is None
