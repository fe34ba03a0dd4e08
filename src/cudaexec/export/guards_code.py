"""Guards that an ExportedProgram carries as Python text, as a saved and loaded one does."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from cudaexec.export.errors import ExportError
from cudaexec.export.expressions import Postfix, UnsupportedExpressionError, to_postfix
from cudaexec.export.symbols import SymbolTable

_BINARY: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
}
_COMPARE: dict[type, str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}


def add_guards_of(table: SymbolTable, program: Any, inputs: Mapping[str, Any]) -> None:
    """Add the conditions of `program._guards_code`.

    Args:
        table: receives them.
        program: an ExportedProgram; one without such text adds nothing.
        inputs: name of each tensor input to its fake tensor.

    Raises:
        ExportError: a condition that cannot be read.
    """
    sources: dict[str, Any] = {}
    for name, value in inputs.items():
        sources[_source_text(name)] = value
        # Guards call the parts of *rest `rest[0]`, programs `rest_0`.
        collected = re.match(r"(\w+)_(\d+)(.*)$", name)
        if collected:
            head, index, rest = collected.groups()
            sources.setdefault(_source_text(f"{head}[{index}]{rest}"), value)
    for text in getattr(program, "_guards_code", None) or ():
        try:
            items = _Reader(table, sources).read(ast.parse(text.strip(), mode="eval").body)
        except (SyntaxError, UnsupportedExpressionError, KeyError) as error:
            raise ExportError(
                f"method {table.method!r}: the exported program holds only if {text}, which cannot "
                f"be recorded ({error}). Export the module itself instead of the program."
            ) from error
        table.add_postfix(items, text)


def _source_text(name: str) -> str:
    """Return how guards spell an input: `state['k'][0]` is `L['state']['k'][0]`."""
    head, rest = name, ""
    for index, character in enumerate(name):
        if character in "[.":
            head, rest = name[:index], name[index:]
            break
    return ast.unparse(ast.parse(f"L[{head!r}]{rest}", mode="eval").body)


class _Reader:
    def __init__(self, table: SymbolTable, sources: Mapping[str, Any]) -> None:
        self._table = table
        self._sources = sources

    def read(self, node: ast.expr) -> Postfix:
        match node:
            case ast.Constant(value=value) if isinstance(value, int):
                return [int(value)]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return [*self.read(left), *self.read(right), _BINARY[type(op)]]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return [*self.read(operand), "neg"]
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return [*self.read(operand), "not"]
            case ast.BoolOp(op=op, values=values):
                return self._fold(values, "and" if isinstance(op, ast.And) else "or")
            case ast.Call(func=ast.Name(id="min" | "max" as name), args=arguments) if arguments:
                return self._fold(arguments, name)
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._compare(left, ops, others)
            case ast.Subscript(
                value=ast.Call(func=ast.Attribute(value=source, attr="size" | "stride" as attr)),
                slice=ast.Constant(value=int() as dim),
            ):
                return self._dimension(source, attr, dim)
        raise UnsupportedExpressionError(ast.unparse(node))

    def _fold(self, nodes: list[ast.expr], operator: str) -> Postfix:
        out = self.read(nodes[0])
        for node in nodes[1:]:
            out += [*self.read(node), operator]
        return out

    def _compare(self, left: ast.expr, ops: list[ast.cmpop], others: list[ast.expr]) -> Postfix:
        out: Postfix = []
        for index, (op, right) in enumerate(zip(ops, others, strict=True)):
            if type(op) not in _COMPARE:
                raise UnsupportedExpressionError(ast.dump(op))
            part = [*self.read(left), *self.read(right), _COMPARE[type(op)]]
            out += part if index == 0 else [*part, "and"]
            left = right
        return out

    def _dimension(self, source: ast.expr, attribute: str, dim: int) -> Postfix:
        tensor = self._sources[ast.unparse(source)]
        values = tensor.shape if attribute == "size" else tensor.stride()
        form = self._table.dimension(values[dim])
        if form is None:
            return to_postfix(values[dim], self._table.forms)
        return form if isinstance(form, list) else [form]
