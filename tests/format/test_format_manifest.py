"""The manifest: a complete one is read completely, and each rule refuses its violation by its path."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from format_files import CODE, CODE_KEY, LEAF, constant, manifest, method, storage

from cudaexec import errors
from cudaexec._core import _format
from cudaexec.export import manifest as m

Edit = Callable[[dict[str, Any]], Any]


def parse(value: dict[str, Any]) -> dict[str, Any]:
    return _format.parse_manifest(m.encode_manifest(value))


def test_everything_is_read() -> None:
    found = parse(manifest())
    assert found["version"] == 1
    assert found["producer"] == {"cudaexec": "0.1.0", "torch": "2.13.0"}
    assert found["platform"]["glibc"] == "2.34"
    assert found["code"][CODE_KEY][0] == len(CODE)
    assert found["weights"][storage("fc.weight")] == (256, m.blob_digest(bytes(range(256))))
    assert len(found["weights_digest"]) == 32
    assert found["aliases"] == {"head.weight": "fc.weight"}
    (found_method,) = found["methods"]
    assert found_method["name"] == "forward"
    assert found_method["variants"] == [
        ("cpu", "x86-64-v3", 0, 0, CODE_KEY, ["avx2"], ["aoti_torch_cpu_addmm_out"]),
        ("cuda", "", 90, 0, CODE_KEY, [], []),
    ]
    assert found_method["symbols"] == [("s0", 2, 64, 0, 0)]
    x, flag, none = found_method["inputs"]
    assert x["name"] == "x"
    assert x["mutated"]
    assert x["tensor"]["sizes"] == [[(1, 0)], [(0, 16)]]
    assert x["tensor"]["strides"] == [[(0, 16)], [(0, 1)]]
    assert (flag["kind"], flag["value"], none["value"]) == (1, True, None)
    kinds = [(output["kind"], output["graph_output"]) for output in found_method["outputs"]]
    assert kinds == [(0, 0), (1, 1), (4, 0), (5, 0)]
    assert found_method["outputs"][2]["value"] == -math.inf
    assert found_method["outputs"][3]["expression"] == [(1, 0), (0, 2), (4, 0)]
    assert found_method["guards"] == [("s0 % 2 == 0", [(1, 0), (0, 2), (6, 0), (0, 0), (11, 0)])]
    assert found_method["constants"][0] == (
        "fc_weight", "fc.weight", storage("fc.weight"), "float32", [4, 16], [16, 1], 0, 0, False, False
    )  # fmt: skip
    assert found_method["constants"][2][8]
    assert found_method["constants"][3][9]
    tree = found_method["out_tree"]
    assert (tree["type"], tree["keys"], tree["num_leaves"]) == ("dict", [3, None, True], 4)
    pair = tree["children"][1]
    assert (pair["type"], pair["keys"], pair["class"]) == ("namedtuple", ["a", "b"], "models:Pair")


def test_a_model_without_weights() -> None:
    value = manifest()
    value.pop("weights")
    value.pop("aliases")
    value["methods"][0].pop("constants")
    found = parse(value)
    assert (found["weights"], found["weights_digest"]) == ({}, "")
    value["weights"] = {"digest": "", "entries": {}}
    assert parse(value)["weights_digest"] == ""


def test_unknown_keys_are_ignored() -> None:
    value = manifest()
    value["later"] = {"x": [1, 2.5, None]}
    value["methods"][0]["later"] = 1
    value["methods"][0]["inputs"][0]["later"] = "x"
    parse(value)


@pytest.mark.parametrize("key", [None, True, -5, 2.5, "", 'q"é\n', math.inf])
def test_dictionary_keys(key: Any) -> None:
    value = manifest()
    value["methods"][0]["out_spec"]["keys"][0] = m.encode_key(key)
    value["methods"][0]["out_spec"]["keys"][1:] = [["s", "other"], ["s", "third"]]
    (found,) = parse(value)["methods"]
    assert found["out_tree"]["keys"][0] == key
    assert type(found["out_tree"]["keys"][0]) is type(key)


@pytest.mark.parametrize(
    "scalar", [None, True, False, 0, -(2**63), 2**63 - 1, 1.5, -0.0, math.inf, "é"]
)
def test_constants_keep_their_type(scalar: Any) -> None:
    value = manifest()
    value["methods"][0]["inputs"][1]["value"] = m.encode_scalar(scalar)
    found = parse(value)["methods"][0]["inputs"][1]["value"]
    assert (type(found), repr(found)) == (type(scalar), repr(scalar))


def test_nan_constant() -> None:
    value = manifest()
    value["methods"][0]["outputs"][2]["value"] = m.encode_scalar(math.nan)
    assert math.isnan(parse(value)["methods"][0]["outputs"][2]["value"])


def put(*path: Any) -> Edit:
    """An edit that stores the last argument at the path before it."""
    *way, key, value = path

    def edit(document: dict[str, Any]) -> None:
        for step in way:
            document = document[step]
        document[key] = value

    return edit


def drop(*path: Any) -> Edit:
    *way, key = path

    def edit(document: dict[str, Any]) -> None:
        for step in way:
            document = document[step]
        del document[key]

    return edit


def add(*path: Any) -> Edit:
    *way, value = path

    def edit(document: dict[str, Any]) -> None:
        for step in way:
            document = document[step]
        document.append(value)  # type: ignore[attr-defined]

    return edit


M = ("methods", 0)
TENSOR_FIELDS = ["name", "kind", "dtype", "shape", "strides", "device", "graph_input"]
HUGE = 2**63

NEGATIVE: dict[str, tuple[Edit, str]] = {
    "another format": (put("format", "gguf"), r"\$\.format: 'gguf'"),
    "format missing": (put("format", None), r"\$\.format: a text expected, null found"),
    "version as text": (put("version", "1"), r"\$\.version: an integer expected"),
    "version 0": (put("version", 0), r"\$\.version: 0"),
    "version as float": (put("version", 1.0), r"\$\.version: an integer expected, a float"),
    "producer a list": (put("producer", []), r"\$\.producer: an object expected"),
    "producer entry a number": (put("producer", "torch", 2), r"\$\.producer\.torch: a text"),
    "code missing": (drop("code"), "'code' is missing"),
    "code digest short": (put("code", CODE_KEY, "sha256", "ab"), "64 lower-case hex"),
    "code digest upper case": (put("code", CODE_KEY, "sha256", "A" * 64), "64 lower-case hex"),
    "code size negative": (put("code", CODE_KEY, "nbytes", -1), "nbytes: -1"),
    "code size huge": (put("code", CODE_KEY, "nbytes", HUGE), "an integer expected"),
    "weights digest of others": (put("weights", "digest", "0" * 32), "the entries have digest"),
    "weights digest missing": (drop("weights", "digest"), "'digest' is missing"),
    "weights entries missing": (drop("weights", "entries"), "'entries' is missing"),
    "weight size a float": (
        put("weights", "entries", storage("fc.bias"), "nbytes", 16.0),
        r"\$\.weights\.entries\['cuda_fqn_weight:cpu:fc\.bias'\]\.nbytes: an integer",
    ),
    "alias of nothing": (put("aliases", "a", "nobody"), r"\$\.aliases\.a: alias target 'nobody'"),
    "alias of an alias": (put("aliases", "a", "head.weight"), "has no weights entry"),
    "methods missing": (drop("methods"), "'methods' is missing"),
    "no methods": (put("methods", []), "there are no methods"),
    "method a number": (put("methods", 0, 3), r"\$\.methods\[0\]: an object expected"),
    "method twice": (add("methods", method()), r"\$\.methods\[1\]: method 'forward' occurs twice"),
    "method without a name": (drop(*M, "name"), "'name' is missing"),
    "method with an empty name": (put(*M, "name", ""), "empty"),
    "no variants": (put(*M, "variants", []), "without code"),
    "variant of an unknown target": (put(*M, "variants", 0, "target", "tpu"), "'tpu'"),
    "variant without an ISA": (drop(*M, "variants", 0, "isa"), "'isa' is missing"),
    "variant with a negative SM": (put(*M, "variants", 1, "sm", -1), r"variants\[1\]\.sm: -1"),
    "variant with a huge SM": (put(*M, "variants", 1, "sm", 2**31), "2147483648"),
    "variant without known code": (put(*M, "variants", 0, "code", "x"), "not among"),
    "flags no list": (put(*M, "variants", 0, "cpu_flags", "avx2"), "a list expected"),
    "call-out a number": (put(*M, "variants", 0, "callouts", [1]), r"callouts\[0\]: a text"),
    "symbol twice": (
        add(*M, "symbols", {"name": "s0", "min": 0, "max": None, "input": 0, "dim": 0}),
        "occurs twice",
    ),
    "symbol named like an operator": (put(*M, "symbols", 0, "name", "add"), "operator's name"),
    "symbol min negative": (put(*M, "symbols", 0, "min", -1), "min: -1"),
    "symbol max below min": (put(*M, "symbols", 0, "max", 1), "max: 1; 2 to"),
    "symbol of no input": (put(*M, "symbols", 0, "input", 9), "no such tensor"),
    "symbol of a constant input": (put(*M, "symbols", 0, "input", 1), "no such tensor"),
    "symbol of no dimension": (put(*M, "symbols", 0, "dim", 2), "no such tensor"),
    "input of an unknown kind": (put(*M, "inputs", 0, "kind", "image"), "'image'"),
    "input dtype unknown": (put(*M, "inputs", 0, "dtype", "float8"), "unknown dtype 'float8'"),
    "input device unknown": (put(*M, "inputs", 0, "device", "npu"), "'npu'"),
    "input mutated a number": (put(*M, "inputs", 0, "mutated", 1), "a boolean expected"),
    "input size negative": (put(*M, "inputs", 0, "shape", 1, -16), r"shape\[1\]: negative"),
    "input size computed negative": (
        put(*M, "inputs", 0, "shape", 1, [1, 2, "sub"]),
        "negative: -1",
    ),
    "input stride negative": (put(*M, "inputs", 0, "strides", 1, -1), "negative"),
    "input size a float": (put(*M, "inputs", 0, "shape", 1, 16.0), "an integer expected"),
    "input size of an unknown symbol": (
        put(*M, "inputs", 0, "shape", 0, "s9"),
        "'s9' is no symbol",
    ),
    "input size an operator": (put(*M, "inputs", 0, "shape", 0, "add"), "lacks operands"),
    "input size an empty list": (put(*M, "inputs", 0, "shape", 0, []), "0 items"),
    "input size an object": (put(*M, "inputs", 0, "shape", 0, {}), "an integer expected"),
    "ranks differ": (put(*M, "inputs", 0, "strides", [1]), "2 sizes and 1 strides"),
    "rank 65": (
        put(*M, "inputs", 0, "shape", [1] * 65),
        "rank 65",
    ),
    "graph input out of range": (put(*M, "inputs", 0, "graph_input", 1), "graph tensor 1 of 1"),
    "graph input negative": (put(*M, "inputs", 0, "graph_input", -1), "-1"),
    "graph input not fed": (put(*M, "num_graph_inputs", 2), "1 of 2 graph inputs are fed"),
    "graph input fed twice": (
        lambda d: d["methods"][0]["inputs"].append(d["methods"][0]["inputs"][0]),
        "fed twice",
    ),
    "2^40 graph inputs": (put(*M, "num_graph_inputs", 2**40), "num_graph_inputs"),
    "2^40 graph outputs": (put(*M, "num_graph_outputs", 2**40), "num_graph_outputs"),
    "constant input without a value": (drop(*M, "inputs", 1, "value"), "'value' is missing"),
    "constant a list": (put(*M, "inputs", 1, "value", [1]), "an object expected"),
    "constant of an unknown word": (put(*M, "inputs", 1, "value", {"float": "big"}), "'big'"),
    "output of an unknown kind": (put(*M, "outputs", 0, "kind", "str"), "unknown kind 'str'"),
    "graph output out of range": (put(*M, "outputs", 1, "graph_output", 2), "graph tensor 2 of 2"),
    "omitted twice": (
        put(*M, "omitted", [{"name": "m", "position": p, "value": None} for p in (1, 2)]),
        "'m' or its position occurs twice",
    ),
    "omitted without a value": (put(*M, "omitted", [{"name": "m"}]), "'value' is missing"),
    "output expression unknown": (put(*M, "outputs", 3, "value", ["s0", "s1", "mul"]), "'s1'"),
    "guard without text": (drop(*M, "guards", 0, "text"), "'text' is missing"),
    "guard leaves two": (put(*M, "guards", 0, "expr", ["s0", 2]), r"guards\[0\]\.expr: .*2 values"),
    "in_spec a leaf": (put(*M, "in_spec", LEAF), "args"),
    "in_spec a list": (put(*M, "in_spec", "type", "list"), "args"),
    "in_spec without kwargs": (
        put(*M, "in_spec", "children", [{"type": "tuple", "children": [LEAF]}]),
        "kwargs",
    ),
    "in_spec leaves": (put(*M, "in_spec", "children", 0, "children", []), "2 leaves for 3 inputs"),
    "out_spec missing": (drop(*M, "out_spec"), "'out_spec' is missing"),
    "out_spec leaves": (put(*M, "out_spec", LEAF), "1 leaves for 4 outputs"),
    "leaf false": (put(*M, "out_spec", {"leaf": False}), "true expected"),
    "leaf with children": (put(*M, "out_spec", "leaf", True), "a leaf and has a type"),
    "node of an unknown type": (put(*M, "out_spec", "type", "set"), "unknown node type 'set'"),
    "node without children": (drop(*M, "out_spec", "children"), "'children' is missing"),
    "dict without keys": (drop(*M, "out_spec", "keys"), "'keys' is missing"),
    "dict with too few keys": (put(*M, "out_spec", "keys", [["n"]]), "1 keys for 3 children"),
    "dict with a key twice": (put(*M, "out_spec", "keys", 0, ["n"]), "occurs twice"),
    "list with keys": (put(*M, "out_spec", "type", "list"), "keys in a node that has none"),
    "key of another type": (put(*M, "out_spec", "keys", 0, ["i", "3"]), "does not fit"),
    "key true as integer": (put(*M, "out_spec", "keys", 0, ["i", True]), "does not fit"),
    "key of an unknown code": (put(*M, "out_spec", "keys", 0, ["x", 3]), "does not fit"),
    "key without a value": (put(*M, "out_spec", "keys", 0, ["i"]), "a code and a value"),
    "key NaN": (put(*M, "out_spec", "keys", 0, ["f", {"float": "nan"}]), "NaN"),
    "key a number": (put(*M, "out_spec", "keys", 0, 3), "a list expected"),
    "field name a number": (put(*M, "out_spec", "children", 1, "keys", 0, 3), "a text expected"),
    "class without a module": (put(*M, "out_spec", "children", 1, "class", "Pair"), "module:Qual"),
    "constant twice": (
        add(*M, "constants", constant("fc.bias", "float32", [4])),
        "'fc_bias' occurs twice",
    ),
    "FQN twice": (put(*M, "constants", 1, "fqn", "fc.weight"), "FQN 'fc.weight' occurs twice"),
    "constant without weights": (put(*M, "constants", 1, "storage_key", "x"), "no weights entry"),
    "constant too large": (put(*M, "constants", 0, "shape", 0, 5), "do not fit the 256 bytes"),
    "constant beyond its storage": (put(*M, "constants", 0, "offset", 1), "do not fit"),
    "constant overflows": (put(*M, "constants", 0, "strides", 0, HUGE - 1), "do not fit"),
    "constant offset huge": (put(*M, "constants", 0, "offset", HUGE - 1), "do not fit"),
    "constant of a wider dtype": (put(*M, "constants", 0, "dtype", "float64"), "do not fit"),
    "constant size symbolic": (put(*M, "constants", 0, "shape", 0, "s0"), "an integer expected"),
    "constant size negative": (put(*M, "constants", 0, "shape", 0, -4), "-4"),
    "constant rank": (put(*M, "constants", 0, "strides", [1]), "2 sizes and 1 strides"),
}
NEGATIVE |= {
    f"input without {field}": (drop(*M, "inputs", 0, field), f"'{field}' is missing")
    for field in TENSOR_FIELDS
}


@pytest.mark.parametrize("name", NEGATIVE)
def test_refused(name: str) -> None:
    edit, message = NEGATIVE[name]
    value = {"format": "cudaexec", "version": 1, **manifest()}
    edit(value)
    with pytest.raises(errors.FormatError, match=message) as caught:
        parse(value)
    assert str(caught.value).startswith("manifest.json, manifest $")


def test_a_newer_version_names_both() -> None:
    value = manifest() | {"version": 7}
    value["producer"]["cudaexec"] = "9.9"
    with pytest.raises(
        errors.VersionError, match=r"version 7, written by cudaexec 9\.9.*version 1"
    ):
        parse(value)


TEXTS = {
    "empty": (b"", "no valid JSON"),
    "not JSON": (b"{format: 1}", "byte 3: no valid JSON"),
    "cut": (b'{"format": "cuda', "no valid JSON"),
    "bytes after the end": (b"{} {}", "no valid JSON"),
    "not UTF-8": (b'{"format": "\xff"}', "no valid JSON"),
    "a lone surrogate": (b'{"format": "\\ud800"}', "no valid JSON"),
    "NaN": (b'{"format": NaN}', "no valid JSON"),
    "a number that overflows": (b'{"format": 1e999}', "no valid JSON"),
    "an array": (b"[]", r"\$: an object expected, a list found"),
    "a key twice": (b'{"format": 1, "format": 1}', "'format' occurs twice"),
    "depth 65": (b'{"x":' + b"[" * 64 + b"]" * 64 + b"}", "nested deeper than 64"),
    "depth 10000": (b"[" * 10000 + b"]" * 10000, "nested deeper than 64"),
    "depth 10000 of objects": (b'{"a":' * 10000 + b"1" + b"}" * 10000, "nested deeper than 64"),
    "larger than 64 MiB": (b" " * ((64 << 20) + 1), "67108865 bytes"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_that_are_no_manifest(name: str) -> None:
    text, message = TEXTS[name]
    with pytest.raises(errors.FormatError, match=message):
        _format.parse_manifest(text)


def test_depth_64_is_allowed() -> None:
    value = {"format": "cudaexec", "version": 1, **manifest()}
    text = json.dumps(value)[:-1] + ',"x":' + "[" * 63 + "]" * 63 + "}"
    _format.parse_manifest(text.encode())


def test_the_writer_refuses_what_the_reader_would() -> None:
    deep: Any = LEAF
    for _ in range(100_000):
        deep = {"type": "list", "children": [deep]}
    with pytest.raises(ValueError, match="nested 20000"):
        m.encode_manifest({"tree": deep})
    with pytest.raises(ValueError, match="bytes"):
        m.encode_manifest({"x": " " * (64 << 20)})
    with pytest.raises(ValueError, match="JSON"):
        m.encode_manifest({"x": math.nan})
    with pytest.raises(ValueError, match="scalars only"):
        m.encode_key(())  # type: ignore[arg-type]
