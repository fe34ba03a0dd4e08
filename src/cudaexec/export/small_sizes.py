"""Dynamic dimensions of size 1.

Tracing assumes that a dynamic size is 2 or more, and specialises code on that without a guard. A
size-oblivious trace assumes nothing, but answers "is this size 1" with no, which is wrong for the
few operators whose result then has another shape (`squeeze`). So such a trace is used only if a
second, static one with all those sizes at 1 gives the same result structure and shapes; otherwise
the program refuses sizes below 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx.experimental import _config as symbolic_config

from cudaexec.export.dynamic_dims import DeclaredDim
from cudaexec.export.errors import ExportError
from cudaexec.export.trace import MethodRequest, export_program


@contextmanager
def oblivious_sizes(enabled: bool) -> Iterator[None]:
    """Trace and compile without the assumption that dynamic sizes are 2 or more."""
    with symbolic_config.patch(backed_size_oblivious=enabled):
        yield


def wanted(request: MethodRequest, dims: Sequence[DeclaredDim]) -> bool:
    """Whether any declared range includes size 1."""
    return not isinstance(request.model, ExportedProgram) and any(
        (declared.minimum or 0) <= 1 for declared in dims
    )


def trace_small(request: MethodRequest, *, strict: bool) -> ExportedProgram | None:
    """Return a size-oblivious trace that is right at size 1 too, or None if there is none."""
    try:
        with oblivious_sizes(True):
            program = export_program(request, strict=strict)
        ones = _request_at_one(request, program)
        if ones is None:
            return None
        static = export_program(ones, strict=strict)
    except ExportError:
        return None
    return program if _same_results(program, static) else None


def _lowest(program: ExportedProgram, symbol: Any) -> int | None:
    declared = program.range_constraints.get(symbol)
    if declared is None or not declared.lower.is_Integer:
        return None
    return max(int(declared.lower), 1)


def _value_at_one(program: ExportedProgram, size: Any) -> int | None:
    """Return a traced size where every symbol has the lowest value of its range, at least 1."""
    expr = sympy.sympify(size.node.expr if isinstance(size, torch.SymInt) else size)
    values = {symbol: _lowest(program, symbol) for symbol in expr.free_symbols}
    if any(value is None for value in values.values()):
        return None
    result = expr.xreplace({symbol: sympy.Integer(value) for symbol, value in values.items()})
    return int(result) if result.is_Integer else None


def _request_at_one(request: MethodRequest, program: ExportedProgram) -> MethodRequest | None:
    from torch.utils._pytree import tree_flatten, tree_unflatten

    flat, spec = tree_flatten((tuple(request.args), request.kwargs))
    names = program.graph_signature.user_inputs
    fake = {
        node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"
    }
    if len(names) != len(flat):
        return None
    examples = []
    for name, example in zip(names, flat, strict=True):
        value = fake.get(name) if isinstance(name, str) else None
        if not isinstance(example, torch.Tensor) or not isinstance(value, torch.Tensor):
            examples.append(example)
            continue
        shape = [_value_at_one(program, size) for size in value.shape]
        if any(size is None for size in shape):
            return None
        examples.append(example.detach().new_zeros(shape))
    args, kwargs = tree_unflatten(examples, spec)
    return MethodRequest(request.name, request.model, args, kwargs, None)


def _user_outputs(program: ExportedProgram) -> list[Any]:
    output = next(node for node in program.graph.nodes if node.op == "output")
    count = len(program.graph_signature.user_outputs)
    items = list(output.args[0])
    return items[len(items) - count :]


def _same_results(program: ExportedProgram, static: ExportedProgram) -> bool:
    if program.call_spec.out_spec != static.call_spec.out_spec:
        return False
    left, right = _user_outputs(program), _user_outputs(static)
    return len(left) == len(right) and all(
        _same_leaf(program, a, b) for a, b in zip(left, right, strict=True)
    )


def _same_leaf(program: ExportedProgram, a: Any, b: Any) -> bool:
    a = a.meta.get("val") if isinstance(a, torch.fx.Node) else a
    b = b.meta.get("val") if isinstance(b, torch.fx.Node) else b
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return (
            a.dtype == b.dtype
            and a.dim() == b.dim()
            and all(_same_size(program, x, y) for x, y in zip(a.shape, b.shape, strict=True))
        )
    if isinstance(a, torch.SymInt | int) and isinstance(b, torch.SymInt | int):
        return _same_size(program, a, b)
    return type(a) is type(b) and (isinstance(a, torch.SymFloat | torch.SymBool) or a == b)


def _same_size(program: ExportedProgram, a: Any, b: Any) -> bool:
    if isinstance(b, torch.SymInt):  # depends on data in both
        return isinstance(a, torch.SymInt)
    value = _value_at_one(program, a)
    return value is None or value == int(b)
