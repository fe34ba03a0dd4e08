"""Random operators: distributions, layout, reproducibility and errors. The numbers are not torch's."""

from __future__ import annotations

import itertools
import math

import pytest

torch = pytest.importorskip("torch")
from shim_call import DTYPES, FLOATS, call, layouts, same_layout  # noqa: E402

import cudaexec  # noqa: E402
from cudaexec import _core  # noqa: E402

pytestmark = pytest.mark.torch

seed = _core._ops_misc.set_seed


@pytest.fixture(autouse=True)
def _seeded() -> None:
    seed(1234)


def close_to(values: torch.Tensor, mean: float, std: float) -> None:
    """Mean and standard deviation lie within five standard errors."""
    values = values.double().flatten()
    error = std / math.sqrt(values.numel())
    assert abs(values.mean().item() - mean) < 5 * error
    assert abs(values.std().item() - std) < 8 * error


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rand(dtype: torch.dtype) -> None:
    values = call("rand", [200, 300], dtype, None)
    assert values.dtype == dtype
    assert values.shape == (200, 300)
    assert values.min() >= 0 and values.max() < 1
    close_to(values, 0.5, math.sqrt(1 / 12))
    assert call("rand", [3], None, None).dtype == torch.float32
    assert call("rand", [2, 0], dtype, None).shape == (2, 0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_randn(dtype: torch.dtype) -> None:
    values = call("randn", [60_001], dtype, None)
    assert values.dtype == dtype
    close_to(values, 0, 1)
    doubles = values.double()
    close_to(doubles**3, 0, math.sqrt(15))
    assert abs((doubles[:-1] * doubles[1:]).mean().item()) < 0.03


@pytest.mark.parametrize("name", ["rand", "randn"])
def test_like(name: str) -> None:
    for self in layouts(torch.zeros(2, 3, 4, 5, dtype=torch.float64)):
        expected = getattr(torch, f"{name}_like")(self)
        same_layout(call(f"{name}_like", self, None, None, None), expected)
        expected = getattr(torch, f"{name}_like")(
            self, dtype=torch.float32, memory_format=torch.channels_last
        )
        same_layout(call(f"{name}_like", self, torch.float32, None, 2), expected)
        same_layout(call(f"{name}_like_generator", self, None, None, 0), self.contiguous())


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.bool], ids=str)
def test_randint(dtype: torch.dtype) -> None:
    values = call("randint_low", 3, 11, [50_000], dtype, None)
    assert values.dtype == dtype
    assert sorted(set(values.tolist())) == list(range(3, 11))
    close_to(values, 6.5, math.sqrt(63 / 12))
    assert call("randint", 2, [4, 5], None, None).dtype == torch.int64
    same_layout(call("randint_like", torch.zeros(3, 2), 9, None, None, None), torch.zeros(3, 2))
    ours = call("randint_like_low_dtype", torch.zeros(9), -3, -2, torch.int64, None, None)
    assert ours.tolist() == [-3] * 9


def test_seeds_of_generated_code() -> None:
    """What Inductor asks for: int64 numbers over the whole range."""
    out = torch.zeros(1000, dtype=torch.int64)
    call("randint_low_out", out, -(2**63), 2**63 - 1, [1000])
    assert out.unique().numel() == 1000
    assert 350 < (out < 0).sum() < 650
    seed(1234)
    again = torch.zeros_like(out)
    call("randint_low_out", again, -(2**63), 2**63 - 1, [1000])
    assert torch.equal(out, again)
    call("randint_low_out", again, -(2**63), 2**63 - 1, [1000])
    assert not torch.equal(out, again)
    with pytest.raises(cudaexec.ShapeError, match="expected sizes"):
        call("randint_low_out", out, 0, 5, [7])


def test_numbers_do_not_repeat_across_calls() -> None:
    draws = [call("rand", [64], torch.float64, None) for _ in range(20)]
    for a, b in itertools.combinations(draws, 2):
        assert not torch.isin(a, b).any()


def test_the_sequence_does_not_depend_on_threads_or_layout() -> None:
    whole = call("randn", [100_000], None, None)
    seed(1234)
    wide = torch.zeros(100_000, 2)
    call("bernoulli__float", wide[:, 0], 0.5)
    seed(1234)
    packed = torch.zeros(100_000)
    call("bernoulli__float", packed, 0.5)
    assert torch.equal(wide[:, 0], packed)
    seed(1234)
    assert torch.equal(whole, call("randn", [100_000], None, None))
    seed(1235)
    assert not torch.equal(whole, call("randn", [100_000], None, None))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bernoulli(dtype: torch.dtype) -> None:
    self = torch.zeros(40_000, dtype=dtype)
    call("bernoulli__float", self, 0.3)
    close_to(self, 0.3, math.sqrt(0.21))
    p = torch.tensor([0.0, 1.0, 0.25])
    rows = torch.zeros(20_000, 3, dtype=dtype)
    call("bernoulli__Tensor", rows, p)
    assert not rows[:, 0].any()
    assert rows[:, 1].all()
    close_to(rows[:, 2], 0.25, math.sqrt(3) / 4)


def test_uniform_normal_exponential() -> None:
    self = torch.zeros(200, 301).t()
    uniform = call("uniform", self, -2.0, 4.0)
    same_layout(uniform, self)
    assert uniform.min() >= -2 and uniform.max() < 4
    close_to(uniform, 1, 6 / math.sqrt(12))
    close_to(call("normal_functional", self, 5.0, 2.0), 5, 2)
    exponential = call("exponential", self, 0.5)
    assert exponential.min() >= 0
    close_to(exponential, 2, 2)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_dropout(dtype: torch.dtype) -> None:
    for self in layouts(torch.full((40, 30, 20), 2.0).to(dtype)):
        output, mask = call("native_dropout", self, 0.25, True)
        expected = torch.native_dropout(self, 0.25, True)
        same_layout(output, expected[0])
        same_layout(mask, expected[1])
        close_to(mask, 0.75, math.sqrt(3) / 4)
        scaled = (self.double() * mask / 0.75).to(dtype)
        torch.testing.assert_close(output, scaled)
        output, mask = call("native_dropout", self, 0.25, False)
        assert torch.equal(output, self)
        assert mask.all()
    output, mask = call("native_dropout", torch.ones(5), 1.0, True)
    assert not output.any()
    assert not mask.any()


def test_randperm() -> None:
    for n in (0, 1, 2, 1000):
        order = call("randperm", n, None, None)
        assert order.dtype == torch.int64
        assert sorted(order.tolist()) == list(range(n))
    firsts = torch.stack([call("randperm", 5, torch.int32, None) for _ in range(2000)])
    close_to(firsts[:, 0], 2, math.sqrt(2))


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("bernoulli__float", (torch.zeros(2), 1.5), "probability 1.5; expected 0 to 1"),
        ("bernoulli__Tensor", (torch.zeros(2), torch.tensor(-0.5)), "probability -0.5"),
        ("exponential", (torch.zeros(2), 0.0), "lambda is 0"),
        ("normal_functional", (torch.zeros(2), 0.0, -1.0), "std is -1"),
        ("uniform", (torch.zeros(2), 1.0, 0.0), "range 1 to 0"),
        ("randint", (0, [3], None, None), "expected low < high"),
        ("randperm", (-1, None, None), "n is -1"),
        ("native_dropout", (torch.zeros(2), 2.0, True), "probability 2"),
    ],
)
def test_errors(name: str, arguments: tuple, message: str) -> None:
    with pytest.raises(cudaexec.InputError, match=message):
        call(name, *arguments)


def test_integers_are_not_filled_with_fractions() -> None:
    with pytest.raises(cudaexec.DtypeError, match="int64"):
        call("rand", [3], torch.int64, None)
    with pytest.raises(cudaexec.DeviceError, match="device type 1"):
        call("rand", [3], None, 1)
