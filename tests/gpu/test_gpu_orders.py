"""A GPU program binds to our library and runs right whether torch is imported first, last or never."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import models

BEFORE = {
    "never": "",
    "first": "import torch; torch.ones(1).cuda()",
    "last": "",
    "global": """
import ctypes, importlib.util, os
lib = os.path.join(os.path.dirname(importlib.util.find_spec("torch").origin), "lib")
sys.setdlopenflags(ctypes.RTLD_GLOBAL | 2)
import torch
for name in ("libtorch_cpu.so", "libtorch_cuda.so"):
    ctypes.CDLL(os.path.join(lib, name), mode=ctypes.RTLD_GLOBAL)
sys.setdlopenflags(2)
""",
}

SCRIPT = """
import sys
import numpy as np
{before}
import cudaexec
{after}
module = cudaexec.load({path!r})
x = np.arange(16, dtype=np.float32).reshape(2, 8)
for _ in range(3):
    y = module(x)
np.testing.assert_allclose(y, np.maximum(x * 2 + 1, 3), rtol=1e-6)
module.close()
"""


@pytest.mark.parametrize("order", BEFORE)
def test_import_order(order: str, gpu_export: Callable[..., Path]) -> None:
    net = models.Lambda(lambda x: torch.clamp(x * 2 + 1, min=3))
    path = gpu_export("orders", models.Built(net, (torch.randn(2, 8),)))
    after = "import torch; torch.ones(1).cuda()" if order == "last" else ""
    script = SCRIPT.format(before=BEFORE[order], after=after, path=str(path))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_results_of_eager_torch_in_between(gpu_export: Callable[..., Path]) -> None:
    """torch's own kernels and the program's take turns on one stream."""
    import cudaexec

    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    path = gpu_export("between", models.Built(net, (torch.randn(2, 8),)), gemm="cublas")
    net.cuda()
    x = torch.randn(2, 8, device="cuda")
    with cudaexec.load(path) as module, torch.no_grad():
        ours = theirs = x
        for _ in range(20):
            ours = module(ours * 1.5) - 0.1
            theirs = net(theirs * 1.5) - 0.1
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
