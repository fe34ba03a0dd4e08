"""Tables, fields and constants of the two containers, for the writers.

A field's position in its table is its identity in the file. `cpp/format/*.fbs` are the other copy
of these tables; `tests/format/test_slots.py` compares the two.
"""

from __future__ import annotations

from typing import Final

PTE_IDENTIFIER: Final = b"ET12"
PTE_HEADER_MAGIC: Final = b"eh00"
PTE_HEADER_LENGTH: Final = 32
PTD_IDENTIFIER: Final = b"FT01"
PTD_HEADER_MAGIC: Final = b"FH01"
PTD_HEADER_LENGTH: Final = 40
SCHEMA_VERSION: Final = 0
MANIFEST_KEY: Final = "cudaexec_manifest"
DIGEST_KEY: Final = "cudaexec_digest"
SEGMENT_ALIGNMENT: Final = 128

SCALAR_TYPES: Final[dict[str, int]] = {
    "uint8": 0,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "float16": 5,
    "float32": 6,
    "float64": 7,
    "bool": 11,
    "bfloat16": 15,
}
"""Names of docs/format.md to the file's codes."""

SHAPE_DYNAMISM: Final[dict[str, int]] = {"static": 0, "bound": 1, "unbound": 2}
DEVICE_TYPES: Final[dict[str, int]] = {"cpu": 0, "cuda": 1}
DATA_LOCATION_SEGMENT: Final = 1
KERNEL_TYPE_TENSOR: Final = 5
INSTRUCTION_DELEGATE_CALL: Final = 2

Fields = tuple[tuple[str, str], ...]

PROGRAM_TABLES: Final[dict[str, Fields]] = {
    "ContainerMetadata": (("encoded_inp_str", "offset"), ("encoded_out_str", "offset")),
    "ExtraTensorInfo": (
        ("mutable_data_segments_idx", "uint64"),
        ("fully_qualified_name", "offset"),
        ("location", "int8"),
        ("device_type", "int8"),
        ("device_index", "int8"),
    ),
    "Tensor": (
        ("scalar_type", "int8"),
        ("storage_offset", "int32"),
        ("sizes", "offset"),
        ("dim_order", "offset"),
        ("requires_grad", "bool"),
        ("data_buffer_idx", "uint32"),
        ("allocation_info", "offset"),
        ("layout", "int8"),
        ("shape_dynamism", "int8"),
        ("extra_tensor_info", "offset"),
    ),
    "EValue": (("val_type", "uint8"), ("val", "offset")),
    "DelegateCall": (("delegate_index", "int32"), ("args", "offset")),
    "Instruction": (("instr_args_type", "uint8"), ("instr_args", "offset")),
    "BackendDelegateDataReference": (("location", "int8"), ("index", "uint32")),
    "CompileSpec": (("key", "offset"), ("value", "offset")),
    "BackendDelegate": (("id", "offset"), ("processed", "offset"), ("compile_specs", "offset")),
    "Chain": (
        ("inputs", "offset"),
        ("outputs", "offset"),
        ("instructions", "offset"),
        ("stacktrace", "offset"),
    ),
    "ExecutionPlan": (
        ("name", "offset"),
        ("container_meta_type", "offset"),
        ("values", "offset"),
        ("inputs", "offset"),
        ("outputs", "offset"),
        ("chains", "offset"),
        ("operators", "offset"),
        ("delegates", "offset"),
        ("non_const_buffer_sizes", "offset"),
        ("non_const_buffer_device", "offset"),
    ),
    "DataSegment": (("offset", "uint64"), ("size", "uint64")),
    "SubsegmentOffsets": (("segment_index", "uint32"), ("offsets", "offset")),
    "NamedData": (("key", "offset"), ("segment_index", "uint32")),
    "Program": (
        ("version", "uint32"),
        ("execution_plan", "offset"),
        ("constant_buffer", "offset"),
        ("backend_delegate_data", "offset"),
        ("segments", "offset"),
        ("constant_segment", "offset"),
        ("mutable_data_segments", "offset"),
        ("named_data", "offset"),
    ),
}
"""The tables of a program that the writer uses: name to fields (name, kind), by position."""

FLAT_TENSOR_TABLES: Final[dict[str, Fields]] = {
    "DataSegment": (("offset", "uint64"), ("size", "uint64")),
    "NamedData": (("key", "offset"), ("segment_index", "uint32"), ("tensor_layout", "offset")),
    "FlatTensor": (("version", "uint32"), ("segments", "offset"), ("named_data", "offset")),
}
"""The tables of a data file, likewise."""
