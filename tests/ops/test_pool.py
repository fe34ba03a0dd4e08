"""Pooling against torch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from shim_call import FLOATS, call, layouts, same, sample  # noqa: E402

import cudaexec  # noqa: E402

pytestmark = pytest.mark.torch

aten = torch.ops.aten
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1e-2, torch.float32: 1e-6, torch.float64: 1e-12}
# kernel, stride, padding, dilation, ceil_mode
WINDOWS_2D = [
    ([3, 2], [], [0, 0], [1, 1], False),
    ([3, 3], [2, 2], [1, 1], [1, 1], False),
    ([3, 3], [2, 2], [1, 1], [1, 1], True),
    ([2, 3], [3, 1], [1, 0], [2, 1], True),
    ([2], [1], [0], [2], False),
    ([5, 6], [1, 1], [2, 3], [1, 1], False),
]
SHAPES_2D = [(2, 3, 7, 9), (3, 7, 9), (1, 1, 7, 9), (0, 3, 7, 9)]


@pytest.mark.parametrize("window", WINDOWS_2D, ids=str)
@pytest.mark.parametrize("dtype", [torch.int64, *FLOATS], ids=str)
def test_max_pool2d(dtype: torch.dtype, window: tuple) -> None:
    for shape in SHAPES_2D:
        for self in layouts(sample(shape, dtype)):
            same(
                call("max_pool2d_with_indices", self, *window),
                aten.max_pool2d_with_indices(self, *window),
            )


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_max_pool3d(dtype: torch.dtype) -> None:
    for window in (
        ([2, 3, 2], [], [0, 0, 0], [1, 1, 1], False),
        ([3, 3, 3], [2, 2, 2], [1, 1, 1], [1, 1, 1], True),
        ([2], [1], [0], [2], False),
    ):
        for shape in ((2, 3, 4, 5, 6), (3, 4, 5, 6)):
            for self in layouts(sample(shape, dtype))[:: 1 if len(shape) == 5 else 5]:
                same(
                    call("max_pool3d_with_indices", self, *window),
                    aten.max_pool3d_with_indices(self, *window),
                )


def test_max_pool_nan_and_infinity() -> None:
    self = torch.full((1, 1, 4, 4), float("-inf"))
    self[0, 0, 1, 1] = float("nan")
    self[0, 0, 2, 3] = 5
    window = ([2, 2], [1, 1], [0, 0], [1, 1], False)
    same(
        call("max_pool2d_with_indices", self, *window), aten.max_pool2d_with_indices(self, *window)
    )


@pytest.mark.parametrize("window", [w for w in WINDOWS_2D if max(w[3]) == 1], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_avg_pool2d(dtype: torch.dtype, window: tuple) -> None:
    kernel, stride, padding, _, ceil_mode = window
    for shape in SHAPES_2D:
        for self in layouts(sample(shape, dtype)):
            for include_pad in (True, False):
                for divisor in (None, 3):
                    arguments = (self, kernel, stride, padding, ceil_mode, include_pad, divisor)
                    same(
                        call("avg_pool2d", *arguments),
                        aten.avg_pool2d(*arguments),
                        TOLERANCE[dtype],
                        TOLERANCE[dtype],
                    )


def test_avg_pool3d() -> None:
    for kernel, stride, padding in (([2, 3, 2], [], [0, 0, 0]), ([3], [2], [1])):
        for self in layouts(sample((2, 3, 4, 5, 6), torch.float32)):
            for ceil_mode in (True, False):
                for include_pad in (True, False):
                    arguments = (self, kernel, stride, padding, ceil_mode, include_pad, None)
                    same(call("avg_pool3d", *arguments), aten.avg_pool3d(*arguments), 1e-6, 1e-6)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_adaptive(dtype: torch.dtype) -> None:
    tolerance = TOLERANCE[dtype]
    for shape in SHAPES_2D[:3]:
        for self in layouts(sample(shape, dtype)):
            for output in ([1, 1], [3, 4], [7, 9], [10, 2]):
                same(
                    call("_adaptive_avg_pool2d", self, output),
                    aten._adaptive_avg_pool2d(self, output),
                    tolerance,
                    tolerance,
                )
                same(
                    call("adaptive_max_pool2d", self, output),
                    aten.adaptive_max_pool2d(self, output),
                )
    for self in layouts(sample((2, 3, 4, 5, 6), dtype)):
        for output in ([1, 1, 1], [2, 3, 4]):
            same(
                call("_adaptive_avg_pool3d", self, output),
                aten._adaptive_avg_pool3d(self, output),
                tolerance,
                tolerance,
            )
            same(call("adaptive_max_pool3d", self, output), aten.adaptive_max_pool3d(self, output))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_fractional(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    for self in layouts(sample((2, 3, 9, 11), dtype)):
        samples = torch.rand(2, 3, 2, generator=generator, dtype=dtype)
        for output in ([4, 5], [1, 1], [8, 10]):
            arguments = (self, [2, 2], output, samples)
            same(call("fractional_max_pool2d", *arguments), aten.fractional_max_pool2d(*arguments))
    for self in layouts(sample((2, 3, 6, 7, 8), dtype)):
        samples = torch.rand(2, 3, 3, generator=generator, dtype=dtype)
        arguments = (self, [2, 2, 3], [3, 3, 4], samples)
        same(call("fractional_max_pool3d", *arguments), aten.fractional_max_pool3d(*arguments))


def test_unpool() -> None:
    for self in layouts(sample((2, 3, 6, 8), torch.float32)):
        values, indices = aten.max_pool2d_with_indices(self, [2, 2])
        arguments = (values, indices, [6, 8])
        same(call("max_unpool2d", *arguments), aten.max_unpool2d(*arguments))
    for self in layouts(sample((2, 3, 4, 6, 8), torch.float32)):
        values, indices = aten.max_pool3d_with_indices(self, [2, 2, 2])
        arguments = (values, indices, [4, 6, 8], [2, 2, 2], [0, 0, 0])
        same(call("max_unpool3d", *arguments), aten.max_unpool3d(*arguments))
    with pytest.raises(cudaexec.InputError, match="index 9; expected 0 to 3"):
        call("max_unpool2d", torch.ones(1, 1, 1), torch.full((1, 1, 1), 9), [2, 2])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((torch.zeros(3, 3), [2], [], [0], [1], False), "ShapeError", "expected 3 or 4 dimensions"),
        ((torch.zeros(1, 2, 2), [3], [], [0], [1], False), "ShapeError", "gives no output"),
        ((torch.zeros(1, 9, 9), [2], [], [2], [1], False), "InputError", "exceeds half"),
        ((torch.zeros(1, 9, 9), [2], [0], [0], [1], False), "InputError", "stride"),
        ((torch.zeros(1, 9, 9), [2, 2, 2], [], [0], [1], False), "InputError", "1 or 2 values"),
        ((torch.zeros(1, 0, 9), [2], [], [0], [1], False), "ShapeError", "above 0"),
    ],
)
def test_errors(arguments: tuple, error: str, message: str) -> None:
    with pytest.raises(getattr(cudaexec, error), match=message):
        call("max_pool2d_with_indices", *arguments)
