"""Programs whose KV cache the runtime keeps on a GPU: steps, pages, graphs, forks, faults."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudaexec
from cuda_fake import fake as fakes
from cuda_fake.fake import FakeDriver
from cuda_fake.kv_program import BLOCK, CAPACITY, PAGE, WIDEST, WINDOW, Reference, write
from cuda_fake.programs import Once
from cuda_fake.test_cuda_program_faults import FREES, KEPT, calls_of
from cudaexec._core import _testing

cuda = _testing.cuda
LEGACY = 1
Load = Callable[..., cudaexec.Module]


@pytest.fixture
def load(emulated: FakeDriver, once: Once, tmp_path: Path) -> Iterator[Load]:
    opened = []

    def make(*, graphs: bool = False, **options: Any) -> cudaexec.Module:
        path = write(once, tmp_path / str(len(opened)), **options)
        opened.append(cudaexec.load(path, device="cuda:0", cuda_graph=graphs))
        return opened[-1]

    yield make
    for module in opened:
        module.close()


def tokens(width: int) -> np.ndarray:
    return RNG.standard_normal((width, 32)).astype(np.float32)


RNG = np.random.default_rng(0)


def call(surface: Any, x: np.ndarray, *, on_gpu: bool = False, first: int | None = None) -> Any:
    """A step's two results, as they come."""
    begin = surface.position if first is None else first
    positions = np.arange(begin, begin + len(x))
    method = surface.method("decode" if len(x) == 1 else "prefill")
    if on_gpu:
        return method(*(cuda.tensor_on(each, 0, LEGACY) for each in (x, positions)))
    return method(x, positions)


def check(surface: Any, reference: Reference, width: int, *, on_gpu: bool = False) -> None:
    """A step gives what the reference does."""
    x = tokens(width)
    found = call(surface, x, on_gpu=on_gpu)
    same(found, reference.step(x))
    assert surface.position == len(reference.tokens)


def same(found: Any, expected: list[np.ndarray]) -> None:
    for ours, exact in zip(found, expected, strict=True):
        ours = ours.to_host().numpy() if isinstance(ours, cudaexec.Tensor) else ours
        np.testing.assert_allclose(ours, exact, rtol=0, atol=2e-6)


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("graphs", [False, True])
def test_steps(load: Load, graphs: bool, on_gpu: bool) -> None:
    """Over three pages, several turns of the ring, and both methods in turns."""
    module = load(graphs=graphs)
    reference = Reference()
    for width in (5, *[1] * 8, 30, *[1] * 24, 3, 1):
        check(module, reference, width, on_gpu=on_gpu)
    assert module.position == 71
    if graphs:
        [decode] = [m for m in module.stats()["methods"] if m["name"] == "decode"]
        assert decode["graphs"]["captures"] == 1
        assert decode["graphs"]["replays"] >= 25
        assert decode["graphs"]["failures"] == 0


@pytest.mark.parametrize("graphs", [False, True])
def test_pages_are_mapped_as_tokens_come(emulated: FakeDriver, load: Load, graphs: bool) -> None:
    """One ahead, while the GPU works on the step that fills a page; nothing is captured again."""
    module = load(graphs=graphs)
    assert module.memory_stats()["kv_reserved"] == 0
    reference = Reference()
    ring = 2 << 20
    for position in range(1, 2 * BLOCK + 3):
        emulated.clear_calls()
        check(module, reference, 1)
        pages = 1 + (position >= BLOCK) + (position >= 2 * BLOCK)
        stats = module.memory_stats()
        assert stats["kv_mapped"] == pages * PAGE + ring, position
        mapped = len(emulated.calls("cuMemMap"))
        assert mapped == {1: 2, BLOCK: 1, 2 * BLOCK: 1}.get(position, 0), position
    assert stats["kv_used"] == 66 * (2 * 8 * 4 + 2 * 480 * 32 * 4) + 64 * 64  # the ring has turned
    session = module.session()
    for width in (WIDEST, WIDEST):
        call(session, tokens(width))
    assert session.memory_stats()["kv_mapped"] == 3 * PAGE + ring


@pytest.mark.parametrize("graphs", [False, True])
def test_sessions_rewind_reset_fork(load: Load, graphs: bool) -> None:
    module = load(graphs=graphs)
    pairs = [(module.session(), Reference()) for _ in range(2)]
    for width in (BLOCK - 2, 1, 1, 1, 1, 1):
        for session, reference in pairs:
            check(session, reference, width)
    for session, reference in list(pairs):
        pairs.append((session.fork(), reference.fork()))
    for width in (1, 1, 3, 1, 1, 1):
        for session, reference in pairs:
            check(session, reference, width)
    session, reference = pairs[0]
    session.rewind(BLOCK - 5)
    reference.tokens = reference.tokens[: BLOCK - 5]
    for width in (1, 8, 1):
        check(session, reference, width)
    session.reset()
    reference.tokens = reference.tokens[:0]
    for width in (2, 1):
        for session, reference in pairs:
            check(session, reference, width)
    assert module.position == 0


@pytest.mark.parametrize("on_gpu", [False, True])
def test_warmup_leaves_the_history(load: Load, on_gpu: bool) -> None:
    """Its calls are steps at one position, each forgotten."""
    module = load(graphs=True)
    reference = Reference()
    check(module, reference, 5)
    x, positions = tokens(1), np.array([5])
    inputs = [cuda.tensor_on(each, 0, LEGACY) if on_gpu else each for each in (x, positions)]
    module.method("decode").warmup(*inputs)
    assert module.position == 5
    [decode] = [m for m in module.stats()["methods"] if m["name"] == "decode"]
    assert decode["graphs"]["captures"] == 1
    for width in (1, 2, 1):
        check(module, reference, width, on_gpu=on_gpu)
    assert decode["graphs"]["failures"] == 0


def test_full(load: Load) -> None:
    module = load()
    reference = Reference()
    for width in (WIDEST, WIDEST, 18):
        check(module, reference, width)
    with pytest.raises(cudaexec.ContextFull, match=rf"98 tokens.* adds 3, and {CAPACITY}"):
        call(module, tokens(3))
    check(module, reference, 2)
    with pytest.raises(cudaexec.ContextFull, match="holds 100 tokens"):
        call(module, tokens(1))
    module.rewind(98)
    reference.tokens = reference.tokens[:98]
    check(module, reference, 1)


@pytest.mark.parametrize("graphs", [False, True])
def test_wrong_positions_on_the_gpu(load: Load, graphs: bool) -> None:
    """Nobody waits for the step: its result is NaN and the next call says what happened."""
    module = load(graphs=graphs)
    reference = Reference()
    for width in (4, 1, 1, 1, 1, 1):
        check(module, reference, width, on_gpu=True)
    found = call(module, tokens(1), on_gpu=True, first=3)
    assert all(np.isnan(each.to_host().numpy()).all() for each in found)
    assert module.position == 10  # not known yet
    with pytest.raises(cudaexec.InputError, match=r"'decode'.* from 3 on; the session expected 9"):
        call(module, tokens(1), on_gpu=True, first=10)
    assert module.position == 9
    for width in (1, 2, 1):
        check(module, reference, width, on_gpu=True)


def test_steps_after_a_wrong_one_change_nothing(load: Load) -> None:
    """Several are on the stream before the host hears of it."""
    module = load()
    reference = Reference()
    check(module, reference, 4, on_gpu=True)
    kept = [call(module, tokens(1), on_gpu=True, first=first) for first in (77, 5, 6, 7)]
    assert module.position == 8
    assert all(np.isnan(each.to_host().numpy()).all() for pair in kept for each in pair)
    with pytest.raises(cudaexec.InputError, match="from 77 on; the session expected 4"):
        module.rewind(2)
    assert module.position == 4
    check(module, reference, 1, on_gpu=True)
    module.rewind(2)
    reference.tokens = reference.tokens[:2]
    check(module, reference, 1, on_gpu=True)


def test_wrong_positions_on_the_host(emulated: FakeDriver, load: Load) -> None:
    """Refused before anything runs; where nothing tells the input, by the call that waits."""
    module = load()
    reference = Reference()
    check(module, reference, 3)
    emulated.clear_calls()
    with pytest.raises(cudaexec.InputError, match="token 0 has position 5; the session holds 3"):
        call(module, tokens(2), first=5)
    assert emulated.calls("cuLaunchKernel") == []
    check(module, reference, 2)
    other = load(position_input=None)
    reference = Reference()
    check(other, reference, 3)
    with pytest.raises(cudaexec.InputError, match="from 9 on; the session expected 3"):
        call(other, tokens(2), first=9)
    assert other.position == 3
    check(other, reference, 2)


def test_two_streams(load: Load) -> None:
    """Steps follow each other on whatever streams they are put."""
    module = load()
    reference = Reference()
    streams = [cuda.Stream(0) for _ in range(3)]
    for k in range(12):
        x = tokens(1)
        positions = np.arange(module.position, module.position + 1)
        stream = streams[k % 3].handle
        inputs = (cuda.tensor_on(each, 0, LEGACY) for each in (x, positions))
        found = module.method("decode")(*inputs, stream=stream)
        expected = reference.step(x)
        if k % 4 == 3:
            same(found, expected)
    del found, inputs  # before their streams
    assert module.position == 12
    check(module, reference, 1)


def test_closing_frees_everything(emulated: FakeDriver, load: Load) -> None:
    module = load()
    session = module.session()
    call(session, tokens(40))
    fork = session.fork()
    call(fork, tokens(1))
    kinds = ("reservations", "physical", "mapped")
    assert all(emulated.live()[kind] > 0 for kind in kinds)
    session.close()
    call(fork, tokens(1))
    with pytest.raises(cudaexec.ClosedError):
        _ = session.position
    del fork
    gc.collect(1)
    assert all(kind not in emulated.live() for kind in kinds)


def test_no_virtual_memory(emulated: FakeDriver, load: Load) -> None:
    cuda.use_driver(emulated.path)  # facts are asked again
    emulated.set_support(0, virtual_memory=False)
    with pytest.raises(cudaexec.NotSupported, match="virtual memory"):
        load()


@pytest.mark.parametrize("result", [fakes.OUT_OF_MEMORY, fakes.ILLEGAL_ADDRESS])
@pytest.mark.parametrize("graphs", [False, True])
def test_each_driver_call_of_steps_fails_once(
    emulated: FakeDriver, load: Load, graphs: bool, result: int
) -> None:
    """A step that copies a shared page and maps another one: the history is as it was."""
    module = load(graphs=graphs)
    parent, reference = module.session(), Reference()
    check(parent, reference, BLOCK - 2)
    if graphs:
        for _ in range(5):  # captured
            check(parent, reference, 1)
        parent.rewind(BLOCK - 2)
        reference.tokens = reference.tokens[: BLOCK - 2]

    def fresh() -> tuple[Any, Reference]:
        session, fork = parent.fork(), reference.fork()
        return session, fork

    session, fork = fresh()
    emulated.clear_calls()
    check(session, fork, 4)
    # What is lost where a call that frees fails is another test's.
    entries = calls_of(emulated, FREES | {"cuMemUnmap", "cuMemAddressFree", "cuMemRelease"})
    assert {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemcpyDtoDAsync"} <= {
        name for name, _ in entries
    }
    failures = 0
    for name, k in entries:
        session, fork = fresh()
        x = tokens(4)
        expected = fork.step(x)
        with emulated.failing(name, k, result) as hits:
            try:
                found = call(session, x)
            except cudaexec.Error:
                failures += 1
                assert session.position == BLOCK - 2, (name, k)
                found = None
        assert hits == [1] or found is not None, (name, k)
        if found is None:
            found = call(session, x)
        same(found, expected)
        check(session, fork, 1)
        session.close()
    assert failures > len(entries) // 2
    check(parent, reference, 1)
    _testing.cleanup_reports()
    emulated.take_misuse()


def test_unmapping_fails(emulated: FakeDriver, load: Load) -> None:
    """The shared page stays where it is, and the next step tries again."""
    module = load()
    parent, reference = module.session(), Reference()
    check(parent, reference, 20)
    for k in (1, 2):
        session, fork = parent.fork(), reference.fork()
        x = tokens(1)
        with (
            emulated.failing("cuMemUnmap", k, fakes.INVALID_VALUE) as hits,
            pytest.raises(cudaexec.Error),
        ):
            call(session, x)
        assert hits == [1]
        assert session.position == 20
        same(call(session, x), fork.step(x))
    check(parent, reference, 1)


def held(emulated: FakeDriver) -> dict[str, int]:
    return {kind: count for kind, count in emulated.live().items() if kind not in KEPT}


def test_each_driver_call_of_a_fork_fails_once(emulated: FakeDriver, load: Load) -> None:
    module = load()
    parent, reference = module.session(), Reference()
    check(parent, reference, 40)
    emulated.clear_calls()
    parent.fork()
    gc.collect(1)
    live = held(emulated)
    for name, k in calls_of(emulated, FREES | {"cuMemUnmap", "cuMemAddressFree", "cuMemRelease"}):
        with emulated.failing(name, k, fakes.OUT_OF_MEMORY):
            try:
                session = parent.fork()
            except cudaexec.Error:
                session = None
        if session is not None:
            session.close()
        gc.collect(1)
        assert held(emulated) == live, (name, k)
    fork = parent.fork()
    check(fork, reference.fork(), 1)
    check(parent, reference, 1)
    assert WINDOW < 40
