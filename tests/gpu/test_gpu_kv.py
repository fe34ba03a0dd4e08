"""The KV cache that the runtime keeps, on a real GPU: decoders against eager, pages, graphs, sessions.

The kernels by themselves are tested in tests/cuda_ops/test_device_kv.py (``-m gpu``).
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import Dim

import cudaexec
import kv_models
from cudaexec import ExportOptions, KvCacheSpec
from cudaexec._core import _testing

CAPACITY = 2400
WIDEST = 128
WINDOW = 100
WORDS = 32
# 16 layers of 8 heads of 64: 64 tokens of bfloat16 fill a page of 2 MiB.
LAYERS = [(i, 1, 8, 64, 0, 131072) for i in range(16)]
PAGE = 2 << 20


@pytest.fixture(scope="module", autouse=True)
def _long_context() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr(kv_models, "CAPACITY", CAPACITY)
    yield
    patch.undo()


def decoder(kind: str) -> kv_models.Decoder:
    """`bfloat16` and `float16` go through matrix products, `float32` and `ring` do not."""
    torch.manual_seed(0)
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(kind, torch.float32)
    windows = (None, WINDOW) if kind == "ring" else (None, None)
    model = kv_models.Decoder(heads=8, kv_heads=2, dim=512, windows=windows)
    with torch.no_grad():
        for weight in model.parameters():  # logits of a few units
            weight.mul_(0.5)
    return model.to(dtype).eval()


@pytest.fixture(scope="session")
def programs(once: Callable[[str, Callable[[Path], None]], Path]) -> Callable[[str], Path]:
    """`programs(kind)`: methods `prefill` (2 to WIDEST tokens) and `decode` (one)."""

    def export(kind: str) -> Path:
        def make(directory: Path) -> None:
            model = decoder(kind)
            width = Dim("width", min=2, max=WIDEST)
            with torch.no_grad():
                prefill = torch.export.export(
                    model,
                    (torch.zeros(1, 3, dtype=torch.int64), torch.arange(3)),
                    dynamic_shapes={"tokens": {1: width}, "positions": {0: width}},
                )
                decode = torch.export.export(
                    model, (torch.zeros(1, 1, dtype=torch.int64), torch.arange(1))
                )
            cudaexec.export(
                methods={"prefill": prefill, "decode": decode},
                path=directory / "model.pte",
                target="cuda",
                options=ExportOptions(kv_cache=KvCacheSpec.discover(prefill), progress=False),
            )

        return once(f"gpu-kv-{kind}", make) / "model.pte"

    return export


class Eager:
    """The model with its cache in buffers on the GPU, and the same in float64."""

    def __init__(self, kind: str) -> None:
        self.model = decoder(kind).cuda()
        self.exact = copy.deepcopy(self.model).double()
        self.position = 0

    def step(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        positions = torch.arange(self.position, self.position + tokens.shape[1], device="cuda")
        with torch.no_grad():
            results = self.model(tokens, positions), self.exact(tokens, positions)
        self.position += tokens.shape[1]
        return results

    def fork(self) -> Eager:
        return copy.deepcopy(self)


def step(surface: Any, tokens: torch.Tensor, first: int | None = None) -> torch.Tensor:
    begin = surface.position if first is None else first
    positions = torch.arange(begin, begin + tokens.shape[1], device="cuda")
    method = surface.method("decode" if tokens.shape[1] == 1 else "prefill")
    logits: torch.Tensor = method(tokens, positions)
    return logits


def ids(width: int) -> torch.Tensor:
    return torch.randint(0, WORDS, (1, width), device="cuda")


def check(ours: torch.Tensor, results: tuple[torch.Tensor, torch.Tensor]) -> float:
    """Ours is about as far from float64 as eager is; the allowance."""
    eager, exact = results
    allowed = 3 * float((eager.double() - exact).abs().max()) + 2e-5 * float(exact.abs().max())
    assert float((ours.double() - exact).abs().max()) <= allowed
    return allowed


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float32", "ring"])
def test_greedy_decoding(programs: Callable[[str], Path], kind: str, graphs: bool) -> None:
    """256 tokens after prompts of several lengths; where rounding may decide, logits have to do."""
    torch.manual_seed(1)
    with cudaexec.load(programs(kind), cuda_graph=graphs) as module:
        for length in (2, 65, WIDEST):
            session, eager = module.session(), Eager(kind)
            tokens = ids(length)
            for _ in range(257):
                ours, results = step(session, tokens), eager.step(tokens)
                allowed = check(ours, results)
                best = results[1][0, -1].topk(2).values
                tokens = results[1][:, -1].argmax(-1, keepdim=True)
                if float(best[0] - best[1]) > 2 * allowed:
                    assert torch.equal(ours[:, -1].argmax(-1, keepdim=True), tokens)
            assert session.position == length + 256
        if graphs:
            [decode] = [m for m in module.stats()["methods"] if m["name"] == "decode"]
            assert decode["graphs"]["captures"] == 3  # one a session, whatever the position
            assert decode["graphs"]["failures"] == 0


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("kind", ["bfloat16", "float32"])
def test_growth(programs: Callable[[str], Path], kind: str, graphs: bool) -> None:
    """Steps of one token into a page that did not exist when the graph was captured."""
    torch.manual_seed(5)
    # Two layers of 2 heads of 64, keys and values.
    block = PAGE // (2 * 2 * 2 * 64 * (2 if kind == "bfloat16" else 4))
    with cudaexec.load(programs(kind), cuda_graph=graphs) as module:
        eager = Eager(kind)
        while module.position < block - 20:
            tokens = ids(min(WIDEST, block - 20 - module.position))
            check(step(module, tokens), eager.step(tokens))
        pages = module.memory_stats()["kv_mapped"]
        for _ in range(60):
            tokens = ids(1)
            check(step(module, tokens), eager.step(tokens))
        assert module.memory_stats()["kv_mapped"] > pages
        if graphs:
            [decode] = [m for m in module.stats()["methods"] if m["name"] == "decode"]
            assert decode["graphs"]["captures"] == 1


@pytest.mark.parametrize("graphs", [False, True])
def test_sessions_fork_rewind_reset(programs: Callable[[str], Path], graphs: bool) -> None:
    torch.manual_seed(2)
    with cudaexec.load(programs("bfloat16"), cuda_graph=graphs) as module:
        pairs = [(module.session(), Eager("bfloat16")) for _ in range(2)]
        for width in (50, 1, 1, 1, 1, 1, 7, 1):
            for session, eager in pairs:
                tokens = ids(width)
                check(step(session, tokens), eager.step(tokens))
        pairs += [(session.fork(), eager.fork()) for session, eager in pairs]
        for width in (1, 1, 9, 1, 1, 1, 1):
            for session, eager in pairs:
                tokens = ids(width)
                check(step(session, tokens), eager.step(tokens))
        session, eager = pairs[0]
        session.rewind(20)
        eager.position = 20
        for width in (1, 60, 1):
            tokens = ids(width)
            check(step(session, tokens), eager.step(tokens))
        session.reset()
        eager.position = 0
        for width in (11, 1):
            for session, eager in pairs:
                tokens = ids(width)
                check(step(session, tokens), eager.step(tokens))


@pytest.mark.parametrize("graphs", [False, True])
def test_wrong_positions(programs: Callable[[str], Path], graphs: bool) -> None:
    torch.manual_seed(3)
    with cudaexec.load(programs("bfloat16"), cuda_graph=graphs) as module:
        eager = Eager("bfloat16")
        for width in (4, 1, 1, 1, 1, 1):
            tokens = ids(width)
            check(step(module, tokens), eager.step(tokens))
        with pytest.raises(cudaexec.InputError, match="from 3 on; the session expected 9"):
            assert step(module, ids(1), 3).isnan().all()  # may know by the end of the call
            torch.cuda.synchronize()
            step(module, ids(1), 10)
        assert module.position == 9
        with pytest.raises(cudaexec.InputError, match="token 0 has position 7"):
            module.method("decode")(ids(1).cpu(), torch.tensor([7]))
        tokens = ids(1)
        check(step(module, tokens), eager.step(tokens))


def test_context_full(programs: Callable[[str], Path]) -> None:
    torch.manual_seed(4)
    with cudaexec.load(programs("bfloat16")) as module:
        for _ in range(CAPACITY // WIDEST):
            step(module, ids(WIDEST))
        with pytest.raises(cudaexec.ContextFull, match=f"and {CAPACITY} fit"):
            step(module, ids(WIDEST))
        module.reset()
        tokens = ids(5)
        check(step(module, tokens), Eager("bfloat16").step(tokens))


@pytest.mark.alone
def test_a_page_costs_little() -> None:
    """A step that crosses a page takes less than 150 us more, even if nothing mapped it ahead."""
    cache = _testing.KvCache(LAYERS, "bfloat16", gpu=0)
    stream = torch.cuda.Stream()
    crossing, inside = [], []
    for position in range(64 * 40):
        start = time.perf_counter()
        cache.prepare(1, stream.cuda_stream)
        cache.commit()
        (crossing if position % 64 == 0 else inside).append(time.perf_counter() - start)
    stream.synchronize()
    more = statistics.median(crossing[1:]) - statistics.median(inside)
    print(f"a page costs {more * 1e6:.0f} us, a step {statistics.median(inside) * 1e6:.1f} us")
    assert cache.usage[1] == 40 * PAGE
    assert more < 150e-6


@pytest.mark.alone
def test_sessions_map_what_they_use() -> None:
    """64 sessions of 100 tokens of a cache for 131,072 tokens of 32 KiB."""
    free = torch.cuda.mem_get_info()[0]
    first = _testing.KvCache(LAYERS, "bfloat16", gpu=0)
    caches = [first] + [first.session() for _ in range(63)]
    for cache in caches:
        cache.prepare(100)
        cache.commit()
    assert sum(cache.usage[1] for cache in caches) == 64 * 2 * PAGE
    torch.cuda.synchronize()
    assert free - torch.cuda.mem_get_info()[0] <= 64 * 2 * PAGE + (64 << 20)
