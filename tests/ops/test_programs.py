"""Real programs that call the operators out, against eager; generated code checks results' strides.

One export holds a family of operators. Each test also says which call-outs the program has to make,
so that it cannot pass without them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import cudaexec  # noqa: E402
from compare import assert_same  # noqa: E402

pytestmark = pytest.mark.torch


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = function


def order(x: torch.Tensor) -> Any:
    values, indices = torch.sort(x, dim=0, descending=True, stable=True)
    top = torch.topk(x.transpose(0, 1), 3, dim=0)
    kth = torch.kthvalue(x, 2, dim=1)
    common = torch.mode((x * 2).round(), dim=1)
    return (
        values * 2,
        indices + 1,
        top.values + 1,
        top.indices * 2,
        kth.values - 1,
        common.values + 1,
        torch.argsort(x, dim=1) + 1,
    )


def scans(x: torch.Tensor) -> Any:
    most, most_at = torch.cummax(x, 1)
    least, least_at = torch.cummin(x.t(), 0)
    return (
        torch.cumsum(x, 0) * 2,
        torch.cumprod(x, 1) + 1,
        torch.logcumsumexp(x, 1) + 1,
        most + 1,
        most_at + 1,
        least + 1,
        least_at + 1,
        torch.cumsum(x > 0, 1) * 2,
    )


def masks(x: torch.Tensor, i: torch.Tensor) -> Any:
    mask = x > 0
    places = torch.nonzero(mask)
    put = x.clone()
    put[mask] = x[mask] * 2
    counts = torch.zeros(6, dtype=torch.int64)
    counts.index_put_((i,), torch.ones_like(i), accumulate=True)
    filled = torch.masked_scatter(x, mask, x.t().contiguous() + 7)
    return (
        x[mask] + 1,
        places * 2,
        torch.masked_select(x, mask.t().t()) * 3,
        put + 1,
        counts * 2,
        filled * 2,
        torch.repeat_interleave(i.abs()) + 1,
        x[:, i] * 2,
    )


def scatters(x: torch.Tensor, i: torch.Tensor, w: torch.Tensor) -> Any:
    rows = i.reshape(-1, 1).expand(-1, x.shape[1])
    base = torch.ones(6, x.shape[1])
    return (
        base.scatter_add(0, rows, x) * 2,
        base.scatter_reduce(0, rows, x, "amax", include_self=False) * 2,
        base.scatter_reduce(0, rows, x, "mean") * 2,
        base.scatter_reduce(0, rows, x, "prod") * 2,
        torch.bucketize(x, w) + 1,
        torch.searchsorted(w, x, right=True) + 1,
        torch.histc(x, 5, -2.0, 2.0) + 1,
        torch.cdist(x, x + 1) + 1,
    )


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sum = nn.EmbeddingBag(20, 6, mode="sum")
        self.mean = nn.EmbeddingBag(20, 6, mode="mean", include_last_offset=True)
        self.max = nn.EmbeddingBag(20, 6, mode="max", padding_idx=3)
        self.bilinear = nn.Bilinear(6, 6, 4)

    def forward(
        self, i: torch.Tensor, offsets: torch.Tensor, volume: torch.Tensor, image: torch.Tensor
    ) -> Any:
        last = image.contiguous(memory_format=torch.channels_last)
        grid = nn.functional.affine_grid(torch.eye(3, 4).unsqueeze(0) * 0.9, [1, 2, 3, 4, 5], False)
        bag = self.sum(i, offsets)
        return (
            bag * 2,
            self.mean(i, offsets) * 2,
            self.max(i, offsets) * 2,
            nn.functional.grid_sample(volume, grid, align_corners=False) * 2,
            self.bilinear(bag, bag) * 2,
            # A window above 25 elements, which Inductor does not generate.
            nn.functional.avg_pool2d(image * 2, 7, 2, 3) + 1,
            nn.functional.avg_pool2d(last * 2, 7, 2, 3) + 1,
        )


def _pick(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _case(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...], set[str]]:
    index = torch.tensor([0, 5, 2, 2, 1])
    if name == "order and scans":
        names = {"sort_stable", "topk", "kthvalue", "mode", "cumsum", "cumprod", "logcumsumexp"}
        both = Function(lambda x: (*order(x), *scans(x)))
        return both, (_pick((8, 6), 1),), {*names, "cummax", "cummin"}
    if name == "masks":
        names = {"index_Tensor", "nonzero", "masked_select", "masked_scatter"}
        return Function(masks), (_pick((6, 6), 3), index), {*names, "repeat_interleave_Tensor"}
    if name == "scatters":
        edges = torch.tensor([-1.0, 0.0, 0.5, 2.0])
        names = {"scatter_reduce_two_out", "bucketize_Tensor", "searchsorted_Tensor", "histc"}
        return Function(scatters), (_pick((5, 7), 4), index, edges), {*names, "_cdist_forward"}
    torch.manual_seed(5)
    args = (index, torch.tensor([0, 2, 2, 5]), _pick((1, 2, 3, 4, 5), 6), _pick((2, 4, 16, 18), 7))
    return Layers(), args, {"_embedding_bag", "grid_sampler_3d", "_trilinear", "avg_pool2d"}


def _called(names: set[str], wanted: str) -> bool:
    return any(name.removeprefix("aoti_torch_cpu_").startswith(wanted) for name in names)


OLD_TORCH = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)


@pytest.mark.parametrize("name", ["order and scans", "masks", "scatters", "layers"])
def test_program(name: str, once: Callable[[str, Callable[[Path], None]], Path]) -> None:
    if name == "layers" and OLD_TORCH:
        pytest.skip("torch before 2.13 has no C interface of grid_sampler_3d")
    model, args, wanted = _case(name)
    model = model.eval()

    def make(directory: Path) -> None:
        report = cudaexec.export(
            copy.deepcopy(model), args, path=directory / "model.pte", target="cpu"
        )
        (directory / "callouts").write_text(
            "\n".join({name for v in report.methods[0].variants for name in v.callouts})
        )

    directory = once(f"ops_{name.replace(' ', '_')}", make)
    called = set((directory / "callouts").read_text().split())
    assert not {want for want in wanted if not _called(called, want)}, called
    with torch.no_grad(), cudaexec.load(directory / "model.pte") as module:
        for scale in (1.0, -0.5):
            # Edges have to stay in order.
            inputs = [a * scale if a.is_floating_point() and a.dim() > 1 else a for a in args]
            expected = model(*copy.deepcopy(inputs))
            assert_same(module(*inputs), expected, 1e-5, 1e-5)


def _exported(function, examples, tmp_path):
    class Net(torch.nn.Module):
        def forward(self, *args):
            return function(*args)

    cudaexec.export(Net(), examples, path=tmp_path / "m.pte", target="cpu")
    with cudaexec.load(tmp_path / "m.pte") as module:
        return module(*examples)


@pytest.mark.parametrize("divisor", [0.7, -0.7, float("inf"), 0.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_remainders_of_large_quotients(tmp_path, dtype, divisor):
    values = [3e38, -3e38, 1e300, 5.0, -5.0, 0.0, float("nan"), float("inf"), 1e6, 123456.7]
    if dtype == torch.float32:
        values = [1e30, -1e15, *values[3:]]
    x = torch.tensor(values * 4, dtype=dtype)
    got = _exported(lambda x: torch.remainder(x, divisor), (x,), tmp_path)
    torch.testing.assert_close(got, torch.remainder(x, divisor), rtol=0, atol=0, equal_nan=True)


@pytest.mark.filterwarnings("ignore:(std|var)[(][)]. degrees of freedom:UserWarning")
def test_the_variance_of_one_element(tmp_path):
    def f(x, y):
        return (
            x.var(unbiased=False),
            x.std(),
            y.var(0, unbiased=False),
            *torch.var_mean(y, 0, correction=0, keepdim=True),
        )

    x = torch.tensor(float("nan"))
    y = torch.tensor([[float("inf"), 1.0, float("nan"), 2.0]])
    for got, expected in zip(_exported(f, (x, y), tmp_path), f(x, y), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_are_interpolated_to_within_one(tmp_path, mode):
    torch.manual_seed(0)
    x = torch.randint(0, 256, (1, 3, 7, 9), dtype=torch.uint8)

    def f(x):
        return torch.nn.functional.interpolate(x, size=(13, 5), mode=mode)

    got = _exported(f, (x,), tmp_path)
    assert got.dtype == torch.uint8
    assert (got.int() - f(x).int()).abs().max() <= 1
