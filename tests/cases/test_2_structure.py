"""Cases, section 2: aliases, structure of inputs and outputs."""

import itertools
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.export import Dim

import cudaexec
from compare import assert_same

pytestmark = pytest.mark.torch


def test_a09_outputs_that_are_one_tensor(export_case):
    def f(x):
        s = x.sin()
        return s, s, s.contiguous(), s.view(-1), s[0]

    case = export_case(f, (torch.randn(2, 3),))
    x = torch.randn(2, 3)
    for order in itertools.islice(itertools.permutations(range(5)), 0, 120, 7):
        outputs = dict(enumerate(case.check(x)))
        for i in order:
            del outputs[i]
    for _ in range(1000):
        case.module(x)


def test_a10_view_of_an_aliased_input_with_an_offset(export_case):
    def f(t0, ta):
        t0.add_(100)
        return ta[0]

    base = torch.arange(6.0)
    case = export_case(f, (torch.arange(6.0), torch.arange(1.0, 6.0)))
    # Inputs that overlap count as separate tensors: the write to t0 is not seen through ta.
    got = case.module(base, base[1:])
    assert got.item() == 1.0
    assert torch.equal(base, torch.arange(6.0))


def test_a11_slice_of_a_view_of_an_input(export_case):
    case = export_case(
        lambda a, b: (b.reshape(-1)[:4], a + 1), (torch.randn(3, 4), torch.randn(3, 4))
    )
    x = torch.randn(3, 5)
    case.check(x[:, :-1], x[:, 1:])


def test_a13_a_bool_argument_keeps_dynamic_sizes(export_case):
    case = export_case(
        lambda x, flag: x.repeat([2]) if flag else x,
        (torch.randn(20), True),
        dynamic_shapes=({0: Dim("n", min=2, max=100)}, None),
    )
    assert case.check(torch.randn(40), True).shape == (80,)
    with pytest.raises(cudaexec.InputError, match="flag"):
        case.module(torch.randn(40), False)


def test_a17_keyword_inputs_keep_their_names(export_case):
    class Difference(nn.Module):
        def forward(self, x, y):
            return x - y

    a, b = torch.tensor([5.0, 6.0]), torch.tensor([1.0, 2.0])
    case = export_case(Difference(), (), {"y": b, "x": a})
    for got in (case.module(x=a, y=b), case.module(y=b, x=a)):
        assert_same(got, a - b, 0, 0)
    for args, kwargs in (((a,), {}), ((), {"x": a}), ((), {"x": a, "y": b, "z": b}), ((), {"x": a, "yy": b})):  # fmt: skip
        with pytest.raises(cudaexec.InputError):
            case.module(*args, **kwargs)


def test_a17_positional_inputs_may_be_named(export_case):
    class Difference(nn.Module):
        def forward(self, x, y):
            return x - y

    a, b = torch.tensor([5.0]), torch.tensor([1.0])
    case = export_case(Difference(), (a, b))
    for got in (case.module(a, b), case.module(a, y=b), case.module(y=b, x=a)):
        assert_same(got, a - b, 0, 0)


def test_a18_a_bare_array_is_one_input(export_case):
    case = export_case(lambda x: x * 2, (torch.randn(2, 3),))
    a = torch.randn(2, 3).numpy()
    assert_same(torch.as_tensor(case.module(a)), torch.as_tensor(a * 2), 0, 0)
    two = export_case(lambda x, y: x + y, (torch.randn(3), torch.randn(3)))
    with pytest.raises(cudaexec.InputError, match="y"):
        two.module(a)


def test_a19_nothing_is_printed(export_case):
    case = export_case(lambda x: (x + 1, x.sum()), (torch.randn(4),))
    code = (
        "import sys, numpy as np, cudaexec\n"
        "m = cudaexec.load(sys.argv[1])\n"
        "for _ in range(100): m(np.zeros(4, np.float32))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(case.path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
