"""Cases, section 3: shapes, sizes, bounds."""

import pytest
import torch
from torch import nn
from torch.export import Dim

import cudaexec

pytestmark = pytest.mark.torch


def test_a21_a_dynamic_size_keeps_its_range(export_case):
    case = export_case(
        lambda x: x.softmax(0).sum(1), (torch.randn(6, 3),), None, ({0: Dim("n", min=2, max=64)},)
    )
    for n in (2, 3, 5, 6, 7, 63, 64):
        case.check(torch.randn(n, 3))
    for n in (0, 1, 65):
        with pytest.raises(cudaexec.ShapeError, match="2") as caught:
            case.module(torch.randn(n, 3))
        assert "x" in str(caught.value) and str(n) in str(caught.value)


def test_a21_a_narrowed_range_fails_the_export(export_case):
    class Net(nn.Module):
        def forward(self, x):
            return x.reshape(2, 3) if x.shape[0] == 6 else x

    with pytest.raises(cudaexec.ExportError):
        export_case(Net(), (torch.randn(6),), None, ({0: Dim("n", min=2, max=64)},))


def test_a22_example_size_one(export_case):
    dynamic = ({0: Dim("batch", min=1, max=8)},)
    with pytest.raises(cudaexec.ExportError, match="batch"):
        export_case(lambda x: x @ x.mT, (torch.randn(1, 3, 3),), None, dynamic)
    case = export_case(lambda x: x @ x.mT, (torch.randn(2, 3, 3),), None, dynamic)
    for n in (2, 5, 8):
        case.check(torch.randn(n, 3, 3))
    try:
        case.check(torch.randn(1, 3, 3))
    except cudaexec.ShapeError as error:
        assert "1" in str(error)


def test_a24_empty_selection(export_case):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(8, 3)

        def forward(self, s):
            i = torch.nonzero(s >= 24).squeeze(1)
            return self.emb(s[i] - 24)

    case = export_case(Net(), (torch.tensor([3, 25, 30]),))
    case.check(torch.tensor([24, 31, 2]))
    case.check(torch.tensor([1, 2, 3]))


@pytest.mark.parametrize("count", [4, 20000])
def test_a25_index_out_of_range(export_case, count, on_gpu):
    case = export_case(nn.Embedding(8, 3), (torch.zeros(count, dtype=torch.int64),))
    case.check(torch.full((count,), 7))
    for bad in (8, -9, 2**40) if not on_gpu else ():
        with pytest.raises(cudaexec.Error, match="index|bounds"):
            case.module(torch.full((count,), bad))
        case.check(torch.full((count,), 3))


def test_a25_index_out_of_range_in_a_call_out(export_case, on_gpu):
    case = export_case(
        lambda x, i: x[i] + torch.cat([x, x])[i], (torch.randn(8), torch.tensor([1, 2]))
    )
    case.check(torch.randn(8), torch.tensor([-8, 7]))
    for bad in (8, -9) if not on_gpu else ():
        with pytest.raises(cudaexec.Error, match="index|bounds"):
            case.module(torch.randn(8), torch.tensor([0, bad]))


def test_a26_more_than_two_to_the_31_elements(export_case):
    n = 2**31 + 8
    case = export_case(
        lambda x: (x[-3:] + 1, x.sum(dtype=torch.int64)), (torch.zeros(n, dtype=torch.uint8),)
    )
    x = torch.zeros(n, dtype=torch.uint8)
    x[-1], x[5] = 7, 2
    tail, total = case.module(x)
    assert tail.tolist() == [1, 1, 8]
    assert total.item() == 9


def test_a27_sizes_in_any_order(export_case):
    net = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, stride=2))
    side = {"min": 8, "max": 96}
    case = export_case(
        net, (torch.randn(1, 2, 24, 40),), None, ({2: Dim("h", **side), 3: Dim("w", **side)},)
    )
    for n in (64, 32, 48, 64, 16, 64):
        case.check(torch.randn(1, 2, n, n), rtol=1e-4, atol=1e-4)


def test_a29_index_put_near_the_bound(export_case, on_gpu):
    def f(x, i, v):
        y = x.clone()
        y[i] = v
        return y

    dynamic = ({0: Dim("n", min=4, max=40)}, None, None)
    case = export_case(f, (torch.randn(9), torch.tensor([0, 8]), torch.randn(2)), None, dynamic)
    for n in (4, 9, 40):
        case.check(torch.randn(n), torch.tensor([n - 1, -n]), torch.randn(2))
        if on_gpu:
            continue
        with pytest.raises(cudaexec.Error, match="index|bounds"):
            case.module(torch.randn(n), torch.tensor([0, n]), torch.randn(2))
