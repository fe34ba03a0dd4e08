"""Programs built by either compiler of the machine load, also beside another libstdc++.

`$DEFAULT_CXX` names the machine's own choice: on the reference machine a wrapped GCC that links
libstdc++ statically and exports it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import cudaexec
from compare import assert_same

COMPILERS = list(
    dict.fromkeys(name for name in ("/usr/bin/g++", os.environ.get("DEFAULT_CXX")) if name)
)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("kind", ["pointwise", "product"])
@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_built_by(compiler: str, kind: str, target: str, tmp_path: Path) -> None:
    assert shutil.which(compiler), f"{compiler} is not there"
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh()) if kind == "product" else nn.Softsign()
    x = torch.randn(4, 8)
    path = tmp_path / "m.pte"
    report = cudaexec.export(
        model,
        (x,),
        path=path,
        target=target,
        options=cudaexec.ExportOptions(
            compiler=compiler, gemm="cublas", progress=False, cache_dir=tmp_path / "cache"
        ),
    )
    print(report)
    with torch.no_grad():
        expected = model(x)
    with cudaexec.load(path) as module:
        assert_same(module(x), expected, 1e-5, 1e-5)
    script = (
        f"import cudaexec, numpy as np; m = cudaexec.load({str(path)!r}); "
        f"y = m(np.array({x.tolist()}, dtype=np.float32)); "
        f"np.testing.assert_allclose(y, np.array({expected.tolist()}), rtol=1e-4, atol=1e-5); "
        f"m.close()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
