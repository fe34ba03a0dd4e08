"""Element-wise operators and those of no larger family against torch."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")
from shim_call import DTYPES, FLOATS, INTEGERS, call, layouts, same, sample  # noqa: E402

import cudaexec  # noqa: E402

pytestmark = pytest.mark.torch

aten = torch.ops.aten
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-6, torch.float64: 1e-13}
SHAPES = [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((), (3,)), ((0, 4), (4,)), ((), ())]


@pytest.mark.parametrize("dtypes", [*itertools.product(DTYPES, DTYPES)], ids=str)
def test_add_and_mul(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    for a_shape, b_shape in SHAPES:
        a, b = sample(a_shape, dtypes[0]), sample(b_shape, dtypes[1], 3)
        tolerance = TOLERANCE.get(torch.result_type(a, b), 0)
        same(call("mul_Tensor", a, b), torch.mul(a, b), tolerance, tolerance)
        kind = torch.result_type(a, b)
        for alpha in (1.0,) if kind == torch.bool else (1.0, 2.0):
            expected = torch.add(a, b, alpha=alpha if kind.is_floating_point else int(alpha))
            same(call("add_Tensor", a, b, alpha), expected, tolerance, tolerance)


def test_layouts_of_results() -> None:
    base = sample((2, 3, 4, 5), torch.float32)
    for a, b in itertools.product(layouts(base), layouts(base + 1)):
        same(call("mul_Tensor", a, b), torch.mul(a, b))
    for a in layouts(base):
        same(call("mul_Tensor", a, base[0, 0]), torch.mul(a, base[0, 0]))
        same(call("abs", a), torch.abs(a))
        same(call("mul_Scalar", a, 2.0), torch.mul(a, 2.0))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numbers(dtype: torch.dtype) -> None:
    self = sample((3, 4), dtype)
    tolerance = TOLERANCE.get(dtype, 1e-6)
    same(call("add_Scalar", self, 1.5, 2.0), aten.add.Scalar(self, 1.5, 2.0), tolerance, tolerance)
    same(call("mul_Scalar", self, 1.5), aten.mul.Scalar(self, 1.5), tolerance, tolerance)
    for exponent in (2.0, 0.0, -1.0, 0.5):
        same(
            call("pow_Tensor_Scalar", self, exponent),
            aten.pow.Tensor_Scalar(self, exponent),
            tolerance,
            tolerance,
        )
    same(call("pow_Scalar", 2.5, self), aten.pow.Scalar(2.5, self), tolerance, tolerance)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_pow_and_gcd(dtype: torch.dtype) -> None:
    base = torch.tensor([0, 1, 2, 3, 7, 13]).to(dtype).reshape(-1, 1)
    exponent = torch.tensor([0, 1, 2, 5, 40]).to(dtype)
    same(call("pow_Tensor_Tensor", base, exponent), torch.pow(base, exponent))
    if dtype != torch.uint8:
        base = torch.tensor([1, -1, 2, -3]).to(dtype).reshape(-1, 1)
        exponent = torch.tensor([-1, -2, 3]).to(dtype)
        same(call("pow_Tensor_Tensor", base, exponent), torch.pow(base, exponent))
    a, b = sample((20,), dtype), sample((20,), dtype, 1)
    same(call("gcd", a, b), torch.gcd(a, b))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_floating_pow(dtype: torch.dtype) -> None:
    base = sample((30,), dtype)
    exponent = sample((30,), dtype, 1)
    expected = torch.pow(base, exponent)
    same(call("pow_Tensor_Tensor", base, exponent), expected, TOLERANCE[dtype], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.bool], ids=str)
def test_abs_and_angle(dtype: torch.dtype) -> None:
    self = sample((9,), dtype)
    same(call("abs", self), torch.abs(self))
    same(call("angle", self), torch.angle(self))
    if dtype.is_floating_point:
        self = torch.tensor([float("nan"), -0.0, float("-inf"), float("inf")], dtype=dtype)
        same(call("abs", self), torch.abs(self))
        same(call("angle", self), torch.angle(self))


def test_pointwise_errors() -> None:
    with pytest.raises(cudaexec.ShapeError, match="do not broadcast"):
        call("mul_Tensor", torch.zeros(3), torch.zeros(4))
    with pytest.raises(cudaexec.DtypeError, match="expected integers"):
        call("gcd", torch.zeros(3), torch.zeros(3))
    with pytest.raises(cudaexec.DtypeError, match="bool"):
        call("abs", torch.ones(3, dtype=torch.bool))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rms_norm(dtype: torch.dtype) -> None:
    tolerance = TOLERANCE[dtype]
    for self in layouts(sample((2, 3, 8), dtype)):
        for shape in ([8], [3, 8]):
            for weight in (None, sample(shape, dtype, 2)):
                for eps in (None, 1e-5):
                    expected = aten._fused_rms_norm(self, shape, weight, eps)
                    ours = call("_fused_rms_norm", self, shape, weight, eps)
                    same(ours[0], expected[0], tolerance, tolerance)
                    same(ours[1], expected[1], 1e-5)
    with pytest.raises(cudaexec.ShapeError, match="its last sizes"):
        call("_fused_rms_norm", torch.zeros(2, 3), [2], None, None)


def test_hann_window() -> None:
    for length in (0, 1, 2, 5, 400):
        for dtype in (None, torch.float64):
            expected = torch.hann_window(length, dtype=dtype)
            same(call("hann_window", length, dtype, None), expected, 1e-6, 1e-6)
    with pytest.raises(cudaexec.InputError, match="length is -1"):
        call("hann_window", -1, None, None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_trilinear(dtype: torch.dtype) -> None:
    """nn.Bilinear, and sums over one and no dimension."""
    generator = torch.Generator().manual_seed(1)

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype)

    cases = [
        ((randn(4, 5), randn(3, 5, 6), randn(4, 6)), ([1, 3], [0], [1, 2]), [2, 3]),
        ((randn(4, 5), randn(4, 5), randn(5)), ([], [], [0]), [1]),
        ((randn(4, 5), randn(4, 5), randn(4, 5)), ([], [], []), []),
    ]
    for tensors, expands, sums in cases:
        expected = aten._trilinear(*tensors, *expands, sums)
        same(call("_trilinear", *tensors, *expands, sums, 1), expected, 1e-5, 1e-5)


def test_set_source() -> None:
    """The handle takes over the source's memory."""
    from shim_call import delete_handle, library, new_handle, to_torch

    a, b = torch.zeros(2), torch.arange(6.0).reshape(2, 3)
    first, second = new_handle(a), new_handle(b)
    assert library().aoti_torch_cpu_set__source_Tensor(first, second) == 0
    same(to_torch(first), b)
    delete_handle(first)
    delete_handle(second)
