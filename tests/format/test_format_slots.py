"""The writers' table of fields against the schemas that the readers are generated from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cudaexec.export import slots

SCHEMAS = Path(__file__).parents[2] / "cpp" / "format"
SCALARS = {"bool": "bool", "byte": "int8", "int8": "int8", "uint8": "uint8", "int32": "int32",
           "uint32": "uint32", "int64": "int64", "uint64": "uint64", "double": "double"}  # fmt: skip


def schema(name: str) -> str:
    return re.sub(r"//[^\n]*", "", (SCHEMAS / name).read_text())


def bodies(text: str, keyword: str) -> dict[str, str]:
    return dict(re.findall(rf"{keyword}\s+(\w+)[^{{]*\{{([^}}]*)\}}", text))


def fields(text: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """Table -> fields with their kinds, by position; a union takes two positions."""
    enums, unions = bodies(text, "enum"), bodies(text, "union")
    enums.update(bodies(schema("scalar_type.fbs"), "enum"))
    result = {}
    for table, body in bodies(text, "table").items():
        found: list[tuple[str, str]] = []
        for field, kind in re.findall(r"(\w+)\s*:\s*([\w.\[\]]+)", body):
            plain = kind.split(".")[-1]
            if plain in unions:
                found += [(f"{field}_type", "uint8"), (field, "offset")]
            else:
                found.append((field, "int8" if plain in enums else SCALARS.get(plain, "offset")))
        result[table] = tuple(found)
    return result


def enum_values(text: str, name: str) -> dict[str, int]:
    return {k: int(v) for k, v in re.findall(r"(\w+)\s*=\s*(\d+)", bodies(text, "enum")[name])}


@pytest.mark.parametrize(
    ("name", "tables"),
    [("program.fbs", slots.PROGRAM_TABLES), ("flat_tensor.fbs", slots.FLAT_TENSOR_TABLES)],
)
def test_tables_agree(name: str, tables: dict[str, slots.Fields]) -> None:
    known = fields(schema(name))
    for table, positions in tables.items():
        assert positions == known[table], table


def test_constants_agree() -> None:
    program, flat = schema("program.fbs"), schema("flat_tensor.fbs")
    assert f'file_identifier "{slots.PTE_IDENTIFIER.decode()}"' in program
    assert f'file_identifier "{slots.PTD_IDENTIFIER.decode()}"' in flat
    assert {
        key.lower().removeprefix("dynamic_"): value
        for key, value in enum_values(program, "TensorShapeDynamism").items()
    } == slots.SHAPE_DYNAMISM
    devices = {k.lower(): v for k, v in enum_values(program, "DeviceType").items()}
    assert devices == slots.DEVICE_TYPES
    assert enum_values(program, "DataLocation")["SEGMENT"] == slots.DATA_LOCATION_SEGMENT
    unions = {
        name: [item.strip() for item in body.split(",")]
        for name, body in bodies(program, "union").items()
    }
    assert unions["KernelTypes"].index("Tensor") + 1 == slots.KERNEL_TYPE_TENSOR
    calls = unions["InstructionArguments"]
    assert calls.index("DelegateCall") + 1 == slots.INSTRUCTION_DELEGATE_CALL


def test_scalar_types_agree() -> None:
    names = {"uint8": "BYTE", "int8": "CHAR", "int16": "SHORT", "int32": "INT", "int64": "LONG",
             "float16": "HALF", "float32": "FLOAT", "float64": "DOUBLE", "bool": "BOOL",
             "bfloat16": "BFLOAT16"}  # fmt: skip
    codes = enum_values(schema("scalar_type.fbs"), "ScalarType")
    assert {name: codes[other] for name, other in names.items()} == slots.SCALAR_TYPES


def test_keys_agree_with_the_reader() -> None:
    header = (SCHEMAS / "program_digest.h").read_text()
    assert f'kManifestKey = "{slots.MANIFEST_KEY}"' in header
    assert f'kDigestKey = "{slots.DIGEST_KEY}"' in header
