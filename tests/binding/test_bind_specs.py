"""Method.inputs, Method.outputs and the texts made from them."""

import dataclasses

import pytest
from echo_methods import LEAF, arguments, constant, echo, node, tensor

import cudaexec


def method() -> cudaexec.Method:
    inputs = [
        tensor("x", "float32", ("s0", 64)),
        tensor("c[0]", "bool", ()),
        constant("flag", True),
    ]
    inputs[0]["strides"] = [64, 1]
    outputs = [
        {"kind": "tensor", "graph_output": 0, "dtype": "float16", "shape": [["s0", 2, "mul"], 3],
         "strides": [3, 1], "device": "cpu"},
        {"kind": "int", "graph_output": 1},
        {"kind": "constant", "value": "text"},
        {"kind": "expression", "value": ["s0", 1, "add", 2, "floordiv"]},
    ]  # fmt: skip
    return echo(
        inputs,
        outputs,
        symbols=[{"name": "s0", "min": 2, "max": None, "input": 0, "dim": 0}],
        in_spec=arguments([LEAF, node("list", [LEAF])], {"flag": LEAF}),
        out_spec=node(
            "tuple",
            [node("dict", [LEAF], ["a"]), node("namedtuple", [LEAF], ["n"], "m:N"), LEAF, LEAF],
        ),
    )


def test_inputs() -> None:
    x, c, flag = method().inputs
    assert x == cudaexec.TensorSpec(
        name="x",
        kind="tensor",
        dtype="float32",
        shape=("s0", 64),
        strides=(64, 1),
        min_shape=(2, 64),
        max_shape=(None, 64),
        device="cpu",
    )
    assert (c.name, c.dtype, c.shape) == ("c[0]", "bool", ())
    assert (flag.name, flag.kind, flag.value, flag.dtype) == ("flag", "constant", True, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        x.name = "y"  # type: ignore[misc]


def test_outputs() -> None:
    a, n, text, size = method().outputs
    assert (a.name, a.dtype, a.shape, a.min_shape) == (
        "output[0]['a']",
        "float16",
        ("s0*2", 3),
        (None, 3),
    )
    assert (n.name, n.kind) == ("output[1].n", "int")
    assert (text.name, text.kind, text.value) == ("output[2]", "constant", "text")
    assert (size.kind, size.value) == ("expression", "(s0 + 1)//2")


def test_texts() -> None:
    assert method().name == "forward"
    assert repr(method()) == (
        "<cudaexec.Method forward(x: float32[s0 >= 2, 64], c[0]: bool[], flag=True) -> "
        "(float16[s0*2, 3], int, 'text', (s0 + 1)//2)>"
    )
