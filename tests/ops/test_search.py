"""searchsorted, bucketize, histograms and distances against torch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from shim_call import DTYPES, call, layouts, same, sample  # noqa: E402

import cudaexec  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    # torch's advice to pass contiguous tensors
    pytest.mark.filterwarnings("ignore:torch.searchsorted:UserWarning"),
]

NUMBERS = [d for d in DTYPES if d != torch.bool]
WIDE = [torch.float32, torch.float64]


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_bucketize(dtype: torch.dtype, right: bool) -> None:
    edges = torch.tensor([-3, -1, 0, 2, 2, 5]).clamp(min=0 if dtype == torch.uint8 else -9)
    edges = edges.to(dtype)
    for shape in ((), (0,), (9,), (3, 4)):
        for self in layouts(sample(shape, dtype)):
            for out_int32 in (False, True):
                expected = torch.bucketize(self, edges, out_int32=out_int32, right=right)
                same(call("bucketize_Tensor", self, edges, out_int32, right), expected)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_searchsorted(dtype: torch.dtype, right: bool) -> None:
    rows = sample((3, 7), dtype).sort(-1).values
    values = sample((3, 5), dtype, 4)
    for sequence in layouts(rows):
        for self in layouts(values):
            expected = torch.searchsorted(sequence, self, right=right)
            same(call("searchsorted_Tensor", sequence, self, False, right, None, None), expected)
            side = "right" if right else "left"
            same(call("searchsorted_Tensor", sequence, self, False, right, side, None), expected)
    one = rows[0].contiguous()
    for self in (values, values[0, 0], values[:0]):
        expected = torch.searchsorted(one, self, right=right, out_int32=True)
        same(call("searchsorted_Tensor", one, self, True, right, None, None), expected)
    for value in (-100.0, 0.5, 100.0, one[3].item()):
        expected = torch.searchsorted(one, value, right=right)
        same(call("searchsorted_Scalar", one, value, False, right, None, None), expected)


def test_searchsorted_with_sorter() -> None:
    sequence = torch.tensor([[3.0, 1, 2], [9, 7, 8]])
    sorter = torch.argsort(sequence, -1)
    values = torch.tensor([[0.0, 2, 5], [7, 8.5, 10]])
    expected = torch.searchsorted(sequence, values, sorter=sorter)
    same(call("searchsorted_Tensor", sequence, values, False, False, None, sorter), expected)
    with pytest.raises(cudaexec.InputError, match="sorter has index 3"):
        call("searchsorted_Tensor", sequence, values, False, False, None, sorter + 1)


def test_searchsorted_mixed_dtypes_and_nan() -> None:
    edges = torch.tensor([1, 3, 5])
    self = torch.tensor([0.5, 3.0, 4.5, float("nan"), float("inf")])
    for right in (False, True):
        same(
            call("bucketize_Tensor", self, edges, False, right),
            torch.bucketize(self, edges, right=right),
        )
    nans = torch.tensor([1.0, 2, float("nan"), float("nan")])
    expected = torch.searchsorted(nans, self)
    same(call("searchsorted_Tensor", nans, self, False, False, None, None), expected)


def test_searchsorted_errors() -> None:
    with pytest.raises(cudaexec.ShapeError, match="sequence"):
        call("searchsorted_Tensor", torch.zeros(2, 3), torch.zeros(3, 3), 0, 0, None, None)
    with pytest.raises(cudaexec.InputError, match="contradicts"):
        call("searchsorted_Tensor", torch.zeros(3), torch.zeros(3), 0, 1, "left", None)
    with pytest.raises(cudaexec.ShapeError, match="boundaries"):
        call("bucketize_Tensor", torch.zeros(3), torch.zeros(2, 3), 0, 0)


@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_histc(dtype: torch.dtype) -> None:
    self = torch.randn(40, 25, generator=torch.Generator().manual_seed(1), dtype=dtype)
    for view in layouts(self):
        for bins, low, high in ((10, 0, 0), (7, -1, 1), (1, -5, 5), (100, 0.5, 2.5)):
            same(call("histc", view, bins, low, high), torch.histc(view, bins, low, high))
    grid = torch.arange(0, 11, dtype=dtype)
    same(call("histc", grid, 5, 0, 10), torch.histc(grid, 5, 0, 10))
    constant = torch.full((4,), 2, dtype=dtype)
    same(call("histc", constant, 3, 0, 0), torch.histc(constant, 3, 0, 0))
    with_nan = torch.tensor([float("nan"), 0.5, float("inf")], dtype=dtype)
    same(call("histc", with_nan, 2, 0, 1), torch.histc(with_nan, 2, 0, 1))
    with pytest.raises(cudaexec.InputError, match="no finite range"):
        call("histc", with_nan, 2, 0, 0)
    with pytest.raises(cudaexec.InputError, match="range is 2 to 1"):
        call("histc", grid, 2, 2, 1)
    with pytest.raises(cudaexec.InputError, match="bins is 0"):
        call("histc", grid, 0, 0, 1)


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_histogram(dtype: torch.dtype, density: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    self = torch.randn(300, generator=generator, dtype=dtype)
    weight = torch.rand(300, generator=generator, dtype=dtype)
    for limits in (None, [-1.0, 2.0]):
        for factors in (None, weight):
            expected = torch.histogram(
                self, 8, range=tuple(limits) if limits else None, weight=factors, density=density
            )
            ours = call("histogram_bin_ct", self, 8, limits, factors, density)
            same(ours, tuple(expected), 1e-5)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_cdist(dtype: torch.dtype, p: float) -> None:
    generator = torch.Generator().manual_seed(1)
    rtol = 3e-5 if dtype == torch.float32 else 1e-11
    shapes = [
        ((5, 3), (4, 3)),
        ((2, 5, 40), (4, 40)),
        ((3, 1, 2, 7), (2, 6, 7)),
        ((40, 33), (30, 33)),
    ]
    for a_shape, b_shape in shapes:
        a = torch.randn(a_shape, generator=generator, dtype=dtype)
        b = torch.randn(b_shape, generator=generator, dtype=dtype)
        for x1 in layouts(a)[:3]:
            for mode, name in ((None, None), (1, "use_mm_for_euclid_dist"),
                               (2, "donot_use_mm_for_euclid_dist")):  # fmt: skip
                expected = torch.cdist(x1, b, p, name or "donot_use_mm_for_euclid_dist")
                same(call("_cdist_forward", x1, b, p, mode), expected, rtol, 1e-6)


def test_cdist_edges() -> None:
    for a, b in (((0, 3), (4, 3)), ((2, 0), (3, 0))):
        x1, x2 = torch.zeros(a), torch.zeros(b)
        same(call("_cdist_forward", x1, x2, 2.0, None), torch.cdist(x1, x2))
    nan = torch.tensor([[float("nan"), 1.0]])
    for p in (1.0, 2.0, float("inf")):
        assert call("_cdist_forward", nan, torch.zeros(1, 2), p, None).isnan().all()
    with pytest.raises(cudaexec.InputError, match="p is -1"):
        call("_cdist_forward", torch.zeros(2, 3), torch.zeros(2, 3), -1.0, None)
    with pytest.raises(cudaexec.ShapeError, match="the last ones equal"):
        call("_cdist_forward", torch.zeros(2, 3), torch.zeros(2, 4), 2.0, None)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
def test_pdist(p: float) -> None:
    for rows in (0, 1, 2, 9):
        x = torch.randn(rows, 20, generator=torch.Generator().manual_seed(rows))
        same(call("_pdist_forward", x, p), torch.nn.functional.pdist(x, p), 1e-5)
