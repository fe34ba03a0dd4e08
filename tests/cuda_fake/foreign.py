"""Arrays of other libraries in the memory of the fake GPU, one class per protocol.

Each orders its memory on a stream of its own, as a library would: bytes are copied there, and memory is
freed there. The fake does work only when something waits for it, so a consumer that forgets to follow that
stream reads zeros, and one that is not followed reads poisoned memory.
"""

from __future__ import annotations

import ctypes
import sys
import types
import weakref
from typing import Any, ClassVar

import numpy as np
import pytest

from binding.fake_dlpack import (
    CODES,
    DLDataType,
    DLDevice,
    DLManagedTensorVersioned,
    DLTensor,
    Producer,
)
from cuda_fake.fake import FakeDriver
from cudaexec._core import _testing

cuda = _testing.cuda
CPU = -1
LEGACY, PER_THREAD = 1, 2


class Memory:
    """A copy of `array` on GPU `index`, made and freed on `stream` (a handle)."""

    alive: ClassVar[weakref.WeakSet[Memory]] = weakref.WeakSet()

    def __init__(self, array: np.ndarray, index: int = 0, stream: int = LEGACY) -> None:
        self.array = np.ascontiguousarray(array)
        self.alive.add(self)
        self.index = index
        self.stream = stream
        self.pool = cuda.Allocator("pool", index)
        self.nbytes = max(1, self.array.nbytes)
        self.address = self.pool.allocate(self.nbytes, stream)
        source = self.array.ctypes.data
        cuda.copy(index, self.address, index, source, CPU, self.array.nbytes, stream)

    def free(self) -> None:
        if self.address:
            self.pool.deallocate(self.address, self.nbytes, self.stream)
        self.address = 0

    __del__ = free

    @classmethod
    def free_all(cls) -> None:
        for tensor in list(Library.alive):
            tensor.close()
        for memory in list(cls.alive):
            memory.free()


class CudaArray:
    """An object with `__cuda_array_interface__` and nothing else; `changes` override its entries."""

    def __init__(self, memory: Memory, **changes: Any) -> None:
        self.memory = memory
        self.changes = changes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        array = self.memory.array
        found = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (self.memory.address, False),
            "version": 3,
            "strides": None,
            "stream": self.memory.stream,
        } | self.changes
        return {key: value for key, value in found.items() if value != "absent"}


class CudaProducer(Producer):
    """An object with `__dlpack__` on a GPU, which hands over to the consumer's stream."""

    outstanding: ClassVar[list[CudaProducer]] = []  # what was handed out keeps its producer

    def __init__(self, memory: Memory, *, device: tuple[int, int] = (2, 0), **options: Any) -> None:
        super().__init__(memory.array, device=device, data=memory.address, **options)
        self.memory = memory
        self.streams: list[Any] = []

    def __dlpack__(self, **options: Any) -> Any:
        stream = options.pop("stream", "absent")
        self.streams.append(stream)
        if isinstance(stream, int) and stream > 0:
            cuda.order(self.memory.index, stream, self.memory.index, self.memory.stream)
        self.outstanding.append(self)
        return super().__dlpack__(**options)

    def _delete(self, pointer: int) -> None:
        super()._delete(pointer)
        self.outstanding.remove(self)


_FROM = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.POINTER(DLManagedTensorVersioned))
)
_TO = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(DLManagedTensorVersioned), ctypes.POINTER(ctypes.c_void_p)
)
_VIEW = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))
_STREAM = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)
_ALLOCATE = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(DLTensor),
    ctypes.POINTER(ctypes.POINTER(DLManagedTensorVersioned)), ctypes.c_void_p, ctypes.c_void_p,
)  # fmt: skip
_DELETE = ctypes.PYFUNCTYPE(None, ctypes.POINTER(DLManagedTensorVersioned))


class Table(ctypes.Structure):
    """DLPackExchangeApi"""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", _ALLOCATE),
        ("from_object", _FROM),
        ("to_object", _TO),
        ("view", _VIEW),
        ("stream", _STREAM),
    ]


_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def table_of(tensor_type: Any) -> Table:
    """The table of C functions of a tensor type."""
    capsule = tensor_type.__dlpack_c_exchange_api__
    return Table.from_address(_pointer(capsule, b"dlpack_exchange_api"))


class Library:
    """A stand-in for torch on GPUs: tensors with a table of C functions, and a current stream.

    `Tensor(array, index)` copies an array to GPU `index`, or keeps it on the host for None.
    """

    alive: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()  # tensors

    def __init__(self, *, borrows: bool = True) -> None:
        self.current: dict[int, int] = {}
        self.asked: list[int] = []
        self._kept: list[Any] = []
        library = self

        class Tensor:
            def __init__(self, array: np.ndarray, index: int | None = 0) -> None:
                self.array = np.ascontiguousarray(array)
                self.index = index
                stream = library.current.get(index or 0, 0)
                self.memory = None if index is None else Memory(array, index, stream)
                self.given: Any = None

            def is_neg(self) -> bool:
                return False

            def close(self) -> None:
                """Lets go of memory that came from somebody else."""
                if self.given is not None:
                    deleter = ctypes.cast(self.given.contents.deleter, _DELETE)
                    given, self.given = self.given, None
                    deleter(given)

            __del__ = close

        self.Tensor = Tensor
        self.table = Table(
            1, 1, None, _ALLOCATE(), _FROM(self._from), _TO(self._to),
            _VIEW(self._view) if borrows else _VIEW(), _STREAM(self._stream),
        )  # fmt: skip
        Tensor.__dlpack_c_exchange_api__ = _capsule(
            ctypes.addressof(self.table), b"dlpack_exchange_api", None
        )

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Makes this what `torch` is in `sys.modules`."""
        module = types.ModuleType("torch")
        module.Tensor = self.Tensor  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "torch", module)

    def _describe(self, tensor: Any, out: DLTensor) -> None:
        array = tensor.array
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        strides = (ctypes.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))
        tensor.kept = (shape, strides)
        gpu = tensor.memory is not None
        out.data = tensor.memory.address if gpu else array.ctypes.data
        out.device = DLDevice(2, tensor.index) if gpu else DLDevice(1, 0)
        out.ndim = array.ndim
        out.dtype = DLDataType(CODES[array.dtype.kind], array.itemsize * 8, 1)
        out.shape = shape
        out.strides = strides
        out.byte_offset = 0

    def _view(self, tensor: Any, out: Any) -> int:
        self._describe(tensor, out.contents)
        return 0

    def _from(self, tensor: Any, out: Any) -> int:
        managed = DLManagedTensorVersioned()
        managed.version.major, managed.version.minor = 1, 1
        self._describe(tensor, managed.dl_tensor)
        self._kept.append(managed)
        out[0] = ctypes.pointer(managed)
        return 0

    def _to(self, managed: Any, out: Any) -> int:
        tensor = self.Tensor.__new__(self.Tensor)
        described = managed.contents.dl_tensor
        tensor.given = ctypes.pointer(managed.contents)
        self.alive.add(tensor)
        tensor.shape = tuple(described.shape[i] for i in range(described.ndim))
        tensor.strides = tuple(described.strides[i] for i in range(described.ndim))
        tensor.device = (described.device.device_type, described.device.device_id)
        tensor.data = described.data
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(tensor))
        out[0] = id(tensor)
        return 0

    def _stream(self, device_type: int, index: int, out: Any) -> int:
        assert device_type == 2
        self.asked.append(index)
        out[0] = self.current.get(index, 0)
        return 0


def fetch(address: int, like: np.ndarray, stream: int, index: int = 0) -> np.ndarray:
    """What a reader on `stream` sees at `address`."""
    array = np.empty_like(like)
    cuda.copy(index, array.ctypes.data, CPU, address, index, array.nbytes, stream)
    cuda.synchronize(index, stream)
    return array


def waits(fake: FakeDriver) -> list[str]:
    """Calls so far in which the host waited."""
    return fake.calls("cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize")
