"""Indexing, masks and scatter on GPUs against torch."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import cudaexec  # noqa: E402
from cuda_ops.device_call import World  # noqa: E402
from ops.shim_call import DTYPES, FLOATS, layouts, same, sample  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:index_reduce:UserWarning"),
]

Index = list[Any]
I = torch.tensor  # noqa: E741
PATTERNS: list[tuple[tuple[int, ...], Index]] = [
    ((5,), [I([0, 4, -1, 2])]),
    ((4, 5), [I([1, 3, 0])]),
    ((4, 5), [None, I([[1, 4], [0, -5]])]),
    ((4, 5), [I([1, 3]), I([0, 4])]),
    ((4, 5), [I([[1], [3]]), I([0, 4, 2])]),
    ((3, 4, 5), [I([2, 0]), None, I([1, 4])]),
    ((3, 4, 5), [None, I([2, 0]), I([1, 4])]),
    ((3, 4, 5), [None, I(2)]),
    ((3, 4, 5), [I([1, 2], dtype=torch.int32)]),
    ((3, 4, 5), [I([], dtype=torch.int64)]),
    ((3, 4), [I([True, False, True])]),
    ((3, 4), [I([[True, False, True, True], [False] * 4, [True] * 4])]),
    ((3, 4, 5), [None, I([True, False, False, True]), I([3, 1])]),
    ((3, 4), [I([0, 1, 1], dtype=torch.uint8)]),
]
REPEATS = (0, 2)  # patterns with one place twice


@pytest.mark.parametrize("case", range(len(PATTERNS)))
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_index(world: World, case: int) -> None:
    shape, indices = PATTERNS[case]
    for dtype in (torch.float32, torch.int64, torch.bfloat16, torch.bool):
        for self in layouts(sample(shape, dtype, case)):
            same(world.call("index_Tensor", self, indices), torch.ops.aten.index(self, indices))


@pytest.mark.parametrize("case", range(len(PATTERNS) - 1))
def test_index_put(world: World, case: int) -> None:
    shape, indices = PATTERNS[case]
    aten = torch.ops.aten
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool):
        for self in layouts(sample(shape, dtype, case))[:2]:
            picked = aten.index(self, indices)
            for values in (sample(picked.shape, dtype, 9), sample((), dtype, 9), picked[:1]):
                if values.dim() > 0 and 0 in picked.shape:
                    continue
                for accumulate in (False, True):
                    if accumulate and dtype == torch.bool:
                        continue
                    if not accumulate and case in REPEATS and values.dim() > 0 and world.is_gpu:
                        continue  # any one of the values stays
                    expected = aten.index_put(self, indices, values, accumulate)
                    ours = world.call("index_put", self, indices, values, accumulate)
                    same(ours, expected, rtol=1e-2, atol=1e-2)
                    if None in indices:
                        continue
                    out = self.clone()
                    name = "aoti_torch_index_put_out"
                    world.call(name, out, self, indices, values, accumulate)
                    torch.testing.assert_close(out, expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_additions_to_one_place(world: World, dtype: torch.dtype) -> None:
    if dtype == torch.bool:
        pytest.skip("torch adds no bools")
    self = torch.ones(3, 2, dtype=dtype)
    where = torch.tensor([0, 2, 0, 0, 2, 0, 1])
    values = sample((7, 2), dtype, 3)
    expected = torch.ops.aten.index_put(self, [where], values, True)
    same(world.call("index_put", self, [where], values, True), expected, rtol=1e-2, atol=2e-2)


def test_an_index_out_of_range_stops_the_kernel(world: World) -> None:
    if world.take_traps is None:
        pytest.skip("would make a real GPU unusable for the process")
    self = torch.randn(3, 4)
    world.call("index_Tensor", self, [torch.tensor([0, 3])])
    assert world.take_traps() == 1
    world.call("index_Tensor", self, [None, torch.tensor([-5])])
    assert world.take_traps() == 1
    out = torch.zeros(3, 4)
    world.call("scatter_src_out", out, self, 1, torch.tensor([[4], [0], [-1]]), self)
    assert world.take_traps() == 2


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nonzero(world: World, dtype: torch.dtype) -> None:
    for shape in [(), (1,), (7,), (3, 4), (2, 3, 4), (0, 3)]:
        for self in layouts(sample(shape, dtype)):
            self[self == self.flatten()[0] if self.numel() else ...] = 0
            expected = torch.nonzero(self)
            ours = world.call("nonzero", self)
            assert torch.equal(ours, expected)
            fixed = world.call("nonzero_static", self, 5, -1)
            assert torch.equal(fixed, torch.nonzero_static(self, size=5, fill_value=-1))


@pytest.mark.parametrize("count", [2047, 2048, 2049, 600_000])
def test_nonzero_of_many(world: World, count: int) -> None:
    if count > 100_000 and world.take_traps is not None:
        pytest.skip("too much for the emulation")
    self = torch.rand(count) < 0.3
    assert torch.equal(world.call("nonzero", self), torch.nonzero(self))
    none = torch.zeros(count, dtype=torch.bool)
    assert world.call("nonzero", none).shape == (0, 1)


def test_masks(world: World) -> None:
    for dtype in (torch.float32, torch.float16, torch.int64, torch.bool):
        self = sample((3, 4), dtype)
        for mask in (torch.rand(3, 4) < 0.5, torch.tensor([True, False, True, False])):
            same(world.call("masked_select", self, mask), torch.masked_select(self, mask))
            source = sample((12,), dtype, 5)
            expected = torch.masked_scatter(self, mask.expand(3, 4), source)
            same(world.call("masked_scatter", self, mask, source), expected)
    if world.take_traps is not None:
        everything = torch.ones(3, 4, dtype=torch.bool)
        world.call("masked_scatter", torch.zeros(3, 4), everything, torch.ones(7))
        assert world.take_traps() == 5


def test_sizes_that_depend_on_values_cannot_be_captured(world: World, request: Any) -> None:
    if world.take_traps is None:
        pytest.skip("captures through the fake driver")
    from cuda_ops.capture import Captured
    from cuda_ops.device_call import DeviceCall

    fake = request.getfixturevalue("fake")
    with (
        DeviceCall(world, "nonzero", (torch.ones(4),)) as call,
        pytest.raises(cudaexec.CaptureError, match="cannot be (read|allocated)|capture"),
    ):
        Captured(fake, call)


SCATTERS = [((5,), (7,), 0), ((4, 5), (4, 3), 1), ((4, 5), (6, 5), 0), ((3, 4, 2), (3, 2, 2), 1)]
UNIQUE = [((7,), (5,), 0), ((4, 5), (4, 3), 1), ((6, 5), (4, 5), 0), ((3, 4, 2), (3, 2, 2), 1)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scatter(world: World, dtype: torch.dtype) -> None:
    for shape, index_shape, dim in [*UNIQUE, ((), (), 0)]:
        # No place twice: which value stays would be open.
        view = [1] * len(index_shape)
        if index_shape:
            view[dim] = index_shape[dim]
        order = torch.randperm(shape[dim] if shape else 1)[: max(view, default=1)]
        index = order.reshape(view).expand(index_shape).contiguous()
        for self in layouts(sample(shape, dtype)):
            src = sample(index_shape, dtype, 2)
            expected = torch.scatter(self, dim, index, src)
            out = torch.empty_strided(self.shape, self.stride(), dtype=dtype)
            world.call("scatter_src_out", out, self, dim, index, src)
            assert torch.equal(out, expected)
            inside = self.clone()
            world.call("aoti_torch_scatter_out", inside, inside, dim, index.int(), src)
            assert torch.equal(inside, expected)
            world.call("scatter_value_out", out, self, dim, index, 1.0)
            assert torch.equal(out, torch.scatter(self, dim, index, 1))


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int32, torch.uint8], ids=str)
def test_scatter_reduce(world: World, dtype: torch.dtype) -> None:
    tolerance = {torch.bfloat16: 3e-2, torch.float16: 4e-3}.get(dtype, 1e-5)
    reduces = itertools.product(("sum", "prod", "mean", "amax", "amin"), (True, False))
    for reduce, include_self in reduces:
        for shape, index_shape, dim in SCATTERS:
            generator = torch.Generator().manual_seed(3)
            index = torch.randint(0, shape[dim], index_shape, generator=generator)
            src = sample(index_shape, dtype, 4)
            if reduce == "prod":
                src = src.clamp(max=3) if dtype == torch.uint8 else src.clamp(-2, 2)
            self = layouts(sample(shape, dtype))[dim]
            expected = torch.scatter_reduce(
                self, dim, index, src, reduce, include_self=include_self
            )
            out = torch.empty_strided(self.shape, self.stride(), dtype=dtype)
            name = "scatter_reduce_two_out"
            world.call(name, out, self, dim, index, src, reduce, include_self)
            torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
def test_index_reduce(world: World, reduce: str) -> None:
    self, index = torch.randn(4, 5), torch.tensor([3, 0, 3])
    for dim, source in ((0, torch.randn(3, 5)), (1, torch.randn(4, 3))):
        for include_self in (True, False):
            expected = torch.index_reduce(
                self, dim, index, source, reduce, include_self=include_self
            )
            ours = world.call("index_reduce", self, dim, index, source, reduce, include_self)
            torch.testing.assert_close(ours, expected)


def test_nan_wins_in_extremes(world: World) -> None:
    self = torch.tensor([1.0, float("nan"), 3.0])
    index, src = torch.tensor([0, 0, 1, 2]), torch.tensor([float("nan"), 5.0, 2.0, 1.0])
    for reduce in ("amax", "amin"):
        out = torch.empty(3)
        world.call("scatter_reduce_two_out", out, self, 0, index, src, reduce, True)
        expected = torch.scatter_reduce(self, 0, index, src, reduce)
        torch.testing.assert_close(out, expected, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_repeat_interleave(world: World, dtype: torch.dtype) -> None:
    for counts in ([2, 0, 3, 1], [0], [], [1] * 700, [0, 0, 500]):
        repeats = torch.tensor(counts, dtype=dtype)
        expected = torch.repeat_interleave(repeats)
        for size in (None, sum(counts)):
            ours = world.call("repeat_interleave_Tensor", repeats, size)
            assert torch.equal(ours, expected) and ours.dtype == dtype
    if world.take_traps is not None:
        for counts, size in (([2, -1, 3], 4), ([1, 1], 3)):
            world.call("repeat_interleave_Tensor", torch.tensor(counts), size)
            assert world.take_traps() > 0


def test_wrong_operands_are_named(world: World) -> None:
    with pytest.raises(cudaexec.DtypeError, match="index_put: self is .* and values is"):
        world.call("index_put", torch.zeros(3), [torch.tensor([0])], torch.zeros(1).half(), False)
    with pytest.raises(cudaexec.ShapeError, match="does not match"):
        world.call("index_Tensor", torch.zeros(3), [torch.ones(4, dtype=torch.bool)])
    with pytest.raises(cudaexec.ShapeError, match="does not fit self"):
        world.call(
            "scatter_src_out", torch.zeros(3, 2), torch.zeros(3, 2), 0,
            torch.zeros(1, 3, dtype=torch.int64), torch.zeros(1, 3),
        )  # fmt: skip
    with pytest.raises(cudaexec.NotSupported, match="reduction 'max'"):
        world.call(
            "scatter_reduce_two_out", torch.zeros(3), torch.zeros(3), 0, torch.tensor([0]),
            torch.zeros(1), "max", True,
        )  # fmt: skip
