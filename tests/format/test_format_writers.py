"""What the writers write: read back by our reader and by ExecuTorch's own deserialisers."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from format_files import (
    CODE,
    CODE_KEY,
    WEIGHTS,
    manifest,
    payload,
    program,
    ptd_bytes,
    pte_bytes,
    sha256,
    storage,
)

from cudaexec import errors
from cudaexec._core import _format
from cudaexec.export import manifest as m
from cudaexec.export.ptd_writer import WeightBlob, build_ptd
from cudaexec.export.pte_writer import ProgramMethod, TensorValue, build_pte


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_program_round_trip(tmp_path: Path) -> None:
    text = m.encode_manifest(manifest())
    found = _format.parse_pte(write(tmp_path / "m.pte", pte_bytes()))
    assert found["header"]
    assert found["header_length"] == 32
    data = (tmp_path / "m.pte").read_bytes()

    def named(key: str) -> bytes:
        offset, nbytes = found["named_data"][key]
        return data[offset : offset + nbytes]

    assert named(CODE_KEY) == CODE
    assert named("cudaexec_manifest") == text
    assert len(named("cudaexec_digest")) == 32
    (method,) = found["methods"]
    assert method["name"] == "forward"
    assert [method["values"][i]["sizes"] for i in method["inputs"]] == [[64, 16]]
    assert [method["values"][i]["sizes"] for i in method["outputs"]] == [[64, 16], []]
    assert [method["values"][i]["dynamism"] for i in range(3)] == [1, 1, 0]
    assert method["chains"] == [[("delegate", 0, [0, 1, 2])]]
    (delegate,) = method["delegates"]
    assert delegate["id"] == "AotiCpuBackend"
    assert delegate["processed"] == payload()
    assert delegate["compile_specs"] == {"method_name": b"forward"}
    assert all((offset % 128) == 0 for offset, _ in found["segments"])
    assert found["segment_base_offset"] + found["segment_data_size"] == len(data)


def test_every_dtype_and_device(tmp_path: Path) -> None:
    dtypes = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
              "float64"]  # fmt: skip
    inputs = [TensorValue(dtype, (2, 0, 3), dim_order=(2, 0, 1)) for dtype in dtypes]
    output = TensorValue("float32", (7,), "unbound", device="cuda", device_index=3)
    method = ProgramMethod(
        "g é", inputs, [output], "CudaBackend", b"p", {"target_device": b"cuda:3"}
    )
    image = build_pte([method], {})
    (found,) = _format.parse_pte(write(tmp_path / "m.pte", image.to_bytes()))["methods"]
    assert found["name"] == "g é"
    values = found["values"]
    assert [v["scalar_type"] for v in values[:-1]] == [11, 0, 1, 2, 3, 4, 5, 15, 6, 7]
    assert all(v["dim_order"] == [2, 0, 1] and v["device"] == (0, 0) for v in values[:-1])
    assert values[-1]["device"] == (1, 3)
    assert values[-1]["dynamism"] == 2
    specs = {"method_name": "g é".encode(), "target_device": b"cuda:3"}
    assert found["delegates"][0]["compile_specs"] == specs


def test_equal_content_is_stored_once(tmp_path: Path) -> None:
    image = build_pte(
        [program("a"), program("b")], {"x": b"code" * 50, "y": b"code" * 50, "z": b""}
    )
    found = _format.parse_pte(write(tmp_path / "m.pte", image.to_bytes()))
    assert found["named_data"]["x"] == found["named_data"]["y"]
    a, b = (method["delegates"][0]["place"] for method in found["methods"])
    assert a == b
    weights = build_ptd(
        [WeightBlob("a", 8, bytes(8), "0"), WeightBlob("b", 8, bytes(8), "0"), WeightBlob("c", 0, b"", "1")]
    )  # fmt: skip
    entries = _format.parse_ptd(write(tmp_path / "m.ptd", weights.to_bytes()))["entries"]
    assert entries["a"] == entries["b"]
    assert entries["c"][1] == 0


def test_data_file_round_trip(tmp_path: Path) -> None:
    path = write(tmp_path / "m.ptd", ptd_bytes())
    data, found = path.read_bytes(), _format.parse_ptd(path)
    assert found["header_length"] == 40
    assert found["flatbuffer_offset"] == 48
    assert list(found["entries"]) == [storage(fqn) for fqn in WEIGHTS]
    for fqn, content in WEIGHTS.items():
        offset, nbytes, layout = found["entries"][storage(fqn)]
        assert offset % 128 == 0
        assert layout is None
        assert data[offset : offset + nbytes] == content


def test_weights_are_asked_for_once_and_when_due() -> None:
    asked: list[str] = []

    def source(name: str, parts: int) -> Any:
        def give() -> Any:
            asked.append(name)
            return (bytes([i]) * 100 for i in range(parts))

        return give

    image = build_ptd(
        [WeightBlob("a", 300, source("a", 3), "x"), WeightBlob("b", 200, source("b", 2), "y")]
    )
    assert asked == []
    chunks = image.chunks()
    next(chunks)
    assert asked == []
    file = io.BytesIO()
    assert image.write_to(file) == len(file.getvalue()) == image.nbytes
    assert asked == ["a", "b"]
    assert file.getvalue() == image.to_bytes()
    assert max(len(chunk) for chunk in image.chunks()) < 600


def test_a_source_of_another_size_is_an_error() -> None:
    with pytest.raises(ValueError, match="gave 3 bytes, 4 announced"):
        build_ptd([WeightBlob("a", 4, b"abc", "x")]).to_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": [TensorValue("complex64", ())]}, "complex64"),
        ({"inputs": [TensorValue("bool", (2**31,))]}, "sizes"),
        ({"inputs": [TensorValue("bool", (-1,))]}, "sizes"),
        ({"inputs": [TensorValue("bool", (1, 2), dim_order=(0, 0))]}, "dim_order"),
    ],
)
def test_values_that_a_program_cannot_hold(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_pte([replace(program(), **change)], {})


def test_repeated_names() -> None:
    with pytest.raises(ValueError, match="twice"):
        build_pte([program(), program()], {})
    with pytest.raises(ValueError, match="twice"):
        build_ptd([WeightBlob("a", 0, b"", "x")] * 2)


def test_the_digest_covers_tables_payloads_and_manifest(tmp_path: Path) -> None:
    data = pte_bytes()
    found = _format.parse_pte(write(tmp_path / "m.pte", data))
    (delegate,) = found["methods"][0]["delegates"]
    places = [delegate["place"], found["named_data"]["cudaexec_manifest"]]
    for offset, nbytes in [*places, found["named_data"]["cudaexec_digest"]]:
        for position in (offset, offset + nbytes - 1):
            changed = bytearray(data)
            changed[position] ^= 1
            with pytest.raises(errors.FormatError, match="digest"):
                _format.parse_pte(write(tmp_path / "x.pte", changed))


def et_python() -> str:
    python = os.environ.get("CUDAEXEC_ET_PYTHON")
    if not python:
        pytest.skip("CUDAEXEC_ET_PYTHON names no interpreter with executorch")
    return python


def test_executorch_opens_our_files(tmp_path: Path) -> None:
    command = [
        et_python(),
        str(Path(__file__).with_name("et_reader.py")),
        str(write(tmp_path / "m.pte", pte_bytes())),
        str(write(tmp_path / "m.ptd", ptd_bytes())),
    ]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    (plan,) = found["program"]["execution_plan"]
    tensors = [value["val"] for value in plan["values"]]
    assert [t["scalar_type"] for t in tensors] == ["FLOAT", "FLOAT", "LONG"]
    assert [t["sizes"] for t in tensors] == [[64, 16], [64, 16], []]
    assert [t["shape_dynamism"] for t in tensors] == ["DYNAMIC_BOUND", "DYNAMIC_BOUND", "STATIC"]
    assert (plan["inputs"], plan["outputs"]) == ([0], [1, 2])
    (instruction,) = plan["chains"][0]["instructions"]
    call = {"type": "DelegateCall", "delegate_index": 0, "args": [0, 1, 2]}
    assert instruction["instr_args"] == call
    (delegate,) = plan["delegates"]
    assert delegate["id"] == "AotiCpuBackend"
    (blob,) = found["program"]["backend_delegate_data"]
    assert blob["data"]["sha256"] == sha256(payload())
    assert found["named_data"][CODE_KEY]["sha256"] == sha256(CODE)
    assert set(found["named_data"]) == {CODE_KEY, "cudaexec_manifest", "cudaexec_digest"}
    hashes = {key: entry["sha256"] for key, entry in found["ptd"].items()}
    assert hashes == {storage(fqn): sha256(data) for fqn, data in WEIGHTS.items()}


def test_writing_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from cudaexec.export import manifest, payload, pte_writer, ptd_writer\n"
        "print(len(ptd_writer.build_ptd([]).to_bytes()))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 48
