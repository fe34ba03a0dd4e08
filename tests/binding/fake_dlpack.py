"""DLPack producers made by hand, so that every field can be set, also to nonsense."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np

CODES = {"i": 0, "u": 1, "f": 2, "b": 6}


class DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class DLManagedTensor(ctypes.Structure):
    _fields_ = [("dl_tensor", DLTensor), ("ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class DLVersion(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)]


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [
        ("version", DLVersion),
        ("ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", DLTensor),
    ]


_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype = ctypes.c_char_p
_name.argtypes = [ctypes.py_object]
_owners: weakref.WeakValueDictionary[int, Producer] = weakref.WeakValueDictionary()


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _deleter(pointer: int) -> None:
    """The deleter of all of them: one of a producer's own would be freed in the middle of itself."""
    owner = _owners.pop(pointer, None)
    if owner is not None:
        owner._delete(pointer)


class Producer:
    """An object with `__dlpack__` over a numpy array.

    `versioned`: answers `max_version` with a versioned capsule; else it does not know that argument, as libraries
    of DLPack 0.x. `fields` overrides fields of the DLTensor. `deleted` counts calls of the deleter.
    """

    def __init__(
        self,
        array: np.ndarray,
        *,
        versioned: bool = True,
        version: tuple[int, int] = (1, 0),
        flags: int = 0,
        **fields: Any,
    ) -> None:
        self.array = array
        self.version = version
        self.flags = flags
        self.fields = fields
        self.deleted = 0
        self.exported = 0
        self._kept = self  # until the garbage collector comes: consumers may have a capsule only
        self._alive: list[Any] = []
        if versioned:
            self.__dict__["_answer"] = self._versioned

    def _delete(self, _pointer: int) -> None:
        self.deleted += 1

    def _fill(self, tensor: DLTensor) -> None:
        rank = self.array.ndim
        shape = (ctypes.c_int64 * rank)(*self.fields.get("shape", self.array.shape))
        strides = (ctypes.c_int64 * rank)(
            *(stride // self.array.itemsize for stride in self.array.strides)
        )
        self._alive += [shape, strides]
        tensor.data = self.fields.get("data", self.array.ctypes.data)
        tensor.device = DLDevice(*self.fields.get("device", (1, 0)))
        tensor.ndim = self.fields.get("ndim", rank)
        code = CODES.get(self.array.dtype.kind, 3)
        tensor.dtype = DLDataType(*self.fields.get("dtype", (code, self.array.itemsize * 8, 1)))
        tensor.shape = shape
        tensor.strides = None if self.fields.get("no_strides") else strides
        tensor.byte_offset = self.fields.get("byte_offset", 0)

    def _legacy(self) -> Any:
        self.exported += 1
        managed = DLManagedTensor()
        self._fill(managed.dl_tensor)
        managed.deleter = ctypes.cast(_deleter, ctypes.c_void_p)
        self._alive.append(managed)
        _owners[ctypes.addressof(managed)] = self
        return _new(ctypes.addressof(managed), b"dltensor", None)

    def _versioned(self) -> Any:
        self.exported += 1
        managed = DLManagedTensorVersioned()
        managed.version = DLVersion(*self.version)
        managed.flags = self.flags
        self._fill(managed.dl_tensor)
        managed.deleter = ctypes.cast(_deleter, ctypes.c_void_p)
        self._alive.append(managed)
        _owners[ctypes.addressof(managed)] = self
        return _new(ctypes.addressof(managed), b"dltensor_versioned", None)

    def __dlpack__(self, **options: Any) -> Any:
        if "_answer" not in self.__dict__:
            if options:
                raise TypeError("__dlpack__() got an unexpected keyword argument")
            return self._legacy()
        return self._answer() if options.get("max_version") else self._legacy()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.fields.get("device", (1, 0))


def capsule_name(capsule: Any) -> str:
    return _name(capsule).decode()


def read_capsule(capsule: Any) -> DLManagedTensorVersioned | DLManagedTensor:
    """The struct inside a capsule that nobody has consumed."""
    name = _name(capsule)
    kind = DLManagedTensorVersioned if name == b"dltensor_versioned" else DLManagedTensor
    return kind.from_address(_pointer(capsule, name))
