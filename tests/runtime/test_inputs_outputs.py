"""What a call does with the memory of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cudaexec

pytestmark = pytest.mark.torch
Program = Callable[[str], Path]


def test_outputs_alias_nothing(program: Program) -> None:
    with cudaexec.load(program("views")) as module:
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        weight = np.arange(6, dtype=np.float32).reshape(2, 3)
        first = module(x)
        expected = (x, x.T, x[1:], x + 1, x + 1, weight, np.repeat(x[:1], 4, 0), weight.T)
        for got, want in zip(first, expected, strict=True):
            np.testing.assert_array_equal(got, want)
            assert not np.shares_memory(got, x)
        assert first[1].strides == x.T.strides  # a view keeps its layout
        # What is done to the outputs changes neither the weights nor a later call.
        for output in (first[0], first[1], first[2], first[5], first[7]):
            output[...] = -1
        for got, want in zip(module(x), expected, strict=True):
            np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(module.state_dict()["weight"].numpy(), weight)


def test_an_output_fed_back_is_not_shared(program: Program) -> None:
    with cudaexec.load(program("views")) as module:
        own = module.state_dict()["weight"]  # a cudaexec.Tensor: its memory belongs to the core
        for x in (own, module(own)[3]):
            before = x.numpy().copy()
            for output in module(x):
                output.numpy()[...] = 7
            np.testing.assert_array_equal(x.numpy(), before)


def test_outputs_of_earlier_calls_stay(program: Program) -> None:
    with cudaexec.load(program("tiny")) as module:
        inputs = [np.full(16, i, np.float32) for i in range(20)]
        kept = [module(x) for x in inputs]
        for x, y in zip(inputs, kept, strict=True):
            np.testing.assert_array_equal(y, x * 2 + 1)


@pytest.mark.parametrize("read_only", [False, True])
def test_inputs_are_never_written(program: Program, read_only: bool) -> None:
    with cudaexec.load(program("mutates")) as module:
        x = np.arange(5, dtype=np.float32)
        x.flags.writeable = not read_only
        for _ in range(2):
            np.testing.assert_array_equal(module(x), (np.arange(5) + 1) * 2)
        np.testing.assert_array_equal(x, np.arange(5))


def misaligned(x: np.ndarray) -> np.ndarray:
    raw = np.zeros(x.nbytes + 1, np.uint8)[1:]
    raw[...] = np.frombuffer(x.tobytes(), np.uint8)
    return raw.view(x.dtype).reshape(x.shape)


LAYOUTS = {
    "transposed": lambda x: np.asfortranarray(x),
    "every other column": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "reversed": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
    "misaligned": misaligned,
    "big step": lambda x: np.stack([x, x * 0])[0],
    "row of stride 0": lambda x: np.broadcast_to(x[:1], x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_any_layout_gives_the_same_answer(program: Program, layout: str, rows: int) -> None:
    with cudaexec.load(program("mlp_a")) as module:
        x = np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32)
        given = LAYOUTS[layout](x)
        before = np.array(given, copy=True)
        np.testing.assert_array_equal(module(given), module(np.ascontiguousarray(given)))
        np.testing.assert_array_equal(given, before)


@pytest.mark.parametrize(
    ("shape", "dtype", "error", "parts"),
    [
        ((65, 8), np.float32, cudaexec.ShapeError, ["input", "1..64", "65"]),
        ((0, 8), np.float32, cudaexec.ShapeError, ["input", "1..64", "0"]),
        ((4, 9), np.float32, cudaexec.ShapeError, ["input", "float32[4, 9]", "dimension 1"]),
        ((4, 8, 1), np.float32, cudaexec.ShapeError, ["input", "rank 3"]),
        ((8,), np.float32, cudaexec.ShapeError, ["input", "rank 1"]),
        ((4, 8), np.float64, cudaexec.DtypeError, ["input", "float32", "float64"]),
        ((4, 8), np.int32, cudaexec.DtypeError, ["input", "float32", "int32"]),
    ],
)
def test_wrong_tensors_are_named(
    program: Program, shape: tuple[int, ...], dtype: type, error: type, parts: list[str]
) -> None:
    with cudaexec.load(program("mlp_a")) as module:
        with pytest.raises(error) as caught:
            module(np.zeros(shape, dtype))
        for part in ["forward", *parts]:
            assert part in str(caught.value)
        assert module(np.zeros((2, 8), np.float32)).shape == (2, 4)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({1: False}, ["True", "False"]),
        ({1: 1}, ["the bool True", "the int 1"]),
        ({2: 4}, ["the int 3", "the int 4"]),
        ({2: 3.0}, ["the int 3", "the float 3.0"]),
        ({2: True}, ["the int 3", "the bool True"]),
        ({3: 0.5}, ["the float 0.0", "the float 0.5"]),
        ({3: -0.0}, ["the float 0.0", "the float -0.0"]),
        ({3: float("nan")}, ["the float 0.0", "nan"]),
        ({4: 0}, ["None", "the int 0"]),
        ({4: "x"}, ["None", "'x'"]),
    ],
)
def test_other_compiled_in_values_are_refused(
    program: Program, change: dict[int, object], parts: list[str]
) -> None:
    with cudaexec.load(program("scalars")) as module:
        x = np.ones(3, np.float32)
        args = [x, True, 3, 0.0, None]
        np.testing.assert_array_equal(module(*args), x * 3)
        for index, value in change.items():
            args[index] = value
        with pytest.raises(cudaexec.InputError) as caught:
            module(*args)
        for part in parts:
            assert part in str(caught.value)


def test_wrong_count(program: Program) -> None:
    with cudaexec.load(program("scalars")) as module:
        for args in (
            (),
            (np.ones(3, np.float32),),
            (np.ones(3, np.float32), True, 3, 0.0, None, 1),
        ):
            with pytest.raises(cudaexec.InputError, match="forward"):
                module(*args)


def test_an_error_of_the_program_leaves_it_usable(program: Program) -> None:
    with cudaexec.load(program("checked")) as module:
        x = np.arange(6, dtype=np.float32)
        for bad in (6, -7, 1 << 40):
            with pytest.raises(cudaexec.Error):
                module(x, np.array([0, bad]))
            np.testing.assert_array_equal(module(x, np.array([5, 0])), [10, 0])
