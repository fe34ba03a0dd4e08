"""The data part of a container: aligned segments, written as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias

from cudaexec.export.slots import SEGMENT_ALIGNMENT

Buffer: TypeAlias = bytes | bytearray | memoryview
Source: TypeAlias = Buffer | Callable[[], Buffer | Iterable[Buffer]]
"""Contiguous bytes, or a callable that gives them, whole or in parts, when they are due."""


def align_up(offset: int, alignment: int = SEGMENT_ALIGNMENT) -> int:
    """Return the smallest multiple of `alignment` that is not below `offset`."""
    return -(-offset // alignment) * alignment


def _byte_view(data: Buffer) -> memoryview:
    view = memoryview(data)
    return view.cast("B") if view.nbytes else memoryview(b"")


@dataclass(frozen=True)
class Segment:
    """One segment: `offset` bytes from the segment base, `nbytes` long."""

    offset: int
    nbytes: int
    source: Source


class SegmentTable:
    """Collects segments; equal content (by the caller's key) is stored once."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self._by_content: dict[object, int] = {}

    @property
    def nbytes(self) -> int:
        """From the segment base to the end of the last segment, which has no padding."""
        return self.segments[-1].offset + self.segments[-1].nbytes if self.segments else 0

    def add(self, source: Source, nbytes: int, content: object = None) -> int:
        """Add a segment and return its index, or that of an earlier one with equal `content`."""
        if content is not None and content in self._by_content:
            return self._by_content[content]
        self.segments.append(Segment(align_up(self.nbytes), nbytes, source))
        index = len(self.segments) - 1
        if content is not None:
            self._by_content[content] = index
        return index


@dataclass(frozen=True)
class ContainerImage:
    """A container ready to be written: the flatbuffer with its header, then the segments."""

    head: bytes
    segment_base: int
    segments: tuple[Segment, ...]

    @property
    def nbytes(self) -> int:
        """Size of the file in bytes."""
        if not self.segments:
            return len(self.head)
        return self.segment_base + self.segments[-1].offset + self.segments[-1].nbytes

    def chunks(self) -> Iterator[Buffer]:
        """Yield the file from first to last byte; a segment's data are asked for when they are due.

        Raises ValueError if a source gives another number of bytes than was announced.
        """
        yield self.head
        position = len(self.head)
        for index, segment in enumerate(self.segments):
            start = self.segment_base + segment.offset
            if start > position:
                yield bytes(start - position)
            written = 0
            for part in _parts(segment.source):
                written += part.nbytes
                yield part
            if written != segment.nbytes:
                raise ValueError(
                    f"segment {index}: source gave {written} bytes, {segment.nbytes} announced"
                )
            position = start + written

    def write_to(self, file: BinaryIO) -> int:
        """Write all chunks to `file` and return the number of bytes."""
        for chunk in self.chunks():
            file.write(chunk)
        return self.nbytes

    def to_bytes(self) -> bytes:
        """Return the whole file (for small ones)."""
        return b"".join(self.chunks())


def _parts(source: Source) -> Iterator[memoryview]:
    data = source() if callable(source) else source
    if isinstance(data, bytes | bytearray | memoryview):
        yield _byte_view(data)
        return
    for part in data:
        yield _byte_view(part)
