"""Matrix products against float64 sums of numpy, on every instruction set of this machine."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from arrays import KERNELS, from_bf16, ops, to_bf16

import cudaexec

A = ops.Array
# Relative to the sum of absolute products, which bounds what rounding can do.
TOLERANCE = {"float32": 1e-6, "float64": 1e-15, "float16": 1e-3, "bfloat16": 8e-3}
SIZES = [
    (1, 1, 1),
    (1, 10, 64),
    (1, 300, 100),
    (5, 1, 70),
    (2, 3, 5),
    (8, 33, 17),
    (14, 32, 64),
    (15, 65, 129),
    (29, 100, 300),
    (130, 70, 777),
    (8, 1024, 512),
]


class Values:
    """Random values of a dtype: the array that operators take and the numbers it stands for."""

    def __init__(self, shape: tuple[int, ...], dtype: str, seed: int, order: str = "C") -> None:
        numbers = np.random.default_rng(seed).standard_normal(shape)
        stored = to_bf16(numbers) if dtype == "bfloat16" else numbers.astype(dtype)
        self.array = np.array(stored, order=order)
        self.exact = numbers_of(self.array, dtype)


def numbers_of(stored: np.ndarray, dtype: str) -> np.ndarray:
    return (from_bf16(stored) if dtype == "bfloat16" else stored).astype(np.float64)


def result_array(shape: tuple[int, ...], dtype: str, order: str = "C") -> np.ndarray:
    return np.zeros(shape, np.uint16 if dtype == "bfloat16" else dtype, order=order)


def check(got: np.ndarray, dtype: str, expected: np.ndarray, size: np.ndarray) -> None:
    """`size`: the same sum with absolute values."""
    error = np.abs(numbers_of(got, dtype) - expected)
    assert np.all(error <= TOLERANCE[dtype] * np.maximum(size, 1e-30)), error.max(initial=0)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_product(size: tuple[int, int, int], dtype: str, kernels: str) -> None:
    m, n, k = size
    for a_order, b_order, out_order in ("CCC", "CFC", "FCC", "FFF", "CFF"):
        a = Values((m, k), dtype, 1, a_order)
        b = Values((k, n), dtype, 2, b_order)
        expected, bound = a.exact @ b.exact, np.abs(a.exact) @ np.abs(b.exact)
        for constant in (False, True):
            out = result_array((m, n), dtype, out_order)
            ops.gemm_with(kernels, A(out), A(a.array), A(b.array, constant=constant))
            check(out, dtype, expected, bound)
        out = result_array((m, n), dtype, out_order)
        ops.gemm_with(kernels, A(out), A(a.array, constant=True), A(b.array), -0.5)
        check(out, dtype, -0.5 * expected, bound)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_threads_give_one_answer(dtype: str, threads: int) -> None:
    """Large enough to be shared out; each number is summed by one thread in one order."""
    a, b = Values((70, 600), dtype, 1), Values((600, 400), dtype, 2, "F")
    bias = Values((400,), dtype, 3)
    out, alone = result_array((70, 400), dtype), result_array((70, 400), dtype)
    with ops.threads(threads):
        ops.addmm_out(A(out), A(bias.array), A(a.array), A(b.array, constant=True))
    with ops.threads(1):
        ops.addmm_out(A(alone), A(bias.array), A(a.array), A(b.array))
    assert np.array_equal(out, alone)
    expected = a.exact @ b.exact + bias.exact
    check(out, dtype, expected, np.abs(a.exact) @ np.abs(b.exact) + np.abs(bias.exact))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (5, 7), (5, 1), (1, 7)], ids=str)
def test_added_matrix_broadcasts(shape: tuple[int, ...], dtype: str) -> None:
    for m in (5, 1):
        if shape and len(shape) == 2 and shape[0] not in (1, m):
            continue
        a, b = Values((m, 40), dtype, 1), Values((40, 7), dtype, 2)
        self = Values(shape, dtype, 3)
        out = result_array((m, 7), dtype)
        ops.addmm_out(A(out), A(self.array), A(a.array), A(b.array), 2.0, -0.5)
        bound = np.abs(a.exact) @ np.abs(b.exact) + 2 * np.abs(self.exact)
        check(out, dtype, 2 * self.exact - 0.5 * (a.exact @ b.exact), bound)


def test_zero_factors_hide_their_operand() -> None:
    nan = np.full((3, 4), np.nan, np.float32)
    a, b = np.ones((3, 20), np.float32), np.ones((20, 4), np.float32)
    out = np.full((3, 4), np.nan, np.float32)
    ops.addmm_out(A(out), A(nan), A(a), A(b), 0.0, 1.0)
    assert np.array_equal(out, np.full((3, 4), 20, np.float32))
    ops.addmm_out(A(out), A(np.ones((3, 4), np.float32)), A(a * np.nan), A(b), 2.0, 0.0)
    assert np.array_equal(out, np.full((3, 4), 2, np.float32))


def test_nan_and_infinity_reach_the_result() -> None:
    a = np.ones((20, 40), np.float32)
    a[3, 5], a[7, 0] = np.nan, np.inf
    out = np.zeros((20, 33), np.float32)
    ops.mm_out(A(out), A(a), A(np.ones((40, 33), np.float32), constant=True))
    assert np.all(np.isnan(out[3]))
    assert np.all(out[7] == np.inf)
    assert np.all(out[[0, 19]] == 40)


@pytest.mark.parametrize("dtype", [*TOLERANCE, "int64", "int8"])
def test_nothing_to_sum_or_to_write(dtype: str) -> None:
    stored = np.uint16 if dtype == "bfloat16" else dtype
    out = np.ones((3, 4), stored)
    ops.mm_out(A(out), A(np.ones((3, 0), stored)), A(np.ones((0, 4), stored)))
    assert not out.any()
    bias = np.array([1, 2, 3, 4]).astype(stored)
    ops.addmm_out(A(out), A(bias), A(np.ones((3, 0), stored)), A(np.ones((0, 4), stored)))
    assert np.array_equal(out, np.broadcast_to(bias, (3, 4)))
    for m, n in ((0, 4), (3, 0), (0, 0)):
        empty = np.ones((m, n), stored)
        ops.mm_out(A(empty), A(np.ones((m, 5), stored)), A(np.ones((5, n), stored)))


def test_views_leave_their_surroundings_alone() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((40, 90)).astype(np.float32)[3:33:2, 5:85]
    b = rng.standard_normal((200, 160)).astype(np.float32)[7:167:2, ::3][:80, :50]
    base = np.full((60, 140), 9.0, np.float32)
    out = base[10:40:2, 20:120:2]
    ops.mm_out(A(out), A(a), A(b))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(out - expected).max() < 1e-4
    written = np.zeros(base.shape, bool)
    written[10:40:2, 20:120:2] = True
    assert np.all(base[~written] == 9.0)


def test_result_may_be_the_added_matrix() -> None:
    a, b = Values((9, 900), "float32", 1), Values((900, 40), "float32", 2)
    start = Values((9, 40), "float32", 3)
    out = start.array.copy()
    base = A(out)
    ops.addmm_out(base, base, A(a.array), A(b.array), 3.0, 1.0)
    bound = np.abs(a.exact) @ np.abs(b.exact) + 3 * np.abs(start.exact)
    check(out, "float32", 3 * start.exact + a.exact @ b.exact, bound)
    square = Values((40, 40), "float32", 4).array
    whole = A(square.copy())
    kept = square.astype(np.float64)
    x, y = Values((40, 60), "float32", 5), Values((60, 40), "float32", 6)
    ops.addmm_out(whole, whole.view([40, 40], [1, 40]), A(x.array), A(y.array))
    check(np.asarray(whole), "float32", kept.T + x.exact @ y.exact, np.full((40, 40), 100.0))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("batch", [1, 3, 12])
def test_batches(batch: int, dtype: str) -> None:
    for m, n, k in ((1, 7, 9), (20, 40, 30), (50, 64, 64)):
        a, b = Values((batch, m, k), dtype, 1), Values((batch, n, k), dtype, 2)
        self = Values((batch, 1, n), dtype, 3)
        for array, numbers in (
            (b.array.transpose(0, 2, 1), b.exact.transpose(0, 2, 1)),
            (np.ascontiguousarray(b.array.transpose(0, 2, 1)), b.exact.transpose(0, 2, 1)),
            (np.broadcast_to(b.array[:1].transpose(0, 2, 1), (batch, k, n)), None),
        ):
            exact = b.exact[:1].transpose(0, 2, 1) if numbers is None else numbers
            bound = np.abs(a.exact) @ np.abs(exact) + np.abs(self.exact)
            for constant in (False, True):
                out = result_array((batch, m, n), dtype)
                ops.bmm_out(A(out), A(a.array), A(array, constant=constant))
                check(out, dtype, a.exact @ exact, bound)
                ops.baddbmm_out(A(out), A(self.array), A(a.array), A(array), 0.5, 1.0)
                check(out, dtype, 0.5 * self.exact + a.exact @ exact, bound)


@pytest.mark.parametrize("kernels", KERNELS)
def test_int8_to_int32_is_exact(kernels: str) -> None:
    rng = np.random.default_rng(0)
    for m, n, k in ((1, 5, 8), (3, 5, 7), (17, 33, 9), (40, 100, 501)):
        for order in "CF":
            a = rng.integers(-128, 128, (m, k)).astype(np.int8)
            b = np.array(rng.integers(-128, 128, (k, n)).astype(np.int8), order=order)
            a[0], b[:, 0] = -128, -128
            expected = a.astype(np.int32) @ b.astype(np.int32)
            out = np.zeros((m, n), np.int32)
            ops.gemm_with(kernels, A(out), A(a), A(b))
            assert np.array_equal(out, expected)
            ops.int_mm_out(A(out), A(a), A(b, constant=True))
            assert np.array_equal(out, expected)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_integers_wrap_around(dtype: str) -> None:
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    a, b = (
        rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        for shape in ((9, 20), (20, 6))
    )
    out = np.zeros((9, 6), dtype)
    ops.mm_out(A(out), A(a), A(b))
    with np.errstate(over="ignore"):
        assert np.array_equal(out, a @ b)
        bias = np.arange(6).astype(dtype)
        ops.addmm_out(A(out), A(bias), A(a), A(b), 3.0, 2.0)
        assert np.array_equal(out, (bias * 3 + (a @ b) * 2).astype(dtype))


def test_matrix_by_vector_and_sum_of_batches() -> None:
    mat, vec = Values((30, 50), "float32", 1), Values((50,), "float32", 2)
    for self in (Values((30,), "float32", 3), Values((), "float32", 3)):
        got = np.asarray(ops.addmv(A(self.array), A(mat.array), A(vec.array), 0.5, 2.0))
        bound = 2 * np.abs(mat.exact) @ np.abs(vec.exact) + np.abs(self.exact)
        check(got, "float32", 0.5 * self.exact + 2 * mat.exact @ vec.exact, bound)
    a, b = Values((4, 5, 6), "float32", 4), Values((4, 6, 7), "float32", 5)
    self = Values((7,), "float32", 6)
    got = np.asarray(ops.addbmm(A(self.array), A(a.array), A(b.array), 3.0, 0.5))
    bound = np.abs(a.exact @ b.exact).sum(0) + 3 * np.abs(self.exact) + 10
    check(got, "float32", 3 * self.exact + 0.5 * (a.exact @ b.exact).sum(0), bound)


def test_constants_are_packed_once_and_freed() -> None:
    before_bytes, before_count = ops.packed_bytes(), ops.packed_count()
    weight = A(Values((64, 96), "float32", 1).array, constant=True)
    x, out = Values((4, 96), "float32", 2).array, np.zeros((4, 64), np.float32)
    view = weight.view([96, 64], [1, 96])
    for _ in range(3):
        ops.mm_out(A(out), A(x), view)
    assert ops.packed_count() == before_count + 1
    assert ops.packed_bytes() - before_bytes == 64 * 96 * 4
    part = weight.view([96, 32], [1, 96], 96 * 32)  # another view is another form
    ops.mm_out(A(np.zeros((4, 32), np.float32)), A(x), part)
    assert ops.packed_count() == before_count + 2
    one_row = np.zeros((1, 64), np.float32)
    ops.mm_out(A(one_row), A(x[:1]), view)  # read as it lies
    assert ops.packed_count() == before_count + 2
    del weight, view, part
    gc.collect()
    assert ops.packed_bytes() == before_bytes


def test_concurrent_first_use_packs_once() -> None:
    values = Values((300, 200), "float32", 1)
    weight = A(values.array, constant=True)
    x = Values((5, 300), "float32", 2)
    before = ops.packed_count()
    barrier = threading.Barrier(4)
    outs = [np.zeros((5, 200), np.float32) for _ in range(4)]

    def work(out: np.ndarray) -> None:
        barrier.wait()
        for _ in range(20):
            ops.mm_out(A(out), A(x.array), weight)

    threads = [threading.Thread(target=work, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ops.packed_count() == before + 1
    for out in outs:
        check(out, "float32", x.exact @ values.exact, np.abs(x.exact) @ np.abs(values.exact))


def f32(*shape: int) -> Any:
    return A(np.zeros(shape, np.float32))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ops.mm_out(f32(2, 3), f32(2, 4), f32(5, 3)), "ShapeError", r"b is .*\[5, 3\]"),
        (lambda: ops.mm_out(f32(2, 2), f32(2, 4), f32(4, 3)), "ShapeError", r"out is .*\[2, 2\]"),
        (lambda: ops.mm_out(f32(2, 3), f32(2, 4), f32(4)), "ShapeError", "expected 2 dimensions"),
        (
            lambda: ops.mm_out(f32(2, 3), f32(2, 4), A(np.zeros((4, 3)))),
            "DtypeError",
            "float64",
        ),
        (
            lambda: ops.mm_out(A(np.zeros((2, 3))), f32(2, 4), f32(4, 3)),
            "DtypeError",
            "expected one dtype",
        ),
        (
            lambda: ops.addmm_out(f32(2, 3), f32(2, 2), f32(2, 4), f32(4, 3)),
            "ShapeError",
            r"\[2, 2\]",
        ),
        (lambda: ops.bmm_out(f32(2, 2, 3), f32(2, 2, 4), f32(3, 4, 3)), "ShapeError", "b is"),
        (
            lambda: ops.int_mm_out(f32(2, 3), f32(2, 4), f32(4, 3)),
            "DtypeError",
            "expected one of int8",
        ),
        (lambda: ops.addmv(f32(2), f32(2, 4), f32(4, 1)), "ShapeError", "vec"),
        (lambda: ops.addbmm(f32(2), f32(2, 2, 4), f32(3, 4, 2)), "ShapeError", "same batch size"),
    ],
)
def test_operands_are_checked(call: Any, error: str, message: str) -> None:
    with pytest.raises(getattr(cudaexec, error), match=message):
        call()


def test_result_over_a_factor_is_refused() -> None:
    square = f32(4, 4)
    with pytest.raises(cudaexec.InputError, match="out float32.* overlaps a"):
        ops.mm_out(square, square, f32(4, 4))


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float16"])
def test_as_exact_as_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    from arrays import array

    torch.manual_seed(0)
    dtype = getattr(torch, name)
    for m, n, k in ((8, 512, 1024), (64, 64, 3000), (1, 100, 4096)):
        a, b = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype).t()
        exact = a.double() @ b.double() if name != "float64" else None
        out = torch.zeros(m, n, dtype=dtype)
        ops.mm_out(array(out), array(a), array(b, constant=True))
        if exact is None:
            assert (out - a @ b).abs().max() < 1e-12 * k
            continue
        ours = (out.double() - exact).square().mean().sqrt()
        eager = ((a @ b).double() - exact).square().mean().sqrt()
        assert ours <= 1.5 * eager


@pytest.mark.torch
def test_through_the_c_interface() -> None:
    torch = pytest.importorskip("torch")
    from shim_call import call

    torch.manual_seed(0)
    x, w, bias = torch.randn(5, 30), torch.randn(20, 30), torch.randn(20)
    out = torch.empty(5, 20)
    call("mm_out", out, x, w.t())
    torch.testing.assert_close(out, x @ w.t())
    call("addmm_out", out, bias, x, w.t(), 1.0, 1.0)
    torch.testing.assert_close(out, torch.addmm(bias, x, w.t()))
    a, b = torch.randn(3, 5, 30), torch.randn(3, 30, 20)
    outs = torch.empty(3, 5, 20)
    call("bmm_out", outs, a, b)
    torch.testing.assert_close(outs, a @ b)
    call("baddbmm_out", outs, bias, a, b, 2.0, 0.5)
    torch.testing.assert_close(outs, torch.baddbmm(bias, a, b, beta=2.0, alpha=0.5))
    torch.testing.assert_close(
        call("addbmm", bias, a, b, 1.0, 1.0), torch.addbmm(bias, a, b), rtol=1e-5, atol=1e-4
    )
    torch.testing.assert_close(
        call("addmv", bias, w, x[0], 1.0, 2.0), torch.addmv(bias, w, x[0], alpha=2.0)
    )
    i, j = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((17, 32), (32, 8)))
    result = torch.empty(17, 8, dtype=torch.int32)
    call("_int_mm_out", result, i, j)
    assert torch.equal(result, i.int() @ j.int())
