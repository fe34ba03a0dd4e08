"""The weights set of a program: one entry per storage, whatever the number of names and methods."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from cudaexec.export.aoti_compile import ConstantInfo
from cudaexec.export.dtypes import DTYPE_NAMES, dtype_name
from cudaexec.export.errors import ExportError
from cudaexec.export.manifest import blob_digest, storage_key

_DEVICES = ("cuda", "cpu")


@dataclass
class Entry:
    """One stored blob: the whole storage of the tensor `fqn`, for the memory of `device`."""

    key: str
    fqn: str
    tensor: torch.Tensor
    nbytes: int
    device: str
    digest: str = ""

    def data(self) -> memoryview:
        """Return the bytes, without a copy; valid while the entry lives."""
        return storage_bytes(self.tensor)


@dataclass
class WeightsTable:
    """All weights of a program.

    Attributes:
        entries: by storage key, in the order of first use.
        aliases: FQN to the FQN that it is the very same view as.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    _by_storage: dict[Any, Entry] = field(default_factory=dict)
    _by_fqn: dict[str, tuple[str, torch.Tensor, Entry]] = field(default_factory=dict)

    def add_constant(
        self, method: str, info: ConstantInfo, tensor: torch.Tensor, *, owned: bool
    ) -> dict[str, Any]:
        """Take in a container's constant.

        Args:
            method: for messages.
            info: from the generated code.
            tensor: its value, in host memory.
            owned: the FQN is the module's own; another constant's name is one that tracing made up,
                which gets the method's name where it already stands for something else.

        Returns:
            The manifest entry, without `mutated` and `kv`.

        Raises:
            ExportError: a tensor that cannot be stored, or an FQN that stands for other bytes in
                another method.
        """
        _check_tensor(method, info.fqn, tensor)
        if tuple(tensor.shape) != info.shape or tuple(tensor.stride()) != info.strides:
            raise ExportError(
                f"method {method!r}, constant {info.fqn!r}: the generated code expects sizes "
                f"{list(info.shape)} and strides {list(info.strides)}, the model has "
                f"{list(tensor.shape)} and {list(tensor.stride())}"
            )
        fqn = info.fqn if owned else self._free_name(method, info.fqn, tensor)
        entry = self._entry(method, fqn, tensor, info.device)
        return {
            "name": info.name,
            "fqn": fqn,
            "storage_key": entry.key,
            "dtype": dtype_name(tensor.dtype),
            "shape": list(tensor.shape),
            "strides": list(tensor.stride()),
            "offset": tensor.storage_offset(),
            "device": info.device,
        }

    def _free_name(self, method: str, fqn: str, tensor: torch.Tensor) -> str:
        known = self._by_fqn.get(fqn)
        if known is None or _equal(known[1], tensor):
            return fqn
        return f"{method}:{fqn}"

    def add_aliases(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Note further names of stored tensors (tied weights)."""
        for fqn, tensor in tensors:
            if fqn in self._by_fqn or fqn in self.aliases or tensor.numel() == 0:
                continue
            entries = [self._by_storage.get((kind, _storage_id(tensor))) for kind in _DEVICES]
            entry = next((item for item in entries if item is not None), None)
            if entry is None:
                continue
            for other, (_, known, owner) in self._by_fqn.items():
                if owner is entry and _same_view(known, tensor):
                    self.aliases[fqn] = self.aliases.get(other, other)
                    break

    def compute_digests(self, threads: int) -> None:
        """Hash every blob; reads all weights once."""
        for entry in self.entries.values():
            entry.digest = blob_digest(entry.data(), threads)

    def _entry(self, method: str, fqn: str, tensor: torch.Tensor, device: str) -> Entry:
        known = self._by_fqn.get(fqn)
        if known is not None:
            other, before, entry = known
            if entry.device != device:
                raise ExportError(
                    f"constant {fqn!r} is on {entry.device} in method {other!r} and on {device} in "
                    f"{method!r}; methods of one file share weights by name"
                )
            if _storage_id(before) != _storage_id(tensor) or not _same_view(before, tensor):
                _check_equal(fqn, other, before, method, tensor)
            return entry
        empty = not tensor.untyped_storage().nbytes()
        storage = (device, ("empty", fqn) if empty else _storage_id(tensor))
        found = self._by_storage.get(storage)
        if found is None:
            key = storage_key(device, fqn)
            found = Entry(key, fqn, tensor, tensor.untyped_storage().nbytes(), device)
            self._by_storage[storage] = found
            self.entries[key] = found
        else:
            for other, (_, before, owner) in self._by_fqn.items():
                if owner is found and _same_view(before, tensor):
                    self.aliases[fqn] = self.aliases.get(other, other)
                    break
        self._by_fqn[fqn] = (method, tensor, found)
        return found


def storage_bytes(tensor: torch.Tensor) -> memoryview:
    """Return the whole storage of a CPU tensor as bytes, without a copy."""
    storage = tensor.untyped_storage()
    nbytes = storage.nbytes()
    if nbytes == 0:
        return memoryview(b"")
    array = (ctypes.c_ubyte * nbytes).from_address(storage.data_ptr())
    array._owner = storage
    return memoryview(array).cast("B")


def _storage_id(tensor: torch.Tensor) -> Any:
    storage = tensor.untyped_storage()
    return (storage.data_ptr(), storage.nbytes())


def _same_view(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(
        a.dtype == b.dtype
        and a.shape == b.shape
        and a.stride() == b.stride()
        and a.storage_offset() == b.storage_offset()
    )


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return _same_view(a, b) and storage_bytes(a) == storage_bytes(b)


def _check_equal(
    fqn: str, method: str, tensor: torch.Tensor, other: str, other_tensor: torch.Tensor
) -> None:
    if _equal(tensor, other_tensor):
        return
    raise ExportError(
        f"constant {fqn!r} is not the same in methods {method!r} and {other!r}: "
        f"{_describe(tensor)} and {_describe(other_tensor)}. Methods of one file share weights by "
        f"name: export them from the same module, or rename one."
    )


def _describe(tensor: torch.Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    head = tensor.detach().flatten()[:4].tolist()
    return f"{dtype} {list(tensor.shape)} with values {head}..."


def _check_tensor(method: str, fqn: str, tensor: torch.Tensor) -> None:
    where = f"method {method!r}, constant {fqn!r}"
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        raise ExportError(
            f"{where}: a tensor of class {type(tensor).__name__} cannot be stored; expected a "
            f"plain tensor. Convert quantised or wrapped weights to plain tensors first."
        )
    if tensor.dtype not in DTYPE_NAMES or tensor.layout != torch.strided:
        dtype = str(tensor.dtype).removeprefix("torch.")
        raise ExportError(
            f"{where}: dtype {dtype}, layout {tensor.layout} cannot be stored; expected a dense "
            f"tensor of {', '.join(DTYPE_NAMES.values())}"
        )
    if tensor.device.type != "cpu":
        raise ExportError(
            f"{where}: it is on {tensor.device}, expected the CPU for target 'cpu'. Move the model "
            f"with model.to('cpu') before exporting."
        )
