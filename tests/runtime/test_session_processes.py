"""Threads, forked children, exit and interrupts while modules and sessions are in use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
Program = Callable[[str], Path]

PREAMBLE = """
import os, signal, sys, threading, time
import numpy as np
import cudaexec
path = sys.argv[1]

def in_child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)  # a hang ends the child
        try:
            work()
        except BaseException as error:
            os.write(1, repr(error).encode())
            os._exit(3)
        os._exit(0)
    return os.waitpid(pid, 0)[1]
"""


def run(path: Path, script: str) -> None:
    """Run the script in a process of its own: it ends with 0 and writes nothing."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-X", "faulthandler", "-c"]
    done = subprocess.run(
        [*command, PREAMBLE + script, str(path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


FORKS_UNDER_CALLS = """
x = np.ones((3, 8), np.float32)
module = cudaexec.load(path)
expected = module(x)
stop = False

def call():
    while not stop:
        module(x)

threads = [threading.Thread(target=call) for _ in range(3)]
for thread in threads:
    thread.start()

def child():
    assert (module(x) == expected).all()
    with cudaexec.load(path) as other:
        assert (other(x) == expected).all()
    assert (module.session()(x) == expected).all()
    module.trim()
    module.memory_stats()
    module.load_weights(module.state_dict())
    assert (module(x) == expected).all()
    module.close()

try:
    statuses = [in_child(child) for _ in range(20)]
    assert statuses == [0] * 20, statuses
finally:
    stop = True
    for thread in threads:
        thread.join()
assert (module(x) == expected).all()
"""


def test_forks_while_three_threads_call(program: Program) -> None:
    """The calls of the parent's threads are neither waited for nor in the way of the child's."""
    run(program("mlp_a"), FORKS_UNDER_CALLS)


FORKS_WITH_STATE = """
one = np.ones(4, np.float32)
module = cudaexec.load(path)
sessions = [module.session() for _ in range(3)]
idle = module.session()
idle.method("add")(one)
stop = False

def call(session):
    add = session.method("add")
    while not stop:
        add(one)

threads = [threading.Thread(target=call, args=(session,)) for session in sessions]
for thread in threads:
    thread.start()

def child():
    for session in sessions:
        try:
            total = session.method("read")()[0].numpy()
            assert (total == total[0]).all()  # whole calls
        except cudaexec.SessionBusy:
            pass
        session.reset()
        session.method("add")(one)
        assert (session.method("read")()[0].numpy() == 1).all()
    assert (idle.method("read")()[0].numpy() == 1).all()
    module.load_weights({"base.weight": one})
    assert (idle.method("add")(one) == 2).all()
    sessions[0].close()
    module.close()

try:
    statuses = [in_child(child) for _ in range(20)]
    assert statuses == [0] * 20, statuses
finally:
    stop = True
    for thread in threads:
        thread.join()
"""


def test_forks_while_sessions_are_called(program: Program) -> None:
    run(program("sequence"), FORKS_WITH_STATE)


FORK_IN_A_LONG_CALL = """
x = np.zeros((1024, 1024), np.float32)
module = cudaexec.load(path, options=cudaexec.LoadOptions(threads=1))
session = module.session()
ended = []
thread = threading.Thread(target=lambda: ended.append((session(x), time.monotonic())))
thread.start()
time.sleep(0.05)

def child():
    for use in (lambda: session(x), session.state_dict, session.fork):
        try:
            use()
        except cudaexec.SessionBusy as error:
            assert "forked" in str(error) and "reset()" in str(error), error
        else:
            raise AssertionError("the session was not busy")
    module.load_weights({"total": np.full(4, 5, np.float32)})
    module.trim()
    session.reset()
    assert (session(x) == 6).all()
    assert (module(x) == 6).all()
    session.close()
    module.close()

started = time.monotonic()
pid = os.fork()
if pid == 0:
    signal.alarm(120)
    child()
    os._exit(0)
forked = time.monotonic()
assert forked - started < 1
assert os.waitpid(pid, 0)[1] == 0
thread.join()
assert ended[0][1] > forked, "the call was over before the fork: nothing was tested"
assert (ended[0][0] == 1).all()
assert (session(x) == 2).all()
"""


def test_a_session_in_a_long_call_is_busy_in_the_child(program: Program) -> None:
    """fork() does not wait for it; in the child it is refused until it is reset."""
    run(program("slow"), FORK_IN_A_LONG_CALL)


EXIT = """
one = np.ones(4, np.float32)
module = cudaexec.load(path)
sessions = [module.session() for _ in range(3)]

def call(session):
    while True:
        session.method("add")(one)
        session.fork().method("read")()
        session.reset()

for session in [*sessions, module.session()]:
    for _ in range(2):
        threading.Thread(target=call, args=(session,), daemon=True).start()
time.sleep(0.1)
"""


@pytest.mark.parametrize("end", ["", "sys.exit(0)", "module.close()", "del module, sessions"])
def test_exit_while_daemon_threads_call(program: Program, end: str) -> None:
    quiet = "threading.excepthook = lambda _: None\n" if end == "module.close()" else ""
    for _ in range(5):
        run(program("sequence"), quiet + EXIT + end)


INTERRUPTS = """
import random
one = np.ones(4, np.float32)
module = cudaexec.load(path)
session = module.session()
add = session.method("add")
signal.signal(signal.SIGALRM, signal.default_int_handler)
calls = interrupts = 0
end = time.monotonic() + 2
while time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005 + random.random() * 0.005)
        while True:
            add(one)
            calls += 1
    except KeyboardInterrupt:
        interrupts += 1
signal.setitimer(signal.ITIMER_REAL, 0)
assert interrupts > 50, interrupts
total = session.method("read")()[0].numpy()
# An interrupt comes after the call that it hits: that one is done, but not counted here.
assert (total == total[0]).all() and calls <= total[0] <= calls + interrupts, (total, calls)
copy = session.fork()
copy.method("add")(one)
assert (copy.method("read")()[0].numpy() == total + 1).all()
session.close()
module.close()
"""


def test_interrupts(program: Program) -> None:
    run(program("sequence"), INTERRUPTS)


PARALLEL = """
one = np.ones(4, np.float32)
failures = []

def work(i):
    try:
        for _ in range(6):
            with cudaexec.load(path) as module:
                sessions = [module.session() for _ in range(3)]
                for k, session in enumerate(sessions):
                    for _ in range(k + i):
                        session.method("add")(one)
                copies = [session.fork() for session in sessions]
                for k, copy in enumerate(copies):
                    assert (copy.method("read")()[0].numpy() == k + i).all()
    except BaseException as failure:
        failures.append(failure)

threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, failures
"""


def test_loads_modules_and_sessions_in_parallel(program: Program) -> None:
    run(program("sequence"), PARALLEL)
