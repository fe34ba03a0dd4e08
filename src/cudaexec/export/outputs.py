"""What a method returns: which leaves are tensors of the graph, numbers or constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from cudaexec.export.dtypes import dtype_name
from cudaexec.export.errors import ExportError
from cudaexec.export.expressions import UnsupportedExpressionError, to_postfix
from cudaexec.export.manifest import encode_scalar
from cudaexec.export.pytree import NULL_LEAF
from cudaexec.export.symbols import SymbolTable


@dataclass
class OutputPlan:
    """The manifest's `outputs` and the traced value of each graph output."""

    leaves: list[dict[str, Any]]
    graph_outputs: list[Any]


def plan_outputs(
    method: str, module: Any, program: Any, symbols: SymbolTable, slots: list[Any]
) -> OutputPlan:
    """Flatten the graph's outputs, each computed value once.

    The graph of `module` is changed to return a flat tuple of its distinct tensors and of the
    numbers that only the run can know; constants and sizes move into the manifest.
    """
    output = next(node for node in module.graph.nodes if node.op == "output")
    from torch.utils._pytree import tree_flatten

    flat = _flat_results(method, output, program, tree_flatten)
    positions: dict[Any, int] = {}
    leaves = []
    for slot in slots:
        if slot is NULL_LEAF:
            leaves.append({"kind": "constant", "value": None})
        else:
            leaves.append(_leaf(method, flat[slot], symbols, positions))
    nodes = list(positions)
    output.args = (tuple(nodes),)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module.recompile()
    return OutputPlan(leaves, [node.meta["val"] for node in nodes])


def _flat_results(method: str, output: Any, program: Any, tree_flatten: Any) -> list[Any]:
    flat, _ = tree_flatten(output.args[0])
    expected = program.call_spec.out_spec.num_leaves
    if len(flat) != expected:
        raise ExportError(
            f"method {method!r}: the graph returns {len(flat)} values for {expected} result leaves"
        )
    return list(flat)


def _leaf(
    method: str, item: Any, symbols: SymbolTable, positions: dict[Any, int]
) -> dict[str, Any]:
    if not isinstance(item, torch.fx.Node):
        return _constant(method, item)
    value = item.meta.get("val")
    if value is None or isinstance(value, (bool, int, float, str)):
        return _constant(method, value)
    if isinstance(value, torch.Tensor):
        return {
            "kind": "tensor",
            "graph_output": positions.setdefault(item, len(positions)),
            "dtype": dtype_name(value.dtype),
            "shape": symbols.dimensions(value.shape),
            "strides": symbols.dimensions(value.stride()),
            "device": value.device.type,
        }
    if isinstance(value, torch.SymInt):
        try:
            return {"kind": "expression", "value": to_postfix(value, symbols.forms)}
        except UnsupportedExpressionError:
            return {"kind": "int", "graph_output": positions.setdefault(item, len(positions))}
    if isinstance(value, torch.SymFloat):
        return {"kind": "float", "graph_output": positions.setdefault(item, len(positions))}
    if isinstance(value, torch.SymBool):
        return {"kind": "bool", "graph_output": positions.setdefault(item, len(positions))}
    raise ExportError(
        f"method {method!r}: a result of type {type(value).__name__} cannot be returned by a "
        f"program; expected tensors, numbers, strings and None in containers"
    )


def _constant(method: str, value: Any) -> dict[str, Any]:
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"kind": "constant", "value": encode_scalar(value)}
    raise ExportError(
        f"method {method!r}: a constant result of type {type(value).__name__} cannot be recorded; "
        f"expected bool, int, float, str or None"
    )
