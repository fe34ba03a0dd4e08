"""Conditions on dynamic sizes that code generation adds, after the trace was checked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import sympy

from cudaexec.export.errors import ExportError
from cudaexec.export.expressions import OPERATORS, Postfix, evaluate_postfix
from cudaexec.export.symbols import SymbolTable

_MAX_SAMPLES = 20000
_FAR = (100, 127, 128, 129, 255, 256, 1000, 1023, 1024, 1025, 4095, 4096, 65535, 65536)


class NeedsSizesAboveOneError(Exception):
    """Code generation excluded only dynamic sizes of 1: to be traced again without them."""


class GuardWatch:
    """Notices what a code generation adds to torch's ShapeEnv."""

    def __init__(self, shape_env: Any) -> None:
        """Args: shape_env: the trace's ShapeEnv, or None for a static program."""
        self._env = shape_env
        self._count = len(shape_env.guards) if shape_env is not None else 0
        self._replacements = dict(shape_env.replacements) if shape_env is not None else {}

    def check(self, table: SymbolTable, *, oblivious: bool) -> None:
        """Take conditions that exclude nothing declared into the guards.

        Raises:
            ExportError: a condition excludes sizes that the trace allows.
            NeedsSizesAboveOneError: it excludes only sizes of 1, in an oblivious trace.
        """
        if self._env is None:
            return
        assumed = [
            guard.expr.xreplace(self._replacements) for guard in self._env.guards[: self._count]
        ]
        for guard in self._env.guards[self._count :]:
            expr = guard.expr.xreplace(self._replacements)
            if expr is sympy.true or table.holds_everywhere(expr):
                continue
            excluded = list(_excluded(table, expr, assumed))
            if not excluded:
                table.add_guard(expr)
            elif oblivious and all(1 in values for values in excluded):
                raise NeedsSizesAboveOneError
            else:
                raise ExportError(
                    f"method {table.method!r}: code generation narrowed the declared sizes to "
                    f"{table.text_of(expr)}, which excludes for example "
                    f"{_example(table, expr, excluded[0])}. Declare a range for which it holds, "
                    f"or make the dimension static."
                )


def _values(low: int, high: int | None) -> list[int]:
    near = list(range(low, low + 40))
    top = [] if high is None else list(range(max(low, high - 8), high + 1))
    far = [value for value in _FAR if value > low]
    return sorted({v for v in (*near, *far, *top) if high is None or v <= high})


def _excluded(table: SymbolTable, expr: Any, assumed: list[Any]) -> Iterator[tuple[int, ...]]:
    """Yield combinations of sizes that meet every earlier condition and not this one."""
    symbols = sorted(expr.free_symbols, key=str)
    ranges = [_values(*table.ranges.get(symbol, (1, None))) for symbol in symbols]
    related = [item for item in assumed if item.free_symbols and item.free_symbols <= set(symbols)]
    forms = [table.forms.get(symbol, []) for symbol in symbols]
    names = {str(form[0]): index for index, form in enumerate(forms) if len(form) == 1}
    recorded = [guard["expr"] for guard in table.guards if _names(guard["expr"]) <= names.keys()]
    for values in itertools.islice(itertools.product(*ranges), _MAX_SAMPLES):
        named = {name: values[index] for name, index in names.items()}
        if not all(_holds(items, named) for items in recorded):
            continue
        at = {symbol: sympy.Integer(v) for symbol, v in zip(symbols, values, strict=True)}
        if any(item.xreplace(at) == sympy.false for item in related):
            continue
        if expr.xreplace(at) == sympy.false:
            yield values


def _names(items: Postfix) -> set[str]:
    return {item for item in items if isinstance(item, str) and item not in OPERATORS}


def _holds(items: Postfix, values: dict[str, int]) -> bool:
    try:
        return bool(evaluate_postfix(items, values))
    except ZeroDivisionError:
        return False


def _example(table: SymbolTable, expr: Any, values: tuple[int, ...]) -> str:
    symbols = sorted(expr.free_symbols, key=str)
    return ", ".join(
        f"{table.text_of(symbol)} = {value}" for symbol, value in zip(symbols, values, strict=True)
    )
