"""Small libraries, compiled by the tests, and what is read from the process about open ones."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cudaexec
from cudaexec import _core

HERE = Path(__file__).parent
LIB = Path(cudaexec.__file__).parent / "lib"
SHIMS = "libcudaexec_shims.so.1"
testing = _core._testing

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")


def build(source: Path | str, target: Path, *flags: str, shims: bool = True) -> bytes:
    """Compile C++ text or a file to a shared library at `target`; return its bytes."""
    if isinstance(source, str):
        text = target.with_suffix(".cpp")
        text.write_text(source)
        source = text
    libraries = [str(LIB / SHIMS)] if shims else []
    command = ["g++", "-std=c++17", "-O1", "-fPIC", "-shared", "-Wl,--as-needed"]
    subprocess.run(
        [*command, *flags, "-o", str(target), str(source), *libraries], check=True, text=True
    )
    return target.read_bytes()


def sample_library() -> tuple[bytes, bytes]:
    """Code and dense weights of ExecuTorch's CPU sample: they lie where its README says."""
    samples = HERE.parent / "data" / "et_samples"
    code = (samples / "d_aoti_cpu.pte").read_bytes()[1408 : 1408 + 172288]
    weights = (samples / "d_aoti_cpu.ptd").read_bytes()[256 : 256 + 832]
    return code, weights


def floats(*values: float) -> tuple[str, list[int], bytes]:
    return "float32", [len(values)], struct.pack(f"<{len(values)}f", *values)


def unpack(output: tuple[str, list[int], list[int], bytes]) -> list[float]:
    dtype, _, _, data = output
    assert dtype == "float32"
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def function(library: Any, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A C function of an open library; calling it releases the GIL."""
    address = library.symbol(name)
    assert address != 0, name
    return ctypes.CFUNCTYPE(result, *arguments)(address)


def mappings(word: str = "cudaexec:") -> list[str]:
    """Lines of the memory map that contain `word`."""
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if word in line]


def process_state() -> dict[str, int]:
    """Mappings, file descriptors, threads, and resident bytes after giving back free memory."""
    ctypes.CDLL(None).malloc_trim(0)
    status = Path("/proc/self/status").read_text()
    return {
        "maps": len(Path("/proc/self/maps").read_text().splitlines()),
        "fds": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        "threads": int(status.split("Threads:")[1].split()[0]),
        "rss": int(status.split("VmRSS:")[1].split()[0]) * 1024,
    }
