"""Matrix products on GPUs: every layout, against float64 products of torch."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")

import cudaexec  # noqa: E402
from cuda_ops.device_call import World  # noqa: E402
from ops.shim_call import FLOATS  # noqa: E402

pytestmark = pytest.mark.torch

TOLERANCE = {
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
    torch.float32: 2e-6,
    torch.float64: 1e-14,
}
SIZES = [(1, 1, 1), (1, 5, 7), (6, 1, 3), (4, 3, 1), (5, 7, 9), (16, 24, 8)]


def values(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def arrangements(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The same matrices row-major, column-major, padded both ways, with gaps, shifted by one."""
    sizes = list(tensor.shape)
    found = [tensor.contiguous(), tensor.mT.contiguous().mT]
    for source in (tensor, tensor.mT):
        wide = list(source.shape)
        wide[-1] += 3
        padded = torch.zeros(wide, dtype=tensor.dtype)[..., 1 : 1 + source.shape[-1]]
        padded.copy_(source)
        found.append(padded if source is tensor else padded.mT)
    gaps = torch.zeros([2 * size for size in sizes], dtype=tensor.dtype)
    view = gaps[tuple(slice(0, 2 * size, 2) for size in sizes)]
    view.copy_(tensor)
    found.append(view)
    if tensor.dim() == 3:
        found.append(tensor.transpose(0, 1).contiguous().transpose(0, 1))
    return found


def blank_like(tensor: torch.Tensor) -> torch.Tensor:
    """The same strides, filled with NaN."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return made.fill_(float("nan"))


def close(ours: torch.Tensor, expected: torch.Tensor, magnitude: torch.Tensor) -> None:
    """`magnitude`: sums of absolute values of what was added up, which bound what rounding does."""
    limit = TOLERANCE[ours.dtype] * magnitude + 1e-300
    assert bool(((ours.double() - expected).abs() <= limit).all()), (ours, expected)


def product(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return a.double() @ b.double(), a.double().abs() @ b.double().abs()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_mm_in_every_layout(world: World, sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    m, n, k = sizes
    a, b = values((m, k), dtype, 1), values((k, n), dtype, 2)
    expected, magnitude = product(a, b)
    outs = arrangements(torch.zeros(m, n, dtype=dtype))
    for i, (left, right) in enumerate(itertools.product(arrangements(a), arrangements(b))):
        out = blank_like(outs[i % len(outs)])
        world.call("mm_out", out, left, right)
        close(out, expected, magnitude)
    for out_layout in outs:
        out = blank_like(out_layout)
        world.call("mm_out", out, a, b)
        close(out, expected, magnitude)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("beta", "alpha"), [(1.0, 1.0), (0.5, 1.0), (1.0, -2.0), (0.0, 1.5)])
def test_addmm(world: World, beta: float, alpha: float, dtype: torch.dtype) -> None:
    m, n, k = 5, 6, 7
    a, b = values((m, k), dtype, 3), values((k, n), dtype, 4)
    for shape in [(n,), (1, n), (m, 1), (1, 1), (), (m, n)]:
        self = values(shape, dtype, 5)
        if beta == 0.0:
            self = torch.full(shape, float("nan"), dtype=dtype)
        expected, magnitude = product(a, b)
        expected, magnitude = alpha * expected, abs(alpha) * magnitude
        if beta != 0.0:
            expected = expected + beta * self.double()
            magnitude = magnitude + abs(beta) * self.double().abs()
        for layout in arrangements(torch.zeros(m, n, dtype=dtype)):
            selves = arrangements(self) if shape == (m, n) else [self]
            for operand in selves:
                out = blank_like(layout)
                world.call("addmm_out", out, operand, a, b, beta, alpha)
                close(out, expected, magnitude)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bmm_and_baddbmm(world: World, dtype: torch.dtype) -> None:
    batch, m, n, k = 3, 4, 5, 6
    a, b = values((batch, m, k), dtype, 6), values((batch, k, n), dtype, 7)
    self = values((batch, m, n), dtype, 8)
    expected, magnitude = product(a, b)
    outs = arrangements(torch.zeros(batch, m, n, dtype=dtype))
    for i, (left, right) in enumerate(itertools.product(arrangements(a), arrangements(b))):
        out = blank_like(outs[i % len(outs)])
        world.call("bmm_out", out, left, right)
        close(out, expected, magnitude)
    for layout, addend in itertools.product(outs, [*arrangements(self), self[:1], self[0, 0]]):
        out = blank_like(layout)
        world.call("baddbmm_out", out, addend, a, b, 0.5, 2.0)
        close(out, 2 * expected + 0.5 * addend.double(), 2 * magnitude + addend.double().abs())


def test_a_batch_of_one_matrix_used_by_all(world: World) -> None:
    a = values((1, 4, 6), torch.float32, 9).expand(3, 4, 6)
    b = values((3, 6, 5), torch.float32, 10)
    out = torch.empty(3, 4, 5)
    world.call("bmm_out", out, a, b)
    close(out, *product(a, b))


@pytest.mark.parametrize("sizes", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)], ids=str)
def test_no_elements(world: World, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    a, b = torch.randn(m, k), torch.randn(k, n)
    out = torch.full((m, n), 7.0)
    world.call("mm_out", out, a, b)
    assert torch.equal(out, torch.zeros(m, n))
    bias = torch.randn(n)
    for beta in (0.0, 1.0, 0.5):
        out = torch.full((m, n), 7.0)
        world.call("addmm_out", out, bias, a, b, beta, 3.0)
        torch.testing.assert_close(out, beta * bias.expand(m, n))
    batched = torch.full((2, m, n), 7.0)
    world.call("bmm_out", batched, a.expand(2, m, k), b.expand(2, k, n))
    assert torch.equal(batched, torch.zeros(2, m, n))


@pytest.mark.parametrize("beta", [0.0, 1.0, 0.25])
def test_addmv_and_addbmm(world: World, beta: float) -> None:
    mat, vec = values((4, 6), torch.float32, 11), values((12,), torch.float32, 12)[::2]
    for self in (values((4,), torch.float32, 13), values((1,), torch.float32, 13)):
        ours = world.call("addmv", self, mat, vec, beta, 1.5)
        torch.testing.assert_close(ours, torch.addmv(self, mat, vec, beta=beta, alpha=1.5))
    a, b = values((3, 4, 6), torch.float32, 14), values((3, 6, 5), torch.float32, 15)
    self = values((5,), torch.float32, 16)
    ours = world.call("addbmm", self, a, b, beta, 1.5)
    torch.testing.assert_close(ours, torch.addbmm(self, a, b, beta=beta, alpha=1.5))
    none = world.call("addbmm", self, a[:0], b[:0], beta, 1.5)
    torch.testing.assert_close(none, (beta * self).expand(4, 5))


def test_the_addend_may_share_memory_with_the_result(world: World) -> None:
    a, b = values((4, 6), torch.float32, 17), values((6, 4), torch.float32, 18)
    for out in (torch.zeros(4, 4), torch.zeros(4, 4).t(), torch.zeros(4, 8)[:, ::2]):
        out.copy_(values((4, 4), torch.float32, 19))
        expected = torch.addmm(out, a, b, beta=0.5)
        world.call("addmm_out", out, out, a, b, 0.5, 1.0)
        torch.testing.assert_close(out, expected)
    for sizes, strides, offset in (([4], [1], 0), ([4, 4], [1, 4], 0), ([4], [4], 1)):
        out = values((4, 4), torch.float32, 20)
        self = out.as_strided(sizes, strides, offset)
        expected = torch.addmm(self, a, b)
        world.call("addmm_out", out, self, a, b, 1.0, 1.0)
        torch.testing.assert_close(out, expected)


def test_infinities_and_nan_come_through(world: World) -> None:
    a = torch.tensor([[float("inf"), 1.0], [float("nan"), 0.0], [3.0, 4.0]])
    b = torch.tensor([[1.0, 0.0], [2.0, 1.0]])
    out = torch.empty(3, 2)
    world.call("mm_out", out, a, b)
    torch.testing.assert_close(out, a @ b, equal_nan=True)


def test_no_tensorfloat(world: World) -> None:
    """TensorFloat-32 would keep ten bits of each factor."""
    a = torch.full((64, 64), 1 + 2.0**-20)
    out = torch.empty(64, 64)
    world.call("mm_out", out, a, torch.eye(64))
    assert torch.equal(out, a)


def test_half_products_add_up_in_float32(world: World) -> None:
    a = torch.ones(2, 4096, dtype=torch.float16)
    b = torch.full((4096, 3), 0.25, dtype=torch.float16)
    out = torch.empty(2, 3, dtype=torch.float16)
    world.call("mm_out", out, a, b)
    assert torch.equal(out, torch.full((2, 3), 1024.0, dtype=torch.float16))


def test_wrong_operands_are_named(world: World) -> None:
    a, b, out = torch.randn(3, 4), torch.randn(4, 5), torch.empty(3, 5)
    with pytest.raises(cudaexec.ShapeError, match=r"mm: b is float32\[5, 5\]; expected .*4, 5"):
        world.call("mm_out", out, a, torch.randn(5, 5))
    with pytest.raises(cudaexec.ShapeError, match="mm: out is"):
        world.call("mm_out", torch.empty(3, 4), a, b)
    with pytest.raises(cudaexec.DtypeError, match="mm: b is float64"):
        world.call("mm_out", out, a, b.double())
    with pytest.raises(cudaexec.DtypeError, match="expected one of float16"):
        world.call("mm_out", out.long(), a.long(), b.long())
    with pytest.raises(cudaexec.ShapeError, match="expected 2 dimensions"):
        world.call("mm_out", out, a, b[0])
    with pytest.raises(cudaexec.ShapeError, match="does not broadcast"):
        world.call("addmm_out", out, torch.randn(4), a, b, 1.0, 1.0)
