"""What importing cudaexec loads, and how long it takes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import cudaexec


def python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
    ).stdout


def test_import_loads_neither_torch_nor_numpy() -> None:
    heavy = ("torch", "numpy", "rich", "typer", "flatbuffers", "ml_dtypes")
    loaded = python(f"import cudaexec, sys; print([m for m in {heavy} if m in sys.modules])")
    assert loaded == "[]\n"


def test_calls_without_numpy_do_not_load_it() -> None:
    code = (
        "import sys, array\n"
        "from echo_methods import echo, tensor\n"
        "method = echo([tensor('x', 'float32', (2,))])\n"
        "assert method(method(array.array('f', [1, 2]))).tolist() == [1.0, 2.0]\n"
        "print('numpy' in sys.modules)"
    )
    assert python(code) == "False\n"


def test_public_names() -> None:
    for name in cudaexec.__all__:
        if name not in ("export", "ExportReport"):
            assert getattr(cudaexec, name).__doc__ or name == "__version__"
    assert set(cudaexec.__all__) <= set(dir(cudaexec))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = cudaexec.nonsense


@pytest.mark.slow
def test_import_time() -> None:
    def cpu_seconds(code: str) -> float:
        child = subprocess.Popen([sys.executable, "-c", code])
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = status
        assert status == 0
        return usage.ru_utime + usage.ru_stime

    # CPU time, the best of many in turn: what other processes do hardly shows in it.
    pairs = [(cpu_seconds("import cudaexec"), cpu_seconds("pass")) for _ in range(20)]
    assert min(ours for ours, _ in pairs) - min(bare for _, bare in pairs) <= 0.060
