"""sort, topk, kthvalue, mode and median against torch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from shim_call import DTYPES, FLOATS, call, layouts, same, same_layout, sample  # noqa: E402

import cudaexec  # noqa: E402

pytestmark = pytest.mark.torch

SHAPES = [(), (1,), (9,), (3, 8), (4, 1, 5), (2, 0, 3), (2, 3, 4, 5)]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sort(shape: tuple[int, ...], dtype: torch.dtype, descending: bool) -> None:
    for self in layouts(sample(shape, dtype)):
        for dim in range(-1, max(self.dim(), 1)):
            expected = torch.sort(self, dim=dim, stable=True, descending=descending)
            same(call("sort_stable", self, True, dim, descending), tuple(expected))
            same(call("sort_stable", self, None, dim, descending), tuple(expected))
            same(call("sort", self, dim, descending), tuple(expected))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, *FLOATS], ids=str)
@pytest.mark.parametrize("length", [383, 384, 5000])
def test_sort_long_lines(length: int, dtype: torch.dtype, descending: bool) -> None:
    self = sample((3, length), dtype, 4)
    expected = torch.sort(self, dim=1, stable=True, descending=descending)
    same(call("sort_stable", self, True, 1, descending), tuple(expected))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sort_special_values(dtype: torch.dtype) -> None:
    special = torch.tensor(
        [1.0, float("nan"), -0.0, 0.0, float("-inf"), float("inf"), -1, float("nan"), 0.0, -0.0]
    ).to(dtype)
    for repeat in (1, 60):
        self = special.repeat(repeat)
        for descending in (False, True):
            values, indices = call("sort_stable", self, True, 0, descending)
            expected = torch.sort(self, stable=True, descending=descending)
            same((values, indices), tuple(expected))
            assert torch.equal(torch.signbit(values), torch.signbit(self[indices]))


def test_sort_wide_integers() -> None:
    self = torch.tensor([2**63 - 1, -(2**63), 0, -1, 1, 2**40, -(2**40)] * 100)
    same(call("sort_stable", self, True, 0, False), tuple(torch.sort(self, stable=True)))


def test_sort_expanded() -> None:
    self = torch.tensor([3.0, 1, 2]).reshape(3, 1).expand(3, 4)
    same(call("sort_stable", self, True, 0, False), tuple(torch.sort(self, dim=0, stable=True)))


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.bool], ids=str)
def test_topk(dtype: torch.dtype, largest: bool) -> None:
    for shape in ((9,), (4, 30), (3, 5, 7)):
        for self in layouts(sample(shape, dtype, 2)):
            for dim in range(self.dim()):
                for k in (0, 1, 3, self.shape[dim]):
                    values, indices = call("topk", self, k, dim, largest, True)
                    expected = torch.topk(self, k, dim, largest)
                    same(values, expected.values)
                    same_layout(indices, expected.indices)
                    same(values, torch.gather(self, dim, indices).contiguous())
                    _, order = torch.sort(self, dim=dim, stable=True, descending=largest)
                    same(indices, order.narrow(dim, 0, k).contiguous())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("count", [12, 3000])
def test_topk_nan(dtype: torch.dtype, count: int) -> None:
    self = sample((count,), dtype)
    self[[3, 7]] = float("nan")
    for largest in (False, True):
        for k in (1, 3, 10):
            same(call("topk", self, k, 0, largest, True)[0], torch.topk(self, k, 0, largest).values)


def test_topk_scalar_and_errors() -> None:
    same(call("topk", torch.tensor(3.0), 1, 0, True, True), tuple(torch.topk(torch.tensor(3.0), 1)))
    with pytest.raises(cudaexec.InputError, match="k is 4; expected 0 to 3"):
        call("topk", torch.zeros(2, 3), 4, 1, True, True)
    with pytest.raises(cudaexec.InputError, match="k is -1"):
        call("topk", torch.zeros(2, 3), -1, 1, True, True)
    with pytest.raises(cudaexec.ShapeError, match="dimension 2 does not exist"):
        call("topk", torch.zeros(2, 3), 1, 2, True, True)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.bool], ids=str)
def test_kthvalue_and_mode(dtype: torch.dtype, keepdim: bool) -> None:
    for shape in ((), (9,), (4, 30), (3, 5, 7)):
        for self in layouts(sample(shape, dtype, 2)):
            for dim in range(max(self.dim(), 1)):
                length = self.shape[dim] if self.dim() else 1
                for k in {1, (length + 1) // 2, length}:
                    check_pick(
                        self,
                        dim,
                        call("kthvalue", self, k, dim, keepdim),
                        torch.kthvalue(self, k, dim, keepdim),
                    )
                check_pick(
                    self, dim, call("mode", self, dim, keepdim), torch.mode(self, dim, keepdim)
                )


def check_pick(self: torch.Tensor, dim: int, ours: tuple, expected: tuple) -> None:
    """Values agree; the index, of which torch leaves the choice open, points at the value."""
    values, indices = ours
    same(values, expected[0])
    same_layout(indices, expected[1])
    if self.dim() and values.dim() < self.dim():
        values, indices = values.unsqueeze(dim), indices.unsqueeze(dim)
    if self.dim():
        picked = torch.gather(self, dim, indices)
        torch.testing.assert_close(picked, values, rtol=0, atol=0, equal_nan=True)


def test_kthvalue_nan_and_errors() -> None:
    self = torch.tensor([float("nan"), 1, 0, float("nan"), 5])
    for k in range(1, 6):
        same(call("kthvalue", self, k, 0, False)[0], torch.kthvalue(self, k).values)
    with pytest.raises(cudaexec.InputError, match="k is 0; expected 1 to 5"):
        call("kthvalue", self, 0, 0, False)


def test_mode_nan() -> None:
    self = torch.tensor([float("nan"), float("nan"), 2.0, 2.0, 1.0, float("nan")])
    same(call("mode", self, 0, False)[0], torch.mode(self).values)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.bool], ids=str)
def test_median(dtype: torch.dtype) -> None:
    for shape in ((), (1,), (8,), (9,), (3, 4)):
        for self in layouts(sample(shape, dtype, 6)):
            same(call("median", self), torch.median(self))
            same(call("nanmedian", self), torch.nanmedian(self))
    if dtype.is_floating_point:
        for values in ([1.0, float("nan"), 3, 2], [float("nan")], []):
            self = torch.tensor(values, dtype=dtype)
            same(call("median", self), torch.median(self))
            same(call("nanmedian", self), torch.nanmedian(self))
