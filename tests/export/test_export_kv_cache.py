"""The cache of a decoder, found in its graph, proved, and taken out of it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import cudaexec
from cudaexec import Flat, KvCacheSpec, Ring
from cudaexec.export import kv_op
from cudaexec.export.kv_lower import CacheBuffers, cache_json
from cudaexec.export.lower import LoweredMethod, lower
from cudaexec.export.trace import MethodRequest
from kv_models import CAPACITY, Decoder, ReferenceCache, llama

WIDTH = Dim("width", min=2, max=8)
STYLES = ["index_copy", "index_put", "tokens_first", "repeat_kv", "enable_gqa"]


@pytest.fixture
def reference() -> Iterator[list[ReferenceCache]]:
    """Runs `kv_attend` by the last cache of the list."""
    caches: list[ReferenceCache] = []
    library = torch.library.Library("cudaexec", "IMPL")
    library.impl("kv_attend", lambda *args: caches[-1](*args), "CPU")
    yield caches
    library._destroy()


def exported(model: nn.Module, *, width: int = 3, batch: int = 1) -> Any:
    tokens = torch.zeros(batch, width, dtype=torch.int64)
    shapes = {"tokens": {1: WIDTH}, "positions": {0: WIDTH}} if width > 1 else None
    with torch.no_grad():
        return torch.export.export(
            model.eval(), (tokens, torch.arange(width)), dynamic_shapes=shapes
        )


def lowered(program: Any, spec: KvCacheSpec) -> LoweredMethod:
    return lower(MethodRequest("forward", program), cache=CacheBuffers(spec))


def check_steps(method: LoweredMethod, model: Decoder, widths: list[int], batch: int = 1) -> None:
    eager = copy.deepcopy(model)
    position = 0
    for width in widths:
        tokens = torch.randint(0, 32, (batch, width))
        positions = torch.arange(position, position + width)
        with torch.no_grad():
            expected = eager(tokens, positions)
            (got,) = method.graph_module(tokens, positions)
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
        position += width


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("mask", ["bool", "float"])
def test_found_and_lowered(style: str, mask: str, reference: list[ReferenceCache]) -> None:
    torch.manual_seed(0)
    model = Decoder(style=style, mask=mask)
    program = exported(model)
    spec = KvCacheSpec.discover(program)
    assert spec.buffers == (("k0", "v0"), ("k1", "v1"))
    assert spec.sequence_dim == (1 if style == "tokens_first" else 2)
    assert spec.position == "positions"
    assert spec.layers == {0: Flat(CAPACITY), 1: Flat(CAPACITY)}
    method = lowered(program, spec)
    assert method.kv is not None
    assert method.kv_position == 1
    assert method.kv.max_width == 8
    assert not [n for n in method.graph_module.graph.nodes if str(n.target) in ("k0", "v1")]
    reference.append(ReferenceCache((None, None)))
    check_steps(method, model, [5, 2, 8, 3])


def test_sliding_windows(reference: list[ReferenceCache]) -> None:
    torch.manual_seed(0)
    model = Decoder(windows=(5, None))
    program = exported(model)
    spec = KvCacheSpec.discover(program)
    assert spec.layers == {0: Ring(5), 1: Flat(CAPACITY)}
    method = lowered(program, spec)
    reference.append(ReferenceCache((5, None)))
    check_steps(method, model, [7, 2, 8, 5])
    assert method.kv is not None
    cache = cache_json([("forward", method.kv)])
    assert cache is not None
    assert [layer["capacity"] for layer in cache["layers"]] == [5 + 8 - 1, CAPACITY]
    for wrong in ({}, {0: Ring(6)}, {0: Ring(5), 1: Ring(3)}):
        with pytest.raises(cudaexec.ExportError, match=r"the mask of layer \d is not"):
            lowered(exported(model), KvCacheSpec(buffers=spec.buffers, layers=wrong))


def test_batch_and_single_steps(reference: list[ReferenceCache]) -> None:
    torch.manual_seed(0)
    model = Decoder(batch=3)
    program = exported(model, width=1, batch=3)
    method = lowered(program, KvCacheSpec.discover(program))
    assert method.kv is not None
    assert (method.kv.width, method.kv.max_width) == (1, 1)
    assert method.kv.layers[0]["batch"] == 3
    reference.append(ReferenceCache((None, None)))
    check_steps(method, model, [1] * 6, batch=3)


def test_a_longer_cache_than_the_models_own() -> None:
    program = exported(Decoder())
    spec = KvCacheSpec(
        buffers=[("k0", "v0"), ("k1", "v1")], layers={0: Flat(1000)}, dtype=torch.float8_e4m3fn
    )
    method = lowered(program, spec)
    assert method.kv is not None
    assert [layer["capacity"] for layer in method.kv.layers] == [1000, CAPACITY]
    cache = cache_json([("forward", method.kv)])
    assert cache is not None
    assert cache["dtype"] == "float8_e4m3fn"


def test_static_cache_of_transformers(reference: list[ReferenceCache]) -> None:
    wrapped, model = llama()
    example = {"input_ids": torch.ones(1, 3, dtype=torch.int64), "cache_position": torch.arange(3)}
    shapes = {"input_ids": {1: WIDTH}, "cache_position": {0: WIDTH}}
    program = torch.export.export(wrapped, (), example, dynamic_shapes=shapes)
    spec = KvCacheSpec.discover(program)
    assert spec.layers == {0: Flat(32), 1: Flat(32)}
    assert spec.position == "cache_position"
    method = lowered(program, spec)
    reference.append(ReferenceCache((None, None)))
    tokens = torch.randint(0, 50, (1, 12))
    with torch.no_grad():
        expected = model(tokens, use_cache=False).logits
    got = [
        method.graph_module(tokens[:, a:b], torch.arange(a, b))[0]
        for a, b in ((0, 5), (5, 7), (7, 10), (10, 12))
    ]
    torch.testing.assert_close(torch.cat(got, 1), expected, rtol=1e-4, atol=1e-4)


def test_static_cache_of_transformers_as_state(tmp_path: Any) -> None:
    """Without a spec the cache is state like any other, though the model registered none of it."""
    wrapped, model = llama()
    example = {"input_ids": torch.ones(1, 3, dtype=torch.int64), "cache_position": torch.arange(3)}
    shapes = {"input_ids": {1: WIDTH}, "cache_position": {0: WIDTH}}
    program = torch.export.export(wrapped, (), example, dynamic_shapes=shapes)
    cudaexec.export(program, path=tmp_path / "m.pte", target="cpu")
    tokens = torch.randint(0, 50, (1, 12))
    with torch.no_grad():
        expected = model(tokens, use_cache=False).logits
    with cudaexec.load(tmp_path / "m.pte") as module:
        got = [
            module(input_ids=tokens[:, a:b], cache_position=torch.arange(a, b))
            for a, b in ((0, 5), (5, 7), (7, 10), (10, 12))
        ]
    torch.testing.assert_close(torch.cat(got, 1), expected, rtol=1e-4, atol=1e-4)


class Odd(Decoder):
    """A decoder with one thing wrong."""

    def __init__(self, fault: str) -> None:
        super().__init__(layers=1)
        self.fault = fault

    def mask(self, positions: Any, window: Any, dtype: Any) -> Any:
        mask = super().mask(positions, window, dtype)
        if self.fault == "no mask":
            return None
        if self.fault == "sees the next":
            return torch.roll(mask, 1, -1) | mask
        if self.fault == "bias":
            return mask.to(dtype) * torch.arange(CAPACITY)
        return mask

    def store(self, name: str, tokens: Any, positions: Any) -> Any:
        if self.fault == "backwards":
            return super().store(name, tokens, positions.flip(0))
        if self.fault == "read twice":
            return super().store(name, tokens, positions) + getattr(self, name).sum()
        return super().store(name, tokens, positions)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("no mask", "has no mask"),
        ("sees the next", "sees position 1"),
        ("bias", "adds other numbers"),
        ("backwards", "at position .* it is written at"),
        ("read twice", "also used by|is read"),
    ],
)
def test_other_uses_are_refused(fault: str, message: str) -> None:
    program = exported(Odd(fault))
    with pytest.raises(cudaexec.ExportError, match=message):
        KvCacheSpec.discover(program)
    with pytest.raises(cudaexec.ExportError, match=message):
        lowered(program, KvCacheSpec(buffers=[("k0", "v0")]))


KEEP: list[torch.Tensor] = []


class Padded(Decoder):
    def forward(self, tokens: Any, positions: Any, keep: Any) -> Any:
        KEEP[:] = [keep]
        return super().forward(tokens, positions)

    def mask(self, positions: Any, window: Any, dtype: Any) -> Any:
        return super().mask(positions, window, dtype) & KEEP[0]


def test_masks_from_inputs_are_refused() -> None:
    program = torch.export.export(
        Padded(layers=1),
        (torch.zeros(1, 2, dtype=torch.int64), torch.arange(2), torch.ones(CAPACITY) > 0),
        strict=False,
    )
    with pytest.raises(cudaexec.ExportError, match="it also depends on 'keep'"):
        KvCacheSpec.discover(program)


def test_one_layer_left_out_is_refused() -> None:
    model = Decoder()
    program = exported(model)
    with pytest.raises(cudaexec.ExportError, match="names 'no such', which .* the method uses"):
        lowered(program, KvCacheSpec(buffers=[("k0", "v0"), ("k1", "no such")]))
    with pytest.raises(cudaexec.ExportError, match="names 'vv1', .* did you mean 'v1'"):
        lowered(program, KvCacheSpec(buffers=[("k0", "v0"), ("k1", "vv1")]))
    with pytest.raises(cudaexec.ExportError, match="layer 1 of the KV cache"):
        lowered(program, KvCacheSpec(buffers=[("k0", "v0"), ("k1", "embedding.weight")]))
    with pytest.raises(cudaexec.ExportError, match="no attention reads it"):
        lowered(program, KvCacheSpec(buffers=[("k0", "v1"), ("k1", "v0")]))
    assert lowered(program, KvCacheSpec(buffers=[("a", "b")])).kv is None


def test_specs_are_checked() -> None:
    for wrong in (
        {"buffers": []},
        {"buffers": ["ab", "c"]},
        {"buffers": [("a", "a")]},
        {"buffers": [("a", "b")], "sequence_dim": 3},
        {"buffers": [("a", "b")], "layers": {1: Flat()}},
        {"buffers": [("a", "b")], "dtype": "float64"},
    ):
        with pytest.raises(ValueError, match="KvCacheSpec"):
            KvCacheSpec(**wrong)
    with pytest.raises(TypeError):
        KvCacheSpec(buffers=[("a", "b")], layers={0: 5})  # type: ignore[dict-item]
    for number in (0, -1, True, 2.0):
        with pytest.raises(ValueError, match="positive"):
            Ring(number)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        KvCacheSpec.discover(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="kv_cache"):
        cudaexec.ExportOptions(kv_cache="all")  # type: ignore[arg-type]


def test_the_layout_of_results_is_the_declared_one() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q, k = torch.empty(2, 6, 3, 8), torch.empty(2, 2, 3, 8)
        out = kv_op.KV_ATTEND(q, k, k, torch.empty(3, dtype=torch.int64), 0, 1.0)
    assert out.shape == (2, 6, 3, 8)
    assert out.stride() == (3 * 6 * 8, 8, 6 * 8, 1)
