"""Views, joins, padding, fills and dtype conversion against torch."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")
from shim_call import DTYPES, FLOATS, INTEGERS, call, layouts, same, sample  # noqa: E402

import cudaexec  # noqa: E402

pytestmark = pytest.mark.torch

aten = torch.ops.aten


def test_views() -> None:
    for self in layouts(sample((2, 3, 4), torch.float32)):
        same(call("permute", self, [2, 0, -2]), self.permute(2, 0, 1))
        same(call("narrow", self, 1, 1, 2), self.narrow(1, 1, 2))
        same(call("narrow", self, -1, -3, 2), self.narrow(-1, -3, 2))
        for start, end, step in ((None, None, 1), (1, 3, 1), (-3, -1, 1), (0, 99, 2), (3, 1, 1)):
            same(
                call("slice_Tensor", self, 2, start, end, step),
                aten.slice.Tensor(self, 2, start, end, step),
            )
    self = sample((2, 1, 3), torch.float32)
    for dim in (0, 1, -2):
        same(call("squeeze_dim", self, dim), self.squeeze(dim))
    same(call("squeeze_dim", torch.tensor(1.0), 0), torch.tensor(1.0))


def test_view_dtype() -> None:
    self = sample((2, 4), torch.float32)
    for dtype in (torch.int32, torch.int16, torch.float64, torch.uint8):
        same(call("view_dtype", self, dtype), self.view(dtype))
    same(call("view_dtype", self.t(), torch.int32), self.t().view(torch.int32))
    with pytest.raises(cudaexec.ShapeError, match="stride 1"):
        call("view_dtype", self.t(), torch.int16)
    with pytest.raises(cudaexec.ShapeError, match="does not divide"):
        call("view_dtype", sample((2, 3), torch.float32), torch.float64)


@pytest.mark.parametrize(
    "sizes", [[24], [6, 4], [2, 12], [-1], [3, -1], [2, 3, 4, 1], [4, 3, 2], [1, 24], [2, 3, 2, 2]]
)
def test_reshape(sizes: list[int]) -> None:
    for self in layouts(sample((2, 3, 4), torch.float32)):
        same(call("reshape", self, sizes), self.reshape(sizes))
    expanded = sample((2, 1, 4), torch.float32).expand(2, 3, 4)
    same(call("reshape", expanded, sizes), expanded.reshape(sizes))


def test_reshape_edges() -> None:
    same(call("reshape", torch.tensor(2.0), [1, 1]), torch.tensor([[2.0]]))
    same(call("reshape", torch.zeros(1, 1), []), torch.tensor(0.0))
    same(call("reshape", torch.zeros(2, 0, 3), [0, 5]), torch.zeros(0, 5))
    for sizes in ([5], [-1, -1], [-1, 5], [-2, 3]):
        with pytest.raises(cudaexec.ShapeError, match="numbers of elements differ"):
            call("reshape", torch.zeros(2, 3), sizes)


def test_view_errors() -> None:
    self = torch.zeros(2, 3)
    with pytest.raises(cudaexec.ShapeError, match="each dimension once"):
        call("permute", self, [0, 0])
    with pytest.raises(cudaexec.ShapeError, match="leave dimension 1"):
        call("narrow", self, 1, 2, 2)
    with pytest.raises(cudaexec.InputError, match="step is 0"):
        call("slice_Tensor", self, 1, None, None, 0)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cat(dim: int) -> None:
    base = sample((2, 3, 4, 5), torch.float32)
    for a, b in itertools.product(layouts(base), layouts(base + 1)):
        same(call("cat", [a, b], dim), torch.cat([a, b], dim))
    parts = [base, base.narrow(dim, 0, 1), torch.empty(0), base]
    same(call("cat", parts, dim), torch.cat(parts, dim))


@pytest.mark.parametrize("dtypes", [*itertools.combinations(DTYPES, 2)], ids=str)
def test_cat_promotes(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    parts = [sample((3,), dtype) for dtype in dtypes]
    same(call("cat", parts, 0), torch.cat(parts))


def test_cat_errors() -> None:
    with pytest.raises(cudaexec.ShapeError, match="expected equal sizes but for dimension 0"):
        call("cat", [torch.zeros(2, 3), torch.zeros(2, 4)], 0)
    with pytest.raises(cudaexec.ShapeError, match="scalar"):
        call("cat", [torch.tensor(1.0)], 0)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("dtype", [torch.int64, *FLOATS], ids=str)
def test_pad(dtype: torch.dtype, mode: str) -> None:
    for shape, pad in (
        ((2, 3, 7), [2, 1]),
        ((2, 3, 7), [0, 3]),
        ((2, 3, 6, 7), [1, 2, 3, 0]),
        ((2, 3, 4, 6, 7), [1, 2, 3, 0, 1, 1]),
    ):
        if mode != "constant" and dtype == torch.int64:
            continue
        for self in layouts(sample(shape, dtype)):
            same(call("pad", self, pad, mode, None), aten.pad(self, pad, mode))


def test_pad_constant() -> None:
    for self in layouts(sample((2, 3, 4), torch.float32)):
        for pad in ([1, -1], [-1, -2, 3, 0], [1, 1, 1, 1, 2, 0], [0, -4], []):
            same(call("pad", self, pad, "constant", 2.5), aten.pad(self, pad, "constant", 2.5))
    with pytest.raises(cudaexec.ShapeError, match="not possible"):
        call("pad", torch.zeros(2, 3), [-2, -2], "constant", None)
    with pytest.raises(cudaexec.ShapeError, match="not possible"):
        call("pad", torch.zeros(2, 3), [3, 0], "reflect", None)
    with pytest.raises(cudaexec.InputError, match="3 amounts"):
        call("pad", torch.zeros(2, 3), [1, 1, 1], "constant", None)
    with pytest.raises(cudaexec.NotSupported, match="'mirror'"):
        call("pad", torch.zeros(2, 3), [1, 1], "mirror", None)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fill(dtype: torch.dtype) -> None:
    for self in layouts(sample((3, 4), dtype)):
        target = self.clone() if self.is_contiguous() else self
        call("fill__Scalar", target, 3.0)
        assert torch.equal(target, torch.full_like(target, 3))
    wide = torch.zeros(4, 6, dtype=dtype)
    call("fill__Scalar", wide[:, 1:4], 1.0)
    assert wide.sum().item() == 12
    assert not wide[:, 0].any()


@pytest.mark.parametrize("source", DTYPES, ids=str)
@pytest.mark.parametrize("target", DTYPES, ids=str)
def test_conversion(source: torch.dtype, target: torch.dtype) -> None:
    """copy_ converts as torch does, from and to every layout."""
    values = sample((5, 70), source)
    expected = values.to(target)
    if source.is_floating_point and target in INTEGERS:
        expected = values.double().trunc().to(torch.int64).to(target)
    for src in layouts(values):
        for dst in layouts(torch.zeros((5, 70), dtype=target)):
            call("aoti_torch_copy_", dst, src, 0)
            assert torch.equal(dst, expected)


@pytest.mark.parametrize("target", [torch.float16, torch.bfloat16], ids=str)
def test_conversion_of_every_half(target: torch.dtype) -> None:
    """All 65536 bit patterns, and float32 values around each rounding step."""
    patterns = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(target)
    wide = torch.empty(65536)
    call("aoti_torch_copy_", wide, patterns, 0)
    torch.testing.assert_close(wide, patterns.float(), rtol=0, atol=0, equal_nan=True)
    steps = wide[wide.isfinite()].sort().values
    middle = (steps[:-1].double() + steps[1:].double()) / 2
    for value in (middle, middle.nextafter(torch.tensor(torch.inf).double()), steps.double() * 3):
        floats = value.float()
        ours = torch.empty(floats.shape, dtype=target)
        call("aoti_torch_copy_", ours, floats, 0)
        assert torch.equal(ours, floats.to(target))
        strided = torch.empty(2, floats.shape[0], dtype=target)
        call("aoti_torch_copy_", strided.t()[:, 0], floats, 0)
        assert torch.equal(strided[0], floats.to(target))


def test_copy_large() -> None:
    """Sizes that go to several threads: packed, transposed, broadcast."""
    source = torch.randn(700, 900, generator=torch.Generator().manual_seed(1))
    for src in (source, source.t().contiguous().t(), source[:, :1].expand(700, 900)):
        for dst in (torch.empty(700, 900), torch.empty(900, 700).t()):
            call("aoti_torch_copy_", dst, src, 0)
            assert torch.equal(dst, src)
    flat = torch.arange(1_000_003.0)
    for step in (1, 2):
        target = torch.zeros(step * flat.numel())[::step]
        call("aoti_torch_copy_", target, flat, 0)
        assert torch.equal(target, flat)
    bits = torch.randint(0, 256, (64, 3, 56, 56), dtype=torch.uint8)
    nhwc = torch.empty(64, 3, 56, 56, dtype=torch.uint8).to(memory_format=torch.channels_last)
    call("aoti_torch_copy_", nhwc, bits, 0)
    assert torch.equal(nhwc, bits)
