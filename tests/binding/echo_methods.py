"""Manifests of methods that run no code: `echo(...)` makes one that returns its inputs."""

from __future__ import annotations

import json
from typing import Any

LEAF = {"leaf": True}
STRIDE_FREE = {"strides": [], "device": "cpu"}


def tensor(name: str, dtype: str = "float32", shape: tuple[Any, ...] = (2, 3)) -> dict[str, Any]:
    """A tensor input; strides do not matter to a method that checks nothing."""
    return {
        "name": name,
        "kind": "tensor",
        "dtype": dtype,
        "shape": list(shape),
        "strides": [1] * len(shape),
        "device": "cpu",
        "mutated": False,
    }


def constant(name: str, value: Any) -> dict[str, Any]:
    return {"name": name, "kind": "constant", "value": value}


def node(kind: str, children: list[Any], keys: list[Any] | None = None, cls: str = "") -> Any:
    tree: dict[str, Any] = {"type": kind, "children": children}
    if keys is not None:
        dict_kinds = ("dict", "ordereddict", "defaultdict")
        tree["keys"] = [_key(key) for key in keys] if kind in dict_kinds else keys
    if cls:
        tree["class"] = cls
    return tree


def _key(key: Any) -> list[Any]:
    if key is None:
        return ["n"]
    return ["b" if isinstance(key, bool) else "i" if isinstance(key, int) else "s", key]


def arguments(args: list[Any], kwargs: dict[str, Any] | None = None) -> Any:
    """The tree of a call: positional nodes and keyword nodes."""
    kwargs = kwargs or {}
    return node(
        "tuple", [node("tuple", args), node("dict", list(kwargs.values()), list(kwargs.keys()))]
    )


def manifest(
    inputs: list[dict[str, Any]],
    outputs: list[dict[str, Any]] | None = None,
    *,
    in_spec: Any = None,
    out_spec: Any = None,
    symbols: list[dict[str, Any]] | None = None,
    omitted: list[dict[str, Any]] | None = None,
) -> str:
    """A manifest with one method, `forward`. Default outputs: each tensor input, in a tuple if many."""
    graph_input = 0
    for entry in inputs:
        if entry["kind"] == "tensor":
            entry["graph_input"] = graph_input
            graph_input += 1
    if outputs is None:
        tensors = [entry for entry in inputs if entry["kind"] == "tensor"]
        outputs = [
            {key: entry[key] for key in ("kind", "dtype", "shape", "strides", "device")}
            | {"graph_output": entry["graph_input"]}
            for entry in tensors
        ]
    if out_spec is None:
        out_spec = LEAF if len(outputs) == 1 else node("tuple", [LEAF] * len(outputs))
    method = {
        "name": "forward",
        "variants": [
            {"target": "cpu", "isa": "x86-64-v3", "cpu_flags": [], "code": "none", "callouts": []}
        ],
        "symbols": symbols or [],
        "inputs": inputs,
        "omitted": omitted or [],
        "outputs": outputs,
        "num_graph_inputs": graph_input,
        "num_graph_outputs": graph_input,
        "guards": [],
        "in_spec": in_spec or arguments([LEAF] * len(inputs)),
        "out_spec": out_spec,
        "constants": [],
    }
    return json.dumps(
        {
            "format": "cudaexec",
            "version": 1,
            "producer": {},
            "platform": {},
            "code": {"none": {"sha256": "0" * 64, "nbytes": 0}},
            "weights": {"digest": "", "entries": {}},
            "aliases": {},
            "methods": [method],
        }
    )


def echo(*args: Any, delay_ms: int = 0, **kwargs: Any) -> Any:
    """A Method whose tensor output k is a copy of its k-th tensor input."""
    from cudaexec import _core

    return _core._testing.echo_method(manifest(*args, **kwargs), delay_ms)
