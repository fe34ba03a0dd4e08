"""The GIL: released while the core works, and harmless when the interpreter exits under it."""

import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from echo_methods import echo, tensor

from timing import rate, rounds, seconds_together

EXIT = """
import threading, numpy as np, cudaexec
from echo_methods import echo, tensor
method = echo([tensor("x", "float32", (8,))], delay_ms={delay})
x = np.zeros(8, np.float32)
def work():
    while True:
        method(x)
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
for _ in range({calls}):
    method(x)
"""

# The interpreter exits while threads run Python code under the binding's frames.
EXIT_IN_PYTHON = """
import sys, threading, numpy as np, cudaexec
from echo_methods import echo, tensor
sys.setswitchinterval(1e-6)
class Slow:
    def __init__(self): self.array = np.zeros(8, np.float32)
    def __dlpack_device__(self):
        sum(range(200))
        return self.array.__dlpack_device__()
    def __dlpack__(self, **options):
        sum(range(2000))
        return self.array.__dlpack__(**options)
method = echo([tensor("x", "float32", (8,))], delay_ms=0)
x = Slow()
def work():
    while True:
        method(x)
for _ in range(6):
    threading.Thread(target=work, daemon=True).start()
method(x)
"""


def test_other_threads_run_during_a_call() -> None:
    method = echo([tensor("x", "float32", (8,))], delay_ms=300)
    x = np.zeros(8, np.float32)
    idle = busy = 0.0
    for _ in rounds():
        idle = max(idle, rate(0.1))
        caller = threading.Thread(target=method, args=(x,))
        caller.start()
        busy = max(busy, rate(0.2))
        caller.join()
        if busy > 0.5 * idle:
            return
    raise AssertionError(f"{busy} additions a second, {idle} when idle")


def test_calls_overlap() -> None:
    method = echo([tensor("x", "float32", (8,))], delay_ms=200)
    x = np.zeros(8, np.float32)
    for _ in rounds():
        if seconds_together([lambda: method(x)] * 4) < 0.6:
            return
    raise AssertionError("four calls of 0.2 s take longer than three in turn")


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0, 1])
def test_exit_under_daemon_threads(delay: int) -> None:
    exits_cleanly(EXIT.format(delay=delay, calls=50 if delay == 0 else 3))


@pytest.mark.slow
def test_exit_while_inputs_run_python_code() -> None:
    exits_cleanly(EXIT_IN_PYTHON)


def run_child(code: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a Python process."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parent,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def exits_cleanly(code: str) -> None:
    """Run `code` in 25 processes."""
    for _ in range(25):
        assert run_child(code) == (0, "", "")


def test_calls_work_in_exit_handlers() -> None:
    code = (
        "import atexit\n"
        "@atexit.register\n"
        "def late():\n"
        "    import numpy as np\n"
        "    print(method(np.zeros(2, np.float32)).sum())\n"
        "import numpy as np, cudaexec\n"
        "from echo_methods import echo, tensor\n"
        "method = echo([tensor('x', 'float32', (2,))], delay_ms=1)\n"
    )
    assert run_child(code) == (0, "0.0\n", "")


@pytest.mark.parametrize("given", ["np.zeros(2, np.float32)", "np.float32(1)"])
def test_a_signal_handler_may_call_during_the_first_call(given: str) -> None:
    """It runs where the call first runs Python code, such as the import of numpy's C interface."""
    shape = "()" if given == "np.float32(1)" else "(2,)"
    code = (
        "import faulthandler, signal, numpy as np, cudaexec\n"
        "from echo_methods import echo, tensor\n"
        f"method = echo([tensor('x', 'float32', {shape})], delay_ms=100)\n"
        f"x, calls = {given}, []\n"
        "def handler(*_):\n"
        "    calls.append(method(x))\n"
        "signal.signal(signal.SIGALRM, handler)\n"
        "faulthandler.dump_traceback_later(20, exit=True)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.03)\n"
        "first = method(x)\n"
        "assert len(calls) == 1 and type(first) is type(calls[0])\n"
    )
    assert run_child(code) == (0, "", "")


def test_a_forked_child_exits() -> None:
    code = (
        "import os, sys, threading, numpy as np, cudaexec\n"
        "from echo_methods import echo, tensor\n"
        "method = echo([tensor('x', 'float32', (2,))], delay_ms=0)\n"
        "x = np.zeros(2, np.float32)\n"
        "def work():\n"
        "    while True: method(x)\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "for _ in range(5):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        method(x); sys.exit(0)\n"
        "    assert os.waitpid(pid, 0)[1] == 0\n"
    )
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        check=True,
        timeout=60,
        cwd=Path(__file__).parent,
    )


def test_the_gil_is_released_in_one_way_only() -> None:
    """pybind11's own guard takes the GIL back without looking at the exit gate."""
    sources = Path(__file__).parents[2] / "cpp" / "python"
    users = {
        path.name
        for path in sources.glob("*.*")
        if not re.search("testing|bind_ops", path.name)  # what only tests use
        and re.search(
            r"gil_scoped_release|gil_scoped_acquire|PyEval_(Save|Restore)Thread|PyGILState_|"
            r"release_gil_before_calling_cpp_dtor|Py_BEGIN_ALLOW_THREADS",
            path.read_text(),
        )
    }
    assert users == {"gil.cpp"}
