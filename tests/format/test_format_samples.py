"""Files that ExecuTorch wrote parse to what their README says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cudaexec._core import _format

SAMPLES = Path(__file__).parents[1] / "data" / "et_samples"
README = (SAMPLES / "README.md").read_text()
SECTIONS = dict(re.findall(r"^### (\S+\.pte)(.*?)(?=^### |\Z)", README, re.M | re.S))
CODES = {6: "f32", 4: "i64", 15: "bf16", 11: "bool"}


def spell(value: Any) -> str:
    """A value as the README writes it."""
    if isinstance(value, dict) and value["type"] == "tensor":
        sizes = ", ".join(map(str, value["sizes"]))
        return f"{CODES[value['scalar_type']]}[{sizes}]" + (
            " DYN" if value["dynamism"] == 1 else ""
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def numbers(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text)]


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_program_container(name: str) -> None:
    text, path = SECTIONS[name], SAMPLES / name
    found = _format.parse_pte(path)
    assert path.stat().st_size == numbers(text.split("bytes")[0])[0]
    header = re.search(
        r"program_size (\d+), segment_base_offset (\d+), segment_data_size (\d+)", text
    )
    if header is None:
        assert "NO extended header" in text
        assert not found["header"]
        assert found["program_size"] == path.stat().st_size
    else:
        assert found["header_length"] == 32
        expected = tuple(map(int, header.groups()))
        keys = ("program_size", "segment_base_offset", "segment_data_size")
        assert tuple(found[key] for key in keys) == expected
    segments = re.search(r"segments \(file offset\+size\): (.*?); constant_segment #(\d+) offsets (\[.*?\])", text)  # fmt: skip
    assert segments is not None
    places = [tuple(map(int, p)) for p in re.findall(r"#\d+ (\d+)\+(\d+)", segments[1])]
    assert found["segments"] == places
    assert found["constant_segment"]["segment_index"] == int(segments[2])
    assert found["constant_segment"]["offsets"] == numbers(segments[3])


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_program_methods(name: str) -> None:
    found = {method["name"]: method for method in _format.parse_pte(SAMPLES / name)["methods"]}
    lines = re.findall(
        r"^- method `(\w+)`: in (\[.*?\]) -> out (\[.*?\]); planned buffers (\[[^\]]*\])"
        r"(?: devices (\[.*?\]))?; instructions (\[.*?\])$",
        SECTIONS[name],
        re.M,
    )
    assert [line[0] for line in lines] == list(found)
    for method_name, inputs, outputs, buffers, devices, instructions in lines:
        method = found[method_name]
        values = method["values"]
        for text, indices in ((inputs, method["inputs"]), (outputs, method["outputs"])):
            assert [spell(values[i]) for i in indices] == re.findall(r"'(.*?)'", text)
        assert method["buffer_sizes"] == numbers(buffers)
        expected = [(int(i), 1, int(d)) for i, d in re.findall(r"\((\d+), 'CUDA:(\d+)'\)", devices)]
        assert method["buffer_devices"] == expected
        called = [
            instruction[1] if instruction[0] == "kernel" else "DelegateCall"
            for chain in method["chains"]
            for instruction in chain
        ]
        assert called == re.findall(r"'(.*?)'", instructions)


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_program_delegates_and_named_data(name: str) -> None:
    text, found = SECTIONS[name], _format.parse_pte(SAMPLES / name)
    delegates = [d for method in found["methods"] for d in method["delegates"]]
    lines = re.findall(
        r"delegate `(\w+)`: processed (SEGMENT|INLINE) #(\d+), (\d+) bytes.*compile specs \{(.*)\}",
        text,
    )
    assert len(lines) == len(delegates)
    for (identity, location, index, size, specs), delegate in zip(lines, delegates, strict=True):
        assert delegate["id"] == identity
        assert delegate["inline"] == (location == "INLINE")
        assert len(delegate["processed"]) == int(size)
        if location == "SEGMENT":
            assert delegate["place"] == found["segments"][int(index)]
        wanted = {key: value.encode() for key, value in re.findall(r'"(\w+)": "([\w:]+)"', specs)}
        assert delegate["compile_specs"] == wanted
    named = re.search(r"named_data in \.pte: (.*)", text)
    entries = re.findall(r"`(\w+)` -> #(\d+), (\d+) bytes", named[1]) if named else []
    assert {key: found["segments"][int(index)] for key, index, _ in entries} == found["named_data"]
    assert [size for _, size in found["named_data"].values()] == [int(size) for *_, size in entries]
    external = re.search(r"EXTERNAL constants: (\[.*?\])", text)
    names = [
        value["fqn"]
        for method in found["methods"]
        for value in method["values"]
        if isinstance(value, dict) and value["type"] == "tensor" and value["external"]
    ]
    assert names == (re.findall(r"'(.*?)'", external[1]) if external else [])


def data_files() -> list[tuple[str, str]]:
    return re.findall(r"^- \*\*(\w+\.ptd)\*\*(.*)$", README, re.M)


@pytest.mark.parametrize(("name", "text"), data_files())
def test_data_file(name: str, text: str) -> None:
    found = _format.parse_ptd(SAMPLES / name)
    header = re.search(
        r"FH01 length (\d+), flatbuffer_offset (\d+), flatbuffer_size (\d+), "
        r"segment_base_offset (\d+), segment_data_size (\d+)",
        text,
    )
    assert header is not None
    keys = ("header_length", "flatbuffer_offset", "flatbuffer_size", "segment_base_offset", "segment_data_size")  # fmt: skip
    assert tuple(found[key] for key in keys) == tuple(map(int, header.groups()))
    entries = re.findall(
        r"`([\w:.]+)` at (\d+), (\d+) bytes, (no layout|layout (\w+)\[(.*?)\])", text
    )
    assert len(entries) == len(found["entries"])
    for key, offset, size, layout, dtype, sizes in entries:
        place, nbytes, found_layout = found["entries"][key]
        assert (place, nbytes) == (int(offset), int(size))
        if layout == "no layout":
            assert found_layout is None
        else:
            assert CODES[found_layout[0]] == dtype
            assert found_layout[1] == numbers(sizes)
            assert found_layout[2] == list(range(len(found_layout[1])))


def test_every_sample_was_described() -> None:
    assert {p.name for p in SAMPLES.glob("*.pte")} == set(SECTIONS)
    assert {p.name for p in SAMPLES.glob("*.ptd")} == {name for name, _ in data_files()}


PAYLOADS = {
    "d_aoti_cpu.pte": "keys",
    "d_cuda_v12.pte": "empty",
    "d_cuda_v14.pte": "keys",
    "d_cuda_v15.pte": "fqn3",
    "gpu/v12_mlp.pte": "empty",
    "gpu/v15_mlp.pte": "fqn3",
    "gpu/v15_dec.pte": "fqn3",
}


@pytest.mark.parametrize(("name", "layout"), PAYLOADS.items())
def test_payloads_name_data_that_is_there(name: str, layout: str) -> None:
    program = _format.parse_pte(SAMPLES / name)
    data = _format.parse_ptd((SAMPLES / name).with_suffix(".ptd"))["entries"]
    for method in program["methods"]:
        (delegate,) = method["delegates"]
        assert delegate["compile_specs"]["method_name"] == method["name"].encode()
        payload = _format.decode_payload(delegate["processed"], method["name"])
        assert payload["layout"] == layout
        ((_, _, fallback_only, so_key),) = payload["variants"]
        assert not fallback_only
        assert so_key in program["named_data"]
        if layout == "fqn3":
            assert payload["constants"]
            for constant in payload["constants"]:
                assert data[constant[1]][1] == constant[2], constant[0]
        else:
            assert payload["weights_key"] in data


def test_methods_of_the_decoder_share_their_weights() -> None:
    program = _format.parse_pte(SAMPLES / "gpu" / "v15_dec.pte")
    keys = {}
    for method in program["methods"]:
        payload = _format.decode_payload(method["delegates"][0]["processed"], method["name"])
        keys[method["name"]] = {constant[0]: constant[1] for constant in payload["constants"]}
    assert set(keys) == {"prefill", "decode"}
    shared = {fqn for fqn in keys["prefill"] if not fqn.startswith("_tensor_constant")}
    assert "qkv.weight" in shared
    assert all(keys["decode"][fqn] == keys["prefill"][fqn] for fqn in shared)
