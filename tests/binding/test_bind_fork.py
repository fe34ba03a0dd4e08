"""A module in a forked child: it runs, it closes, it is dropped, and the child ends."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = """
import os, signal, sys
import numpy as np
import cudaexec
module = cudaexec.load({path!r})
x = np.ones({shape}, np.float32)
y = module(x)
for end in ("module.close()", "del module", "", "assert (module(x) == y).all()",
            "assert (cudaexec.load({path!r})(x) == y).all()"):
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)
        exec(end)
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0, end
assert (module(x) == y).all()
"""


@pytest.mark.torch
def test_a_module_in_a_forked_child(exported: Callable[[str], Path]) -> None:
    import cudaexec

    path = exported("mlp_small")
    with cudaexec.load(path) as module:
        shape = module.method("forward").inputs[0].min_shape
    script = SCRIPT.format(path=str(path), shape=tuple(shape))
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
