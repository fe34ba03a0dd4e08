"""Flatbuffers by table and field name, over the tables of `slots`."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import flatbuffers

from cudaexec.export.slots import Fields

_ADD = {
    "offset": "PrependUOffsetTRelativeSlot",
    "bool": "PrependBoolSlot",
    "int8": "PrependInt8Slot",
    "uint8": "PrependUint8Slot",
    "int32": "PrependInt32Slot",
    "uint32": "PrependUint32Slot",
    "int64": "PrependInt64Slot",
    "uint64": "PrependUint64Slot",
    "double": "PrependFloat64Slot",
}


class FlatbufferBuilder:
    """Builds one buffer bottom-up: every method returns the position of what it added."""

    def __init__(self, tables: Mapping[str, Fields]) -> None:
        self._tables = tables
        self._builder: Any = flatbuffers.Builder(4096)

    def string(self, text: str) -> int:
        """Add a UTF-8 string."""
        return int(self._builder.CreateString(text))

    def byte_vector(self, data: bytes) -> int:
        """Add a vector of bytes."""
        return int(self._builder.CreateByteVector(data))

    def int32s(self, items: Sequence[int]) -> int:
        """Add a vector of int32. Raises OverflowError or struct.error if one does not fit."""
        return self._vector(items, 4, self._builder.PrependInt32)

    def int64s(self, items: Sequence[int]) -> int:
        """Add a vector of int64."""
        return self._vector(items, 8, self._builder.PrependInt64)

    def uint64s(self, items: Sequence[int]) -> int:
        """Add a vector of uint64."""
        return self._vector(items, 8, self._builder.PrependUint64)

    def positions(self, items: Sequence[int]) -> int:
        """Add a vector of tables or strings, given by their positions."""
        return self._vector(items, 4, self._builder.PrependUOffsetTRelative)

    def _vector(self, items: Sequence[int], width: int, prepend: Any) -> int:
        self._builder.StartVector(width, len(items), width)
        for item in reversed(items):
            prepend(item)
        return int(self._builder.EndVector())

    def table(self, name: str, /, **values: int) -> int:
        """Add a table; fields that are not given keep the schema's default (0, or absent).

        Raises KeyError for a field that the table has not.
        """
        fields = self._tables[name]
        slots = {field: (slot, kind) for slot, (field, kind) in enumerate(fields)}
        self._builder.StartObject(len(fields))
        for field, value in values.items():
            slot, kind = slots[field]
            getattr(self._builder, _ADD[kind])(slot, value, 0)
        return int(self._builder.EndObject())

    def tables(self, positions: Iterable[int]) -> int:
        """Add a vector of tables that an iterable builds on the fly."""
        return self.positions(list(positions))

    def finish(self, root: int, identifier: bytes, header: bytes) -> bytes:
        """End the buffer, with `header` inserted after the file identifier.

        `header` must keep the buffer's alignment: a multiple of 16 bytes long.
        """
        if len(header) % 16 != 0:
            raise ValueError(f"header is {len(header)} bytes long, not a multiple of 16")
        self._builder.Finish(root, file_identifier=identifier)
        raw = bytes(self._builder.Output())
        (offset,) = struct.unpack_from("<I", raw)
        return struct.pack("<I", offset + len(header)) + raw[4:8] + header + raw[8:]
