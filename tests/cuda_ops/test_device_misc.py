"""Random seeds, embedding bags and running sums on GPUs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import cudaexec  # noqa: E402
from cuda_ops.device_call import DeviceCall, World, cuda  # noqa: E402
from cudaexec import _core  # noqa: E402
from ops.shim_call import DTYPES, FLOATS, call, layouts, same, sample  # noqa: E402

pytestmark = pytest.mark.torch

LOW, HIGH = -(2**63), 2**63 - 1


def seeds(world: World, count: int = 1, low: int = LOW, high: int = HIGH) -> torch.Tensor:
    out = torch.zeros(count, dtype=torch.int64)
    world.call("randint_low_out", out, low, high, [count])
    return out


def test_seeds_differ_and_follow_the_seed(world: World) -> None:
    _core._ops_misc.set_seed(7)
    drawn = [seeds(world).item() for _ in range(20)]
    assert len(set(drawn)) == 20
    assert any(value < 0 for value in drawn) and any(value > 0 for value in drawn)
    _core._ops_misc.set_seed(7)
    assert [seeds(world).item() for _ in range(20)] == drawn
    _core._ops_misc.set_seed(8)
    assert seeds(world).item() != drawn[0]


@pytest.mark.parametrize("count", [1, 2, 3, 1000])
@pytest.mark.parametrize(("low", "high"), [(LOW, HIGH), (-3, 4), (5, 6)])
def test_the_numbers_are_those_of_the_cpu(world: World, count: int, low: int, high: int) -> None:
    _core._ops_misc.set_seed(3)
    ours = seeds(world, count, low, high)
    _core._ops_misc.set_seed(3)
    out = torch.zeros(count, dtype=torch.int64)
    call("randint_low_out", out, low, high, [count])
    assert torch.equal(ours, out)
    assert bool(((ours >= low) & (ours < high)).all())


def test_wrong_ranges_are_named(world: World) -> None:
    with pytest.raises(cudaexec.InputError, match="range 4 to 4"):
        seeds(world, 1, 4, 4)


def test_replays_differ_and_follow_the_seed(world: World, request: Any) -> None:
    if world.take_traps is None:
        pytest.skip("captures through the fake driver")
    from cuda_ops.capture import Captured

    fake = request.getfixturevalue("fake")
    seeds(world)  # loads the kernel, which a capture cannot
    out = torch.zeros(3, dtype=torch.int64)
    with (
        DeviceCall(world, "randint_low_out", (out, LOW, HIGH, [3])) as shim,
        pytest.raises(cudaexec.CaptureError, match="randint"),
    ):
        Captured(fake, shim)
    random = cuda.GraphRandom()
    assert not random.is_used
    with (
        DeviceCall(world, "randint_low_out", (out, LOW, HIGH, [3])) as shim,
        random.scope(lambda: Captured(fake, shim)) as graph,
    ):
        assert random.is_used

        def replays() -> list[list[int]]:
            found = []
            for _ in range(3):
                random.advance(world.index, graph.execution)
                graph.launch()
                shim.read_back()
                found.append(out.tolist())
            return found

        _core._ops_misc.set_seed(11)
        first = replays()
        assert len({value for values in first for value in values}) == 9
        _core._ops_misc.set_seed(11)
        assert replays() == first
        _core._ops_misc.set_seed(11)
        assert [seeds(world, 3).tolist() for _ in range(3)] == first  # as without a graph


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_embedding_bag(world: World, dtype: torch.dtype, mode: int) -> None:
    weight = sample((10, 6), dtype)
    indices = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9])
    names = ["sum", "mean", "max"]
    for offsets, last in [
        (torch.tensor([0, 4, 4]), False),
        (torch.tensor([0, 3, 8]), True),
        (torch.tensor([0]), False),
    ]:
        for padding in (-1, 4):
            for kind in (torch.int64, torch.int32):
                args = (weight, indices.to(kind), offsets.to(kind))
                expected = torch.nn.functional.embedding_bag(
                    indices, weight, offsets, mode=names[mode], include_last_offset=last,
                    padding_idx=padding if padding >= 0 else None,
                )  # fmt: skip
                for name in ("_embedding_bag", "_embedding_bag_forward_only"):
                    out, bag_of, sizes, rows = world.call(
                        name, *args, False, mode, False, None, last, padding
                    )
                    same(out, expected, rtol=1e-2, atol=1e-2)
                    assert bag_of.shape == indices.shape and bag_of.dtype == kind
                    assert sizes.shape == offsets.shape and sizes.dtype == kind
                    assert rows.shape == (out.shape if mode == 2 else (0,))
    samples = sample((8,), dtype, 3)
    if mode == 0:
        out = world.call(
            "_embedding_bag", weight, indices, torch.tensor([0, 4]), False, 0, False, samples,
            False, -1,
        )[0]  # fmt: skip
        expected = torch.nn.functional.embedding_bag(
            indices, weight.double(), torch.tensor([0, 4]), mode="sum",
            per_sample_weights=samples.double(),
        )  # fmt: skip
        torch.testing.assert_close(out.double(), expected, rtol=2e-2, atol=5e-2)


def test_bad_bags_stop_the_kernel(world: World) -> None:
    if world.take_traps is None:
        pytest.skip("would make a real GPU unusable for the process")
    weight = torch.randn(4, 1)
    for indices, offsets in [([0, 4], [0]), ([0, -1], [0]), ([0, 1], [0, 3]), ([0, 1], [1])]:
        world.call(
            "_embedding_bag", weight, torch.tensor(indices), torch.tensor(offsets), False, 0,
            False, None, False, -1,
        )  # fmt: skip
        assert world.take_traps() > 0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_scans(world: World, name: str, dtype: torch.dtype) -> None:
    function = getattr(torch, name)
    tolerance = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float32: 1e-5}.get(dtype, 1e-12)
    for shape in [(), (1,), (7,), (3, 4), (2, 3, 4), (2, 0)]:
        for self in layouts(sample(shape, dtype)):
            for dim in range(-1, max(self.dim(), 1)):
                same(world.call(name, self, dim, None), function(self, dim), tolerance, tolerance)
    self = sample((2, 300), dtype).clamp(-1, 1) if dtype != torch.bool else sample((2, 300), dtype)
    wide = function(self.double(), 1)
    if name == "cumsum":
        ours = world.call(name, self, 1, None)
        torch.testing.assert_close(ours.double(), wide, rtol=tolerance, atol=30 * tolerance)
    for wanted in (torch.float32, torch.int32, torch.int64, torch.float64):
        expected = function(self[:, :20], 1, dtype=wanted)
        same(world.call(name, self[:, :20], 1, wanted), expected, 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_running_extremes(world: World, dtype: torch.dtype) -> None:
    for shape in [(), (1,), (7,), (3, 4), (2, 3, 4), (2, 0)]:
        for self in layouts(sample(shape, dtype))[:3]:
            for dim in range(-1, max(self.dim(), 1)):
                same(world.call("cummax", self, dim), tuple(torch.cummax(self, dim)))
                same(world.call("cummin", self, dim), tuple(torch.cummin(self, dim)))
    if dtype.is_floating_point:
        self = torch.tensor([1.0, 3, 3, float("nan"), 5, float("nan"), 0]).to(dtype)
        same(world.call("cummax", self, 0), tuple(torch.cummax(self, 0)))
        same(world.call("cummin", self, 0), tuple(torch.cummin(self, 0)))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_logcumsumexp(world: World, dtype: torch.dtype) -> None:
    infinity = float("inf")
    special = torch.tensor([-infinity, -infinity, 1, 2, infinity, 3, float("nan"), 1]).to(dtype)
    for self in (special, special[:4], sample((3, 50), dtype), 100 * sample((5, 3), dtype)):
        for dim in range(self.dim()):
            expected = torch.logcumsumexp(self.double(), dim).to(dtype)
            same(world.call("logcumsumexp", self, dim), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("n", [0, 1, 5, 3000])
def test_random_orders(world: World, n: int) -> None:
    _core._ops_misc.set_seed(1)
    first = world.call("randperm", n, torch.int64, 1)
    assert torch.equal(first.sort().values, torch.arange(n))
    other = world.call("randperm", n, torch.int32, 1)
    assert other.dtype == torch.int32 and torch.equal(other.sort().values, torch.arange(n).int())
    assert n < 2 or n == 5 or not torch.equal(first, other.long())
    _core._ops_misc.set_seed(1)
    assert torch.equal(world.call("randperm", n, None, 1), first)


def test_bits_as_another_dtype(world: World) -> None:
    self = torch.randn(3, 4)
    assert torch.equal(world.call("view_dtype", self, torch.int32), self.view(torch.int32))
    assert torch.equal(world.call("view_dtype", self, torch.uint8), self.view(torch.uint8))
