"""Damaged and crafted files: a typed error or the same answer; never a crash, a hang or gigabytes."""

from __future__ import annotations

import pickle
import random
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flatbuffers
import pytest
from damage_child import content
from format_files import ptd_bytes, pte_bytes

from cudaexec.export.flatbuffer_builder import FlatbufferBuilder
from cudaexec.export.slots import FLAT_TENSOR_TABLES, PROGRAM_TABLES

SAMPLES = Path(__file__).parents[1] / "data" / "et_samples"
SPECIAL_32 = [0, 1, 2**31 - 1, 2**31, 2**32 - 1]
SPECIAL_64 = [0, 2**31, 2**63 - 1, 2**64 - 1]

Job = tuple[str, bytes, bytes | None, Any]


def run(directory: Path, jobs: list[Job]) -> Counter[str]:
    """Outcomes of all jobs, counted; fails with the name of a file that crashed or misbehaved."""
    (directory / "jobs.pickle").write_bytes(pickle.dumps(jobs))
    child = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("damage_child.py")), str(directory)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = child.stdout.splitlines()
    assert child.returncode == 0, (child.returncode, lines[-1:], child.stderr[-2000:])
    assert lines[-1] == f"done {len(jobs)}"
    assert not [line for line in lines if line.startswith("bad")]
    assert child.stderr == ""
    return Counter(line.split()[-1] for line in lines if line.startswith("ok"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes, Any]:
    directory = tmp_path_factory.mktemp("pair")
    pte, ptd = directory / "m.pte", directory / "m.ptd"
    pte.write_bytes(pte_bytes())
    ptd.write_bytes(ptd_bytes())
    return pte.read_bytes(), ptd.read_bytes(), content(pte, ptd)


def test_the_pair_itself(pair: tuple[bytes, bytes, Any], tmp_path: Path) -> None:
    pte, ptd, answer = pair
    assert run(tmp_path, [("whole", pte, ptd, answer)]) == {"same": 1}


def test_every_truncation(pair: tuple[bytes, bytes, Any], tmp_path: Path) -> None:
    pte, ptd, answer = pair
    jobs: list[Job] = [(f"pte[:{n}]", pte[:n], ptd, answer) for n in range(len(pte))]
    jobs += [(f"ptd[:{n}]", pte, ptd[:n], answer) for n in range(len(ptd))]
    outcomes = run(tmp_path, jobs)
    assert outcomes["same"] == 0
    assert sum(outcomes.values()) == len(jobs)


def test_a_flip_of_every_byte(pair: tuple[bytes, bytes, Any], tmp_path: Path) -> None:
    pte, ptd, answer = pair
    chance = random.Random(8)
    jobs: list[Job] = []
    for name, data in (("pte", pte), ("ptd", ptd)):
        for position in range(len(data)):
            mask = 1 << chance.randrange(8)
            changed = bytearray(data)
            changed[position] ^= mask
            files = (bytes(changed), ptd) if name == "pte" else (pte, bytes(changed))
            jobs.append((f"{name}[{position}]^{mask}", *files, answer))
    outcomes = run(tmp_path, jobs)
    assert len(jobs) > 300
    assert outcomes["WeightsError"] >= 280  # the weights' own bytes
    assert outcomes["same"] < len(jobs) * 0.4  # padding only


def samples() -> list[str]:
    return sorted(path.name for path in SAMPLES.glob("*.pte"))


def with_data(name: str) -> tuple[bytes, bytes | None]:
    ptd = (SAMPLES / name).with_suffix(".ptd")
    return (SAMPLES / name).read_bytes(), ptd.read_bytes() if ptd.exists() else None


def tables_end(pte: bytes) -> int:
    return struct.unpack_from("<Q", pte, 16)[0] if pte[8:12] == b"eh00" else len(pte)


@pytest.mark.parametrize("name", samples())
def test_flips_in_files_of_executorch(name: str, tmp_path: Path) -> None:
    pte, ptd = with_data(name)
    chance = random.Random(9)
    jobs: list[Job] = []
    for n in range(300):
        changed = bytearray(pte)
        position = chance.randrange(tables_end(pte))
        changed[position] ^= 1 << chance.randrange(8)
        jobs.append((f"{name}[{position}] {n}", bytes(changed), ptd, None))
    if ptd is not None:
        for position in range(min(len(ptd), 640)):
            changed = bytearray(ptd)
            changed[position] ^= 1 << chance.randrange(8)
            jobs.append((f"{name} ptd[{position}]", pte, bytes(changed), None))
    outcomes = run(tmp_path, jobs)
    assert outcomes["FormatError"] > 20


def crafted(data: bytes, end: int) -> Iterator[tuple[str, bytes]]:
    """`data` with each aligned word of its tables set to each special value."""
    for width, values, code in ((4, SPECIAL_32, "<I"), (8, SPECIAL_64, "<Q")):
        for position in range(0, end - width + 1, width):
            for value in values:
                changed = bytearray(data)
                struct.pack_into(code, changed, position, value)
                yield f"word{8 * width}[{position}]={value}", bytes(changed)


@pytest.mark.parametrize("name", ["ours", "a_mlp_portable.pte", "b_mlp_ext.pte", "d_cuda_v15.pte"])
def test_crafted_words_in_programs(
    name: str, pair: tuple[bytes, bytes, Any], tmp_path: Path
) -> None:
    pte = pair[0] if name == "ours" else (SAMPLES / name).read_bytes()
    # Samples of one schema differ little: every third word of theirs will do.
    step = 1 if name == "ours" else 3
    jobs: list[Job] = [(*job, None, None) for job in crafted(pte, tables_end(pte))][::step]
    outcomes = run(tmp_path, jobs)
    assert outcomes["FormatError"] > len(jobs) / 10


@pytest.mark.parametrize("name", ["ours", "b_mlp_ext.ptd"])
def test_crafted_words_in_data_files(
    name: str, pair: tuple[bytes, bytes, Any], tmp_path: Path
) -> None:
    pte, ptd, answer = pair
    data = ptd if name == "ours" else (SAMPLES / name).read_bytes()
    program = pte if name == "ours" else (SAMPLES / name).with_suffix(".pte").read_bytes()
    end = struct.unpack_from("<Q", data, 32)[0]
    jobs: list[Job] = [
        (word, program, changed, answer if name == "ours" else None)
        for word, changed in crafted(data, end)
    ]
    run(tmp_path, jobs)


def program_of(builder: FlatbufferBuilder, plans: list[int], **fields: int) -> bytes:
    segments = builder.tables([builder.table("DataSegment")])
    root = builder.table(
        "Program", execution_plan=builder.positions(plans), segments=segments, **fields
    )
    return builder.finish(root, b"ET12", b"")


def shared_arguments(instructions: int, arguments: int) -> bytes:
    """Many delegate calls over one vector: little to store, much to look at."""
    builder = FlatbufferBuilder(PROGRAM_TABLES)
    value = builder.table("EValue", val_type=5, val=builder.table("Tensor", scalar_type=6))
    args = builder.int32s([0] * arguments)
    reference = builder.table("BackendDelegateDataReference", location=1)
    delegate = builder.table("BackendDelegate", id=builder.string("x"), processed=reference)
    call = builder.table("DelegateCall", args=args)
    instruction = builder.table("Instruction", instr_args_type=2, instr_args=call)
    chain = builder.table("Chain", instructions=builder.positions([instruction] * instructions))
    plan = builder.table(
        "ExecutionPlan",
        name=builder.string("forward"),
        values=builder.positions([value]),
        chains=builder.positions([chain]),
        delegates=builder.positions([delegate]),
    )
    return program_of(builder, [plan])


def shared_values(lists: int, values: int) -> bytes:
    """A plan whose value vector repeats one value, repeated as a plan."""
    builder = FlatbufferBuilder(PROGRAM_TABLES)
    value = builder.table("EValue", val_type=5, val=builder.table("Tensor", scalar_type=6))
    vector = builder.positions([value] * values)
    plans = [
        builder.table("ExecutionPlan", name=builder.string(f"m{i}"), values=vector)
        for i in range(lists)
    ]
    return program_of(builder, plans)


def nested_lists(count: int) -> bytes:
    """Lists that name each other and themselves."""
    builder = FlatbufferBuilder(PROGRAM_TABLES)
    raw: Any = builder._builder
    items = builder.int64s(list(range(count)))
    raw.StartObject(1)
    raw.PrependUOffsetTRelativeSlot(0, items, 0)
    int_list = int(raw.EndObject())
    value = builder.table("EValue", val_type=7, val=int_list)
    plan = builder.table(
        "ExecutionPlan", name=builder.string("m"), values=builder.positions([value] * count)
    )
    return program_of(builder, [plan])


def test_files_that_share_to_grow(tmp_path: Path) -> None:
    jobs: list[Job] = [
        ("small", shared_arguments(3, 5), None, None),
        ("many arguments", shared_arguments(100_000, 100_000), None, None),
        ("many plans", shared_values(3000, 3000), None, None),
        ("many lists", nested_lists(20_000), None, None),
    ]
    outcomes = run(tmp_path, jobs)
    assert outcomes == {"same": 1, "FormatError": 3}


def test_a_data_file_of_one_shared_name(tmp_path: Path) -> None:
    builder = FlatbufferBuilder(FLAT_TENSOR_TABLES)
    entry = builder.table("NamedData", key=builder.string("k"))
    segment = builder.table("DataSegment")
    root = builder.table(
        "FlatTensor",
        segments=builder.positions([segment] * 1_000_000),
        named_data=builder.positions([entry] * 1_000_000),
    )
    head = builder.finish(root, b"FT01", bytes(48))
    header = b"FH01" + struct.pack("<IQQQQ", 40, 48, len(head) - 48, 0, 0)
    data = head[:8] + header + head[8 + len(header) :]
    program, _ = with_data("a_mlp_portable.pte")
    assert run(tmp_path, [("names", program, data, None)]) == {"FormatError": 1}


def test_a_program_that_ends_in_its_own_offset(tmp_path: Path) -> None:
    """Root and vtable offsets that point at themselves, at the end and outside."""
    pte, ptd = with_data("a_mlp_portable.pte")
    (root,) = struct.unpack_from("<I", pte)
    jobs: list[Job] = []
    for value in [0, 4, 8, root + 4, len(pte) - 4, len(pte), 2**31, 2**32 - 1]:
        changed = bytearray(pte)
        struct.pack_into("<I", changed, 0, value)
        jobs.append((f"root={value}", bytes(changed), ptd, None))
        changed = bytearray(pte)
        struct.pack_into("<I", changed, root, value)
        jobs.append((f"vtable={value}", bytes(changed), ptd, None))
    outcomes = run(tmp_path, jobs)
    assert outcomes["FormatError"] > len(jobs) / 2


def test_empty_tables(tmp_path: Path) -> None:
    builder = flatbuffers.Builder(64)
    builder.StartObject(8)
    builder.Finish(builder.EndObject(), file_identifier=b"ET12")
    assert run(tmp_path, [("empty", bytes(builder.Output()), None, None)]) == {"FormatError": 1}
