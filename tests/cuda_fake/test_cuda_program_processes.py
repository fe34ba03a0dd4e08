"""GPU programs when a process forks or ends: no hang, no crash, no output."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).parents[1]
START = """
import os, signal, sys, threading
sys.path.insert(0, {tests!r})
import numpy as np
import cudaexec
from cuda_fake import programs
from cuda_fake.fake import FakeDriver
from cudaexec._core import _testing
fake = FakeDriver()
fake.set_log(False)
programs.register_kernels(fake)
_testing.cuda.use_driver(fake.path)
X = np.arange(4, dtype=np.float32)
signal.alarm(50)
module = cudaexec.load({path!r})
"""


def run(path: Path, code: str) -> str:
    script = START.format(tests=str(TESTS), path=str(path)) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_forked_child_cannot_call_but_can_close(write: Callable[..., Path]) -> None:
    shown = run(
        write("COUNT", "SCALE"),
        """
        count = module.method("count")
        count(X)
        pid = os.fork()
        if pid == 0:
            for use in (lambda: count(X), module.state_dict, lambda: cudaexec.load(sys.argv[0])):
                try:
                    use()
                    print("no error", flush=True)
                except cudaexec.Error:
                    pass
            module.close()
            print("closed", flush=True)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        np.testing.assert_array_equal(count(X), X * 4)
        print("parent")
        """,
    )
    assert shown == "closed\nparent\n"


def test_sessions_in_a_forked_child(write: Callable[..., Path]) -> None:
    """Every use of theirs that needs the GPU is a typed error; ending them is not."""
    shown = run(
        write("COUNT", "READ"),
        """
        session, other = module.session(), module.session()
        count = session.method("count")
        count(X)
        stop = False
        def work():
            while not stop:
                other.method("count")(X)
        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(5):
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                for use in (lambda: count(X), session.reset, session.fork, session.state_dict,
                            lambda: other.method("count")(X), lambda: module.session().method("read")()):
                    try:
                        use()
                        print("no error", flush=True)
                    except cudaexec.Error:
                        pass
                session.close()
                del session
                module.close()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        stop = True
        thread.join()
        np.testing.assert_array_equal(session.method("read")()[0], X)
        print("parent")
        """,
    )
    assert shown == "parent\n"


def test_exit_with_modules_and_threads(write: Callable[..., Path]) -> None:
    shown = run(
        write("COUNT", "SCALE"),
        """
        scale = module.method("scale")
        kept = [_testing.cuda.tensor_on(X), scale(X), module.method("count")(X)]
        started = threading.Barrier(3)

        def work():
            scale(X)
            started.wait()
            while True:
                scale(X)

        for _ in range(2):
            threading.Thread(target=work, daemon=True).start()
        started.wait()
        print("ends", flush=True)
        """,
    )
    assert shown == "ends\n"
