"""Writes a program: methods that are one delegate call each, and named data."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cudaexec.export.flatbuffer_builder import FlatbufferBuilder
from cudaexec.export.segments import Buffer, ContainerImage, SegmentTable, align_up
from cudaexec.export.slots import (
    DATA_LOCATION_SEGMENT,
    DEVICE_TYPES,
    DIGEST_KEY,
    INSTRUCTION_DELEGATE_CALL,
    KERNEL_TYPE_TENSOR,
    MANIFEST_KEY,
    PROGRAM_TABLES,
    PTE_HEADER_LENGTH,
    PTE_HEADER_MAGIC,
    PTE_IDENTIFIER,
    SCALAR_TYPES,
    SCHEMA_VERSION,
    SHAPE_DYNAMISM,
)

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class TensorValue:
    """A tensor input or output of a method.

    dtype: a name of docs/format.md. sizes: elements; upper bounds where `dynamism` is "bound", the
    sizes of the example where it is "unbound". dim_order: a permutation of the dimensions,
    outermost first; None is the row-major order.
    """

    dtype: str
    sizes: tuple[int, ...]
    dynamism: str = "static"
    dim_order: tuple[int, ...] | None = None
    device: str = "cpu"
    device_index: int = 0


@dataclass(frozen=True)
class ProgramMethod:
    """A method: one delegate call over its inputs, then its outputs.

    payload: the delegate's bytes (`payload.encode_payload`). `method_name` is added to the compile
    specs; other specs, such as `target_device`, go into `compile_specs`.
    """

    name: str
    inputs: Sequence[TensorValue]
    outputs: Sequence[TensorValue]
    delegate_id: str
    payload: bytes
    compile_specs: Mapping[str, bytes] = field(default_factory=dict)


def build_pte(methods: Sequence[ProgramMethod], named_data: Mapping[str, Buffer]) -> ContainerImage:
    """Lay out a program file; write it with `write_to` or take its `chunks()`.

    named_data: code blobs and the manifest, by key; equal content is stored once, nothing copied.
    Where there is a manifest, the program digest of docs/format.md is added.
    Raises ValueError for a repeated method name, an unknown dtype or a size too large for the file.
    """
    names = [method.name for method in methods]
    if len(set(names)) != len(names):
        raise ValueError(f"a method name occurs twice: {names}")
    segments = SegmentTable()
    segments.add(b"", 0)  # the constant segment: there are no constants in a program
    payloads = [_add_segment(segments, method.payload) for method in methods]
    named = {key: _add_segment(segments, data) for key, data in named_data.items()}
    digest = bytearray(hashlib.sha256().digest_size)  # filled when all that it covers is known
    if MANIFEST_KEY in named_data:
        named[DIGEST_KEY] = segments.add(digest, len(digest))

    builder = FlatbufferBuilder(PROGRAM_TABLES)
    plans = builder.tables(
        _plan(builder, method, segment) for method, segment in zip(methods, payloads, strict=True)
    )
    root = builder.table(
        "Program",
        version=SCHEMA_VERSION,
        execution_plan=plans,
        constant_buffer=builder.positions([]),
        backend_delegate_data=builder.positions([]),
        segments=builder.tables(
            builder.table("DataSegment", offset=segment.offset, size=segment.nbytes)
            for segment in segments.segments
        ),
        constant_segment=builder.table("SubsegmentOffsets", offsets=builder.uint64s([0])),
        mutable_data_segments=builder.positions([]),
        named_data=builder.tables(
            builder.table("NamedData", key=builder.string(key), segment_index=segment)
            for key, segment in named.items()
        ),
    )
    image = _finish(builder, root, segments)
    if MANIFEST_KEY in named_data:
        parts = (image.head, *(method.payload for method in methods), named_data[MANIFEST_KEY])
        digest[:] = _digest(parts)
    return image


def _digest(parts: Iterable[Buffer]) -> bytes:
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(part)
    return hasher.digest()


def _finish(builder: FlatbufferBuilder, root: int, segments: SegmentTable) -> ContainerImage:
    """Insert the header; its sizes are known only once the buffer is complete."""
    head = builder.finish(root, PTE_IDENTIFIER, bytes(PTE_HEADER_LENGTH))
    base = align_up(len(head))
    header = PTE_HEADER_MAGIC + struct.pack(
        "<IQQQ", PTE_HEADER_LENGTH, len(head), base, segments.nbytes
    )
    head = head[:8] + header + head[8 + len(header) :]
    return ContainerImage(head, base, tuple(segments.segments))


def _add_segment(segments: SegmentTable, data: Buffer) -> int:
    nbytes = memoryview(data).nbytes
    digest = hashlib.sha256(data).digest()
    return segments.add(data, nbytes, (nbytes, digest))


def _plan(builder: FlatbufferBuilder, method: ProgramMethod, segment: int) -> int:
    values = [*method.inputs, *method.outputs]
    indices = list(range(len(values)))
    inputs, outputs = indices[: len(method.inputs)], indices[len(method.inputs) :]
    call = builder.table("DelegateCall", args=builder.int32s(indices))
    instruction = builder.table(
        "Instruction", instr_args_type=INSTRUCTION_DELEGATE_CALL, instr_args=call
    )
    chain = builder.table(
        "Chain",
        inputs=builder.int32s(inputs),
        outputs=builder.int32s(outputs),
        instructions=builder.positions([instruction]),
    )
    empty = builder.string("")
    return builder.table(
        "ExecutionPlan",
        name=builder.string(method.name),
        container_meta_type=builder.table(
            "ContainerMetadata", encoded_inp_str=empty, encoded_out_str=empty
        ),
        values=builder.tables(
            _value(builder, value, f"method {method.name!r}, value {index}")
            for index, value in enumerate(values)
        ),
        inputs=builder.int32s(inputs),
        outputs=builder.int32s(outputs),
        chains=builder.positions([chain]),
        operators=builder.positions([]),
        delegates=builder.positions([_delegate(builder, method, segment)]),
        non_const_buffer_sizes=builder.int64s([0]),
    )


def _delegate(builder: FlatbufferBuilder, method: ProgramMethod, segment: int) -> int:
    specs = {"method_name": method.name.encode(), **method.compile_specs}
    return builder.table(
        "BackendDelegate",
        id=builder.string(method.delegate_id),
        processed=builder.table(
            "BackendDelegateDataReference", location=DATA_LOCATION_SEGMENT, index=segment
        ),
        compile_specs=builder.tables(
            builder.table("CompileSpec", key=builder.string(key), value=builder.byte_vector(value))
            for key, value in specs.items()
        ),
    )


def _value(builder: FlatbufferBuilder, value: TensorValue, where: str) -> int:
    if value.dtype not in SCALAR_TYPES:
        raise ValueError(f"{where}: dtype {value.dtype!r}; known: {sorted(SCALAR_TYPES)}")
    if any(not 0 <= size <= _INT32_MAX for size in value.sizes):
        raise ValueError(f"{where}: sizes {value.sizes}; the file holds 0 to {_INT32_MAX}")
    order = tuple(range(len(value.sizes))) if value.dim_order is None else value.dim_order
    if sorted(order) != list(range(len(value.sizes))):
        raise ValueError(f"{where}: dim_order {order} of a tensor of rank {len(value.sizes)}")
    fields = {
        "scalar_type": SCALAR_TYPES[value.dtype],
        "sizes": builder.int32s(value.sizes),
        "dim_order": builder.byte_vector(bytes(order)),
        "shape_dynamism": SHAPE_DYNAMISM[value.dynamism],
    }
    if value.device != "cpu":
        fields["extra_tensor_info"] = builder.table(
            "ExtraTensorInfo",
            device_type=DEVICE_TYPES[value.device],
            device_index=value.device_index,
        )
    tensor = builder.table("Tensor", **fields)
    return builder.table("EValue", val_type=KERNEL_TYPE_TENSOR, val=tensor)
