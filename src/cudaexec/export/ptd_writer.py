"""Writes a data file: weights by storage key."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from cudaexec.export.flatbuffer_builder import FlatbufferBuilder
from cudaexec.export.segments import ContainerImage, SegmentTable, Source, align_up
from cudaexec.export.slots import (
    FLAT_TENSOR_TABLES,
    PTD_HEADER_LENGTH,
    PTD_HEADER_MAGIC,
    PTD_IDENTIFIER,
    SCHEMA_VERSION,
)

_PADDED_HEADER = 48


@dataclass(frozen=True)
class WeightBlob:
    """One entry of a data file.

    data: the bytes, or a callable that gives them (whole or in parts) when they are due, so that a
    large file is never in memory as a whole. digest: the tree hash (`manifest.blob_digest`);
    entries with the same `nbytes` and `digest` are stored once, from the first one's data.
    """

    key: str
    nbytes: int
    data: Source
    digest: str


def build_ptd(entries: Iterable[WeightBlob]) -> ContainerImage:
    """Lay out a data file; write it with `write_to` or take its `chunks()`.

    Raises ValueError for a key that occurs twice.
    """
    segments = SegmentTable()
    indices: dict[str, int] = {}
    for entry in entries:
        if entry.key in indices:
            raise ValueError(f"storage key {entry.key!r} occurs twice")
        indices[entry.key] = segments.add(entry.data, entry.nbytes, (entry.nbytes, entry.digest))

    builder = FlatbufferBuilder(FLAT_TENSOR_TABLES)
    root = builder.table(
        "FlatTensor",
        version=SCHEMA_VERSION,
        segments=builder.tables(
            builder.table("DataSegment", offset=segment.offset, size=segment.nbytes)
            for segment in segments.segments
        ),
        named_data=builder.tables(
            builder.table("NamedData", key=builder.string(key), segment_index=index)
            for key, index in indices.items()
        ),
    )
    head = builder.finish(root, PTD_IDENTIFIER, bytes(_PADDED_HEADER))
    base = align_up(len(head))
    header = PTD_HEADER_MAGIC + struct.pack(
        "<IQQQQ",
        PTD_HEADER_LENGTH,
        _PADDED_HEADER,
        len(head) - _PADDED_HEADER,
        base,
        segments.nbytes,
    )
    head = head[:8] + header + head[8 + len(header) :]
    return ContainerImage(head, base, tuple(segments.segments))
