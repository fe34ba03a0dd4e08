"""GPU objects when a process forks or ends: no hang, no crash, no output."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

START = """
import os, signal, sys, threading, time
sys.path.insert(0, {tests!r})
import numpy as np
import cudaexec
from binding.echo_methods import manifest, tensor
from cuda_fake.fake import FakeDriver
from cuda_fake.foreign import CudaArray, CudaProducer, Memory
from cudaexec._core import _testing
cuda = _testing.cuda
fake = FakeDriver()
fake.set_log(False)
cuda.use_driver(fake.path)
method = cuda.echo_method(manifest([tensor("x")]))
x = np.ones((2, 3), np.float32)
signal.alarm(30)
"""


def run(code: str, *flags: str) -> str:
    script = START.format(tests=str(TESTS)) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", *flags, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_forked_child_gets_an_error_and_exits() -> None:
    shown = run(
        """
        kept = cuda.tensor_on(x)
        producer = CudaProducer(Memory(x))
        held = method(producer)
        pid = os.fork()
        if pid == 0:
            for use in (lambda: method(x), lambda: method(kept), kept.to_host, kept.tolist,
                        lambda: kept.__dlpack__(stream=2), lambda: method(x, stream=2),
                        lambda: method(CudaArray(producer.memory)),
                        cuda.device_count):
                try:
                    use()
                    print("no error")
                except cudaexec.DeviceError as error:
                    assert "forked" in str(error) and "spawn" in str(error), error
            assert kept.shape == (2, 3) and kept.device == "cuda:0"
            del kept, held, method
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        print(method(kept).tolist())
        """
    )
    assert shown == "[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]\n"


def test_a_child_forked_before_the_first_use_may_use_the_gpu() -> None:
    run(
        """
        pid = os.fork()
        if pid == 0:
            assert method(x).sum() == 6
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert method(x).sum() == 6
        """
    )


@pytest.mark.slow
def test_children_of_a_busy_process_exit() -> None:
    run(
        """
        kept = cuda.tensor_on(x)
        def work():
            while True:
                method(kept)
        for _ in range(2):
            threading.Thread(target=work, daemon=True).start()
        for _ in range(20):
            time.sleep(0.01)
            pid = os.fork()
            if pid == 0:
                signal.alarm(10)
                try:
                    method(x)
                except cudaexec.DeviceError:
                    sys.exit(0)
                sys.exit(1)
            assert os.waitpid(pid, 0)[1] == 0
        """,
        "-W",
        "ignore::DeprecationWarning",
    )


def test_exit_with_everything_alive() -> None:
    run(
        """
        kept = [cuda.tensor_on(x), method(CudaProducer(Memory(x))), cuda.Stream(0)]
        capsule = kept[0].__dlpack__(stream=kept[2].handle)
        view = kept[0].__cuda_array_interface__
        """
    )


@pytest.mark.slow
def test_exit_under_daemon_threads() -> None:
    for _ in range(5):
        run(
            """
            kept = cuda.tensor_on(x)
            def work():
                while True:
                    method(kept)
                    method(CudaProducer(Memory(x)))
                    kept.to_host()
            for _ in range(3):
                threading.Thread(target=work, daemon=True).start()
            time.sleep(0.05)
            """
        )


def test_importing_and_running_on_the_cpu_touch_no_driver() -> None:
    code = """
import numpy as np
import cudaexec
assert not cudaexec._core._testing.cuda.initialised()
from binding.echo_methods import echo, tensor
x = np.ones((2, 3), np.float32)
y = echo([tensor("x")])(echo([tensor("x")])(memoryview(x)))
assert y.tolist() == x.tolist()
assert np.from_dlpack(y).sum() == 6 and y.to_host() is y
assert not cudaexec._core._testing.cuda.initialised()
assert "libcuda.so" not in open("/proc/self/maps").read()
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=TESTS, timeout=60)
