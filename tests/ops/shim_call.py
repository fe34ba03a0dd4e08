"""Calls operator shims as generated code does: with handles, through the C interface.

Signatures are read from torch's own header (of our own operators, from what export tells Inductor),
so a shim with another signature cannot pass.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import cudaexec
from cudaexec import _core
from cudaexec.export.kv_op import C_DECLARATIONS

I64P = ctypes.POINTER(ctypes.c_int64)

DTYPES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.bool: 11,
    torch.bfloat16: 15,
}
BY_CODE = {code: dtype for dtype, code in DTYPES.items()}
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@functools.cache
def library() -> ctypes.CDLL:
    directory = Path(cudaexec.__file__).parent / "lib"
    core = Path(_core.__file__).parent / "lib"
    for folder in (core, directory):
        path = folder / "libcudaexec_shims.so.1"
        if path.exists():
            return ctypes.CDLL(str(path))
    raise FileNotFoundError(f"no libcudaexec_shims.so.1 in {core}")


@functools.cache
def signatures() -> dict[str, list[tuple[str, str]]]:
    """Parameters (type, name) of every function of torch's C shim headers."""
    root = Path(torch.__file__).parent / "include/torch/csrc/inductor/aoti_torch"
    headers = ("generated/c_shim_cpu.h", "generated/c_shim_cuda.h", "c/shim.h")
    text = "".join((root / header).read_text() for header in headers)
    text += "".join(f"AOTI_TORCH_EXPORT {declaration}\n" for declaration in C_DECLARATIONS)
    text = re.sub(r"//[^\n]*", "", text)
    found = {}
    for name, parameters in re.findall(
        r"AOTI_TORCH_EXPORT\s+AOTITorchError\s+(\w+)\s*\(([^)]*)\)", text
    ):
        pairs = []
        for parameter in filter(None, (p.strip() for p in parameters.split(","))):
            kind, _, label = parameter.rpartition(" ")
            stars = len(label) - len(label.lstrip("*"))
            pairs.append((re.sub(r"\s+", " ", kind) + "*" * stars, label.lstrip("*")))
        found[name] = pairs
    return found


def new_handle(tensor: torch.Tensor) -> ctypes.c_void_p:
    """A handle over the tensor's memory, which has to stay alive."""
    handle = ctypes.c_void_p()
    rank = tensor.dim()
    sizes = (ctypes.c_int64 * max(rank, 1))(*tensor.shape)
    strides = (ctypes.c_int64 * max(rank, 1))(*tensor.stride())
    code = library().aoti_torch_create_tensor_from_blob_v2(
        ctypes.c_void_p(tensor.data_ptr()),
        ctypes.c_int64(rank),
        sizes,
        strides,
        ctypes.c_int64(0),
        ctypes.c_int32(DTYPES[tensor.dtype]),
        ctypes.c_int32(0),
        ctypes.c_int32(0),
        ctypes.byref(handle),
        ctypes.c_int32(0),
        None,
        ctypes.c_int64(0),
    )
    assert code == 0
    return handle


def delete_handle(handle: ctypes.c_void_p) -> None:
    library().aoti_torch_delete_tensor_object(handle)


def to_torch(handle: ctypes.c_void_p) -> torch.Tensor:
    """A copy of the handle's elements with the same strides."""
    lib = library()
    rank = ctypes.c_int64()
    sizes, strides, data = I64P(), I64P(), ctypes.c_void_p()
    dtype = ctypes.c_int32()
    lib.aoti_torch_get_dim(handle, ctypes.byref(rank))
    lib.aoti_torch_get_sizes(handle, ctypes.byref(sizes))
    lib.aoti_torch_get_strides(handle, ctypes.byref(strides))
    lib.aoti_torch_get_dtype(handle, ctypes.byref(dtype))
    lib.aoti_torch_get_data_ptr(handle, ctypes.byref(data))
    shape = sizes[: rank.value]
    steps = strides[: rank.value]
    kind = BY_CODE[dtype.value]
    if 0 in shape:
        return torch.empty_strided(shape, steps, dtype=kind)
    extent = 1 + sum((size - 1) * step for size, step in zip(shape, steps, strict=True))
    nbytes = extent * torch.empty((), dtype=kind).element_size()
    raw = bytearray((ctypes.c_char * nbytes).from_address(data.value or 0))
    return torch.frombuffer(raw, dtype=kind).as_strided(shape, steps)


OLD_TORCH = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)


class Call:
    """One call: turns Python arguments into C ones by the header's types."""

    prefix = "aoti_torch_cpu_"

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name = name if name.startswith("aoti_") else f"{self.prefix}{name}"
        self.keep: list[Any] = []
        self.handles: list[ctypes.c_void_p] = []
        self.results: list[ctypes.c_void_p] = []
        self.c_arguments: list[Any] = []
        values: Iterator[Any] = iter(arguments)
        if self.name not in signatures() and OLD_TORCH:
            pytest.skip(f"torch {torch.__version__} has no {self.name}")
        parameters = iter(signatures()[self.name])
        for kind, label in parameters:
            if label.startswith("ret"):
                result = ctypes.c_void_p()
                self.results.append(result)
                self.c_arguments.append(ctypes.byref(result))
            elif label.endswith("_len_") or label == "num_indices":
                continue  # given with the list before it
            elif label == "device_index_":
                self.c_arguments.append(ctypes.c_int32(0))
            elif label in ("layout", "pin_memory", "generator"):
                self.c_arguments.append(None)
            else:
                self.c_arguments += self.convert(kind, next(values))
        assert next(values, None) is None, "more arguments than parameters"

    def handle(self, tensor: torch.Tensor) -> ctypes.c_void_p:
        self.keep.append(tensor)
        self.handles.append(self.new_handle(tensor))
        return self.handles[-1]

    def new_handle(self, tensor: torch.Tensor) -> ctypes.c_void_p:
        return new_handle(tensor)

    def scope(self) -> Any:
        return _core._ops_misc.Scope()

    def fetch(self, result: ctypes.c_void_p) -> torch.Tensor:
        return to_torch(result)

    def pointer(self, value: Any) -> Any:
        self.keep.append(value)
        return ctypes.byref(value)

    def array(self, kind: Any, values: list[Any]) -> Any:
        self.keep.append((kind * max(len(values), 1))(*values))
        return self.keep[-1]

    def convert(self, kind: str, value: Any) -> list[Any]:
        plain = kind.replace("const ", "")
        if plain == "AtenTensorHandle":
            return [self.handle(value)]
        if plain == "AtenTensorHandle*" and isinstance(value, list):
            handles = [None if t is None else self.handle(t) for t in value]
            count = ctypes.c_uint32 if "index_put_out" in self.name else ctypes.c_int64
            return [self.array(ctypes.c_void_p, handles), count(len(value))]
        if plain == "AtenTensorHandle**":
            pointers = [
                None if t is None else ctypes.cast(self.pointer(self.handle(t)), ctypes.c_void_p)
                for t in value
            ]
            return [self.array(ctypes.c_void_p, pointers), ctypes.c_int64(len(value))]
        if value is None:
            return [None, ctypes.c_int64(0)] if plain == "double**" else [None]
        if plain == "AtenTensorHandle*":
            return [self.pointer(self.handle(value))]
        if plain == "double**":
            array = self.array(ctypes.c_double, value)
            return [
                self.pointer(ctypes.cast(array, ctypes.c_void_p)),
                ctypes.c_int64(len(value)),
            ]
        if plain == "int64_t*" and isinstance(value, (list, tuple)):
            return [self.array(ctypes.c_int64, list(value)), ctypes.c_int64(len(value))]
        scalars = {
            "int64_t": ctypes.c_int64,
            "int32_t": ctypes.c_int32,
            "uint32_t": ctypes.c_uint32,
            "double": ctypes.c_double,
            "bool": ctypes.c_bool,
        }
        if isinstance(value, torch.dtype):
            value = DTYPES[value]
        if plain in scalars:
            return [scalars[plain](value)]
        if plain == "char*":
            return [ctypes.c_char_p(value.encode())]
        if plain == "char**":
            return [self.pointer(ctypes.c_char_p(value.encode()))]
        if plain.rstrip("*") in scalars:
            return [self.pointer(scalars[plain.rstrip("*")](value))]
        raise TypeError(f"{self.name}: no conversion to {kind}")

    def run(self) -> list[torch.Tensor]:
        try:
            self.enqueue()
            return [self.fetch(result) for result in self.results]
        finally:
            self.delete_handles()

    def enqueue(self) -> None:
        """Calls the shim; raises what it raised."""
        scope = self.scope()
        try:
            code = getattr(library(), self.name)(*self.c_arguments)
            scope.check()
            assert code == 0
        finally:
            del scope

    def delete_handles(self) -> None:
        for handle in self.handles + self.results:
            if handle.value:
                delete_handle(handle)
        self.handles.clear()
        self.results.clear()


def call(name: str, *arguments: Any) -> Any:
    """Results of a shim as torch tensors (one, or a tuple). Raises what the shim raised.

    Factory arguments layout, pin_memory, device index and generator are left out.
    """
    results = Call(name, arguments).run()
    return results[0] if len(results) == 1 else tuple(results)


def same_layout(ours: torch.Tensor, expected: torch.Tensor) -> None:
    """Dtype, sizes and strides agree; strides of sizes 1 and of empty tensors do not matter."""
    assert ours.dtype == expected.dtype
    assert ours.shape == expected.shape
    if ours.numel() > 0:
        for size, a, b in zip(ours.shape, ours.stride(), expected.stride(), strict=True):
            assert size == 1 or a == b, f"strides {ours.stride()}, torch has {expected.stride()}"


def same(ours: Any, expected: Any, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Layout and values agree; exactly, unless a tolerance is given."""
    if isinstance(expected, (tuple, list)):
        assert len(ours) == len(expected)
        for a, b in zip(ours, expected, strict=True):
            same(a, b, rtol, atol)
        return
    same_layout(ours, expected)
    torch.testing.assert_close(ours, expected, rtol=rtol, atol=atol, equal_nan=True)


def layouts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The same values in other memory layouts: packed, permuted, with gaps, channels last."""
    found = [tensor.contiguous()]
    rank = tensor.dim()
    if rank >= 2:
        order = list(reversed(range(rank)))
        found.append(tensor.permute(order).contiguous().permute(order))
        shifted = [*range(1, rank), 0]
        back = [rank - 1, *range(rank - 1)]
        found.append(tensor.permute(shifted).contiguous().permute(back))
    if rank >= 1:
        wide = torch.zeros([2 * size for size in tensor.shape], dtype=tensor.dtype)
        gaps = wide[tuple(slice(size) for size in tensor.shape)]
        gaps.copy_(tensor)
        found.append(gaps)
    if rank == 4:
        found.append(tensor.contiguous(memory_format=torch.channels_last))
    if rank == 5:
        found.append(tensor.contiguous(memory_format=torch.channels_last_3d))
    return found


def sample(shape: list[int] | tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Random values with ties, negative where the dtype allows it."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if dtype.is_floating_point:
        values = torch.randn(shape, generator=generator)
        return ((values * 8).round() / 8).to(dtype)
    low = 0 if dtype == torch.uint8 else -20
    return torch.randint(low, 20, list(shape), generator=generator).to(dtype)
