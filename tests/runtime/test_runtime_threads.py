"""Many threads on one module, and closing under them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cudaexec
from cudaexec import _core

pytestmark = pytest.mark.torch
Program = Callable[[str], Path]


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work(i)` in `count` threads at once; the first exception is raised here."""
    barrier = threading.Barrier(count)
    errors: list[BaseException] = []

    def run(i: int) -> None:
        barrier.wait()
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("name", ["tiny", "mlp_a"])
def test_eight_threads(program: Program, name: str) -> None:
    with cudaexec.load(program(name)) as module:
        rng = np.random.default_rng(0)
        shape = (16,) if name == "tiny" else (5, 8)
        inputs = [rng.standard_normal(shape).astype(np.float32) for _ in range(8)]
        expected = [module(x) for x in inputs]

        def work(i: int) -> None:
            for _ in range(300):
                np.testing.assert_array_equal(module(inputs[i]), expected[i])

        in_threads(8, work)
        assert module(inputs[0]).shape == expected[0].shape


def test_a_container_per_running_call_and_no_more(program: Program) -> None:
    with cudaexec.load(program("large")) as module:
        x = np.ones((64, 256), np.float32)
        in_threads(4, lambda _: [module(x) for _ in range(5)])
        alive = _core._testing.live_counts()["containers"]
        assert 1 <= alive <= 4
        module.trim()
        assert _core._testing.live_counts()["containers"] == 1
        assert module(x).shape == (64, 256)


def test_calls_that_change_state_are_serialised(program: Program) -> None:
    with cudaexec.load(program("sequence")) as module:
        add = module.method("add")
        one = np.ones(4, np.float32)
        in_threads(4, lambda _: [add(one) for _ in range(250)])
        np.testing.assert_array_equal(module.method("read")()[0], one * 1000)


def test_close_waits_for_calls(program: Program) -> None:
    x = np.ones((64, 256), np.float32)
    for delay in (0.0, 0.001, 0.003):
        module = cudaexec.load(program("large"))
        expected = module(x)
        outcomes: list[object] = []
        started = threading.Barrier(4)

        def work(
            module: cudaexec.Module = module,
            expected: np.ndarray = expected,
            outcomes: list[object] = outcomes,
            started: threading.Barrier = started,
        ) -> None:
            started.wait()
            while True:
                try:
                    y = module(x)
                except cudaexec.ClosedError:
                    outcomes.append("closed")
                    return
                if not np.array_equal(y, expected):
                    outcomes.append("wrong")
                    return

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        started.wait()
        time.sleep(delay)
        module.close()
        assert module.closed
        for thread in threads:
            thread.join(30)
        assert outcomes == ["closed"] * 3
        assert _core._testing.live_counts()["containers"] == 0


def test_closing_from_many_threads(program: Program) -> None:
    module = cudaexec.load(program("tiny"))
    in_threads(4, lambda _: module.close())
    with pytest.raises(cudaexec.ClosedError):
        module(np.zeros(16, np.float32))
    with pytest.raises(cudaexec.ClosedError):
        module.method("forward")
    with pytest.raises(cudaexec.ClosedError):
        module.state_dict()
    with pytest.raises(cudaexec.ClosedError):
        module.trim()


def test_loading_in_many_threads(program: Program) -> None:
    x = np.ones((3, 8), np.float32)
    with cudaexec.load(program("mlp_a")) as module:
        expected = module(x)

    def work(_: int) -> None:
        for _ in range(10):
            with cudaexec.load(program("mlp_a")) as module:
                np.testing.assert_array_equal(module(x), expected)

    in_threads(4, work)


@pytest.mark.parametrize("threads", [1, 2, 999])
def test_threads_option(program: Program, threads: int) -> None:
    options = cudaexec.LoadOptions(threads=threads)
    with cudaexec.load(program("large"), options=options) as module:
        before = threading.active_count()
        x = np.ones((64, 256), np.float32)
        y = module(x)
        with cudaexec.load(program("large")) as default:
            np.testing.assert_allclose(y, default(x), rtol=1e-4, atol=1e-4)
        assert threading.active_count() == before
