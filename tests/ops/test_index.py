"""Advanced indexing, masks and counts against torch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from shim_call import DTYPES, call, layouts, same, sample  # noqa: E402

import cudaexec  # noqa: E402

pytestmark = pytest.mark.torch


def idx(*values: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


SELF = (4, 5, 6)
MASK = torch.tensor([True, False, True, True])
INDICES = {
    "first": [idx(3, 0, -1, 1)],
    "int32": [idx(3, 0, -1, 1, dtype=torch.int32)],
    "last": [None, None, idx(5, 0, 5)],
    "middle": [None, idx(1, 2, -5), None],
    "two": [idx(0, 1, 2), idx(4, -1, 0)],
    "apart": [idx(0, 1, 2), None, idx(5, 5, 0)],
    "two at the end": [None, idx(0, 1), idx(-1, 2)],
    "three": [idx(0, 3), idx(0, 4), idx(5, 0)],
    "broadcast": [idx(0, 1, 2).reshape(3, 1), idx(1, 0)],
    "apart and broadcast": [idx(0, 1, 2).reshape(3, 1), None, idx(1, 0)],
    "matrix": [idx(0, 1, 2, 3, 2, 1).reshape(2, 3)],
    "scalar": [torch.tensor(2)],
    "mask": [MASK],
    "mask and index": [MASK, idx(0, 1, 2)],
    "mask of two": [torch.arange(20).reshape(4, 5) % 3 == 0],
    "mask of all": [torch.arange(120).reshape(4, 5, 6) % 7 == 0],
    "mask of none": [torch.zeros(4, dtype=torch.bool)],
    "empty": [idx()],
    "empty matrix": [torch.empty(0, 3, dtype=torch.int64)],
    "expanded": [idx(2).expand(3)],
    "transposed": [idx(0, 1, 2, 3, 2, 1).reshape(2, 3).t()],
}


@pytest.mark.parametrize("name", INDICES)
def test_index(name: str) -> None:
    indices = INDICES[name]
    for self in layouts(sample(SELF, torch.float32)):
        expected = torch.ops.aten.index.Tensor(self, indices)
        same(call("index_Tensor", self, indices), expected)


def test_index_uint8_is_a_mask() -> None:
    """As in torch, where it is deprecated (and warns, so the bool mask stands in for it)."""
    self = sample(SELF, torch.float32)
    same(call("index_Tensor", self, [MASK.to(torch.uint8)]), self[MASK])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_index_dtypes(dtype: torch.dtype) -> None:
    self = sample((7, 3), dtype)
    for indices in ([idx(6, 0, 3)], [idx(6, 0, 3), idx(0, -1, 2)]):
        same(call("index_Tensor", self, indices), torch.ops.aten.index.Tensor(self, indices))


def test_index_channels_last() -> None:
    for self in layouts(sample((2, 3, 4, 5), torch.float32)):
        for indices in ([idx(1, 0, 1)], [None, idx(2, 0)], [None, None, idx(0, 3), idx(4, 0)]):
            same(call("index_Tensor", self, indices), torch.ops.aten.index.Tensor(self, indices))


def test_index_large() -> None:
    self = torch.arange(300_000.0).reshape(1000, 300)
    rows = torch.randint(-1000, 1000, (5000,), generator=torch.Generator().manual_seed(1))
    same(call("index_Tensor", self, [rows]), self[rows])
    flat = self.reshape(-1)
    places = torch.randint(0, 300_000, (200_000,), generator=torch.Generator().manual_seed(2))
    same(call("index_Tensor", flat, [places]), flat[places])


@pytest.mark.parametrize("bad", [4, -5, 2**40, -(2**63)])
def test_index_out_of_range(bad: int) -> None:
    self = torch.zeros(4, 2)
    with pytest.raises(
        cudaexec.InputError, match=r"index .* is out of range for dimension 0 of si"
    ):
        call("index_Tensor", self, [idx(0, bad)])
    with pytest.raises(cudaexec.InputError, match="out of range"):
        call("aoti_torch_index_put_out", self, self, [idx(bad)], torch.ones(2), False)


def test_index_large_out_of_range() -> None:
    """The check holds on every thread."""
    places = torch.zeros(300_000, dtype=torch.int64)
    places[250_000] = 10
    with pytest.raises(cudaexec.InputError, match="index 10 is out of range"):
        call("index_Tensor", torch.zeros(10), [places])


def test_index_bad_operands() -> None:
    self = torch.zeros(4, 5)
    with pytest.raises(cudaexec.ShapeError, match="does not match"):
        call("index_Tensor", self, [torch.ones(5, dtype=torch.bool)])
    with pytest.raises(cudaexec.ShapeError, match="do not broadcast"):
        call("index_Tensor", self, [idx(0, 1), idx(0, 1, 2)])
    with pytest.raises(cudaexec.ShapeError, match="3 indices"):
        call("index_Tensor", self, [idx(0), idx(0), idx(0)])
    with pytest.raises(cudaexec.DtypeError, match="float32"):
        call("index_Tensor", self, [torch.zeros(2)])


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("name", INDICES)
def test_index_put(name: str, accumulate: bool) -> None:
    indices = INDICES[name]
    for self in layouts(sample(SELF, torch.float32)):
        region = torch.ops.aten.index.Tensor(self, indices).shape
        for values in (sample(region, torch.float32, 3), torch.tensor(1.5)):
            expected = torch.ops.aten.index_put_(self.clone(), indices, values, accumulate)
            out = self.clone()
            call("aoti_torch_index_put_out", out, out, indices, values, accumulate)
            same(out, expected)
            fresh = torch.full_like(self, -1)
            call("aoti_torch_index_put_out", fresh, self, indices, values, accumulate)
            same(fresh, expected)
            same(
                call("index_put", self, indices, values, accumulate),
                torch.ops.aten.index_put(self, indices, values, accumulate),
            )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_index_put_accumulates_equal_positions(dtype: torch.dtype) -> None:
    places = idx(1, 1, 0, 1, -1)
    for shape in ((4,), (4, 3)):
        self = sample(shape, dtype)
        values = sample((5, *shape[1:]), dtype, 5)
        out = self.clone()
        call("aoti_torch_index_put_out", out, out, [places], values, True)
        expected = self.clone().index_put_([places], values, accumulate=True)
        same(out, expected, rtol=1e-2 if dtype in (torch.float16, torch.bfloat16) else 0, atol=0)


def test_index_put_last_value_stays() -> None:
    out = torch.zeros(3)
    call("aoti_torch_index_put_out", out, out, [idx(1, 1, 1)], torch.tensor([1.0, 2, 3]), False)
    assert out.tolist() == [0, 3, 0]
    rows = torch.zeros(3, 40_000)
    values = torch.arange(3.0).reshape(3, 1).expand(3, 40_000)
    call("aoti_torch_index_put_out", rows, rows, [idx(1, 1, 1)], values, False)
    assert rows[1].unique().tolist() == [2]


def test_index_put_dtypes_differ() -> None:
    out = torch.zeros(3)
    with pytest.raises(cudaexec.DtypeError, match="float64"):
        call("aoti_torch_index_put_out", out, out, [idx(1)], torch.ones(1).double(), False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 4), (2, 0, 3), (2, 3, 4)], ids=str)
def test_nonzero(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    for self in layouts(sample(shape, dtype)):
        same(call("nonzero", self), torch.nonzero(self))
        for size in (0, 2, 30):
            same(
                call("nonzero_static", self, size, -7),
                torch.nonzero_static(self, size=size, fill_value=-7),
            )


def test_nonzero_special_values() -> None:
    self = torch.tensor([0.0, -0.0, float("nan"), float("inf"), 1e-45])
    same(call("nonzero", self), torch.nonzero(self))
    same(call("nonzero", self.half()), torch.nonzero(self.half()))


def test_nonzero_large() -> None:
    self = torch.rand(300, 1000, generator=torch.Generator().manual_seed(3)) < 0.3
    same(call("nonzero", self), torch.nonzero(self))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_masked_select_and_scatter(dtype: torch.dtype) -> None:
    base = sample((3, 4), dtype)
    masks = [base.bool() ^ (base == base.flip(0)), torch.tensor([True, False, True, False])]
    for self in layouts(base):
        for mask in [*masks, torch.tensor(True), torch.zeros(3, 1, dtype=torch.bool)]:
            same(call("masked_select", self, mask), torch.masked_select(self, mask))
            source = sample((5, 4), dtype, 9)
            same(
                call("masked_scatter", self, mask, source),
                torch.masked_scatter(self, mask, source),
            )


def test_masked_scatter_too_few_values() -> None:
    with pytest.raises(cudaexec.ShapeError, match="selects 3 elements"):
        call("masked_scatter", torch.zeros(3), torch.ones(3).bool(), torch.zeros(2))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_repeat_interleave(dtype: torch.dtype) -> None:
    for values in ([2, 0, 3, 1], [], [0, 0], [100_000, 3]):
        repeats = torch.tensor(values, dtype=dtype)
        same(call("repeat_interleave_Tensor", repeats, None), torch.repeat_interleave(repeats))
    same(
        call("repeat_interleave_Tensor", torch.tensor([1, 2], dtype=dtype), 3),
        torch.tensor([0, 1, 1], dtype=dtype),
    )
    with pytest.raises(cudaexec.InputError, match=r"repeats\[1\] is -1"):
        call("repeat_interleave_Tensor", torch.tensor([1, -1], dtype=dtype), None)
    with pytest.raises(cudaexec.ShapeError, match="add up to 3"):
        call("repeat_interleave_Tensor", torch.tensor([1, 2], dtype=dtype), 4)
