"""Postfix expressions: Python's integer semantics, and nothing instead of a wrong number."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable

import pytest

from cudaexec import errors
from cudaexec._core import _format

CONSTANT, SYMBOL, NEG, NOT = 0, 1, 7, 19
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)


def power(a: int, b: int) -> int | None:
    if b < 0:
        return None
    return a**b if abs(a) < 2 or b < 64 else None


def guarded(function: Callable[[int, int], int]) -> Callable[[int, int], int | None]:
    return lambda a, b: None if b == 0 else function(a, b)


BINARY: dict[int, Callable[[int, int], int | bool | None]] = {
    2: operator.add,
    3: operator.sub,
    4: operator.mul,
    5: guarded(operator.floordiv),
    6: guarded(operator.mod),
    8: power,
    9: min,
    10: max,
    11: operator.eq,
    12: operator.ne,
    13: operator.lt,
    14: operator.le,
    15: operator.gt,
    16: operator.ge,
    17: lambda a, b: bool(a) and bool(b),
    18: lambda a, b: bool(a) or bool(b),
}

EDGES = [0, 1, -1, 2, -2, 3, -3, 7, 62, 63, 64, 2**31, 2**62, INT64_MAX, INT64_MIN, INT64_MIN + 1]


def fits(value: int | None) -> int | None:
    return None if value is None or not INT64_MIN <= value <= INT64_MAX else int(value)


def evaluate(items: list[tuple[int, int]], symbols: list[int]) -> int | None:
    found = _format.evaluate(items, symbols)
    assert found is None or isinstance(found, int)
    return found


@pytest.mark.parametrize("op", BINARY)
def test_binary_operators_at_the_edges(op: int) -> None:
    for a in EDGES:
        for b in EDGES:
            wanted = fits(BINARY[op](a, b))
            items = [(CONSTANT, a), (SYMBOL, 0), (op, 0)]
            assert evaluate(items, [b]) == wanted, (op, a, b)


def test_unary_operators_at_the_edges() -> None:
    for a in EDGES:
        assert evaluate([(CONSTANT, a), (NEG, 0)], []) == fits(-a)
        assert evaluate([(SYMBOL, 0), (NOT, 0)], [a]) == int(not a)


def random_expression(
    chance: random.Random, symbols: list[int], depth: int
) -> tuple[list[tuple[int, int]], int | None]:
    """Items and their value by Python's integers; None if any part has none."""
    if depth == 0 or chance.random() < 0.2:
        if chance.random() < 0.5:
            index = chance.randrange(len(symbols))
            return [(SYMBOL, index)], symbols[index]
        value = chance.choice(EDGES)
        return [(CONSTANT, value)], value
    a_items, a = random_expression(chance, symbols, depth - 1)
    if chance.random() < 0.2:
        return [*a_items, (NEG, 0)], None if a is None else fits(-a)
    b_items, b = random_expression(chance, symbols, depth - 1)
    op = chance.choice(list(BINARY))
    value = None if a is None or b is None else fits(BINARY[op](a, b))
    return [*a_items, *b_items, (op, 0)], value


def test_random_expressions_agree_with_python() -> None:
    chance = random.Random(7)
    with_value = 0
    for _ in range(3000):
        symbols = [chance.choice([*EDGES, chance.randrange(-99, 99)]) for _ in range(3)]
        items, wanted = random_expression(chance, symbols, 5)
        assert evaluate(items, symbols) == wanted, items
        with_value += wanted is not None
    assert 500 < with_value < 2900


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "0 items"),
        ([(CONSTANT, 1)] * 2, "leaves 2 values"),
        ([(2, 0)], "lacks operands"),
        ([(CONSTANT, 1), (2, 0)], "lacks operands"),
        ([(NEG, 0)], "lacks operands"),
        ([(SYMBOL, 1)], "symbol 1 of 1"),
        ([(SYMBOL, -1)], "symbol -1 of 1"),
        ([(20, 0)], "unknown operator"),
        ([(CONSTANT, 1)] * 65 + [(2, 0)] * 64, "stack of more than 64"),
        ([(CONSTANT, 1)] + [(NEG, 0)] * 4096, "4097 items"),
    ],
)
def test_refused(items: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(errors.FormatError, match=message):
        _format.evaluate(items, [5])


def test_the_limits_themselves_are_allowed() -> None:
    assert evaluate([(CONSTANT, 1)] * 64 + [(2, 0)] * 63, []) == 64
    assert evaluate([(CONSTANT, 1)] + [(NEG, 0)] * 4095, []) == -1
