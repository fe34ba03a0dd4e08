"""Sessions: mutable state of their own over shared weights."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cudaexec
from cudaexec import _core

pytestmark = pytest.mark.torch
Program = Callable[[str], Path]
ONE = np.ones(4, np.float32)
WEIGHT = np.arange(4, dtype=np.float32)


def total(surface: cudaexec.Module | cudaexec.Session) -> np.ndarray:
    return np.array(surface.method("read")()[0].numpy())


def counts() -> dict[str, int]:
    gc.collect()
    return dict(_core._testing.live_counts())


def test_isolated_from_each_other_and_from_the_module(program: Program) -> None:
    with cudaexec.load(program("sequence")) as module:
        a, b = module.session(), module.session()
        for k, surface in enumerate((module, a, b), 1):
            for _ in range(k):
                y = surface.method("add")(ONE)
            np.testing.assert_array_equal(y, k * WEIGHT)
        for k, surface in enumerate((module, a, b), 1):
            np.testing.assert_array_equal(total(surface), k * ONE)
            np.testing.assert_array_equal(surface.state_dict()["base.total"].numpy(), k * ONE)
            np.testing.assert_array_equal(surface.state_dict()["base.weight"].numpy(), WEIGHT)


def test_interleaved_equals_alone(program: Program) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((20, 4)).astype(np.float32) for _ in range(3)]
    alone = []
    for xs in inputs:
        with cudaexec.load(program("sequence")) as module:
            add = module.method("add")
            alone.append([add(x) for x in xs])
    with cudaexec.load(program("sequence")) as module:
        adds = [module.session().method("add") for _ in inputs]  # a method keeps its session
        gc.collect()
        for step in range(20):
            for add, xs, expected in zip(adds, inputs, alone, strict=True):
                np.testing.assert_array_equal(add(xs[step]), expected[step])


def test_a_session_has_the_surface_of_a_module(program: Program) -> None:
    with cudaexec.load(program("sequence")) as module, module.session() as session:
        assert session.methods == module.methods == ["add", "read", "scale"]
        assert repr(session) == "<cudaexec.Session [add, read, scale]>"
        np.testing.assert_array_equal(session.method("scale")(ONE), WEIGHT)
        assert session.method("add") is session.method("add")
        with pytest.raises(cudaexec.InputError, match="there is no method 'forward'"):
            session(ONE)
        with pytest.raises(cudaexec.InputError, match="there is no method 'no'"):
            session.method("no")
    with cudaexec.load(program("tiny")) as module, module.session() as session:
        x = np.arange(16, dtype=np.float32)
        np.testing.assert_array_equal(session(x), x * 2 + 1)
        np.testing.assert_array_equal(session.forward(x), x * 2 + 1)
        assert session.bytes_per_session == 0


def test_bytes(program: Program) -> None:
    with cudaexec.load(program("sequence")) as module:
        assert module.bytes_per_session == 16
        sessions = [module.session() for _ in range(3)]
        assert [s.bytes_per_session for s in sessions] == [16] * 3
        assert module.memory_stats()["sessions"] == 0  # nothing is copied before it is used
        sessions[0].method("scale")(ONE)
        assert module.memory_stats()["sessions"] == 0
        for session in sessions[:2]:
            session.method("add")(ONE)
        assert sessions[0].memory_stats()["state"] == 16
        assert sessions[2].memory_stats()["state"] == 0
        assert module.memory_stats()["sessions"] == 32
        sessions[0].close()
        assert module.memory_stats()["sessions"] == 16
        del session, sessions
        gc.collect()
        assert module.memory_stats()["sessions"] == 0


def test_eight_sessions_add_their_state_only(program: Program) -> None:
    with cudaexec.load(program("sequence")) as module:
        module.method("add")(ONE)
        before = counts()["storages"]
        sessions = [module.session() for _ in range(8)]
        for session in sessions:
            session.method("add")(ONE)
        # A buffer is its memory and the view that programs write through.
        assert counts()["storages"] - before == 16
        del session, sessions
        assert counts()["storages"] == before


def test_reset(program: Program) -> None:
    with cudaexec.load(program("sequence")) as module:
        session = module.session()
        session.reset()  # nothing was used yet
        add = session.method("add")
        first = [add(ONE * k) for k in range(5)]
        module.method("add")(ONE)
        session.reset()
        np.testing.assert_array_equal(total(session), 0 * ONE)
        np.testing.assert_array_equal(total(module), ONE)
        containers = counts()["containers"]
        for k, expected in enumerate(first):
            np.testing.assert_array_equal(add(ONE * k), expected)
        assert counts()["containers"] == containers  # in place: nothing was bound again


def test_fork(program: Program) -> None:
    with cudaexec.load(program("sequence")) as module:
        session = module.session()
        empty = session.fork()
        session.method("add")(ONE)
        copy = session.fork()
        session.method("add")(ONE)
        copy.method("add")(ONE * 10)
        third = copy.fork()
        np.testing.assert_array_equal(total(session), 2 * ONE)
        np.testing.assert_array_equal(total(copy), 11 * ONE)
        np.testing.assert_array_equal(total(third), 11 * ONE)
        np.testing.assert_array_equal(total(empty), 0 * ONE)
        session.close()
        copy.reset()
        np.testing.assert_array_equal(total(copy), 0 * ONE)
        np.testing.assert_array_equal(total(third), 11 * ONE)


def test_random_numbers(program: Program) -> None:
    x = np.zeros(8, np.float32)
    with cudaexec.load(program("random")) as module:
        a, b = module.session(), module.session()
        assert not np.array_equal(a(x), b(x))
        module.manual_seed(3)
        expected = [module(x), module(x), module(x)]
        a.manual_seed(3)
        b.manual_seed(4)
        np.testing.assert_array_equal(a(x), expected[0])
        assert not np.array_equal(b(x), expected[0])
        fork = a.fork()
        np.testing.assert_array_equal(a(x), expected[1])
        np.testing.assert_array_equal(fork(x), expected[1])  # the same place of the sequence
        a.reset()
        np.testing.assert_array_equal(a(x), expected[2])  # which reset() does not move
        with pytest.raises(TypeError):
            a.manual_seed(-1)


def test_closing(program: Program) -> None:
    module = cudaexec.load(program("sequence"))
    session = module.session()
    other = session.fork()
    add = session.method("add")
    y = add(ONE)
    session.close()
    session.close()
    assert session.closed
    assert not module.closed
    assert repr(session).startswith("<cudaexec.Session (closed)")
    uses: list[Callable[[], object]] = [
        lambda: add(ONE), session.reset, session.fork, session.state_dict, session.memory_stats,
        lambda: session.manual_seed(1), lambda: session.method("read"),
        lambda: session.method("add"),  # which was used before
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(cudaexec.ClosedError, match="the session of .* was closed"):
            use()
    np.testing.assert_array_equal(y, WEIGHT)
    other.method("add")(ONE)
    module.method("add")(ONE)
    assert session.stats()["methods"][0]["calls"] == 1
    module.close()
    assert other.closed
    for surface in (other, session):
        with pytest.raises(cudaexec.ClosedError, match="the module of .* was closed; load"):
            surface.reset()
    with pytest.raises(cudaexec.ClosedError):
        module.session()
    assert module.bytes_per_session == other.bytes_per_session == 16
    np.testing.assert_array_equal(y, WEIGHT)


def test_a_session_keeps_its_module(program: Program) -> None:
    before = counts()
    session = cudaexec.load(program("sequence")).session()
    gc.collect()
    y = session.method("add")(ONE)
    del session
    after = counts()
    assert after["containers"] == before["containers"]
    assert after["shared_objects"] == before["shared_objects"]
    np.testing.assert_array_equal(y, WEIGHT)


def test_load_weights(program: Program) -> None:
    """Weights change for all; a buffer changes for the module, and as the initial value."""
    with cudaexec.load(program("sequence")) as module:
        used, unused = module.session(), module.session()
        used.method("add")(ONE)
        module.method("add")(ONE)
        module.load_weights({"base.weight": WEIGHT * 2, "base.total": ONE * 7})
        np.testing.assert_array_equal(module.method("add")(ONE), 8 * WEIGHT * 2)
        np.testing.assert_array_equal(used.method("add")(ONE), 2 * WEIGHT * 2)
        np.testing.assert_array_equal(unused.method("add")(ONE), 8 * WEIGHT * 2)
        np.testing.assert_array_equal(used.method("scale")(ONE), WEIGHT * 2)
        np.testing.assert_array_equal(total(module.session()), 7 * ONE)
        used.reset()
        np.testing.assert_array_equal(total(used), 7 * ONE)


def test_replaced_weights_are_freed_with_idle_sessions(program: Program) -> None:
    with cudaexec.load(program("sequence")) as module:
        sessions = [module.session() for _ in range(4)]
        for session in sessions:
            session.method("add")(ONE)
        module.load_weights({"base.weight": WEIGHT})
        start = counts()
        for k in range(5):
            module.load_weights({"base.weight": WEIGHT * k})
            for session in sessions:
                session.method("add")(ONE)
        module.load_weights({"base.weight": WEIGHT})
        assert counts() == start
        np.testing.assert_array_equal(total(sessions[0]), 6 * ONE)


def test_stats(program: Program) -> None:
    with cudaexec.load(program("sequence")) as module:
        session = module.session()
        for surface in (module, session):
            surface.method("add")(ONE)
            surface.method("scale")(ONE)
            with pytest.raises(cudaexec.ShapeError):
                surface.method("add")(np.ones(5, np.float32))
        stats = module.stats()
        assert stats["sessions"] == 1
        by_name = {each["name"]: each for each in stats["methods"]}
        keys = ("calls", "errors", "containers")
        assert [by_name["add"][key] for key in keys] == [4, 2, 2]
        assert [by_name["scale"][key] for key in keys] == [2, 0, 1]
        assert [by_name["read"][key] for key in keys] == [0, 0, 0]
        own = session.stats()
        assert own["state_nbytes"] == own["bytes_per_session"] == 16
        assert own["methods"][0] == {
            "name": "add", "uses_state": True, "calls": 2, "errors": 1, "containers": 1,
        }  # fmt: skip
        assert own["methods"][2]["containers"] == 0  # the module's pool
        del session, surface
        gc.collect()
        stats = module.stats()
        assert stats["sessions"] == 0
        assert stats["methods"][0]["calls"] == 4  # ended sessions count
        assert stats["methods"][0]["containers"] == 1


def test_sessions_in_threads(program: Program) -> None:
    with cudaexec.load(program("sequence")) as module:
        sessions = [module.session() for _ in range(4)]
        barrier = threading.Barrier(8)
        failures: list[BaseException] = []

        def work(i: int) -> None:
            barrier.wait()
            try:
                add = sessions[i // 2].method("add")  # two threads a session
                for _ in range(250):
                    add(ONE * (i // 2))
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failures
        for i, session in enumerate(sessions):
            np.testing.assert_array_equal(total(session), 500 * i * ONE)


@pytest.mark.parametrize("what", ["session", "module"])
def test_closing_under_calls(program: Program, what: str) -> None:
    """Sessions are made, forked, reset and closed while others call; then the module closes."""
    before = counts()
    module = cudaexec.load(program("sequence"))
    sessions = [module.session() for _ in range(3)]
    outcomes: list[str] = []
    started = threading.Barrier(4)

    def work(session: cudaexec.Session) -> None:
        started.wait()
        try:
            while True:
                session.method("add")(ONE)
                session.method("scale")(ONE)
                session.fork().method("add")(ONE)
                session.reset()
        except cudaexec.ClosedError:
            outcomes.append("closed")
        except BaseException as failure:
            outcomes.append(repr(failure))

    threads = [threading.Thread(target=work, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    started.wait()
    threading.Event().wait(0.05)
    if what == "session":
        for session in sessions:
            session.close()
    module.close()
    for thread in threads:
        thread.join(60)
    assert outcomes == ["closed"] * 3
    assert counts() == before


def test_thousand_sessions_are_flat(program: Program) -> None:
    with cudaexec.load(program("sequence")) as module:
        start = counts()
        for _ in range(1000):
            session = module.session()
            session.method("add")(ONE)
        del session
        assert counts() == start
