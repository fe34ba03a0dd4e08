"""GPU programs in whole processes: orders of imports, forks, exits, and no GPU without need."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import models
from gpu.foreign_gpu import Two

EXAMPLE = (torch.arange(32.0).reshape(4, 8), torch.ones(4, 8) * 3)


@pytest.fixture(scope="session")
def two(gpu_export: Callable[..., Path]) -> Path:
    return gpu_export("binding-two", models.Built(Two(), EXAMPLE))


CHILD = """
import sys
{before}
import numpy as np
import cudaexec
{middle}
module = cudaexec.load({path!r})
x = np.arange(32, dtype=np.float32).reshape(4, 8)
y = np.full((4, 8), 3, np.float32)
def check(got):
    np.testing.assert_array_equal(got[0], x * 2 + y)
    np.testing.assert_array_equal(got[1], (x - y).T)
check(module(x, y))
on_gpu = cudaexec._core._testing.cuda.tensor_on
got = module(on_gpu(x), on_gpu(y))
assert [one.device for one in got] == ["cuda:0"] * 2
check([one.to_host().numpy() for one in got])
{after}
"""
TORCH_CALLS = """
side = torch.cuda.Stream()
a, b = torch.zeros(4, 8, device="cuda"), torch.as_tensor(y).cuda()
torch.cuda.synchronize()
with torch.cuda.stream(side):
    torch.cuda._sleep(50_000_000)
    a.copy_(torch.as_tensor(x).cuda())
    check([one.cpu().numpy() for one in module(a, b)])
check([one.cpu().numpy() for one in module(a, b, stream=torch.cuda.Stream())])
check([torch.from_dlpack(one).cpu().numpy() for one in got])
"""
GLOBAL = """
import ctypes, importlib.util, os
folder = os.path.join(os.path.dirname(importlib.util.find_spec("torch").origin), "lib")
sys.setdlopenflags(ctypes.RTLD_GLOBAL | 2)
import torch
for name in ("libtorch_cpu.so", "libtorch_cuda.so"):
    ctypes.CDLL(os.path.join(folder, name), mode=ctypes.RTLD_GLOBAL)
sys.setdlopenflags(2)
"""


def child(code: str, *flags: str) -> str:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", *flags, "-c", code],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(
    ("before", "middle", "after"),
    [
        ("", "", "assert 'torch' not in sys.modules"),
        ("import torch; torch.ones(1).cuda()", "", TORCH_CALLS),
        ("", "import torch; torch.ones(1).cuda()", TORCH_CALLS),
        ("", "", "import torch" + TORCH_CALLS),
        (GLOBAL, "", TORCH_CALLS),
    ],
    ids=["never", "first", "second", "last", "global"],
)
def test_import_orders(two: Path, before: str, middle: str, after: str) -> None:
    child(CHILD.format(before=before, middle=middle, after=after, path=str(two)))


def test_programs_on_the_cpu_touch_no_gpu(gpu_export: Callable[..., Path]) -> None:
    path = gpu_export("binding-cpu", models.Built(Two(), EXAMPLE), target="cpu")
    child(
        f"""
import numpy as np, os, cudaexec
with cudaexec.load({str(path)!r}) as module:
    module(np.ones((4, 8), np.float32), np.ones((4, 8), np.float32))
maps = open("/proc/self/maps").read()
assert "libcuda.so" not in maps and "nvidia" not in maps
assert not any("nvidia" in os.path.realpath(f"/proc/self/fd/{{fd}}") for fd in os.listdir("/proc/self/fd"))
"""
    )


def test_a_forked_child_gets_an_error(two: Path) -> None:
    child(
        f"""
import os, signal, sys
import numpy as np, cudaexec
module = cudaexec.load({str(two)!r})
x = np.ones((4, 8), np.float32)
kept = module(cudaexec._core._testing.cuda.tensor_on(x), x)
pid = os.fork()
if pid == 0:
    signal.alarm(10)
    for use in (lambda: module(x, x), lambda: module(kept[0], x), kept[0].to_host,
                lambda: cudaexec.load({str(two)!r})):
        try:
            use()
            sys.exit(2)
        except cudaexec.DeviceError as error:
            assert "forked" in str(error), error
    module.close()
    del kept, module
    sys.exit(0)
status = os.waitpid(pid, 0)[1]
assert status == 0, status
assert (module(x, x)[0] == 3).all()
""",
        "-Wignore::DeprecationWarning",  # Python 3.12 warns of forks beside threads
    )


@pytest.mark.parametrize("closes", [False, True])
def test_exit_under_daemon_threads(two: Path, closes: bool) -> None:
    for _ in range(3):
        child(
            f"""
import threading, time
import numpy as np, cudaexec, torch
module = cudaexec.load({str(two)!r})
x = torch.ones(4, 8, device="cuda")
host = np.ones((4, 8), np.float32)
kept = module(x, x)
def work():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        while True:
            try:
                module(x, x)
                module(host, host)  # nothing of torch: it would end the process itself
            except cudaexec.ClosedError:
                return
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
if {closes}:
    module.close()
"""
        )
