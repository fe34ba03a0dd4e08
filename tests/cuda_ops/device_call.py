"""Calls GPU operator shims as generated code does, on whatever driver the process uses.

Operands are host tensors of torch: they are copied to the device with their strides, and back after
the call, so that results written in place are seen. torch itself needs no GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from cudaexec import _core
from ops.shim_call import BY_CODE, DTYPES, I64P, Call, library

cuda = _core._testing.cuda


def element_span(tensor: torch.Tensor) -> int:
    """Elements from the first to the last one, inclusive."""
    if tensor.numel() == 0:
        return 0
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * step for size, step in pairs)


class DeviceMemory:
    """Bytes of the device's pool."""

    def __init__(self, world: World, nbytes: int) -> None:
        self.world = world
        self.nbytes = max(nbytes, 1)
        self.address = world.allocator.allocate(self.nbytes, world.stream)

    def free(self) -> None:
        self.world.allocator.deallocate(self.address, self.nbytes, self.world.stream)


class World:
    """A device, a stream on it, and calls of shims in their order."""

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self.owner = cuda.Stream(index)
        self.stream = self.owner.handle
        self.allocator = cuda.Allocator("pool", index)
        # Over the fake driver: threads that stopped at a failed check since the last call.
        self.take_traps: Callable[[], int] | None = None

    @property
    def is_gpu(self) -> bool:
        """Whether kernels run on a GPU, not over the fake driver."""
        return self.take_traps is None

    def call(self, name: str, *arguments: Any) -> Any:
        """Results of a shim as host tensors (one, or a tuple). Raises what the shim raised."""
        results = DeviceCall(self, name, arguments).run()
        return results[0] if len(results) == 1 else tuple(results)

    def to_device(self, address: int, host: int, nbytes: int) -> None:
        cuda.copy(self.index, address, self.index, host, -1, nbytes, self.stream)

    def to_host(self, host: int, address: int, nbytes: int) -> None:
        cuda.copy(self.index, host, -1, address, self.index, nbytes, self.stream)
        cuda.synchronize(self.index, self.stream)

    def close(self) -> None:
        cuda.synchronize(self.index, self.stream)
        del self.owner


class DeviceCall(Call):
    """A call on the stream of a world."""

    prefix = "aoti_torch_cuda_"

    def __init__(self, world: World, name: str, arguments: tuple[Any, ...]) -> None:
        self.world = world
        self.memory: list[tuple[DeviceMemory, torch.UntypedStorage]] = []
        scope = self.scope()  # handles of device memory are made inside of runs
        try:
            super().__init__(name, arguments)
        finally:
            del scope

    def scope(self) -> Any:
        return _core._ops_misc.Scope(self.world.index, self.world.stream)

    def new_handle(self, tensor: torch.Tensor) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        rank = tensor.dim()
        code = library().aoti_torch_create_tensor_from_blob_v2(
            ctypes.c_void_p(self.address_of(tensor)),
            ctypes.c_int64(rank),
            (ctypes.c_int64 * max(rank, 1))(*tensor.shape),
            (ctypes.c_int64 * max(rank, 1))(*tensor.stride()),
            ctypes.c_int64(0),
            ctypes.c_int32(DTYPES[tensor.dtype]),
            ctypes.c_int32(1),
            ctypes.c_int32(self.world.index),
            ctypes.byref(handle),
            ctypes.c_int32(0),
            None,
            ctypes.c_int64(0),
        )
        assert code == 0
        return handle

    def address_of(self, tensor: torch.Tensor) -> int:
        """Where the tensor is in a copy of its storage on the device: views share it."""
        storage = tensor.untyped_storage()
        offset = tensor.storage_offset() * tensor.element_size()
        for memory, known in self.memory:
            if known.data_ptr() == storage.data_ptr() and storage.nbytes() > 0:
                return memory.address + offset
        memory = DeviceMemory(self.world, storage.nbytes())
        self.memory.append((memory, storage))
        if storage.nbytes() > 0:
            self.world.to_device(memory.address, storage.data_ptr(), storage.nbytes())
        return memory.address + offset

    def fetch(self, result: ctypes.c_void_p) -> torch.Tensor:
        lib = library()
        rank, dtype, kind = ctypes.c_int64(), ctypes.c_int32(), ctypes.c_int32()
        sizes, strides, data = I64P(), I64P(), ctypes.c_void_p()
        lib.aoti_torch_get_dim(result, ctypes.byref(rank))
        lib.aoti_torch_get_sizes(result, ctypes.byref(sizes))
        lib.aoti_torch_get_strides(result, ctypes.byref(strides))
        lib.aoti_torch_get_dtype(result, ctypes.byref(dtype))
        lib.aoti_torch_get_data_ptr(result, ctypes.byref(data))
        lib.aoti_torch_get_device_type(result, ctypes.byref(kind))
        assert kind.value == 1
        host = torch.empty_strided(
            sizes[: rank.value], strides[: rank.value], dtype=BY_CODE[dtype.value]
        )
        span = element_span(host) * host.element_size()
        if span > 0:
            self.world.to_host(host.data_ptr(), data.value or 0, span)
        return host

    def read_back(self) -> None:
        """Copies the operands' memory to the host tensors that they were given as."""
        for memory, storage in self.memory:
            if storage.nbytes() > 0:
                self.world.to_host(storage.data_ptr(), memory.address, storage.nbytes())

    def run(self) -> list[torch.Tensor]:
        with self:
            results = super().run()
            self.read_back()
            return results

    def __enter__(self) -> DeviceCall:
        return self

    def __exit__(self, *_: object) -> None:
        self.delete_handles()
        for memory, _ in self.memory:
            memory.free()
        self.memory.clear()
