"""Symbolic sizes of a method's inputs: the manifest's symbols, ranges and guards."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from cudaexec.export.errors import ExportError
from cudaexec.export.expressions import (
    OPERATORS,
    Dimension,
    Postfix,
    UnsupportedExpressionError,
    dimension,
    to_postfix,
)

# Sizes above this are "unbounded": torch writes int_oo or sys.maxsize-like numbers.
_UNBOUNDED = 1 << 62


@dataclass
class SymbolSpec:
    """A manifest symbol: the size of dimension `dim` of input leaf `input`.

    `above_one`: a size of 1 is refused though the declared range has it.
    """

    name: str
    minimum: int
    maximum: int | None
    input: int
    dim: int
    above_one: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the manifest entry."""
        return {
            "name": self.name,
            "min": self.minimum,
            "max": self.maximum,
            "input": self.input,
            "dim": self.dim,
        }


@dataclass
class SymbolTable:
    """Symbols of one method.

    Attributes:
        forms: for each SymPy symbol its postfix form.
        names: for each size (a SymPy expression) that is a manifest symbol as a whole, its name.
        ranges: for each SymPy symbol its lowest and highest value.
        labels: see `build_symbols`.
        above_one: SymPy symbols whose declared range begins lower, but that torch traced for sizes
            of 2 and more.
    """

    method: str
    specs: list[SymbolSpec] = field(default_factory=list)
    forms: dict[Any, Postfix] = field(default_factory=dict)
    names: dict[Any, str] = field(default_factory=dict)
    guards: list[dict[str, Any]] = field(default_factory=list)
    ranges: dict[Any, tuple[int, int | None]] = field(default_factory=dict)
    labels: dict[tuple[str, int], str] = field(default_factory=dict)
    above_one: set[Any] = field(default_factory=set)

    def new_name(self, input_name: str, dim: int) -> str:
        """Return the name of the symbol that is size `dim` of an input, used by no other one."""
        taken = {spec.name for spec in self.specs} | set(OPERATORS)
        name = self.labels.get((input_name, dim))
        if name is not None and name not in taken:
            return name
        taken |= set(self.labels.values())
        return next(name for index in itertools.count() if (name := f"s{index}") not in taken)

    def dimension(self, expr: Any) -> Dimension | None:
        """Return a size or stride for the manifest; None for one that depends on data."""
        name = self.names.get(_expr_of(expr)) if not isinstance(expr, int) else None
        if name is not None:
            return name
        try:
            return dimension(expr, self.forms)
        except UnsupportedExpressionError:
            return None

    def dimensions(self, exprs: Iterable[Any]) -> list[Dimension | None]:
        """Return all of them."""
        return [self.dimension(expr) for expr in exprs]

    def bounds(self, expr: Any) -> tuple[int, int | None]:
        """Return the lowest and highest value of a size within the ranges, None for no bound."""
        expr = sympy.sympify(_expr_of(expr))
        if not expr.free_symbols:
            return int(expr), int(expr)
        if any(symbol not in self.ranges for symbol in expr.free_symbols):
            return 0, None
        bound = bound_sympy(expr, self._value_ranges(expr))
        return max(_finite(bound.lower) or 0, 0), _finite(bound.upper)

    def holds_everywhere(self, expr: Any) -> bool:
        """Whether a condition follows from the ranges alone."""
        if expr is sympy.true:
            return True
        if any(symbol not in self.ranges for symbol in expr.free_symbols):
            return False
        try:
            bound = bound_sympy(expr, self._value_ranges(expr))
        except (TypeError, NotImplementedError, AssertionError, KeyError):
            return False  # torch's interval analysis has no rule for a function in it
        return bool(bound.lower is sympy.true)

    def _value_ranges(self, expr: Any) -> dict[Any, ValueRanges[Any]]:
        return {
            symbol: ValueRanges(low, int_oo if high is None else high)
            for symbol, (low, high) in self.ranges.items()
            if symbol in expr.free_symbols
        }

    def add_guard(self, expr: Any) -> None:
        """Add a condition on the symbols, unless it is there already.

        Raises:
            ExportError: the condition has no integer form.
        """
        try:
            items = to_postfix(expr, self.forms)
        except UnsupportedExpressionError as error:
            raise ExportError(
                f"method {self.method!r}: the trace holds only if {expr} does, which has no "
                f"integer form ({error}). Make the dimensions in it static, or rewrite the branch."
            ) from error
        self.add_postfix(items, self.text_of(expr))

    def add_postfix(self, items: Postfix, text: str) -> None:
        """Add a condition that is in postfix form already, unless no symbol occurs in it."""
        names = {spec.name for spec in self.specs}
        if names.isdisjoint(item for item in items if isinstance(item, str)):
            return
        if all(guard["expr"] != items for guard in self.guards):
            self.guards.append({"text": text, "expr": items})

    def text_of(self, expr: Any) -> str:
        """Return the expression in Python's syntax, with the manifest's names for the symbols."""
        names = {
            symbol: sympy.Symbol(str(form[0]), integer=True)
            for symbol, form in self.forms.items()
            if len(form) == 1
        }
        renamed = expr.xreplace(names) if hasattr(expr, "xreplace") else expr
        return str(PythonPrinter().doprint(renamed))


def _expr_of(value: Any) -> Any:
    node = getattr(value, "node", None)
    return node.expr if node is not None and hasattr(node, "expr") else value


def _finite(bound: Any) -> int | None:
    if bound is None or not getattr(bound, "is_Integer", False) or int(bound) >= _UNBOUNDED:
        return None
    return int(bound)


def build_symbols(
    method: str,
    leaves: list[tuple[int, str, Any]],
    shape_env: Any,
    range_constraints: dict[Any, Any],
    labels: Mapping[tuple[str, int], str] | None = None,
) -> SymbolTable:
    """Find the symbols of the inputs' sizes and their ranges.

    Args:
        method: for messages.
        leaves: (leaf index, name, fake tensor) of each tensor input.
        shape_env: torch's ShapeEnv of the trace, or None for a static one.
        range_constraints: `ep.range_constraints`.
        labels: (input name, dimension) to the name of the Dim that was declared for it; symbols
            without one are called s0, s1 and so on.
    """
    table = SymbolTable(method, labels=dict(labels or {}))
    if shape_env is None:
        return table
    _collect_ranges(table, leaves, shape_env, range_constraints)
    _define_plain(table, leaves)
    _define_derived(table, leaves)
    return table


def _sizes(leaves: list[tuple[int, str, Any]]) -> Iterable[tuple[int, str, int, Any]]:
    for index, name, value in leaves:
        for dim, size in enumerate(value.shape):
            yield index, name, dim, sympy.sympify(_expr_of(size))


def _collect_ranges(
    table: SymbolTable,
    leaves: list[tuple[int, str, Any]],
    shape_env: Any,
    range_constraints: dict[Any, Any],
) -> None:
    for _, _, _, expr in _sizes(leaves):
        for symbol in sorted(expr.free_symbols, key=str):
            declared = range_constraints.get(symbol)
            traced = shape_env.var_to_range.get(symbol)
            lows = [
                int(r.lower) for r in (declared, traced) if r is not None and r.lower.is_Integer
            ]
            highs = [_finite(r.upper) for r in (declared, traced) if r is not None]
            finite = [high for high in highs if high is not None]
            # A dynamic size of 0 is refused: reductions over nothing are errors in eager mode.
            low = max([1, *lows])
            table.ranges[symbol] = (low, min(finite) if finite else None)
            wanted = declared is not None and declared.lower.is_Integer and declared.lower <= 1
            if wanted and low == 2:
                table.above_one.add(symbol)
            if traced is not None and traced.lower < low:
                shape_env.var_to_range[symbol] = ValueRanges(low, traced.upper)


def _define_plain(table: SymbolTable, leaves: list[tuple[int, str, Any]]) -> None:
    for index, input_name, dim, expr in _sizes(leaves):
        if not isinstance(expr, sympy.Symbol) or expr in table.forms:
            continue
        name = table.new_name(input_name, dim)
        low, high = table.ranges[expr]
        table.specs.append(SymbolSpec(name, low, high, index, dim, expr in table.above_one))
        table.forms[expr] = [name]


def _define_derived(table: SymbolTable, leaves: list[tuple[int, str, Any]]) -> None:
    """Define symbols that occur only as `a * symbol + b` by inverting the first such size."""
    for index, name, dim, expr in _sizes(leaves):
        unknown = [symbol for symbol in expr.free_symbols if symbol not in table.forms]
        if not unknown:
            continue
        symbol = unknown[0]
        linear = _linear_form(expr, symbol) if len(unknown) == 1 else None
        if linear is None:
            raise ExportError(
                f"method {table.method!r}, input {name!r}: size {dim} is {expr}, from which the "
                f"traced symbol {symbol} cannot be found. Declare dynamic sizes as a Dim or a "
                f"multiple of one plus a constant."
            )
        scale, shift = linear
        low, high = table.ranges[symbol]
        spec = SymbolSpec(
            table.new_name(name, dim),
            scale * low + shift,
            None if high is None else scale * high + shift,
            index,
            dim,
        )
        table.specs.append(spec)
        table.names[expr] = spec.name
        base: Postfix = [spec.name, shift, "sub"] if shift else [spec.name]
        table.forms[symbol] = [*base, scale, "floordiv"] if scale != 1 else base
        if scale != 1:
            text = (
                f"({spec.name} - {shift}) % {scale} == 0"
                if shift
                else f"{spec.name} % {scale} == 0"
            )
            table.guards.append({"text": text, "expr": [*base, scale, "mod", 0, "eq"]})


def _linear_form(expr: Any, symbol: Any) -> tuple[int, int] | None:
    """Return (a, b) of `a * symbol + b` with integers and a > 0, None for another expression."""
    if not expr.is_polynomial(symbol):
        return None
    coefficients = sympy.Poly(expr, symbol).all_coeffs()
    if len(coefficients) != 2 or not all(item.is_Integer for item in coefficients):
        return None
    scale, shift = (int(item) for item in coefficients)
    return (scale, shift) if scale > 0 else None


def harvest_guards(table: SymbolTable, shape_env: Any) -> None:
    """Add what the trace assumed about the sizes, beyond ranges and equal sizes."""
    if shape_env is None:
        return
    for guard in list(shape_env.guards):
        expr = guard.expr.xreplace(dict(shape_env.replacements))
        if expr is sympy.true or table.holds_everywhere(expr):
            continue
        table.add_guard(expr)
