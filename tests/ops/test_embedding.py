"""Embedding bags and grid sampling against torch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from shim_call import FLOATS, call, layouts, same  # noqa: E402

import cudaexec  # noqa: E402

pytestmark = pytest.mark.torch

INDICES = [1, 2, 4, 5, 4, 3, 9, 0]


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("mode", [0, 1, 2], ids=["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_embedding_bag(dtype: torch.dtype, mode: int, index_dtype: torch.dtype) -> None:
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(dtype, 1e-6)
    indices = torch.tensor(INDICES, dtype=index_dtype)
    weights = randn(len(INDICES), dtype=dtype, seed=1)
    for weight in layouts(randn(10, 5, dtype=dtype))[:2]:
        for name in ("_embedding_bag", "_embedding_bag_forward_only"):
            for offsets, last in (([0, 2, 2, 6], False), ([0, 2, 2, 6, 8], True), ([0], False)):
                for padding in (-1, 4):
                    for samples in (None, weights) if mode == 0 else (None,):
                        starts = torch.tensor(offsets, dtype=index_dtype)
                        arguments = (weight, indices, starts, False, mode, False, samples, last)
                        expected = getattr(torch, name)(*arguments, padding)
                        ours = call(name, *arguments, padding)
                        same(ours[0], expected[0], tolerance, tolerance)
                        # torch leaves the third and fourth result of sums open
                        kept = [1] if mode == 0 else [1, 2, 3]
                        for k in kept:
                            assert torch.equal(ours[k], expected[k].to(torch.int64)), k
                        for k in (2, 3):
                            assert ours[k].shape == expected[k].shape, k


def test_embedding_bag_empty() -> None:
    weight = randn(4, 3)
    none = torch.empty(0, dtype=torch.int64)
    for mode in (0, 1, 2):
        ours = call("_embedding_bag", weight, none, none, 0, mode, 0, None, 0, -1)
        assert ours[0].shape == (0, 3)
        two = torch.tensor([0, 0])
        ours = call("_embedding_bag", weight, none, two, 0, mode, 0, None, 0, -1)
        assert torch.equal(ours[0], torch.zeros(2, 3))


@pytest.mark.parametrize(
    ("indices", "offsets", "message"),
    [
        ([0, 4], [0], r"indices\[1\] is 4; expected 0 to 3"),
        ([-1], [0], r"indices\[0\] is -1"),
        ([0, 1], [1], r"offsets\[0\] is 1; expected 0"),
        ([0, 1], [0, 3], r"the bag ends at 3"),
        ([0, 1, 2], [0, 2, 1], r"offsets\[1\] is 2"),
    ],
)
def test_embedding_bag_errors(indices: list[int], offsets: list[int], message: str) -> None:
    arguments = (randn(4, 3), torch.tensor(indices), torch.tensor(offsets))
    with pytest.raises(cudaexec.InputError, match=message):
        call("_embedding_bag_forward_only", *arguments, 0, 0, 0, None, 0, -1)


def test_embedding_bag_many_threads() -> None:
    weight = randn(1000, 64)
    indices = torch.randint(0, 1000, (20_000,), generator=torch.Generator().manual_seed(1))
    offsets = torch.arange(0, 20_000, 20)
    arguments = (weight, indices, offsets, False, 1, False, None, False, -1)
    expected = torch._embedding_bag_forward_only(*arguments)
    same(call("_embedding_bag_forward_only", *arguments)[0], expected[0], 1e-5, 1e-6)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 2], ids=["zeros", "border", "reflection"])
@pytest.mark.parametrize("interpolation", [0, 1], ids=["linear", "nearest"])
def test_grid_sampler_3d(interpolation: int, padding: int, align_corners: bool) -> None:
    for volume in layouts(randn(2, 3, 4, 5, 6)):
        grid = 1.5 * randn(2, 3, 4, 5, 3, seed=1)
        arguments = (volume, grid, interpolation, padding, align_corners)
        same(
            call("grid_sampler_3d", *arguments),
            torch.ops.aten.grid_sampler_3d(*arguments),
            1e-5,
            1e-5,
        )


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_grid_sampler_3d_dtypes(dtype: torch.dtype) -> None:
    # Multiples of 1/8 give the same source positions in every dtype.
    grid = (randn(1, 2, 2, 2, 3, seed=1) * 8).round().clamp(-9, 9) / 8
    volume = randn(1, 2, 4, 4, 4)
    expected = torch.ops.aten.grid_sampler_3d(volume.to(dtype).float(), grid, 0, 0, True)
    ours = call("grid_sampler_3d", volume.to(dtype), grid.to(dtype), 0, 0, True)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours.float(), expected, rtol=2e-2, atol=1e-2)


def test_grid_sampler_3d_far_and_not_a_number() -> None:
    volume = randn(1, 1, 2, 2, 2)
    places = [1e30, -1e30, float("inf"), float("-inf"), float("nan")]
    grid = torch.tensor(places).reshape(1, 5, 1, 1, 1).expand(1, 5, 1, 1, 3).contiguous()
    ours = call("grid_sampler_3d", volume, grid, 0, 0, False)
    assert torch.equal(ours, torch.zeros_like(ours))


def test_grid_sampler_3d_errors() -> None:
    with pytest.raises(cudaexec.ShapeError, match="equal batches"):
        call("grid_sampler_3d", randn(2, 1, 2, 2, 2), randn(1, 2, 2, 2, 3), 0, 0, False)
    with pytest.raises(cudaexec.NotSupported, match="neither linear"):
        call("grid_sampler_3d", randn(1, 1, 2, 2, 2), randn(1, 2, 2, 2, 3), 2, 0, False)
