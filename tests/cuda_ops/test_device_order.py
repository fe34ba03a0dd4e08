"""sort, topk and kthvalue on GPUs against torch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import cudaexec  # noqa: E402
from cuda_ops.device_call import World  # noqa: E402
from ops.shim_call import DTYPES, FLOATS, layouts, same, sample  # noqa: E402

pytestmark = pytest.mark.torch

SHAPES = [(), (1,), (9,), (3, 8), (4, 1, 5), (2, 0, 3), (2, 3, 4)]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sort(world: World, dtype: torch.dtype, descending: bool) -> None:
    for shape in SHAPES:
        for self in layouts(sample(shape, dtype)):
            for dim in range(-1, max(self.dim(), 1)):
                expected = torch.sort(self, dim=dim, stable=True, descending=descending)
                same(world.call("sort_stable", self, True, dim, descending), tuple(expected))
    self = sample((3, 8), dtype)
    same(world.call("sort", self, 1, descending), tuple(torch.sort(self, 1, descending)))


@pytest.mark.parametrize("length", [2047, 2048, 2049, 4096, 6000, 8193])
def test_sort_long_lines(world: World, length: int) -> None:
    for descending in (False, True):
        self = sample((2, length), torch.float32, 4)
        expected = torch.sort(self, dim=1, stable=True, descending=descending)
        same(world.call("sort_stable", self, True, 1, descending), tuple(expected))
    self = sample((length, 2), torch.int64, 5)
    expected = torch.sort(self, dim=0, stable=True)
    same(world.call("sort_stable", self, True, 0, False), tuple(expected))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sort_special_values(world: World, dtype: torch.dtype) -> None:
    special = torch.tensor(
        [1.0, float("nan"), -0.0, 0.0, float("-inf"), float("inf"), -1, float("nan"), 0.0, -0.0]
    ).to(dtype)
    for descending in (False, True):
        values, indices = world.call("sort_stable", special, True, 0, descending)
        same((values, indices), tuple(torch.sort(special, stable=True, descending=descending)))
        assert torch.equal(torch.signbit(values), torch.signbit(special[indices]))


def test_sort_wide_integers(world: World) -> None:
    self = torch.tensor([2**63 - 1, -(2**63), 0, -1, 1, 2**40, -(2**40)] * 3)
    for descending in (False, True):
        expected = tuple(torch.sort(self, stable=True, descending=descending))
        same(world.call("sort_stable", self, True, 0, descending), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32], ids=str)
@pytest.mark.parametrize("length", [7, 3000])
def test_topk(world: World, length: int, dtype: torch.dtype) -> None:
    self = torch.stack([torch.randperm(length) for _ in range(3)])
    self = self.to(torch.float64).mul(1 / 16).to(dtype) if length < 128 else self.to(torch.int32)
    for k in (0, 1, 5, length):
        for largest in (False, True):
            expected = torch.topk(self, k, 1, largest)
            values, indices = world.call("topk", self, k, 1, largest, True)
            same(values, expected.values)
            assert torch.equal(torch.gather(self, 1, indices), values)
            columns = world.call("topk", self.t(), k, 0, largest, True)
            same(columns[0], torch.topk(self.t(), k, 0, largest).values)


def test_topk_of_a_scalar_and_kthvalue(world: World) -> None:
    values, indices = world.call("topk", torch.tensor(3.0), 1, 0, True, True)
    assert values.shape == () and indices.shape == ()
    assert values.item() == 3.0 and indices.item() == 0
    self = torch.tensor([[3.0, float("nan"), 1.0, 2.0], [0.0, -1.0, 5.0, 4.0]])
    for k in (1, 3, 4):
        for keepdim in (False, True):
            ours = world.call("kthvalue", self, k, 1, keepdim)
            same(ours, tuple(torch.kthvalue(self, k, 1, keepdim)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_median(world: World, dtype: torch.dtype) -> None:
    if dtype == torch.bool:
        pytest.skip("torch has no median of bools")
    for shape in [(), (1,), (8,), (3, 7), (2500,)]:
        for self in layouts(sample(shape, dtype))[:3]:
            same(world.call("median", self), torch.median(self))
            same(world.call("nanmedian", self), torch.nanmedian(self))
    if dtype.is_floating_point:
        for values in ([3.0, float("nan"), 1.0, 2.0, 5.0], [float("nan")] * 3, []):
            self = torch.tensor(values).to(dtype)
            same(world.call("median", self), torch.median(self))
            same(world.call("nanmedian", self), torch.nanmedian(self))
    else:
        largest = torch.iinfo(dtype).max
        self = torch.tensor([largest, largest, 0], dtype=dtype)
        same(world.call("median", self), torch.median(self))


def test_wrong_k_is_named(world: World) -> None:
    with pytest.raises(cudaexec.InputError, match="topk: k is 4; expected 0 to 3"):
        world.call("topk", torch.zeros(2, 3), 4, 1, True, True)
    with pytest.raises(cudaexec.InputError, match="kthvalue: k is 0"):
        world.call("kthvalue", torch.zeros(2, 3), 0, 1, False)
