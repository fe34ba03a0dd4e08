"""Arguments by position and by name, nested structures, and every way to get them wrong."""

import collections
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
from echo_methods import LEAF, arguments, constant, echo, node, tensor

import cudaexec

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = A + 10


def two() -> Any:
    return echo([tensor("x"), tensor("y")])


def keyword_only() -> Any:
    return echo([tensor("x"), tensor("scale")], in_spec=arguments([LEAF], {"scale": LEAF}))


def same(got: Any, *expected: np.ndarray) -> None:
    got = got if isinstance(got, tuple) else (got,)
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((A, B), {}),
        ((A,), {"y": B}),
        ((), {"y": B, "x": A}),
        (([A, B],), {}),
        (((A, B),), {}),
        (({"y": B, "x": A},), {}),
    ],
)
def test_by_position_and_by_name(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    same(two()(*args, **kwargs), A, B)


def test_names_that_are_not_interned() -> None:
    same(two()(**{"".join(["x"]): A, "".join(["y", ""]): B}), A, B)


def test_one_input_takes_an_array_or_one_array_in_something() -> None:
    method = echo([tensor("x")])
    for argument in (A, [A], (A,), {"x": A}):
        same(method(argument), A)


def test_an_array_is_not_taken_apart() -> None:
    with pytest.raises(cudaexec.InputError, match=r"missing input \[y\]"):
        two()(A)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, r"missing inputs \[x, y\]"),
        ((A,), {}, r"missing input \[y\]"),
        ((), {"y": B}, r"missing input \[x\]"),
        ((A, B, A), {}, "expected 2 positional inputs, found 3"),
        ((A, B), {"x": A}, "'x' was given twice"),
        ((A,), {"yy": B}, "unknown input 'yy'.*did you mean 'y'"),
        ((A, B), {"zebra": B}, "unknown input 'zebra'"),
        (([A],), {}, r"missing input \[y\]"),
        (({"x": A},), {}, r"missing input \[y\]"),
        (({"x": A, "z": B},), {}, "unknown input 'z'"),
        (({1: A},), {}, "names as keys"),
        (([1.0, 2.0, 3.0],), {}, "found 3"),
    ],
)
def test_wrong_arguments_are_refused(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(cudaexec.InputError, match=message):
        two()(*args, **kwargs)


def test_keyword_only_inputs() -> None:
    same(keyword_only()(A, scale=B), A, B)
    same(keyword_only()(scale=B, x=A), A, B)
    with pytest.raises(
        cudaexec.InputError, match=r"expected 1 positional input, found.*\[x, \*, scale\]"
    ):
        keyword_only()(A, B)
    with pytest.raises(cudaexec.InputError, match=r"did you mean 'scale'\?"):
        keyword_only()(A, scael=B)


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Config:
    left: Any
    right: Any


NESTED = [tensor("p[0]"), tensor("p[1]['a']"), tensor("p[1]['b']")]


def nested(kind: str = "list") -> Any:
    inner = node("dict", [LEAF, LEAF], ["a", "b"])
    return echo(NESTED, in_spec=arguments([node(kind, [LEAF, inner])]))


def test_nested_structures() -> None:
    for argument in (
        [A, {"a": B, "b": A}],
        (A, {"b": A, "a": B}),
        [A, collections.OrderedDict(b=A, a=B)],
        [A, cudaexec.AttrDict(a=B, b=A)],
    ):
        same(nested()(argument), A, B, A)
        same(nested("tuple")(argument), A, B, A)
        same(nested()(p=argument), A, B, A)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ([A], "input 'p': expected 2 items, found 1"),
        (A, "input 'p': expected a list of 2 items, found a numpy.ndarray"),
        ([A, [B, A]], r"input 'p'\[1\]: expected a dict with the keys \['a', 'b'\], found a list"),
        ([A, {"a": B}], r"input 'p'\[1\]: the key 'b' is missing.*found \['a'\]"),
        ([A, {"a": B, "b": A, "c": A}], r"\[1\]: the key 'c' is unknown"),
    ],
)
def test_wrong_structures_are_refused(argument: Any, message: str) -> None:
    with pytest.raises(cudaexec.InputError, match=message):
        nested()(argument)


@pytest.mark.parametrize("kind", ["namedtuple", "dataclass", "custom"])
def test_structures_with_fields(kind: str) -> None:
    spec = node(kind, [LEAF, LEAF], ["left", "right"])
    method = echo([tensor("p.left"), tensor("p.right")], in_spec=arguments([spec]))
    for argument in (Pair(A, B), Config(A, B), {"right": B, "left": A}):
        same(method(argument), A, B)
    with pytest.raises(cudaexec.InputError, match=r"fields \['left', 'right'\]"):
        method(3)


def test_numbers_for_tensors() -> None:
    for dtype, value in [("float32", 2.5), ("bfloat16", 1.5), ("int64", -7), ("bool", True)]:
        method = echo([tensor("x", dtype, ())])
        got = method(value)
        assert isinstance(got, cudaexec.Tensor)
        assert got.dtype == dtype
        assert got.item() == value
    assert echo([tensor("x", "float64", ())])(3).item() == 3.0


@pytest.mark.parametrize(
    ("dtype", "value", "error"),
    [
        ("int64", 1.5, cudaexec.DtypeError),
        ("int64", True, cudaexec.DtypeError),
        ("float32", True, cudaexec.DtypeError),
        ("bool", 1, cudaexec.DtypeError),
        ("uint8", -1, cudaexec.InputError),
        ("uint8", 256, cudaexec.InputError),
        ("int64", 2**63, cudaexec.InputError),
        ("float32", None, cudaexec.InputError),
        ("float32", "1", cudaexec.InputError),
        ("float32", [1.0], cudaexec.InputError),
        ("float32", object(), cudaexec.InputError),
    ],
)
def test_wrong_numbers_for_tensors(dtype: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"input 'x': expected {dtype}"):
        echo([tensor("x", dtype, ()), tensor("y")])(value, A)


def test_a_number_for_an_array_is_refused() -> None:
    with pytest.raises(cudaexec.InputError, match=r"expected float32\[2, 3\].*float 1\.0"):
        echo([tensor("x")])(1.0)


@pytest.mark.parametrize("value", [None, True, 3, -2.5, "text", np.int64(3), np.True_])
def test_constants_take_scalars(value: Any) -> None:
    method = echo([tensor("x"), constant("flag", 3)])
    same(method(A, value), A)


def test_constants_refuse_tensors() -> None:
    method = echo([tensor("x"), constant("flag", True)])
    with pytest.raises(cudaexec.InputError, match="'flag': expected the compiled-in value True"):
        method(A, A)
    with pytest.raises(cudaexec.InputError, match="64 bits"):
        method(A, 2**70)


def test_many_inputs() -> None:
    arrays = [A + i for i in range(40)]
    method = echo([tensor(f"x{i}") for i in range(40)])
    same(method(*arrays), *arrays)
    same(method(**{f"x{i}": arrays[i] for i in range(40)}), *arrays)


def test_methods_of_a_damaged_file_are_refused() -> None:
    with pytest.raises(cudaexec.FormatError):
        echo([tensor("x")], in_spec=node("tuple", [LEAF]))
    with pytest.raises(cudaexec.FormatError):
        echo([tensor("x")], out_spec=node("tuple", [LEAF, LEAF]))


def left_out() -> Any:
    omitted = [
        {"name": "mask", "position": 1, "value": None},
        {"name": "scale", "position": 2, "value": 2.0},
        {"name": "mode", "position": None, "value": "fast"},
    ]
    return echo([tensor("x")], omitted=omitted)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((A,), {}),
        ((A, None), {}),
        ((A, None, 2.0), {"mode": "fast"}),
        ((), {"mask": None, "x": A}),
        ((A,), {"scale": 2.0}),
        (([A, None],), {}),
        (({"x": A, "mask": None},), {}),
    ],
)
def test_what_was_left_out_at_export_may_be_given(args: Any, kwargs: Any) -> None:
    same(left_out()(*args, **kwargs), A)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((A, B), {}, r"input 'mask' was left out at export: .*only that value, None"),
        ((A,), {"mask": B}, r"input 'mask' was left out at export: .*only that value, None"),
        ((A, 0), {}, r"input 'mask' was compiled in: expected None, found the int 0"),
        (
            (A, None, 3.0),
            {},
            r"input 'scale' was compiled in: expected the float 2.0, found the float 3.0",
        ),
        (
            (A,),
            {"mode": "slow"},
            r"input 'mode' was compiled in: expected the str 'fast', found the str 'slow'",
        ),
        ((A, None, 2.0, "fast"), {}, "expected 1 positional input, found 4"),
        ((), {"mask": None}, r"missing input \[x\]"),
        ((A,), {"msk": None}, "unknown input 'msk'"),
    ],
)
def test_other_values_of_what_was_left_out(args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(cudaexec.InputError, match=f"method 'forward': {message}"):
        left_out()(*args, **kwargs)
