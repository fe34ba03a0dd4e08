"""Attention against float64 and torch's own kernel."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from arrays import ops

import cudaexec

torch = pytest.importorskip("torch")
from arrays import array, same_strides, tensor  # noqa: E402

pytestmark = pytest.mark.torch

EAGER = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
TOLERANCE = {
    torch.float32: 2e-6,
    torch.float64: 1e-13,
    torch.bfloat16: 2e-2,
    torch.float16: 2e-3,
}
# batch, heads, queries, keys, head size
SHAPES = [
    (1, 2, 5, 7, 8),
    (2, 3, 1, 9, 16),
    (1, 1, 1, 600, 64),
    (1, 2, 3, 300, 64),
    (1, 12, 128, 128, 64),
    (2, 2, 300, 300, 40),
    (1, 2, 70, 515, 33),
    (1, 2, 600, 30, 8),
]
MASKS = ["none", "causal", "full", "2-d", "rows", "keys", "bool"]


def operands(shape: tuple[int, ...], dtype: torch.dtype, layout: str) -> list[Any]:
    batch, heads, queries, keys, depth = shape
    if layout == "heads inside":
        return [
            torch.randn(batch, n, heads, depth).to(dtype).transpose(1, 2)
            for n in (queries, keys, keys)
        ]
    return [torch.randn(batch, heads, n, depth).to(dtype) for n in (queries, keys, keys)]


def mask_of(kind: str, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    batch, heads, queries, keys, _ = shape
    if kind == "full":
        return torch.randn(batch, heads, queries, keys).to(dtype)
    if kind == "2-d":
        return torch.where(torch.rand(queries, keys) < 0.3, -torch.inf, 0.0).to(dtype)
    if kind == "rows":  # some rows see nothing at all
        hidden = torch.rand(1, 1, queries, 1) < 0.4
        return torch.randn(1, 1, queries, 1).to(dtype).masked_fill(hidden, -torch.inf)
    if kind == "keys":
        hidden = torch.rand(batch, 1, 1, keys) < 0.5
        return torch.zeros(batch, 1, 1, keys).masked_fill(hidden, -torch.inf)  # float32
    if kind == "bool":
        return torch.rand(queries, keys) < 0.5
    return None


def exact_attention(q: Any, k: Any, v: Any, causal: bool, mask: Any, scale: float) -> Any:
    repeats = q.shape[1] // k.shape[1]
    k, v = (t.double().repeat_interleave(repeats, 1) for t in (k, v))
    scores = q.double() @ k.transpose(-1, -2) * scale
    if causal:
        visible = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
        scores = scores.masked_fill(~visible, -torch.inf)
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        scores = scores + mask.double()
    weights = torch.softmax(scores, -1)
    blind = torch.isneginf(scores).all(-1)
    sums = torch.logsumexp(scores, -1).masked_fill(blind, 0.0)
    return weights.masked_fill(blind.unsqueeze(-1), 0.0) @ v, sums


@pytest.mark.parametrize("layout", ["heads outside", "heads inside"])
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_as_exact(shape: tuple[int, ...], dtype: torch.dtype, kind: str, layout: str) -> None:
    torch.manual_seed(0)
    q, k, v = operands(shape, dtype, layout)
    mask = mask_of(kind, shape, dtype)
    causal = kind == "causal"
    expected, sums = exact_attention(q, k, v, causal, mask, shape[-1] ** -0.5)
    packed = None if mask is None else array(mask)
    got, log_sums = ops.attention(array(q), array(k), array(v), causal=causal, mask=packed)
    assert (tensor(got).double() - expected).abs().max() <= TOLERANCE[dtype]
    assert (tensor(log_sums).double() - sums).abs().max() <= max(1e-5, 10 * TOLERANCE[dtype])


@pytest.mark.parametrize("layout", ["heads outside", "heads inside"])
@pytest.mark.parametrize("kind", ["none", "causal", "rows"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_layout_and_values_of_torch(dtype: torch.dtype, kind: str, layout: str) -> None:
    torch.manual_seed(0)
    shape = (2, 3, 20, 50, 24)
    q, k, v = operands(shape, dtype, layout)
    mask = mask_of(kind, shape, dtype)
    causal = kind == "causal"
    eager, eager_sums = EAGER(q, k, v, 0.0, causal, attn_mask=mask, scale=0.3)
    packed = None if mask is None else array(mask)
    got, sums = ops.attention(array(q), array(k), array(v), causal=causal, mask=packed, scale=0.3)
    assert same_strides(got.strides, eager.stride(), eager.shape)
    assert same_strides(sums.strides, eager_sums.stride(), eager_sums.shape)
    assert tensor(sums).dtype == eager_sums.dtype
    tolerance = 3 * TOLERANCE[dtype]
    torch.testing.assert_close(tensor(got), eager, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(tensor(sums), eager_sums, rtol=1e-5, atol=max(1e-5, 2 * tolerance))


@pytest.mark.parametrize("queries", [1, 40])
def test_groups_of_heads_share_keys(queries: int) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 6, queries, 16), torch.randn(2, 2, 70, 16), torch.randn(2, 2, 70, 16)
    expected, _ = exact_attention(q, k, v, False, None, 0.25)
    got, _ = ops.attention(array(q), array(k), array(v))
    assert (tensor(got) - expected).abs().max() < 2e-6


@pytest.mark.parametrize("threads", [1, 2])
def test_threads(threads: int) -> None:
    torch.manual_seed(0)
    q, k, v = operands((1, 3, 400, 400, 64), torch.float32, "heads outside")
    expected, _ = exact_attention(q, k, v, True, None, 0.125)
    with ops.threads(threads):
        got, _ = ops.attention(array(q), array(k), array(v), causal=True)
    assert (tensor(got) - expected).abs().max() < 3e-6


def test_large_scores_do_not_overflow() -> None:
    q = torch.full((1, 1, 20, 8), 100.0)
    k = torch.randn(1, 1, 300, 8) * 100
    v = torch.randn(1, 1, 300, 8)
    expected, _ = exact_attention(q, k, v, False, None, 8**-0.5)
    got, _ = ops.attention(array(q), array(k), array(v))
    assert (tensor(got) - expected).abs().max() < 2e-3


def test_nan_stays_in_its_row() -> None:
    q, k, v = (torch.randn(1, 1, 40, 16) for _ in range(3))
    q[0, 0, 7, 3] = torch.nan
    got = tensor(ops.attention(array(q), array(k), array(v))[0])
    rows = torch.isnan(got).all(-1)[0, 0]
    assert rows.nonzero().flatten().tolist() == [7]
    assert torch.isnan(got).sum() == 16


def test_no_keys_and_no_queries() -> None:
    q, none = torch.randn(1, 2, 3, 8), torch.zeros(1, 2, 0, 8)
    got, sums = ops.attention(array(q), array(none), array(none))
    assert not tensor(got).any()
    assert not tensor(sums).any()
    got, _ = ops.attention(array(none), array(q), array(q))
    assert got.shape == [1, 2, 0, 8]


def test_concurrent_calls() -> None:
    torch.manual_seed(0)
    q, k, v = operands((1, 4, 64, 64, 32), torch.float32, "heads outside")
    expected, _ = exact_attention(q, k, v, False, None, 32**-0.5)
    errors: list[float] = []

    def work() -> None:
        for _ in range(20):
            got, _ = ops.attention(array(q), array(k), array(v))
            errors.append((tensor(got) - expected).abs().max().item())

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(errors) == 80
    assert max(errors) < 2e-6


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Any:
    return array(torch.zeros(shape, dtype=dtype))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: ops.attention(zeros(1, 2, 3, 8), zeros(1, 2, 3, 4), zeros(1, 2, 3, 4)),
            "ShapeError",
            "does not fit query",
        ),
        (
            lambda: ops.attention(zeros(1, 2, 3, 8), zeros(1, 2, 5, 8), zeros(1, 2, 4, 8)),
            "ShapeError",
            "value is",
        ),
        (
            lambda: ops.attention(zeros(2, 3, 8), zeros(2, 3, 8), zeros(2, 3, 8)),
            "ShapeError",
            "expected 4 dimensions",
        ),
        (
            lambda: ops.attention(
                zeros(1, 2, 3, 8), zeros(1, 2, 3, 8), zeros(1, 2, 3, 8, dtype=torch.float64)
            ),
            "DtypeError",
            "expected one dtype",
        ),
        (
            lambda: ops.attention(
                zeros(1, 2, 3, 8), zeros(1, 2, 3, 8), zeros(1, 2, 3, 8), mask=zeros(4, 3)
            ),
            "ShapeError",
            "4, 3",
        ),
        (
            lambda: ops.attention(
                zeros(1, 2, 3, 8),
                zeros(1, 2, 3, 8),
                zeros(1, 2, 3, 8),
                mask=zeros(3, 3, dtype=torch.int64),
            ),
            "DtypeError",
            "mask is int64",
        ),
    ],
)
def test_operands_are_checked(call: Any, error: str, message: str) -> None:
    with pytest.raises(getattr(cudaexec, error), match=message):
        call()


def test_through_the_c_interface() -> None:
    from shim_call import call

    q, k, v = (torch.randn(1, 2, 10, 16) for _ in range(3))
    name = "_scaled_dot_product_flash_attention_for_cpu"
    got, sums = call(name, q, k, v, 0.0, 1, None, None)
    eager, eager_sums = EAGER(q, k, v, 0.0, True)
    torch.testing.assert_close(got, eager)
    torch.testing.assert_close(sums, eager_sums)
    mask = torch.randn(10, 10)
    got, _ = call(name, q, k, v, 0.0, 0, mask, 0.5)
    torch.testing.assert_close(got, EAGER(q, k, v, 0.0, False, attn_mask=mask, scale=0.5)[0])
    with pytest.raises(cudaexec.NotSupported, match="dropout_p"):
        call(name, q, k, v, 0.1, 0, None, None)
