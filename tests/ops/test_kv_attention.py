"""Attention over the KV cache on the CPU against float64."""

from __future__ import annotations

from typing import Any

import pytest
from arrays import ops

import cudaexec
from cudaexec._core import _testing
from timing import least_seconds, rounds

torch = pytest.importorskip("torch")
from arrays import array, tensor  # noqa: E402
from kv_reference import Reference, operands, stored  # noqa: E402

pytestmark = pytest.mark.torch

# What is left of float32 sums and the rounding of the result.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 1.2e-2, torch.float16: 1.5e-3}
DTYPES = ["float32", "float16", "bfloat16", "float8_e4m3fn"]


def make(
    dtype: str,
    *,
    batch: int = 1,
    heads: int = 2,
    dim: int = 16,
    window: int = 0,
    capacity: int = 4096,
) -> Any:
    return _testing.KvCache([(7, batch, heads, dim, window, capacity)], dtype)


def step(
    cache: Any, reference: Reference, qkv: Any, scale: float = 0.25, commit: bool = True
) -> float:
    """Runs a step in both; the largest difference."""
    q, k, v = qkv
    width = q.shape[2]
    cache.prepare(width)
    index = torch.arange(cache.position, cache.position + width)
    got = cache.attend(array(q), array(k), array(v), array(index), 7, scale)
    batch, heads, tokens, dim = q.shape
    assert got.shape == [batch, heads, tokens, dim]
    assert got.strides == [tokens * heads * dim, dim, heads * dim, 1]
    if commit:
        cache.commit()
    return float((tensor(got).double() - reference.step(q, k, v, scale)).abs().max())


@pytest.mark.parametrize("layout", ["tokens first", "heads first", "dim apart"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("compute", TOLERANCE, ids=str)
def test_prefill_then_decode(compute: Any, dtype: str, layout: str) -> None:
    torch.manual_seed(0)
    cache, reference = make(dtype, batch=2, heads=2, dim=24), Reference(dtype)
    for width in (37, 1, 1, 3, 300, 1):
        got = step(cache, reference, operands((2, 6, 2, width, 24), compute, layout))
        assert got <= TOLERANCE[compute], width
    assert cache.position == reference.position == 343


@pytest.mark.parametrize("group", [1, 3, 8, 16])
@pytest.mark.parametrize("dim", [1, 8, 64, 80, 128])
def test_heads_and_sizes(dim: int, group: int) -> None:
    torch.manual_seed(0)
    cache, reference = make("bfloat16", heads=3, dim=dim), Reference("bfloat16")
    for width in (530, 1, 2):
        got = step(cache, reference, operands((1, 3 * group, 3, width, dim), torch.float32))
        assert got <= 1e-5  # scores of up to 40: their rounding is 2e-6


@pytest.mark.parametrize("dtype", DTYPES)
def test_ring(dtype: str) -> None:
    torch.manual_seed(0)
    window, widest = 50, 70
    cache = make(dtype, window=window, capacity=window + widest - 1)
    assert cache.groups[0]["slots"] < 300
    reference = Reference(dtype, window)
    for width in (3, 70, 1, 1, 69, 64, *[1] * 40, 70, 70):
        got = step(cache, reference, operands((1, 4, 2, width, 16), torch.float32))
        assert got <= 2e-6


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("width", [1, 5, 40])
def test_splits(width: int, threads: int) -> None:
    """One head of many tokens is shared by the threads."""
    torch.manual_seed(0)
    cache, reference = make("float16", heads=1, dim=8, capacity=9000), Reference("float16")
    with ops.threads(threads):
        for count in (8100, width):
            got = step(cache, reference, operands((1, 2, 1, count, 8), torch.float32))
            assert got <= 2e-6


def test_values_attended_are_those_stored() -> None:
    """To nearest even, saturating, NaN kept: every float8 code and what lies between them."""
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    codes = codes[~codes.isnan()].sort().values
    halves = (codes[1:] + codes[:-1]) / 2
    more = torch.tensor([449.0, 1e4, torch.inf, -1e9, 2**-10, 2**-11, 1e-30, 0.0, -0.0])
    values = torch.cat([codes, halves, halves * (1 + 2**-20), halves * (1 - 2**-20), more])
    dim = 64
    rows = torch.nn.functional.pad(values, (0, -len(values) % dim)).reshape(-1, dim)
    for dtype in DTYPES:
        for scale in (1.0, 300.0, 1e33):
            cache = make(dtype, heads=1, dim=dim)
            v = (rows * scale)[None, None]
            k = torch.zeros_like(v)
            # A query that sees its own token alone: it is the last one of a step of one token.
            for row in v.unbind(2):
                cache.reset()
                reference = Reference(dtype)
                got = step(cache, reference, (k[:, :, :1], k[:, :, :1], row[:, :, None]))
                assert got == 0.0 or torch.isnan(torch.tensor(got)), (dtype, scale)
    nan = torch.full((1, 1, 1, dim), torch.nan)
    for dtype in DTYPES:
        cache = make(dtype, heads=1, dim=dim)
        assert torch.isnan(torch.tensor(step(cache, Reference(dtype), (nan * 0, nan * 0, nan))))
    assert stored(torch.tensor([1e9]), "float8_e4m3fn").item() == 448.0


def test_large_scores_do_not_overflow() -> None:
    torch.manual_seed(0)
    cache, reference = make("float32"), Reference("float32")
    q, k, v = operands((1, 2, 2, 40, 16), torch.float32)
    assert step(cache, reference, (q * 100, k * 100, v)) <= 1e-5


@pytest.mark.parametrize("change", ["shift", "repeat", "tail"])
def test_other_positions_are_refused_and_store_nothing(change: str) -> None:
    torch.manual_seed(0)
    cache, reference = make("float32"), Reference("float32")
    step(cache, reference, operands((1, 2, 2, 5, 16), torch.float32))
    q, k, v = operands((1, 2, 2, 4, 16), torch.float32)
    index = torch.arange(5, 9)
    index = {"shift": index + 1, "repeat": index * 0 + 5, "tail": index.clone()}[change]
    if change == "tail":
        index[3] = 2
    cache.prepare(4)
    with pytest.raises(cudaexec.InputError, match=r"the session holds 5 tokens, expected position"):
        cache.attend(array(q), array(k), array(v), array(index), 7, 0.25)
    assert cache.position == 5
    assert step(cache, reference, (q, k, v)) <= 2e-6


def test_operands_that_do_not_fit() -> None:
    cache = make("float32")
    q, k, v = operands((1, 4, 2, 2, 16), torch.float32)
    index = torch.arange(2)

    def attend(*given: Any, layer: int = 7) -> None:
        cache.attend(*(array(t.contiguous()) for t in given), layer, 1.0)

    with pytest.raises(cudaexec.Error, match="outside of a step"):
        attend(q, k, v, index)
    cache.prepare(2)
    with pytest.raises(cudaexec.Error, match="no layer 3"):
        attend(q, k, v, index, layer=3)
    with pytest.raises(cudaexec.ShapeError, match=r"k is .*a step of 2 tokens .*\[1, 2, 2, 16\]"):
        attend(q, k[:, :, :1], v, index)
    with pytest.raises(cudaexec.ShapeError, match=r"q is .*a multiple of 2"):
        attend(q[:, :3], k, v, index)
    with pytest.raises(cudaexec.ShapeError, match="index"):
        attend(q, k, v, index[:1])
    with pytest.raises(cudaexec.DtypeError):
        attend(q.double(), k, v, index)
    with pytest.raises(cudaexec.DtypeError):
        attend(q, k, v, index.int())
    with pytest.raises(cudaexec.DtypeError):
        attend(q, k.half(), v, index)


def test_cost_follows_the_position_not_the_capacity() -> None:
    """A step of a cache for 2^20 tokens costs what one for 2^12 does."""
    torch.manual_seed(0)
    qkv = operands((1, 2, 1, 1, 64), torch.float32)

    def cost(capacity: int) -> float:
        cache = make("bfloat16", heads=1, dim=64, capacity=capacity)
        reference = Reference("bfloat16")

        def step() -> None:
            cache.prepare(1)
            index = torch.tensor([cache.position])
            cache.attend(*(array(t) for t in qkv), array(index), 7, 0.25)
            cache.commit()

        best = least_seconds(step, 60)
        assert reference.position == 0
        return best

    small = large = 1.0
    for _ in rounds():
        small, large = min(small, cost(1 << 12)), min(large, cost(1 << 20))
        if large < 5 * small + 1e-3:
            return
    raise AssertionError(f"2^12 tokens: {small:.2e} s, 2^20 tokens: {large:.2e} s")
