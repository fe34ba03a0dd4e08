"""Symbolic sizes (SymPy) to the manifest's integer postfix expressions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import sympy

Postfix = list[int | str]
Dimension = int | str | Postfix

MAX_ITEMS = 4096

_BINARY: dict[str, str] = {
    "FloorDiv": "floordiv",
    "CleanDiv": "floordiv",
    "PythonMod": "mod",
    "Mod": "mod",
    "Equality": "eq",
    "Unequality": "ne",
    "StrictLessThan": "lt",
    "LessThan": "le",
    "StrictGreaterThan": "gt",
    "GreaterThan": "ge",
    "PowByNatural": "pow",
    "Pow": "pow",
}
_NARY: dict[str, str] = {
    "Add": "add",
    "Mul": "mul",
    "Max": "max",
    "Min": "min",
    "And": "and",
    "Or": "or",
}
# Calls that do nothing to an integer.
_IDENTITY = {"Identity", "ToFloat", "TruncToInt", "OpaqueUnaryFn_trunc"}


_VALUE: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "min": min,
    "max": max,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
}

OPERATORS = frozenset({*_VALUE, "neg", "not"})


class UnsupportedExpressionError(ValueError):
    """The expression has no integer postfix form; `str()` is the expression."""


def to_postfix(expr: Any, symbols: Mapping[Any, Postfix]) -> Postfix:
    """Translate an integer or boolean expression.

    Args:
        expr: a SymPy expression, a Python int or bool, or a torch SymInt/SymBool.
        symbols: for each SymPy symbol the postfix form that stands for it.

    Raises:
        UnsupportedExpressionError: a function or symbol without an integer form.
    """
    items = _translate(sympy.sympify(_plain(expr)), symbols)
    if len(items) > MAX_ITEMS:
        raise UnsupportedExpressionError(f"an expression of {len(items)} items")
    return items


def dimension(expr: Any, symbols: Mapping[Any, Postfix]) -> Dimension:
    """Return a size or stride in its shortest form: an int, a symbol's name, or postfix."""
    items = to_postfix(expr, symbols)
    return items[0] if len(items) == 1 else items


def _plain(expr: Any) -> Any:
    node = getattr(expr, "node", None)
    return node.expr if node is not None and hasattr(node, "expr") else expr


def _translate(expr: Any, symbols: Mapping[Any, Postfix]) -> Postfix:
    if expr is sympy.true or expr is sympy.false:
        return [int(bool(expr))]
    if isinstance(expr, sympy.Integer):
        return [int(expr)]
    if isinstance(expr, sympy.Symbol):
        if expr not in symbols:
            raise UnsupportedExpressionError(str(expr))
        return list(symbols[expr])
    name = type(expr).__name__
    handler = _SPECIAL.get(name)
    if handler is not None:
        return handler(expr, symbols)
    parts = [_translate(argument, symbols) for argument in expr.args]
    if name in _BINARY and len(parts) == 2:
        return [*parts[0], *parts[1], _BINARY[name]]
    if name in _NARY and parts:
        out = list(parts[0])
        for part in parts[1:]:
            out += [*part, _NARY[name]]
        return out
    if name == "Not" and len(parts) == 1:
        return [*parts[0], "not"]
    if name in _IDENTITY and len(parts) == 1:
        return parts[0]
    raise UnsupportedExpressionError(str(expr))


def _modular_indexing(expr: Any, symbols: Mapping[Any, Postfix]) -> Postfix:
    base, divisor, modulus = (_translate(argument, symbols) for argument in expr.args)
    return [*base, *divisor, "floordiv", *modulus, "mod"]


def _ceil_div(expr: Any, symbols: Mapping[Any, Postfix]) -> Postfix:
    base, divisor = (_translate(argument, symbols) for argument in expr.args)
    return [*base, "neg", *divisor, "floordiv", "neg"]


def _true_div(expr: Any, symbols: Mapping[Any, Postfix]) -> Postfix:
    raise UnsupportedExpressionError(str(expr))


_SPECIAL: dict[str, Callable[[Any, Mapping[Any, Postfix]], Postfix]] = {
    "ModularIndexing": _modular_indexing,
    "CeilDiv": _ceil_div,
    "IntTrueDiv": _true_div,
    "FloatTrueDiv": _true_div,
}


def evaluate_postfix(items: Postfix, values: Mapping[str, int]) -> int:
    """Compute an expression; `values` has a value for each symbol name in it.

    Raises:
        ZeroDivisionError: a division or remainder by zero.
    """
    stack: list[int] = []
    for item in items:
        if isinstance(item, int):
            stack.append(item)
        elif item == "neg":
            stack.append(-stack.pop())
        elif item == "not":
            stack.append(not stack.pop())
        elif item in _VALUE:
            right = stack.pop()
            stack.append(int(_VALUE[item](stack.pop(), right)))
        else:
            stack.append(values[item])
    return stack.pop()
