"""Every allocation, file call and shim of a session's steps fails once; the session is as before."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import cudaexec
from cudaexec import _core

pytestmark = pytest.mark.torch
Program = Callable[[str], Path]
testing = _core._testing
SITES = ["allocate", "file", "dlopen", "shim", "container"]
ONE = np.ones(4, np.float32)

# What is tried, and whether it can fail at all.
STEPS: dict[str, tuple[Callable[[cudaexec.Module, cudaexec.Session], object], bool]] = {
    "session": (lambda module, _: module.session(), False),
    "session and call": (lambda module, _: module.session().method("add")(ONE), True),
    "first call": (lambda _, session: session.method("read")(), True),
    "fork": (lambda _, session: session.fork(), True),
    "call in a fork": (lambda _, session: session.fork().method("read")(), True),
    "reset": (lambda _, session: session.reset(), False),
    "state_dict": (lambda _, session: session.state_dict(), True),
}


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    testing.disarm_fault()


def counts() -> dict[str, int]:
    gc.collect()
    return dict(testing.live_counts())


@pytest.mark.parametrize("step", STEPS)
def test_each_step_fails(program: Program, step: str) -> None:
    run, can_fail = STEPS[step]
    with cudaexec.load(program("sequence")) as module:
        module.method("add")(ONE)
        start = counts()
        failures = 0
        for k in range(1, 200):
            session = module.session()
            session.method("add")(ONE)
            module.trim()
            before = counts()
            testing.arm_fault(SITES, k)
            raised = False
            try:
                run(module, session)
            except cudaexec.Error as error:
                reached = testing.disarm_fault()
                assert "injected fault" in str(error), error
                raised = True
                del error
            else:
                reached = testing.disarm_fault()
            failures += raised
            if step == "first call" and raised:  # the container that it made may exist
                assert counts()["containers"] - before["containers"] in (0, 1)
            elif step != "first call":
                assert counts() == before, k
            done = step == "reset" and not raised
            total = session.method("read")()[0].numpy()
            np.testing.assert_array_equal(total, ONE * (0 if done else 1))
            session.reset()
            np.testing.assert_array_equal(session.method("add")(ONE), np.arange(4))
            session.close()
            del session, total
            assert counts() == start, k
            if reached < k:
                break
        assert (failures > 0) == can_fail
