"""The committed stub is the one that the extension gives."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "make_stub.py"


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="ruff lays the stub out")
def test_the_stub_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(TOOL), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
