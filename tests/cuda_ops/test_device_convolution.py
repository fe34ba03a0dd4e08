"""Convolutions on GPUs against torch's, computed in float64."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import cudaexec  # noqa: E402
from cuda_ops.device_call import World  # noqa: E402
from ops.shim_call import FLOATS, same_layout  # noqa: E402

pytestmark = pytest.mark.torch

TOLERANCE = {
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
    torch.float32: 4e-6,
    torch.float64: 1e-13,
}


def convolve(
    world: World, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, *options: Any
) -> torch.Tensor:
    """Compares with torch; `options` as of aten.convolution from the stride on."""
    ours = world.call("convolution", x, w, bias, *options)
    wide = [None if t is None else t.double() for t in (x, w, bias)]
    expected = torch.ops.aten.convolution(*wide, *options)
    bound = torch.ops.aten.convolution(*[None if t is None else t.abs() for t in wide], *options)
    assert ours.shape == expected.shape
    limit = TOLERANCE[ours.dtype] * bound + 1e-300
    assert bool(((ours.double() - expected).abs() <= limit).all())
    return ours


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_rank_and_kind(world: World, dtype: torch.dtype) -> None:
    for spatial in (1, 2, 3):
        sizes = (7, 6, 5)[:spatial]
        for transposed, groups, has_bias in itertools.product((False, True), (1, 2), (True, False)):
            x = random(2, 4, *sizes, dtype=dtype)
            kernel = (3, 2, 3)[:spatial]
            shape = (4, 6 // groups, *kernel) if transposed else (6, 4 // groups, *kernel)
            w = random(*shape, dtype=dtype)
            bias = random(6, dtype=dtype) if has_bias else None
            one, two = [1] * spatial, [2] * spatial
            zero = [0] * spatial
            convolve(world, x, w, bias, one, zero, one, transposed, zero, groups)
            extra = one if transposed else zero
            convolve(world, x, w, bias, two, one, one, transposed, extra, groups)
            convolve(world, x, w, bias, one, one, two, transposed, zero, groups)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("groups", [1, 2])
def test_large_groups_go_through_tiles(world: World, groups: int, dtype: torch.dtype) -> None:
    x = random(2, 10, 9, 8, dtype=dtype)
    w = random(36 * groups, 10 // groups, 3, 3, dtype=dtype)
    bias = random(36 * groups, dtype=dtype)
    convolve(world, x, w, bias, [1, 1], [1, 1], [1, 1], False, [0, 0], groups)
    w = random(10, 20, 3, 3, dtype=dtype)
    up = [2, 2], [1, 1], [1, 1], True, [1, 1], groups
    convolve(world, x, w, random(20 * groups, dtype=dtype), *up)
    w = random(70, 10, 1, 1, dtype=dtype)
    convolve(world, x, w, None, [2, 1], [0, 0], [1, 1], False, [0, 0], 1)


def test_depthwise(world: World) -> None:
    x = random(2, 6, 8, 8)
    plain = [1, 1], [1, 1], [1, 1], False, [0, 0]
    convolve(world, x, random(6, 1, 3, 3), random(6), *plain, 6)
    convolve(world, x, random(12, 1, 3, 3), None, *plain, 6)


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_channels_last(world: World, spatial: int) -> None:
    one, zero = [1] * spatial, [0] * spatial
    x, w = random(2, 4, *[5, 6, 4][:spatial]), random(20, 4, *[3, 2, 3][:spatial])
    plain = convolve(world, x, w, None, one, zero, one, False, zero, 1)
    assert plain.is_contiguous()
    if spatial == 1:
        return
    last = torch.channels_last if spatial == 2 else torch.channels_last_3d
    for left, right in [
        (x.to(memory_format=last), w),
        (x, w.to(memory_format=last)),
        (x.to(memory_format=last), w.to(memory_format=last)),
    ]:
        ours = convolve(world, left, right, random(20), one, zero, one, False, zero, 1)
        assert ours.is_contiguous(memory_format=last)


def test_without_batch_and_with_one_number_for_all(world: World) -> None:
    x, w = random(4, 7, 7), random(5, 4, 3, 3)
    ours = world.call("convolution", x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    expected = torch.nn.functional.conv2d(x, w, padding=1)
    same_layout(ours, expected)
    torch.testing.assert_close(ours, expected)
    ours = world.call("convolution", x[None], w, None, [2], [1], [1], False, [0], 1)
    torch.testing.assert_close(ours, torch.nn.functional.conv2d(x[None], w, stride=2, padding=1))


def test_nothing_to_do(world: World) -> None:
    x, w = random(0, 4, 7, 7), random(5, 4, 3, 3)
    ours = world.call("convolution", x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    assert ours.shape == (0, 5, 5, 5)


def test_wrong_operands_are_named(world: World) -> None:
    plain = None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1
    with pytest.raises(cudaexec.ShapeError, match="do not fit 1 groups"):
        world.call("convolution", random(1, 3, 5, 5), random(4, 2, 3, 3), *plain)
    with pytest.raises(cudaexec.DtypeError, match="input is int64"):
        world.call("convolution", random(1, 2, 5, 5).long(), random(4, 2, 3, 3).long(), *plain)
    with pytest.raises(cudaexec.ShapeError, match="has no output"):
        world.call("convolution", random(1, 2, 2, 2), random(4, 2, 3, 3), *plain)
