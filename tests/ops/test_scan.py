"""Running sums, products and extremes against torch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from shim_call import DTYPES, FLOATS, call, layouts, same, sample  # noqa: E402

import cudaexec  # noqa: E402

pytestmark = pytest.mark.torch

SHAPES = [(), (1,), (9,), (3, 8), (2, 0, 3), (2, 3, 4), (3, 2, 600)]
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-6, torch.float64: 1e-13}


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sum_and_product(shape: tuple[int, ...], dtype: torch.dtype, name: str) -> None:
    tolerance = TOLERANCE.get(dtype, 0.0)
    for self in layouts(sample(shape, dtype)):
        for dim in range(-1, max(self.dim(), 1)):
            expected = getattr(torch, name)(self, dim)
            same(call(name, self, dim, None), expected, tolerance, tolerance)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_dtype_argument(name: str) -> None:
    self = torch.tensor([1.6, -2.4, 3.5])
    for dtype in (torch.int32, torch.float64, torch.int64, torch.float16):
        same(call(name, self, 0, dtype), getattr(torch, name)(self, 0, dtype=dtype), 1e-6)
    whole = torch.tensor([1, 2, 3])
    for dtype in (torch.float32, torch.uint8):
        same(call(name, whole, 0, dtype), getattr(torch, name)(whole, 0, dtype=dtype))


def test_precision_of_long_sums() -> None:
    """float32 adds up in float64, as torch does: no drift over a million terms."""
    self = torch.full((1_000_000,), 0.1)
    same(call("cumsum", self, 0, None), torch.cumsum(self, 0), 1e-7)


def test_integers_wrap() -> None:
    self = torch.tensor([2**62, 2**62, 2**62, 5])
    same(call("cumsum", self, 0, None), torch.cumsum(self, 0))
    same(call("cumprod", self, 0, None), torch.cumprod(self, 0))


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_extremes(shape: tuple[int, ...], dtype: torch.dtype, name: str) -> None:
    for self in layouts(sample(shape, dtype)):
        for dim in range(-1, max(self.dim(), 1)):
            same(call(name, self, dim), tuple(getattr(torch, name)(self, dim)))


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_extremes_nan(name: str, dtype: torch.dtype) -> None:
    self = torch.tensor([1.0, float("inf"), 2, float("nan"), 5, float("nan"), 1]).to(dtype)
    same(call(name, self, 0), tuple(getattr(torch, name)(self, 0)))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_logcumsumexp(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    tolerance = TOLERANCE[dtype]
    for self in layouts(sample(shape, dtype)):
        for dim in range(-1, max(self.dim(), 1)):
            expected = torch.logcumsumexp(self, dim)
            same(call("logcumsumexp", self, dim), expected, tolerance, tolerance)


def test_logcumsumexp_special_values() -> None:
    inf, nan = float("inf"), float("nan")
    for values in ([-inf, -inf, 1.0], [inf, 1.0, inf], [1000.0, 1000, -1000], [1.0, nan, 2.0]):
        self = torch.tensor(values)
        same(call("logcumsumexp", self, 0), torch.logcumsumexp(self, 0), 1e-6)


def test_errors() -> None:
    with pytest.raises(cudaexec.DtypeError, match="int64"):
        call("logcumsumexp", torch.tensor([1, 2]), 0)
    with pytest.raises(cudaexec.ShapeError, match="dimension 1 does not exist"):
        call("cumsum", torch.zeros(3), 1, None)
