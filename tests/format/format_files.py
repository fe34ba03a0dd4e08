"""A small program and its data file, built by the writers, for the tests of this folder."""

from __future__ import annotations

import hashlib
from copy import deepcopy
from typing import Any

from cudaexec.export import manifest as m
from cudaexec.export.payload import PayloadConstant, PayloadVariant, encode_payload
from cudaexec.export.ptd_writer import WeightBlob, build_ptd
from cudaexec.export.pte_writer import ProgramMethod, TensorValue, build_pte

CODE = b"\x7fELF, as far as this test goes. " * 8
WEIGHTS = {
    "fc.weight": bytes(range(256)),
    "fc.bias": bytes(16),
    "counter": (7).to_bytes(8, "little"),
}
CODE_KEY = m.code_key(CODE)
LEAF = {"leaf": True}


def storage(fqn: str) -> str:
    return m.storage_key("cpu", fqn)


def constant(fqn: str, dtype: str, shape: list[int], **more: Any) -> dict[str, Any]:
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return {
        "name": fqn.replace(".", "_"),
        "fqn": fqn,
        "storage_key": storage(fqn),
        "dtype": dtype,
        "shape": shape,
        "strides": strides,
        "offset": 0,
        "device": "cpu",
        "mutated": False,
        "kv": False,
        **more,
    }


def manifest() -> dict[str, Any]:
    """A manifest that uses every part of the schema."""
    weights = {storage(f): (len(b), m.blob_digest(b)) for f, b in WEIGHTS.items()}
    return {
        "producer": {"cudaexec": "0.1.0", "torch": "2.13.0", "triton": None},
        "platform": {"os": "linux", "machine": "x86_64", "glibc": "2.34", "glibcxx": None},
        "code": m.code_section({CODE_KEY: CODE}),
        "weights": m.weights_section(weights),
        "aliases": {"head.weight": "fc.weight"},
        "methods": [method()],
    }


def method() -> dict[str, Any]:
    tensor = {"dtype": "float32", "shape": ["s0", 16], "strides": [16, 1], "device": "cpu"}
    scalar = {"kind": "int", "graph_output": 1}
    return deepcopy(
        {
            "name": "forward",
            "variants": [
                {"target": "cpu", "isa": "x86-64-v3", "cpu_flags": ["avx2"], "code": CODE_KEY,
                 "callouts": ["aoti_torch_cpu_addmm_out"]},
                {"target": "cuda", "sm": 90, "ptx": 0, "sm_count": 132, "code": CODE_KEY},
            ],
            "symbols": [{"name": "s0", "min": 2, "max": 64, "input": 0, "dim": 0}],
            "inputs": [
                {"name": "x", "kind": "tensor", **tensor, "mutated": True, "graph_input": 0},
                {"name": "flag", "kind": "constant", "value": True},
                {"name": "none", "kind": "constant", "value": None},
            ],
            "outputs": [
                {"kind": "tensor", "graph_output": 0, **tensor},
                scalar,
                {"kind": "constant", "value": {"float": "-inf"}},
                {"kind": "expression", "value": ["s0", 2, "mul"]},
            ],
            "num_graph_inputs": 1,
            "num_graph_outputs": 2,
            "guards": [{"text": "s0 % 2 == 0", "expr": ["s0", 2, "mod", 0, "eq"]}],
            "in_spec": {
                "type": "tuple",
                "children": [
                    {"type": "tuple", "children": [LEAF]},
                    {"type": "dict", "children": [LEAF, LEAF],
                     "keys": [["s", "flag"], ["s", "none"]]},
                ],
            },
            "out_spec": {
                "type": "dict",
                "children": [
                    LEAF,
                    {"type": "namedtuple", "children": [LEAF, LEAF], "keys": ["a", "b"],
                     "class": "models:Pair"},
                    {"type": "list", "children": [LEAF]},
                ],
                "keys": [["i", 3], ["n"], ["b", True]],
            },
            "constants": [
                constant("fc.weight", "float32", [4, 16]),
                constant("fc.bias", "float32", [4]),
                constant("counter", "int64", [], mutated=True),
                constant("cache", "bfloat16", [1, 64, 8], kv=True),
            ],
        }
    )  # fmt: skip


def payload() -> bytes:
    return encode_payload(
        [PayloadVariant(CODE_KEY)],
        [
            PayloadConstant("fc.weight", storage("fc.weight"), 256, "float32", "cpu", 0, (4, 16), (16, 1)),
            PayloadConstant("fc.bias", storage("fc.bias"), 16, "float32", "cpu", 0, (4,), (1,)),
            PayloadConstant("counter", storage("counter"), 8, "int64", "cpu", 0, (), ()),
        ],
    )  # fmt: skip


def program(name: str = "forward") -> ProgramMethod:
    return ProgramMethod(
        name,
        [TensorValue("float32", (64, 16), "bound")],
        [TensorValue("float32", (64, 16), "bound"), TensorValue("int64", ())],
        "AotiCpuBackend",
        payload(),
    )


def pte_bytes() -> bytes:
    named = {CODE_KEY: CODE, m.MANIFEST_KEY: m.encode_manifest(manifest())}
    return build_pte([program()], named).to_bytes()


def ptd_bytes() -> bytes:
    return build_ptd(
        WeightBlob(storage(fqn), len(data), data, m.blob_digest(data))
        for fqn, data in WEIGHTS.items()
    ).to_bytes()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
