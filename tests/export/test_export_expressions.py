"""Symbolic sizes to postfix: every function against SymPy's own arithmetic."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
sympy = pytest.importorskip("sympy")

from export_plan import evaluate  # noqa: E402
from torch.utils._sympy.functions import (  # noqa: E402
    CeilDiv,
    CleanDiv,
    FloorDiv,
    IntTrueDiv,
    Max,
    Min,
    Mod,
    ModularIndexing,
    PythonMod,
)

from cudaexec.export.expressions import (  # noqa: E402
    UnsupportedExpressionError,
    dimension,
    to_postfix,
)

pytestmark = pytest.mark.torch

A, B = sympy.symbols("a b", integer=True, positive=True)
NAMES = {A: ["s0"], B: ["s1"]}

EXPRESSIONS = [
    A + B - 3,
    2 * A * B,
    A - B,
    A**3 + B**2,
    FloorDiv(A, B),
    CleanDiv(A * B, B),
    CeilDiv(A, B),
    Mod(A, B),
    PythonMod(A, B),
    ModularIndexing(A, 2, B),
    Max(A, B) - Min(A, B, 4),
    sympy.Eq(A, B),
    sympy.Ne(A, B),
    A < B,
    A <= B,
    A > B,
    A >= B,
    sympy.And(A < B, sympy.Eq(Mod(B, 2), 0)),
    sympy.Or(A < B, A > 5),
    sympy.Not(sympy.Eq(Mod(A, 3), 0)),
]


@pytest.mark.parametrize("expr", EXPRESSIONS, ids=str)
def test_same_value_as_sympy(expr):
    items = to_postfix(expr, NAMES)
    for a in (1, 2, 3, 7, 12):
        for b in (1, 2, 5, 12):
            expected = expr.xreplace({A: sympy.Integer(a), B: sympy.Integer(b)})
            boolean = expected in (sympy.true, sympy.false)
            number = int(bool(expected)) if boolean else int(expected)
            assert evaluate(items, {"s0": a, "s1": b}) == number


def test_shortest_form():
    assert dimension(5, NAMES) == 5
    assert dimension(A, NAMES) == "s0"
    assert dimension(sympy.true, NAMES) == 1


def test_derived_symbols_are_replaced():
    assert evaluate(to_postfix(A + 1, {A: ["s0", 2, "floordiv"]}), {"s0": 8}) == 5


@pytest.mark.parametrize(
    "expr", [IntTrueDiv(A, B), sympy.Symbol("u0", integer=True), sympy.Float(1.5)], ids=str
)
def test_what_has_no_integer_form(expr):
    with pytest.raises(UnsupportedExpressionError):
        to_postfix(expr, NAMES)
