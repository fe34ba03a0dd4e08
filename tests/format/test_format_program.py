"""Programs with every kind of value and instruction, and with every kind of reference out of range."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudaexec import errors
from cudaexec._core import _format
from cudaexec.export.flatbuffer_builder import FlatbufferBuilder
from cudaexec.export.slots import PROGRAM_TABLES, Fields

TABLES: dict[str, Fields] = PROGRAM_TABLES | {
    "Null": (),
    "Int": (("int_val", "int64"),),
    "Bool": (("bool_val", "bool"),),
    "Double": (("double_val", "double"),),
    "Text": (("string_val", "offset"),),
    "List": (("items", "offset"),),
    "AllocationDetails": (
        ("memory_id", "uint32"),
        ("memory_offset_low", "uint32"),
        ("memory_offset_high", "uint32"),
    ),
    "Operator": (("name", "offset"), ("overload", "offset")),
    "KernelCall": (("op_index", "int32"), ("args", "offset")),
    "MoveCall": (("move_from", "int32"), ("move_to", "int32")),
    "JumpFalseCall": (("cond_value_index", "int32"), ("destination_instruction", "int32")),
    "FreeCall": (("value_index", "int32"),),
    "InlineData": (("data", "offset"),),
    "NonConstBufferDevice": (
        ("buffer_idx", "int32"),
        ("device_type", "int8"),
        ("device_index", "int8"),
    ),
}
NULL, INT, BOOL, DOUBLE, TENSOR, TEXT, INTS, DOUBLES, BOOLS, TENSORS, OPTIONALS = range(1, 12)
KERNEL, DELEGATE, MOVE, JUMP, FREE = range(1, 6)
DATA = bytes(range(64))  # one segment


class Builder(FlatbufferBuilder):
    """A program under construction; `values`, `instructions` and the rest may be changed first."""

    def __init__(self) -> None:
        super().__init__(TABLES)
        self.values: list[int] = []
        self.instructions: list[int] = []
        self.inputs, self.outputs = [0], [0]
        self.buffer_sizes = [0, 100]
        self.plan: dict[str, int] = {}
        self.program: dict[str, int] = {}
        self.delegate = {"id": self.string("X"), "processed": self.reference(1, 0)}

    def value(self, kind: int, table: str, **fields: int) -> int:
        self.values.append(self.table("EValue", val_type=kind, val=self.table(table, **fields)))
        return len(self.values) - 1

    def tensor(self, **fields: int) -> int:
        return self.value(TENSOR, "Tensor", **{"scalar_type": 6, **fields})

    def planned(self, memory_id: int = 1, offset: int = 0) -> int:
        low, high = offset & 0xFFFFFFFF, offset >> 32
        return self.table(
            "AllocationDetails", memory_id=memory_id, memory_offset_low=low, memory_offset_high=high
        )

    def doubles(self, items: list[float]) -> int:
        return self._vector(items, 8, self._builder.PrependFloat64)  # type: ignore[arg-type]

    def instruct(self, kind: int, table: str, **fields: int) -> None:
        call = self.table(table, **fields)
        self.instructions.append(self.table("Instruction", instr_args_type=kind, instr_args=call))

    def reference(self, location: int, index: int) -> int:
        return self.table("BackendDelegateDataReference", location=location, index=index)

    def subsegments(self, index: int, offsets: list[int]) -> int:
        return self.table("SubsegmentOffsets", segment_index=index, offsets=self.uint64s(offsets))

    def build(self, *segments: tuple[int, int]) -> bytes:
        chain = self.table("Chain", instructions=self.positions(self.instructions))
        operator = self.table(
            "Operator", name=self.string("aten::add"), overload=self.string("out")
        )
        fields = {
            "name": self.string("m"),
            "values": self.positions(self.values),
            "inputs": self.int32s(self.inputs),
            "outputs": self.int32s(self.outputs),
            "chains": self.positions([chain]),
            "operators": self.positions([operator]),
            "delegates": self.positions([self.table("BackendDelegate", **self.delegate)]),
            "non_const_buffer_sizes": self.int64s(self.buffer_sizes),
            **self.plan,
        }
        plan = self.table("ExecutionPlan", **fields)
        program = {
            "execution_plan": self.positions([plan]),
            "constant_segment": self.subsegments(0, [0, 0, 32]),
            "mutable_data_segments": self.positions([self.subsegments(0, [0, 16])]),
            **self.program,
        }
        places = segments or ((0, len(DATA)),)
        entries = [self.table("DataSegment", offset=o, size=n) for o, n in places]
        root = self.table("Program", segments=self.positions(entries), **program)
        head = self.finish(root, b"ET12", bytes(32))
        base = -(-len(head) // 128) * 128
        header = b"eh00" + struct.pack("<IQQQ", 32, len(head), base, len(DATA))
        return head[:8] + header + head[40:] + bytes(base - len(head)) + DATA


def parse(data: bytes, tmp_path: Path) -> Any:
    path = tmp_path / "x.pte"
    path.write_bytes(data)
    return _format.parse_pte(path)


def test_every_value_and_instruction(tmp_path: Path) -> None:
    b = Builder()
    b.tensor(sizes=b.int32s([2, 3]), data_buffer_idx=2)
    b.value(NULL, "Null")
    b.value(INT, "Int", int_val=-(2**63))
    b.value(BOOL, "Bool", bool_val=1)
    b.value(DOUBLE, "Double", double_val=2.5)  # type: ignore[arg-type]
    b.value(TEXT, "Text", string_val=b.string("é"))
    b.value(INTS, "List", items=b.int64s([2, 2]))
    b.value(DOUBLES, "List", items=b.doubles([0.5, -1.0]))
    b.value(BOOLS, "List", items=b.byte_vector(bytes([1, 0])))
    b.value(TENSORS, "List", items=b.int32s([0, 0]))
    b.value(OPTIONALS, "List", items=b.int32s([-1, 0]))
    b.tensor(sizes=b.int32s([5, 5]), allocation_info=b.planned())
    b.tensor(
        sizes=b.int32s([4, 2]),
        dim_order=b.byte_vector(bytes([1, 0])),
        data_buffer_idx=1,
        allocation_info=b.planned(1, 60),
        shape_dynamism=1,
    )
    b.instruct(KERNEL, "KernelCall", op_index=0, args=b.int32s([0, 1, 12]))
    b.instruct(DELEGATE, "DelegateCall", delegate_index=0, args=b.int32s([0]))
    b.instruct(MOVE, "MoveCall", move_from=2, move_to=4)
    b.instruct(JUMP, "JumpFalseCall", cond_value_index=3, destination_instruction=5)
    b.instruct(FREE, "FreeCall", value_index=11)
    b.program["backend_delegate_data"] = b.positions(
        [b.table("InlineData", data=b.byte_vector(b"inline"))]
    )
    b.delegate["processed"] = b.reference(0, 0)
    b.plan["non_const_buffer_device"] = b.positions(
        [b.table("NonConstBufferDevice", buffer_idx=1, device_type=1, device_index=2)]
    )
    data = b.build()
    found = parse(data, tmp_path)
    assert found["mutable_segments"] == [{"segment_index": 0, "offsets": [0, 16]}]
    (method,) = found["methods"]
    values = method["values"]
    assert values[0]["data_buffer_idx"] == 2
    assert values[1:6] == [None, -(2**63), True, 2.5, "é"]
    assert [(v["of"], v["items"]) for v in values[6:11]] == [
        ("int", [2, 2]),
        ("double", [0.5, -1.0]),
        ("bool", [1, 0]),
        ("tensor", [0, 0]),
        ("optional tensor", [-1, 0]),
    ]
    assert values[11]["planned"] == (1, 0)
    assert (values[12]["dim_order"], values[12]["planned"]) == ([1, 0], (1, 60))
    assert method["chains"] == [
        [
            ("kernel", "aten::add.out", [0, 1, 12]),
            ("delegate", 0, [0]),
            ("move", 2, 4),
            ("jump_false", 3, 5),
            ("free", 11),
        ]
    ]
    assert method["buffer_devices"] == [(1, 1, 2)]
    (delegate,) = method["delegates"]
    assert (delegate["inline"], delegate["processed"]) == (True, b"inline")
    offset, nbytes = delegate["place"]
    assert data[offset : offset + nbytes] == b"inline"


Damage = Callable[[Builder], Any]

DAMAGE: dict[str, tuple[Damage, str]] = {
    "input": (lambda b: b.inputs.append(1), "input index 1 of 1"),
    "negative output": (lambda b: b.outputs.append(-1), "output index -1 of 1"),
    "operator": (lambda b: b.instruct(KERNEL, "KernelCall", op_index=1), "operator index 1 of 1"),
    "kernel argument": (
        lambda b: b.instruct(KERNEL, "KernelCall", args=b.int32s([0, 7])),
        "kernel argument index 7 of 1",
    ),
    "delegate": (
        lambda b: b.instruct(DELEGATE, "DelegateCall", delegate_index=-1),
        "delegate index -1 of 1",
    ),
    "delegate argument": (
        lambda b: b.instruct(DELEGATE, "DelegateCall", args=b.int32s([2**31 - 1])),
        "delegate argument index 2147483647",
    ),
    "move source": (lambda b: b.instruct(MOVE, "MoveCall", move_from=1), "move source"),
    "move target": (lambda b: b.instruct(MOVE, "MoveCall", move_to=1), "move target"),
    "condition": (lambda b: b.instruct(JUMP, "JumpFalseCall", cond_value_index=1), "condition"),
    "destination": (
        lambda b: b.instruct(JUMP, "JumpFalseCall", destination_instruction=2),
        "jump destination index 2 of 2",
    ),
    "freed value": (lambda b: b.instruct(FREE, "FreeCall", value_index=1), "freed value"),
    "unknown instruction": (lambda b: b.instruct(6, "FreeCall"), "unknown type 6"),
    "no instruction": (
        lambda b: b.instructions.append(b.table("Instruction", instr_args_type=1)),
        "without its arguments",
    ),
    "unknown value": (lambda b: b.value(12, "Null"), "unknown type 12"),
    "no value": (lambda b: b.values.append(b.table("EValue", val_type=TENSOR)), "its content"),
    "int list": (lambda b: b.value(INTS, "List", items=b.int64s([9])), "index 9"),
    "tensor list": (lambda b: b.value(TENSORS, "List", items=b.int32s([-1])), "index -1"),
    "list of no tensors": (lambda b: b.value(TENSORS, "List", items=b.int32s([1])), "no tensor"),
    "optional list": (lambda b: b.value(OPTIONALS, "List", items=b.int32s([-2])), "index -2"),
    "scalar type": (lambda b: b.tensor(scalar_type=8), "unknown scalar type 8"),
    "negative scalar type": (lambda b: b.tensor(scalar_type=-1), "scalar type -1"),
    "negative size": (lambda b: b.tensor(sizes=b.int32s([-1])), r"sizes \[-1\]"),
    "rank 65": (lambda b: b.tensor(sizes=b.int32s([1] * 65)), "rank 65"),
    "dim_order of another rank": (
        lambda b: b.tensor(sizes=b.int32s([1, 1]), dim_order=b.byte_vector(b"\0")),
        "no permutation",
    ),
    "dim_order twice": (
        lambda b: b.tensor(sizes=b.int32s([1, 1]), dim_order=b.byte_vector(b"\0\0")),
        "no permutation",
    ),
    "dim_order out of range": (
        lambda b: b.tensor(sizes=b.int32s([1, 1]), dim_order=b.byte_vector(b"\0\2")),
        "no permutation",
    ),
    "dynamism": (lambda b: b.tensor(shape_dynamism=3), "dynamism 3"),
    "reserved memory": (lambda b: b.tensor(allocation_info=b.planned(0)), "planned memory 0"),
    "no such memory": (lambda b: b.tensor(allocation_info=b.planned(2)), "planned memory 2 of 2"),
    "planned too large": (
        lambda b: b.tensor(sizes=b.int32s([26]), allocation_info=b.planned()),
        r"0\+104 in a buffer of 100",
    ),
    "planned beyond": (
        lambda b: b.tensor(allocation_info=b.planned(1, 2**64 - 4)),
        "in a buffer of 100",
    ),
    "planned overflow": (
        lambda b: b.tensor(sizes=b.int32s([2**31 - 1] * 3), allocation_info=b.planned()),
        "in a buffer of 100",
    ),
    "negative buffer": (lambda b: b.buffer_sizes.append(-1), "planned buffer of -1"),
    "buffer device": (
        lambda b: b.plan.update(
            non_const_buffer_device=b.positions([b.table("NonConstBufferDevice", buffer_idx=2)])
        ),
        "buffer index 2 of 2",
    ),
    "device type": (
        lambda b: b.tensor(extra_tensor_info=b.table("ExtraTensorInfo", device_type=2)),
        "device type 2",
    ),
    "data location": (
        lambda b: b.tensor(extra_tensor_info=b.table("ExtraTensorInfo", location=2)),
        "data location 2",
    ),
    "external without a name": (
        lambda b: b.tensor(extra_tensor_info=b.table("ExtraTensorInfo", location=1)),
        "without a name",
    ),
    "constant": (lambda b: b.tensor(data_buffer_idx=3), "stored tensor 3 of 3"),
    "constant too large": (
        lambda b: b.tensor(sizes=b.int32s([9]), data_buffer_idx=2),
        r"32\+36 in a segment of 64",
    ),
    "no mutable segment": (
        lambda b: b.tensor(
            data_buffer_idx=1,
            allocation_info=b.planned(),
            extra_tensor_info=b.table("ExtraTensorInfo", mutable_data_segments_idx=1),
        ),
        "mutable data segment 1 of 1",
    ),
    "constant segment": (
        lambda b: b.program.update(constant_segment=b.subsegments(1, [0, 0])),
        "constant segment 1 of 1",
    ),
    "constant offset": (
        lambda b: b.program.update(constant_segment=b.subsegments(0, [0, 65])),
        "tensor at 65",
    ),
    "delegate segment": (
        lambda b: b.delegate.update(processed=b.reference(1, 1)),
        "segment 1 of 1",
    ),
    "delegate inline": (
        lambda b: b.delegate.update(processed=b.reference(0, 0)),
        "inline entry 0 of 0",
    ),
    "delegate location": (lambda b: b.delegate.update(processed=b.reference(2, 0)), "location 2"),
    "delegate without data": (lambda b: b.delegate.pop("processed"), "without data"),
    "delegate without an id": (lambda b: b.delegate.pop("id"), "without an id"),
    "method without a name": (lambda b: b.plan.update(name=b.string("")), "without a name"),
    "name not UTF-8": (lambda b: b.plan.update(name=b.byte_vector(b"\xff\0")), "damaged|UTF-8"),
    "no methods": (lambda b: b.program.update(execution_plan=b.positions([])), "no methods"),
    "named data in no segment": (
        lambda b: b.program.update(
            named_data=b.positions(
                [b.table("NamedData", key=b.string("k"), segment_index=2**32 - 1)]
            )
        ),
        "segment 4294967295 of 1",
    ),
    "named data without a key": (
        lambda b: b.program.update(named_data=b.positions([b.table("NamedData")])),
        "without a key",
    ),
    "named data twice": (
        lambda b: b.program.update(
            named_data=b.positions([b.table("NamedData", key=b.string("k"))] * 2)
        ),
        "'k' occurs twice",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_refused(name: str, tmp_path: Path) -> None:
    b = Builder()
    b.tensor()
    damage, message = DAMAGE[name]
    damage(b)
    with pytest.raises(errors.FormatError, match=message) as caught:
        parse(b.build(), tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'x.pte'}, offset ")


def test_the_undamaged_program_opens(tmp_path: Path) -> None:
    b = Builder()
    b.tensor()
    assert parse(b.build(), tmp_path)["methods"][0]["name"] == "m"


@pytest.mark.parametrize("segment", [(0, 65), (65, 0), (1, 64), (2**64 - 1, 1), (2**63, 2**63)])
def test_segments_outside_the_file(segment: tuple[int, int], tmp_path: Path) -> None:
    b = Builder()
    b.tensor()
    with pytest.raises(errors.FormatError, match=r"segment 0 is .* in segment data of 64 bytes"):
        parse(b.build(segment), tmp_path)


@pytest.mark.parametrize(
    ("first", "second", "allowed"),
    [
        ((0, 64), (0, 64), True),
        ((0, 64), (32, 0), True),
        ((0, 48), (48, 16), True),
        ((48, 16), (0, 48), True),
        ((0, 48), (47, 1), False),
        ((0, 64), (0, 48), False),
        ((16, 48), (0, 17), False),
    ],
)
def test_overlapping_segments(
    first: tuple[int, int], second: tuple[int, int], allowed: bool, tmp_path: Path
) -> None:
    b = Builder()
    b.tensor()
    b.program["constant_segment"] = b.subsegments(0, [0])
    b.program["mutable_data_segments"] = b.positions([])
    data = b.build(first, second)
    if allowed:
        assert [nbytes for _, nbytes in parse(data, tmp_path)["segments"]] == [first[1], second[1]]
    else:
        with pytest.raises(errors.FormatError, match="overlap"):
            parse(data, tmp_path)
