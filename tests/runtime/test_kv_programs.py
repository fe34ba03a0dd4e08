"""Decoders whose cache the runtime keeps, against eager: steps, sessions, faults."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudaexec
from cudaexec._core import _testing
from pte_edit import edit_manifest

torch = pytest.importorskip("torch")
from kv_programs import (  # noqa: E402
    CAPACITY,
    VOCABULARY,
    WIDEST,
    WINDOW,
    Eager,
    close_to,
    export,
    step,
)

import kv_models  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def _long_context() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr(kv_models, "CAPACITY", CAPACITY)
    yield
    patch.undo()


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: export(kind, tmp_path_factory.mktemp(kind)) for kind in ("flat", "ring", "batch")}


@pytest.fixture
def flat(programs: dict[str, Path]) -> Iterator[cudaexec.Module]:
    with cudaexec.load(programs["flat"]) as module:
        yield module


def ids(width: int, batch: int = 1) -> Any:
    return torch.randint(0, VOCABULARY, (batch, width))


@pytest.mark.parametrize("kind", ["flat", "ring", "batch"])
def test_steps_as_eager(programs: dict[str, Path], kind: str) -> None:
    """Over several pages; a ring wraps several times."""
    torch.manual_seed(1)
    batch = 2 if kind == "batch" else 1
    eager = Eager(kind)
    with cudaexec.load(programs[kind]) as module:
        for width in (5, 1, 1, WIDEST, 1, WIDEST, 3, 1, WIDEST, 2, WIDEST, *[1] * 20):
            tokens = ids(width, batch)
            assert close_to(step(module, tokens), eager.step(tokens)), module.position
            assert module.position == eager.position
        found = module.stats()["kv_cache"]
        assert (found["position"], found["dtype"]) == (module.position, "float32")
        rings = [layer["window"] is not None for layer in found["layers"]]
        assert any(rings) == (kind == "ring")
        flat = [layer["capacity"] for layer in found["layers"] if layer["capacity"] is not None]
        assert found["capacity"] == (min(flat) if flat else None)
        with module.session() as session:
            assert session.stats()["kv_cache"] == {**found, "position": 0}
        stats = module.memory_stats()
        assert stats["kv_used"] <= stats["kv_mapped"] <= stats["kv_reserved"]
        assert stats["kv_mapped"] >= 2 * (64 << 10)


def test_inspect_shows_the_cache(programs: dict[str, Path]) -> None:
    pytest.importorskip("typer")
    done = subprocess.run(
        [sys.executable, "-m", "cudaexec", "inspect", str(programs["ring"])],
        capture_output=True, text=True, check=True,
        env={"COLUMNS": "200", "PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert "KV cache  float32\n" in done.stdout
    assert "  1 layer: 1500 tokens, 2 heads of 16\n" in done.stdout
    assert "  1 layer: window of 40 tokens, 2 heads of 16\n" in done.stdout


@pytest.mark.parametrize("kind", ["flat", "ring"])
def test_greedy_tokens_are_eagers(programs: dict[str, Path], kind: str) -> None:
    """256 tokens after prompts of several lengths; where two logits tie to rounding, both may win."""
    torch.manual_seed(2)
    with cudaexec.load(programs[kind]) as module:
        for length in (2, 17, 200):
            eager, session = Eager(kind), module.session()
            prompt = ids(length)
            ours, theirs = step(session, prompt), eager.step(prompt)
            for _ in range(256):
                assert close_to(ours, theirs)
                chosen = theirs[:, -1].argmax(-1, keepdim=True)
                best = theirs[0, -1].topk(2).values
                if best[0] - best[1] > 1e-4:
                    assert torch.equal(ours[:, -1].argmax(-1, keepdim=True), chosen)
                ours, theirs = step(session, chosen), eager.step(chosen)
            assert session.position == length + 256


def test_sessions_interleaved_and_forked(flat: cudaexec.Module) -> None:
    torch.manual_seed(3)
    pairs = [(flat.session(), Eager("flat")) for _ in range(3)]
    for width in (30, 1, 7, 1):
        for session, eager in pairs:
            tokens = ids(width)
            assert close_to(step(session, tokens), eager.step(tokens))
    for session, eager in list(pairs):
        pairs.append((session.fork(), eager.fork()))
    for width in (1, 2, 1):
        for session, eager in pairs:
            tokens = ids(width)
            assert close_to(step(session, tokens), eager.step(tokens))
    assert flat.position == 0
    pairs[0][0].close()
    tokens = ids(1)
    assert close_to(step(pairs[3][0], tokens), pairs[3][1].step(tokens))


def test_threads_of_sessions(flat: cudaexec.Module) -> None:
    """Four threads decode a session each, forked from one prompt."""
    torch.manual_seed(4)
    prompt = ids(50)
    first, eager = flat.session(), Eager("flat")
    step(first, prompt)
    eager.step(prompt)
    inputs = [ids(40) for _ in range(4)]
    expected = []
    for tokens in inputs:
        fork = eager.fork()
        expected.append([fork.step(token[:, None]) for token in tokens.unbind(1)])
    results: list[list[Any]] = [[] for _ in inputs]
    sessions = [first.fork() for _ in inputs]

    def decode(n: int) -> None:
        for token in inputs[n].unbind(1):
            results[n].append(step(sessions[n], token[:, None]))

    threads = [threading.Thread(target=decode, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for ours, theirs in zip(results, expected, strict=True):
        assert len(ours) == 40
        assert all(close_to(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("kind", ["flat", "ring"])
def test_rewind(programs: dict[str, Path], kind: str) -> None:
    torch.manual_seed(5)
    with cudaexec.load(programs[kind]) as module:
        session, eager = module.session(), Eager(kind)
        for _ in range(8):
            tokens = ids(100)
            step(session, tokens)
            eager.step(tokens)
        for back in (1, 30, 10):
            session.rewind(session.position - back)
            eager.position -= back
            tokens = ids(5)
            assert close_to(step(session, tokens), eager.step(tokens))
        with pytest.raises(cudaexec.InputError, match=r"rewind\(1000\).*holds"):
            session.rewind(1000)
        if kind == "ring":
            here = session.position
            with pytest.raises(cudaexec.InputError, match=f"window of {WINDOW}"):
                session.rewind(5)
            assert session.position == here
        session.rewind(0)
        tokens = ids(9)
        assert close_to(step(session, tokens), Eager(kind).step(tokens))


def test_reset_equals_a_fresh_session(flat: cudaexec.Module) -> None:
    torch.manual_seed(6)
    used, fresh = flat.session(), flat.session()
    for width in (200, 1, 100):
        step(used, ids(width))
    used.reset()
    assert used.position == 0
    for width in (20, 1, 1):
        tokens = ids(width)
        assert torch.equal(step(used, tokens), step(fresh, tokens))
    for surface in (flat, used):  # the module is a session too
        step(surface, ids(3), 0 if surface is flat else None)
        surface.reset()
        assert surface.position == 0


def test_context_full(flat: cudaexec.Module) -> None:
    torch.manual_seed(7)
    session, eager = flat.session(), Eager("flat")
    for width in (*[WIDEST] * 5, 218):
        tokens = ids(width)
        step(session, tokens)
        eager.step(tokens)
    with pytest.raises(
        cudaexec.ContextFull, match=r"method 'prefill'.* 1498 tokens.* adds 3, and 1500"
    ):
        step(session, ids(3))
    tokens = ids(2)
    assert close_to(step(session, tokens), eager.step(tokens))
    with pytest.raises(cudaexec.ContextFull, match="holds 1500 tokens, this call adds 1"):
        step(session, ids(1))
    assert session.position == 1500
    session.reset()
    tokens = ids(4)
    assert close_to(step(session, tokens), Eager("flat").step(tokens))


def test_wrong_positions_and_widths(flat: cudaexec.Module) -> None:
    torch.manual_seed(8)
    session, eager = flat.session(), Eager("flat")
    tokens = ids(10)
    step(session, tokens)
    eager.step(tokens)
    prefill = session.method("prefill")
    tokens = ids(4)
    for wrong in ([11, 12, 13, 14], [0, 1, 2, 3], [10, 11, 13, 12], [10, 10, 10, 10]):
        with pytest.raises(cudaexec.InputError, match="'positions': token.*holds 10 tokens"):
            prefill(tokens, torch.tensor(wrong))
    for given in (tokens, tokens.numpy()):
        with pytest.raises(cudaexec.InputError, match="token 0 has position 9"):
            prefill(given, np.arange(9, 13))
    with pytest.raises(cudaexec.ShapeError):
        prefill(ids(WIDEST + 1), torch.arange(10, 11 + WIDEST))
    assert session.position == 10
    assert close_to(step(session, tokens), eager.step(tokens))


def test_one_session_in_many_hands(flat: cudaexec.Module) -> None:
    """Others rewind, reset and fork it between a thread's steps: refusals, and then as if alone."""
    torch.manual_seed(9)
    session, stop = flat.session(), threading.Event()
    failures: list[BaseException] = []

    def until_stopped(act: Any) -> None:
        try:
            while not stop.is_set():
                try:
                    act()
                except (cudaexec.InputError, cudaexec.ContextFull):
                    continue
        except BaseException as failure:
            failures.append(failure)

    def fork() -> None:
        with session.fork() as child:
            step(child, ids(1))
            assert child.position >= 1

    tokens = ids(3)
    acts = [
        lambda: step(session, tokens),
        lambda: step(session, ids(1)),
        lambda: session.rewind(session.position // 2),
        lambda: session.rewind(1),
        session.reset,
        fork,
        lambda: (session.memory_stats(), flat.memory_stats(), session.position),
    ]
    threads = [threading.Thread(target=until_stopped, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    stop.wait(1)
    stop.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert failures == []
    session.reset()
    assert session.position == 0
    assert close_to(step(session, tokens), Eager("flat").step(tokens))


def test_bytes(flat: cudaexec.Module) -> None:
    assert flat.memory_stats()["kv_reserved"] == 0
    sessions = [flat.session() for _ in range(8)]
    before = flat.memory_stats()
    for session in sessions:
        step(session, ids(100))
    stats = sessions[0].memory_stats()
    assert stats["kv_used"] == 100 * 2 * 2 * 2 * 16 * 4
    assert stats["kv_mapped"] == 64 << 10
    assert stats["state"] == 0
    after = flat.memory_stats()
    assert after["kv_mapped"] == 8 * (64 << 10)
    assert after["weights_mapped"] == before["weights_mapped"]
    for session in sessions:
        session.close()
    del sessions
    gc.collect()
    assert flat.memory_stats()["kv_reserved"] == 0


def test_closed(flat: cudaexec.Module) -> None:
    session = flat.session()
    step(session, ids(2))
    decode = session.method("decode")
    session.close()
    for use in (lambda: session.position, lambda: session.rewind(0), session.reset, session.fork):
        with pytest.raises(cudaexec.ClosedError):
            use()
    with pytest.raises(cudaexec.ClosedError):
        decode(ids(1), torch.tensor([2]))


def test_a_program_without_a_cache_has_no_position(program: Any) -> None:
    with cudaexec.load(program("tiny")) as module:
        for use in (lambda: module.position, lambda: module.rewind(0)):
            with pytest.raises(cudaexec.NotSupported, match="no KV cache"):
                use()
        assert module.memory_stats()["kv_reserved"] == 0


@pytest.mark.parametrize("kind", ["flat", "ring"])
def test_each_failure_leaves_the_history(programs: dict[str, Path], kind: str) -> None:
    """Every allocation, mapping and shim call of steps and forks fails once."""
    torch.manual_seed(9)
    sites = ["allocate", "file", "shim", "container"]
    with cudaexec.load(programs[kind]) as module:
        first, eager = module.session(), Eager(kind)
        for _ in range(4):
            tokens = ids(WIDEST)
            step(first, tokens)
            eager.step(tokens)
        decode = ids(1)
        prefill = ids(200)
        k, hits = 0, True
        while hits:
            k += 1
            hits = False
            session = first.fork()
            fork = eager.fork()
            for tokens in (decode, prefill):
                here = session.position
                expected = fork.step(tokens)
                _testing.arm_fault(sites, k)
                try:
                    step(session, tokens)
                except cudaexec.Error:
                    hits = True
                    _testing.disarm_fault()
                    assert session.position == here
                    assert close_to(step(session, tokens), expected), k
                _testing.disarm_fault()
                assert session.position == here + tokens.shape[1]
            _testing.arm_fault(sites, k)
            try:
                other = session.fork()
            except cudaexec.Error:
                hits = True
                _testing.disarm_fault()
                other = session.fork()
            _testing.disarm_fault()
            tokens = ids(2)
            assert close_to(step(other, tokens), fork.step(tokens)), k
            session.close()
            other.close()
        assert k > 5
        tokens = ids(3)
        assert close_to(step(first, tokens), eager.step(tokens))


def test_cycles_leave_nothing(programs: dict[str, Path]) -> None:
    def maps() -> int:
        gc.collect()
        return Path("/proc/self/maps").read_text().count("cudaexec-kv")

    before = maps()
    for _ in range(5):
        with cudaexec.load(programs["flat"]) as module:
            session = module.session()
            step(session, ids(200))
            step(session.fork(), ids(1))
            assert maps() > before
    del session
    assert maps() == before
    assert _testing.cleanup_reports() == ([], 0)


def test_code_that_needs_a_cache_without_a_word_on_it(
    programs: dict[str, Path], tmp_path: Path
) -> None:
    def forget(manifest: bytes) -> bytes:
        value = json.loads(manifest)
        value.pop("kv_cache")
        for method in value["methods"]:
            method.pop("kv")
        return json.dumps(value, separators=(",", ":")).encode()

    path = tmp_path / "model.pte"
    edit_manifest(programs["flat"], path, forget)
    with pytest.raises(cudaexec.FormatError, match=r"'prefill'.*kv_attend.*describes no KV cache"):
        cudaexec.load(path, programs["flat"].with_suffix(".ptd"))
