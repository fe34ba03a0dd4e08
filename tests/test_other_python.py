"""A file exported by this Python runs under another one that has no torch (`make test` provides it)."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cudaexec

OTHER = os.environ.get("CUDAEXEC_OTHER_PYTHON", "")
RUNNER = Path(__file__).parent / "helpers" / "run_without_torch.py"

pytestmark = pytest.mark.skipif(
    not OTHER or not Path(OTHER).exists(), reason="CUDAEXEC_OTHER_PYTHON names no interpreter"
)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["mlp_small", "conv_net"])
def test_another_python_runs_our_files(
    name: str, exported: Callable[[str], Path], tmp_path: Path
) -> None:
    path = exported(name)
    with cudaexec.load(path) as module:
        shape = module.method("forward").inputs[0].shape
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        expected = module(x)
    spec = tmp_path / "calls.pickle"
    spec.write_bytes(pickle.dumps((str(path), [([x], {}, [expected])], 1e-6, 1e-6)))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [OTHER, "-X", "faulthandler", str(RUNNER), str(spec)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    version = subprocess.run(
        [OTHER, "-c", "import sys; print(sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert version.strip() != str(tuple(__import__("sys").version_info[:2]))
