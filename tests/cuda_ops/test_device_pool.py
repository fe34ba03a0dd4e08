"""Pooling and integer products on GPUs against torch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import cudaexec  # noqa: E402
from cuda_ops.device_call import World  # noqa: E402
from ops.shim_call import FLOATS, layouts, same  # noqa: E402

pytestmark = pytest.mark.torch

TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-6, torch.float64: 1e-14}
SETTINGS = [
    # kernel, stride, padding, dilation, ceil_mode
    ([3], [2], [1], [1], False),
    ([2], [], [0], [1], False),
    ([3], [2], [1], [1], True),
    ([3], [1], [1], [2], False),
]


def images(rank: int, dtype: torch.dtype) -> list[torch.Tensor]:
    sizes = [2, 3, *[5, 9, 8][3 - rank :]]
    numbers = torch.randperm(torch.Size(sizes).numel()).reshape(sizes)
    return layouts((numbers / 16).to(dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("rank", [2, 3])
def test_max_pool(world: World, rank: int, dtype: torch.dtype) -> None:
    function = getattr(torch.ops.aten, f"max_pool{rank}d_with_indices")
    for kernel, stride, padding, dilation, ceil_mode in SETTINGS:
        for self in images(rank, dtype):
            expected = function(
                self, kernel * rank, stride * rank, padding * rank, dilation * rank, ceil_mode
            )
            ours = world.call(
                f"max_pool{rank}d_with_indices", self, kernel * rank, stride * rank,
                padding * rank, dilation * rank, ceil_mode,
            )  # fmt: skip
            same(ours, tuple(expected))


def test_nan_is_the_largest(world: World) -> None:
    self = torch.arange(16.0).reshape(1, 1, 4, 4)
    self[0, 0, 1, 1] = float("nan")
    expected = torch.ops.aten.max_pool2d_with_indices(self, [2, 2])
    same(world.call("max_pool2d_with_indices", self, [2, 2], [], [0], [1], False), tuple(expected))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("rank", [2, 3])
def test_avg_pool(world: World, rank: int, dtype: torch.dtype) -> None:
    function = getattr(torch.ops.aten, f"avg_pool{rank}d")
    tolerance = TOLERANCE[dtype]
    for kernel, stride, padding, dilation, ceil_mode in SETTINGS:
        if dilation != [1]:
            continue
        for self in images(rank, dtype):
            for include_pad, divisor in ((True, None), (False, None), (True, 7)):
                wide = function(
                    self.double(), kernel * rank, stride * rank, padding * rank, ceil_mode,
                    include_pad, divisor,
                )  # fmt: skip
                ours = world.call(
                    f"avg_pool{rank}d", self, kernel * rank, stride * rank, padding * rank,
                    ceil_mode, include_pad, divisor,
                )  # fmt: skip
                torch.testing.assert_close(ours.double(), wide, rtol=tolerance, atol=tolerance)
                if rank == 2:
                    assert ours.is_contiguous(memory_format=torch.channels_last) == (
                        self.is_contiguous(memory_format=torch.channels_last)
                    )
                else:
                    assert ours.is_contiguous()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_adaptive_pools(world: World, dtype: torch.dtype) -> None:
    tolerance = TOLERANCE[dtype]
    for rank in (2, 3):
        for output in ([1] * rank, [4, 3, 5][:rank], [2] * rank):
            for self in images(rank, dtype):
                name = f"_adaptive_avg_pool{rank}d"
                ours = world.call(name, self, output)
                wide = getattr(torch.ops.aten, name)(self.double(), output)
                torch.testing.assert_close(ours.double(), wide, rtol=tolerance, atol=tolerance)
                name = f"adaptive_max_pool{rank}d"
                same(world.call(name, self, output), getattr(torch.ops.aten, name)(self, output))


def test_without_batch(world: World) -> None:
    self = torch.randn(3, 9, 8)
    expected = torch.ops.aten.max_pool2d_with_indices(self, [3, 3], [2, 2])
    ours = world.call("max_pool2d_with_indices", self, [3, 3], [2, 2], [0], [1], False)
    same(ours, tuple(expected))


def test_wrong_windows_are_named(world: World) -> None:
    self = torch.randn(1, 1, 4, 4)
    with pytest.raises(cudaexec.InputError, match="padding 2 exceeds half"):
        world.call("max_pool2d_with_indices", self, [2, 2], [], [2], [1], False)
    with pytest.raises(cudaexec.ShapeError, match="gives no output"):
        world.call("avg_pool2d", self, [5, 5], [], [0], False, True, None)
    with pytest.raises(cudaexec.InputError, match="divisor_override is 0"):
        world.call("avg_pool2d", self, [2, 2], [], [0], False, True, 0)


@pytest.mark.parametrize("sizes", [(17, 33, 40), (1, 1, 1), (16, 16, 16), (3, 0, 4), (3, 4, 0)])
def test_integer_products(world: World, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    a = torch.randint(-128, 128, (m, k), dtype=torch.int8)
    b = torch.randint(-128, 128, (k, n), dtype=torch.int8)
    for left in layouts(a):
        for right in layouts(b):
            out = torch.full((m, n), 7, dtype=torch.int32)
            world.call("_int_mm_out", out, left, right)
            assert torch.equal(out, a.int() @ b.int())
