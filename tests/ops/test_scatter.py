"""scatter, its reductions, index_reduce and segment_reduce against torch."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")
from shim_call import DTYPES, FLOATS, call, layouts, same, sample  # noqa: E402

import cudaexec  # noqa: E402

pytestmark = pytest.mark.torch

REDUCES = ["sum", "prod", "mean", "amax", "amin"]
CASES = {
    "vector": ((6,), (4,), 0),
    "rows": ((4, 5), (6, 5), 0),
    "columns": ((4, 5), (4, 7), 1),
    "fewer": ((4, 5), (2, 3), 0),
    "volume": ((3, 4, 5), (3, 6, 5), 1),
    "first of three": ((3, 4, 5), (5, 4, 5), 0),
    "empty": ((3, 4), (0, 4), 0),
    "wide": ((3, 1200), (4, 1200), 0),
}


def index_for(case: str, seed: int = 0) -> torch.Tensor:
    self_shape, shape, dim = CASES[case]
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, self_shape[dim], shape, generator=generator)


def tolerance(dtype: torch.dtype) -> float:
    return {torch.float16: 4e-3, torch.bfloat16: 2e-2, torch.float32: 1e-5}.get(
        dtype, 1e-12 if dtype == torch.float64 else 0.0
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_scatter(case: str, dtype: torch.dtype) -> None:
    shape, index_shape, dim = CASES[case]
    order = torch.argsort(torch.rand(index_shape), dim) % shape[dim]  # few equal positions
    unique = order if index_shape[dim] <= shape[dim] else order.clamp(max=shape[dim] - 1)
    for self in layouts(sample(shape, dtype)):
        for index in layouts(unique):
            src = torch.full(index_shape, 3).to(dtype)  # equal values: torch's order is open
            out = torch.empty_like(self)
            expected = torch.scatter(self, dim, index, src)
            call("scatter_src_out", out, self, dim, index, src)
            same(out.contiguous(), expected.contiguous())
            out = self.clone()
            call("aoti_torch_scatter_out", out, out, dim, index, src)
            same(out.contiguous(), expected.contiguous())
            out = torch.empty_like(self)
            call("scatter_value_out", out, self, dim, index, 3.0)
            same(out.contiguous(), expected.contiguous())


def test_scatter_last_value_stays() -> None:
    out = torch.zeros(3)
    index = torch.tensor([1, 1, 1])
    call("scatter_src_out", out, out, 0, index, torch.tensor([1.0, 2, 3]))
    assert out.tolist() == [0, 3, 0]


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", REDUCES)
@pytest.mark.parametrize("case", CASES)
def test_scatter_reduce(case: str, reduce: str, include_self: bool) -> None:
    shape, index_shape, dim = CASES[case]
    index = index_for(case)
    src = sample(index_shape, torch.float32, 3)
    larger = torch.cat([src, src], -1)  # src may be larger than index
    for self in layouts(sample(shape, torch.float32)):
        expected = torch.scatter_reduce(self, dim, index, src, reduce, include_self=include_self)
        for name in ("scatter_reduce_two_out", "aoti_torch_scatter_reduce_out"):
            for source in (src, larger):
                out = torch.full_like(self, 7)
                call(name, out, self, dim, index, source, reduce, include_self)
                same(out.contiguous(), expected.contiguous(), 1e-5, 1e-6)
        out = self.clone()
        call("scatter_reduce_two_out", out, out, dim, index, src, reduce, include_self)
        same(out.contiguous(), expected.contiguous(), 1e-5, 1e-6)


@pytest.mark.parametrize("reduce", REDUCES)
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.bool], ids=str)
def test_scatter_reduce_dtypes(dtype: torch.dtype, reduce: str) -> None:
    self = sample((4, 3), dtype)
    index = torch.tensor([[0, 1, 2], [0, 3, 2], [1, 1, 1], [0, 0, 3]])
    src = sample((4, 3), dtype, 8)
    for include_self in (True, False):
        out = self.clone()
        call("scatter_reduce_two_out", out, out, 0, index, src, reduce, include_self)
        expected = torch.scatter_reduce(self, 0, index, src, reduce, include_self=include_self)
        same(out, expected, tolerance(dtype), tolerance(dtype))


def test_scatter_reduce_expanded_index() -> None:
    """What message passing in graphs makes: one index per row, expanded over features."""
    rows = torch.randint(0, 50, (400,), generator=torch.Generator().manual_seed(1))
    src = torch.randn(400, 64, generator=torch.Generator().manual_seed(2))
    out = torch.zeros(50, 64)
    index = rows.reshape(-1, 1).expand(400, 64)
    expected = torch.zeros(50, 64).scatter_add(0, index, src)
    call("scatter_reduce_two_out", out, out, 0, index, src, "sum", True)
    same(out, expected, 1e-5, 1e-5)


@pytest.mark.parametrize("reduce", ["amax", "amin", "sum"])
def test_scatter_reduce_nan(reduce: str) -> None:
    self = torch.tensor([1.0, float("nan"), 3])
    src = torch.tensor([float("nan"), 5, 7])
    index = torch.tensor([0, 1, 2])
    out = self.clone()
    call("scatter_reduce_two_out", out, out, 0, index, src, reduce, True)
    same(out, torch.scatter_reduce(self, 0, index, src, reduce))


def test_scalars() -> None:
    out = torch.tensor(2.0)
    call("scatter_reduce_two_out", out, out, 0, torch.tensor(0), torch.tensor(5.0), "sum", True)
    assert out.item() == 7


@pytest.mark.parametrize("bad", [-1, 3, 2**40])
def test_out_of_range(bad: int) -> None:
    out = torch.zeros(3)
    index = torch.tensor([0, bad])
    with pytest.raises(
        cudaexec.InputError, match=f"index {bad} is out of range .* expected 0 to 2"
    ):
        call("scatter_src_out", out, out, 0, index, torch.ones(2))
    with pytest.raises(cudaexec.InputError, match="out of range"):
        call("scatter_reduce_two_out", out, out, 0, index, torch.ones(2), "sum", True)


def test_bad_operands() -> None:
    out = torch.zeros(3, 2)
    index = torch.zeros(2, 3, dtype=torch.int64)
    with pytest.raises(cudaexec.ShapeError, match="does not fit"):
        call("scatter_src_out", out, out, 0, index, torch.ones(2, 3))
    with pytest.raises(cudaexec.ShapeError, match="does not fit"):
        call("scatter_src_out", out, out, 1, index, torch.ones(1, 3))
    with pytest.raises(cudaexec.DtypeError, match="float64"):
        call("scatter_src_out", out, out, 1, index, torch.ones(2, 3).double())
    with pytest.raises(cudaexec.NotSupported, match="'max'"):
        call("scatter_reduce_two_out", out, out, 1, index, torch.ones(2, 3), "max", True)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.int64, *FLOATS], ids=str)
def test_index_reduce(dtype: torch.dtype, reduce: str, include_self: bool) -> None:
    index = torch.tensor([1, 3, 1, 0])
    for self in layouts(sample((4, 5), dtype)):
        for dim, shape in ((0, (4, 5)), (1, (4, 4))):
            source = sample(shape, dtype, 2)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = torch.index_reduce(
                    self, dim, index, source, reduce, include_self=include_self
                )
            ours = call("index_reduce", self, dim, index, source, reduce, include_self)
            same(ours, expected, tolerance(dtype), tolerance(dtype))


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("initial", [None, 2.0])
def test_segment_reduce(reduce: str, initial: float | None) -> None:
    lengths = torch.tensor([2, 0, 3, 1])
    for shape in ((6,), (6, 3)):
        data = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        expected = torch.segment_reduce(data, reduce, lengths=lengths, initial=initial)
        ours = call("segment_reduce", data, reduce, lengths, None, None, 0, False, initial)
        same(ours, expected, 1e-6)
        offsets = torch.tensor([0, 2, 2, 5, 6])
        ours = call("segment_reduce", data, reduce, None, None, offsets, 0, False, initial)
        same(ours, expected, 1e-6)
    rows = torch.tensor([[1, 2], [3, 0]])
    data = torch.randn(2, 3, 4)
    expected = torch.segment_reduce(data, reduce, lengths=rows, axis=1, initial=initial)
    same(call("segment_reduce", data, reduce, rows, None, None, 1, True, initial), expected, 1e-6)
    with pytest.raises(cudaexec.InputError, match="covers 2 to 9"):
        call("segment_reduce", data[0, :, 0], reduce, torch.tensor([2, 7]), None, None, 0, 0, None)
