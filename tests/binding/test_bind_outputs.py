"""Structures of outputs: containers, classes that are loaded, and their stand-in."""

import collections
import dataclasses
import random
import sys
import types
from typing import Any, NamedTuple

import numpy as np
import pytest
from echo_methods import LEAF, arguments, echo, node, tensor

import cudaexec

A = np.arange(3, dtype=np.float32)


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Result:
    x: Any
    y: Any = None


class ModelOutput(collections.OrderedDict):
    """As transformers' class of that name: an ordered dict with attributes."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


@dataclasses.dataclass
class Outer:
    @dataclasses.dataclass
    class Inner:
        x: Any
        y: Any


THIS = f"{__name__}:"


def run(spec: Any, outputs: list[Any] | None = None) -> Any:
    outputs = outputs or [
        {"kind": "constant", "value": 1},
        {"kind": "constant", "value": "two"},
    ]
    return echo([tensor("a", "float32", (3,))], outputs, out_spec=spec)(A)


def array_output() -> dict[str, Any]:
    return {"kind": "tensor", "graph_output": 0, "dtype": "float32", "shape": [3], "strides": [1],
            "device": "cpu"}  # fmt: skip


def test_builtin_containers() -> None:
    assert run(node("tuple", [LEAF, LEAF])) == (1, "two")
    assert run(node("list", [LEAF, LEAF])) == [1, "two"]
    got = run(node("dict", [LEAF, LEAF], ["b", 3]))
    assert got == {"b": 1, 3: "two"}
    assert list(got) == ["b", 3]
    got = run(node("dict", [LEAF, LEAF], [True, None]))
    assert list(got) == [True, None]
    got = run(node("ordereddict", [LEAF, LEAF], ["b", "a"]))
    assert type(got) is collections.OrderedDict
    assert list(got.items()) == [("b", 1), ("a", "two")]
    got = run(node("defaultdict", [LEAF, LEAF], ["b", "a"]))
    assert type(got) is collections.defaultdict
    assert got == {"b": 1, "a": "two"}


def test_empty_containers() -> None:
    got = echo([tensor("a", "float32", (3,))], [], out_spec=node("tuple", []))(A)
    assert got == ()
    spec = node("tuple", [node("list", []), node("dict", [], []), LEAF])
    got = echo([tensor("a", "float32", (3,))], [array_output()], out_spec=spec)(A)
    assert got[:2] == ([], {})
    np.testing.assert_array_equal(got[2], A)


def test_scalars() -> None:
    values = [None, True, 3, 2.5, "text"]
    outputs = [{"kind": "constant", "value": value} for value in values]
    got = run(node("tuple", [LEAF] * 5), outputs)
    assert got == (None, True, 3, 2.5, "text")
    assert [type(one) for one in got] == [type(one) for one in values]
    outputs = [{"kind": "constant", "value": {"float": text}} for text in ("nan", "inf", "-inf")]
    got = run(node("tuple", [LEAF] * 3), outputs)
    assert got[0] != got[0]
    assert got[1:] == (float("inf"), float("-inf"))


def test_computed_numbers() -> None:
    for dtype, kind, value in [
        ("int64", "int", 7),
        ("float64", "float", 2.5),
        ("bool", "bool", True),
    ]:
        got = echo([tensor("a", dtype, ())], [{"kind": kind, "graph_output": 0}])(value)
        assert got == value
        assert type(got) is type(value)
    got = echo([tensor("a", "float32", (3,))], [{"kind": "expression", "value": [2, 3, "mul"]}])(A)
    assert got == 6


def test_nested() -> None:
    inner = node("dict", [LEAF, node("list", [LEAF])], ["k", "l"])
    got = run(node("tuple", [inner, node("tuple", [])]))
    assert got == ({"k": 1, "l": ["two"]}, ())


@pytest.mark.parametrize(
    ("kind", "name", "cls"),
    [
        ("namedtuple", "Point", Point),
        ("dataclass", "Result", Result),
        ("dataclass", "Outer.Inner", Outer.Inner),
        ("custom", "ModelOutput", ModelOutput),
    ],
)
def test_loaded_classes_are_used(kind: str, name: str, cls: type) -> None:
    got = run(node(kind, [LEAF, LEAF], ["x", "y"], THIS + name))
    assert type(got) is cls
    assert (got.x, got.y) == (1, "two")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("namedtuple", "not_a_module:Point"),
        ("namedtuple", THIS + "NotThere"),
        ("namedtuple", THIS + "Result"),  # another kind of class
        ("dataclass", THIS + "Point"),
        ("custom", THIS + "Result"),
        ("custom", "subprocess:Popen"),  # a file must not make us call just anything
        ("custom", THIS + "run"),
        ("dataclass", ""),
    ],
)
def test_other_classes_are_replaced(kind: str, name: str) -> None:
    got = run(node(kind, [LEAF, LEAF], ["x", "y"], name))
    assert type(got) is cudaexec.AttrDict
    assert (got.x, got["y"], got[0], got[-1]) == (1, "two", 1, "two")


def test_classes_with_other_fields_are_replaced() -> None:
    got = run(node("namedtuple", [LEAF, LEAF], ["x", "z"], THIS + "Point"))
    assert type(got) is cudaexec.AttrDict
    got = run(node("dataclass", [LEAF], ["x"], THIS + "Result"), [{"kind": "constant", "value": 1}])
    assert type(got) is cudaexec.AttrDict


def test_nothing_is_imported() -> None:
    name = "imaginary_module_of_this_test"
    spec = node("namedtuple", [LEAF, LEAF], ["x", "y"], f"{name}:Point")
    method = echo([tensor("a", "float32", (3,))], [array_output(), array_output()], out_spec=spec)
    assert type(method(A)) is cudaexec.AttrDict
    asked: list[str] = []
    module = types.ModuleType(name)
    module.__getattr__ = asked.append  # type: ignore[method-assign]
    sys.modules[name] = module
    try:
        assert type(method(A)) is cudaexec.AttrDict
        assert asked == []
        module.Point = Point  # type: ignore[attr-defined]
        assert type(method(A)) is Point  # from the moment it is there
    finally:
        del sys.modules[name]


def test_attrdict() -> None:
    one = cudaexec.AttrDict(loss=1, logits=2)
    assert one.loss == 1
    assert dict(one) == {"loss": 1, "logits": 2}
    assert one[1] == 2
    one.extra = 3
    assert one["extra"] == 3
    del one.extra
    assert "extra" not in one
    assert "loss" in dir(one)
    assert repr(one) == "AttrDict(loss=1, logits=2)"
    with pytest.raises(AttributeError, match="no field 'nope'"):
        _ = one.nope
    with pytest.raises(AttributeError):
        del one.nope
    for key in ("nope", 2, True):
        with pytest.raises(KeyError):
            one[key]
    assert not hasattr(one, "nope")


def random_structure(rng: random.Random, leaves: list[Any], depth: int = 0) -> tuple[Any, Any]:
    """A value with new arrays at its leaves (added to `leaves` in order), and its tree."""
    kind = rng.choice(["leaf"] * depth + ["tuple", "list", "dict", "ordereddict"])
    if kind == "leaf" or depth > 4:
        leaves.append(np.full(2, len(leaves), np.float32))
        return leaves[-1], LEAF
    parts = [random_structure(rng, leaves, depth + 1) for _ in range(rng.randrange(4))]
    values = [value for value, _ in parts]
    trees = [tree for _, tree in parts]
    if kind in ("tuple", "list"):
        return (tuple(values) if kind == "tuple" else values), node(kind, trees)
    keys = rng.sample(["a", "b", "c", 1, 2, None], len(parts))
    return dict(zip(keys, values, strict=True)), node(kind, trees, keys)


def leaves_of(value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    return [leaf for item in items for leaf in leaves_of(item)]


@pytest.mark.parametrize("seed", range(30))
def test_structures_come_back_as_they_went_in(seed: int) -> None:
    rng = random.Random(seed)
    leaves: list[Any] = []
    value, tree = random_structure(rng, leaves, 0)
    inputs = [tensor(f"v[{i}]", "float32", (2,)) for i in range(len(leaves))]
    method = echo(inputs, in_spec=arguments([tree]), out_spec=tree)
    got = method(value)
    assert repr(leaves_of(got)) == repr(leaves)
    if leaves:  # numpy out, as numpy went in
        assert repr(got) == repr(with_classes(value, tree))


def with_classes(value: Any, tree: Any) -> Any:
    """The value with the classes that the tree names."""
    if tree == LEAF:
        return value
    if isinstance(value, dict):
        parts = {
            k: with_classes(v, t) for (k, v), t in zip(value.items(), tree["children"], strict=True)
        }
        return collections.OrderedDict(parts) if tree["type"] == "ordereddict" else parts
    parts = [with_classes(v, t) for v, t in zip(value, tree["children"], strict=True)]
    return tuple(parts) if tree["type"] == "tuple" else parts
