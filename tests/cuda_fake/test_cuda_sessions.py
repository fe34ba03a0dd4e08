"""Sessions of GPU programs: isolation, order between streams, copies in place, failures."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import cudaexec
from cuda_fake import fake as fakes
from cuda_fake.fake import FakeDriver, emulate_kernels
from cuda_fake.test_cuda_program_faults import calls_of, counts
from cudaexec._core import _testing

X = np.arange(4, dtype=np.float32)
GRAPHS = cudaexec.GraphOptions(warmup=1)
SITES = ["allocate", "file", "dlopen", "shim", "container"]


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    _testing.disarm_fault()


def total(surface: cudaexec.Module | cudaexec.Session) -> np.ndarray:
    return np.array(surface.method("read")()[0])


def test_isolated(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("COUNT", "READ"), device="cuda:1") as module:
        a, b = module.session(), module.session()
        for k, surface in enumerate((module, a, b), 1):
            for _ in range(k):
                surface.method("count")(X)
        for k, surface in enumerate((module, a, b), 1):
            np.testing.assert_array_equal(total(surface), X * k)
            np.testing.assert_array_equal(surface.state_dict()["total"].numpy(), X * k)
        assert module.memory_stats()["sessions"] == 2 * module.bytes_per_session == 32
        # Weights once; the buffer once a session.
        assert gpus.used(1) >= 16 * 3


@pytest.mark.parametrize("initial", [np.zeros(4, np.float32), X + 5])
def test_reset_in_place(gpus: FakeDriver, write: Callable[..., Path], initial: np.ndarray) -> None:
    """Zeros are set by the GPU; other values are copied within it. No buffer moves."""
    with cudaexec.load(write("COUNT", "READ")) as module:
        if initial.any():
            module.load_weights({"total": initial})
        session = module.session()
        for _ in range(3):
            session.method("count")(X)
            session.method("read")()
            before = counts(gpus)
            gpus.clear_calls()
            session.reset()
            assert not gpus.calls("cuMemFreeAsync", "cuMemFree") or initial.any()
            assert counts(gpus) == before
            np.testing.assert_array_equal(total(session), initial)


def test_reset_and_fork_follow_the_stream_of_the_call(
    gpus: FakeDriver, write: Callable[..., Path]
) -> None:
    """Work that waits on another stream is seen, without the host waiting in reset()."""
    with cudaexec.load(write("COUNT", "READ")) as module:
        session = module.session()
        count = session.method("count")
        count(X)
        gpus.run_all()
        context = gpus.make("cuDevicePrimaryCtxRetain", 0)
        gpus.call("cuCtxPushCurrent", context)
        stream = gpus.make("cuStreamCreate", 1)
        on_gpu = count(X).__class__  # the call before left nothing behind
        assert on_gpu is np.ndarray
        count(X, stream=stream)
        fork = session.fork()
        np.testing.assert_array_equal(total(fork), X * 3)
        count(X, stream=stream)
        session.reset()
        np.testing.assert_array_equal(session.method("read").run_on(stream)[0], X * 0)
        count(X, stream=stream)
        np.testing.assert_array_equal(total(session), X)
        np.testing.assert_array_equal(total(fork), X * 3)
        session.close()
        gpus.call("cuStreamDestroy", stream)
        gpus.make("cuCtxPopCurrent")
        gpus.call("cuDevicePrimaryCtxRelease", 0)


def test_reset_does_not_wait(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    """With zeros as initial values, reset() only puts work on a stream."""
    with cudaexec.load(write("COUNT", "READ")) as module, module.session() as session:
        session.method("count")(X)
        gpus.clear_calls()
        session.reset()
        waits = ("cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize")
        assert gpus.calls(*waits) == []
        np.testing.assert_array_equal(total(session), X * 0)


def test_close_waits_for_the_gpu(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    path = write("COUNT")
    cudaexec.load(path).close()
    with cudaexec.load(path) as module:
        module.method("count")(X)
        before = counts(gpus)
        used = gpus.used(0)
        sessions = [module.session() for _ in range(3)]
        for session in sessions:
            session.method("count")(X)
        for session in sessions:
            session.close()
        del session, sessions
        gpus.run_all()
        assert counts(gpus) == before
        assert gpus.used(0) == used


def test_load_weights(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("COUNT", "READ")) as module:
        used, unused = module.session(), module.session()
        used.method("count")(X)
        module.load_weights({"w": np.array([3.0], np.float32), "total": X + 1})
        np.testing.assert_array_equal(total(module), X + 1)
        np.testing.assert_array_equal(total(used), X)
        np.testing.assert_array_equal(total(unused), X + 1)
        used.reset()
        np.testing.assert_array_equal(total(used), X + 1)


STEPS: dict[str, Callable[[cudaexec.Module, cudaexec.Session], object]] = {
    "session": lambda module, _: module.session().method("count")(X),
    "first call": lambda _, session: session.method("read")(),
    "reset": lambda _, session: session.reset(),
    "fork": lambda _, session: session.fork(),
    "call in a fork": lambda _, session: session.fork().method("read")(),
}


@pytest.mark.filterwarnings("ignore::cudaexec.CudaexecWarning")  # frees that failed
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("initial", [np.zeros(4, np.float32), X + 5], ids=["zeros", "values"])
@pytest.mark.parametrize("sites", [False, True], ids=["driver", "sites"])
@pytest.mark.parametrize("graphs", [False, True], ids=["plain", "graphs"])
def test_each_step_fails(
    gpus: FakeDriver,
    write: Callable[..., Path],
    step: str,
    initial: np.ndarray,
    sites: bool,
    graphs: bool,
) -> None:
    """One typed error, nothing left, and the session goes on as if it had not been tried."""
    path = write("COUNT", "READ")
    if graphs and not _testing.cuda.image_names():
        pytest.skip("built without nvcc: there is no device code")
    emulate_kernels()
    cudaexec.load(path).close()
    with cudaexec.load(path, cuda_graph=graphs and GRAPHS) as module:
        module.load_weights({"total": initial})
        module.method("count")(X)

        def first_calls(session: cudaexec.Session) -> None:
            session.method("count")(X)
            for _ in range(3 if graphs else 0):  # a capture, then replays, which add nothing
                session.method("count")(X * 0)

        def attempt(arm: Callable[[], None], disarm: Callable[[], int]) -> bool:
            """Whether the fault was reached and raised."""
            session = module.session()
            first_calls(session)
            gc.collect()
            before = counts(gpus)
            gpus.clear_calls()
            arm()
            raised = False
            try:
                STEPS[step](module, session)
            except cudaexec.Error as error:
                assert disarm() >= 1
                assert isinstance(error, cudaexec.OutOfMemory) or "injected" in str(error), error
                del error
                raised = True
                # What a first call makes for good may exist.
                kept = ("handles", "containers") if step == "first call" else ()
                for kind in {"storages", "handles", "containers", "pool_blocks", "context"} - {
                    *kept
                }:
                    assert counts(gpus).get(kind, 0) == before.get(kind, 0), (step, kind)
            else:
                disarm()
            done = step == "reset" and not raised
            if graphs:  # a replay, on the same buffers
                session.method("count")(X * 0)
            np.testing.assert_array_equal(total(session), initial + (0 if done else X))
            session.reset()
            np.testing.assert_array_equal(total(session), initial)
            np.testing.assert_array_equal(total(session.fork()), initial)
            session.close()
            _testing.cleanup_reports()
            return raised

        if sites:
            failures = 0
            for k in range(1, 200):
                reached = [0]

                def disarm(reached: list[int] = reached) -> int:
                    reached[0] = _testing.disarm_fault()
                    return reached[0]

                failures += attempt(lambda k=k: _testing.arm_fault(SITES, k), disarm)
                if reached[0] < k:
                    break
            assert failures > 0 or (step == "reset" and not initial.any())
            return
        attempt(lambda: None, lambda: 1)
        session = module.session()
        first_calls(session)
        gpus.clear_calls()
        STEPS[step](module, session)
        planned = calls_of(gpus)
        session.close()
        failed = [
            attempt(lambda n=name, k=k: gpus.fail(n, k, fakes.OUT_OF_MEMORY), gpus.clear_faults)
            for name, k in planned
        ]
        assert sum(failed) > len(planned) // 3
        if graphs:
            assert module.method("count").stats()["graphs"]["replays"] > 2 * len(planned)
