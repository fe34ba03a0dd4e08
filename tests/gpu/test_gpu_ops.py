"""GPU operators on a real GPU: large sizes against torch's own kernels, and in CUDA graphs.

The same operators at every layout and dtype: ``pytest -m gpu tests/cuda_ops``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from cuda_ops.device_call import World  # noqa: E402
from cudaexec import _core  # noqa: E402
from ops.shim_call import FLOATS  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]

TOLERANCE = {
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
    torch.float32: 1e-5,
    torch.float64: 1e-12,
}


@pytest.fixture
def world() -> Iterator[World]:
    _core._set_package_folders(sys.path)
    made = World(torch.cuda.current_device())
    yield made
    made.close()


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float32).to(dtype)


def close(ours: torch.Tensor, expected: torch.Tensor, scale: float = 1.0) -> None:
    """`scale`: the size that sums in between reach."""
    tolerance = TOLERANCE[ours.dtype]
    torch.testing.assert_close(ours, expected.cpu(), rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("sizes", [(8, 1024, 4096), (1, 4096, 1024), (333, 77, 1001)], ids=str)
def test_linear_layers(world: World, sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    rows, n, k = sizes
    x, weight, bias = (
        random(rows, k, dtype=dtype),
        random(n, k, dtype=dtype),
        random(n, dtype=dtype),
    )
    out = torch.empty(rows, n, dtype=dtype)
    world.call("addmm_out", out, bias, x, weight.t(), 1.0, 1.0)
    expected = torch.nn.functional.linear(
        x.cuda().double(), weight.cuda().double(), bias.cuda().double()
    )
    close(out, expected.to(dtype), k**0.5)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_attention_products(world: World, dtype: torch.dtype) -> None:
    q, k = random(24, 129, 64, dtype=dtype), random(24, 200, 64, dtype=dtype)
    out = torch.empty(24, 129, 200, dtype=dtype)
    world.call("bmm_out", out, q, k.mT)
    close(out, torch.bmm(q.cuda().double(), k.cuda().double().mT).to(dtype), 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("shape", [(3, 100_003), (1, 1 << 20), (5000, 17)], ids=str)
def test_sort_and_topk(world: World, shape: tuple[int, int], dtype: torch.dtype) -> None:
    self = (random(*shape) * 1000).to(dtype)
    for descending in (False, True):
        expected = torch.sort(self.cuda(), dim=1, stable=True, descending=descending)
        values, indices = world.call("sort_stable", self, True, 1, descending)
        assert torch.equal(values, expected.values.cpu())
        assert torch.equal(indices, expected.indices.cpu())
    k = min(50, shape[1])
    values, indices = world.call("topk", self, k, 1, True, True)
    assert torch.equal(values, torch.topk(self.cuda(), k, 1).values.cpu())
    assert torch.equal(self.gather(1, indices), values)


def test_masks_and_scatter(world: World) -> None:
    self = random(1000, 1001)
    assert torch.equal(world.call("nonzero", self > 1), torch.nonzero(self > 1))
    index = torch.randint(0, 1000, (1000, 1001))
    for reduce in ("sum", "amax"):
        out = torch.empty_like(self)
        world.call("scatter_reduce_two_out", out, self, 0, index, self, reduce, True)
        close(out, torch.scatter_reduce(self, 0, index, self, reduce), 4)
    half = self.bfloat16()
    out = torch.empty_like(half)
    world.call("scatter_reduce_two_out", out, half, 0, index, half, "sum", True)
    exact = torch.scatter_reduce(half.double(), 0, index, half.double(), "sum")
    close(out, exact.bfloat16(), 4)


CONVOLUTIONS = [
    # input, weight, stride, padding, transposed, groups
    ((8, 3, 224, 224), (64, 3, 7, 7), 2, 3, False, 1),
    ((4, 64, 56, 56), (64, 64, 3, 3), 1, 1, False, 1),
    ((4, 96, 56, 56), (96, 1, 3, 3), 1, 1, False, 96),
    ((2, 64, 28, 28), (64, 32, 2, 2), 2, 0, True, 1),
    ((4, 128, 28, 28), (256, 32, 3, 3), 2, 1, False, 4),
]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_convolutions(
    world: World, case: tuple[tuple[int, ...], tuple[int, ...], int, int, bool, int],
    dtype: torch.dtype, last: bool,
) -> None:  # fmt: skip
    shape, kernel, stride, padding, transposed, groups = case
    x, w = random(*shape, dtype=dtype), random(*kernel, dtype=dtype)
    if last:
        x = x.to(memory_format=torch.channels_last)
    options = [stride] * 2, [padding] * 2, [1, 1], transposed, [0, 0], groups
    ours = world.call("convolution", x, w, None, *options)
    wide = torch.ops.aten.convolution(x.cuda().double(), w.cuda().double(), None, *options)
    depth = w[0].numel() if not transposed else w.shape[0]
    close(ours, wide.to(dtype), depth**0.5)
    if last:
        assert ours.is_contiguous(memory_format=torch.channels_last)


def test_seeds_are_those_of_the_cpu(world: World) -> None:
    from ops.shim_call import call

    ours, theirs = torch.zeros(1001, dtype=torch.int64), torch.zeros(1001, dtype=torch.int64)
    for out, draw in ((ours, world.call), (theirs, call)):
        _core._ops_misc.set_seed(5)
        draw("randint_low_out", out, -(2**63), 2**63 - 1, [1001])
    assert torch.equal(ours, theirs)
