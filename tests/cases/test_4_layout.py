"""Cases, sections 4 and 5: layout, alignment, dtypes."""

import numpy as np
import pytest
import torch
from torch import nn

import cudaexec
from compare import assert_same

pytestmark = pytest.mark.torch


def test_a30_inputs_of_any_strides(export_case):
    case = export_case(lambda x: x.cumsum(1) * 2, (torch.randn(8, 3, 4),))
    for x in (
        torch.randn(8, 4, 3).transpose(1, 2),
        torch.randn(16, 3, 4)[::2],
        torch.randn(8, 1, 4).expand(8, 3, 4),
        torch.randn(8, 3, 5)[:, :, 1:],
    ):
        case.check(x)
    reversed_ = np.random.default_rng(0).standard_normal((8, 3, 4)).astype(np.float32)[:, ::-1]
    got = case.module(reversed_)
    assert_same(torch.as_tensor(got), case.eager(torch.as_tensor(reversed_.copy())), 1e-5, 1e-5)


def test_a30_misaligned_input(export_case):
    case = export_case(lambda x: x * 3, (torch.randn(5),))
    raw = np.zeros(21, np.uint8)[1:].view()
    x = np.ndarray((5,), np.float32, buffer=raw.data)
    x[:] = np.arange(5)
    assert case.module(x).tolist() == [0, 3, 6, 9, 12]


@pytest.mark.parametrize("shape", [(1, 1, 7, 5), (1, 3, 1, 1), (1, 1, 1, 1), (2, 1, 4, 4)])
def test_a32_ambiguous_layouts(export_case, shape):
    net = nn.Conv2d(shape[1], 2, 1)
    case = export_case(net, (torch.randn(shape),))
    x = torch.randn(shape)
    case.check(x)
    case.check(x.to(memory_format=torch.channels_last))
    case = export_case(net, (torch.randn(shape).to(memory_format=torch.channels_last),))
    case.check(x)
    case.check(x.to(memory_format=torch.channels_last))


def test_a33_layout_prediction(export_case):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1)
            self.c1 = nn.Conv1d(4, 2, 3)
            self.c3 = nn.Conv3d(2, 3, 2)

        def forward(self, x, y, z):
            return self.up(x).relu(), self.c1(y) * 2, self.c3(z) + 1

    def inputs():
        return torch.randn(2, 4, 5, 6), torch.randn(2, 4, 9), torch.randn(1, 2, 4, 5, 6)

    export_case(Net(), inputs()).check(*inputs(), rtol=1e-4, atol=1e-4)
    net = Net()
    net.up.to(memory_format=torch.channels_last)
    x, y, z = inputs()
    x = x.to(memory_format=torch.channels_last)
    export_case(net, (x, y, z)).check(x, y, z, rtol=1e-4, atol=1e-4)
    z = z.to(memory_format=torch.channels_last_3d)
    export_case(Net(), (x, y, z)).check(x, y, z, rtol=1e-4, atol=1e-4)


def test_a37_complex_is_refused_at_export(export_case):
    with pytest.raises(cudaexec.ExportError, match="complex"):
        export_case(lambda x: (x * x.conj()).real, (torch.randn(3, dtype=torch.complex64),))


def test_a38_wrong_dtype_is_named(export_case):
    case = export_case(lambda x: x * 2, (torch.randn(3),))
    for bad in (np.zeros(3), np.zeros(3, np.int64), torch.zeros(3, dtype=torch.float16)):
        with pytest.raises(cudaexec.DtypeError) as caught:
            case.module(bad)
        message = str(caught.value)
        assert "x" in message and "float32" in message and str(bad.dtype).split(".")[-1] in message


def test_a42_a_seed_set_inside_forward(export_case):
    def f(x):
        torch.manual_seed(3)
        return x + torch.rand(4)

    try:
        case = export_case(f, (torch.zeros(4),))
    except cudaexec.ExportError:
        return
    x = torch.zeros(4)
    assert torch.equal(case.module(x), case.module(x))


def test_a45_explicit_rounding_is_kept(export_case):
    case = export_case(lambda x: (x.bfloat16().float() * 3).sum(1), (torch.randn(4, 8),))
    case.check(torch.randn(4, 8), rtol=1e-6, atol=1e-6)
