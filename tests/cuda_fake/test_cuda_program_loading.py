"""How GPU programs are loaded: binding of symbols, upload of weights, captures."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cudaexec
from cuda_fake import fake as fakes
from cuda_fake import programs
from cuda_fake.fake import FakeDriver
from cuda_fake.programs import Once
from cudaexec._core import _testing

cuda = _testing.cuda
X = np.arange(4, dtype=np.float32)
DECOY = """
extern "C" {
int cudaMalloc(void**, unsigned long) { return 999; }
int cudaSetDevice(int) { return 999; }
int cudaGetDevice(int*) { return 999; }
int cuModuleLoadData(void**, const void*) { return 999; }
int cuLaunchKernel() { return 999; }
int aoti_torch_get_data_ptr(void*, void**) { return 1; }
}
"""
CHILD = """
import ctypes, sys
import cudaexec
decoy, code = sys.argv[1:]
ctypes.CDLL(decoy, mode=ctypes.RTLD_GLOBAL)
library = cudaexec._core._testing.open_library(open(code, "rb").read())
owners = dict(library.bound_symbol_owners())
ours = {n: o for n, o in owners.items() if n.startswith(("cuda", "cu", "aoti_torch_"))}
assert len(ours) > 20, ours
wrong = {n: o for n, o in ours.items() if "libcudaexec_shims" not in o}
assert not wrong, wrong
print("ours")
"""


def test_names_bind_to_ours(once: Once, tmp_path: Path) -> None:
    """Also where another library has given the same names to the whole process."""
    source = tmp_path / "decoy.cpp"
    source.write_text(DECOY)
    decoy = tmp_path / "decoy.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-o", str(decoy), str(source)], check=True)
    code = tmp_path / "code.so"
    code.write_bytes(programs.code(once, "SCALE", unloads=True))
    command = [sys.executable, "-c", CHILD, str(decoy), str(code)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr) == ("ours\n", "")


def test_code_with_a_missing_runtime_name_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "code.cpp"
    source.write_text('extern "C" int cudaGraphLaunch(); int f() { return cudaGraphLaunch(); }')
    code = tmp_path / "code.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-o", str(code), str(source)], check=True)
    with pytest.raises(cudaexec.TargetError, match="cudaGraphLaunch"):
        _testing.open_library(code.read_bytes())


# ---- upload of weights ---------------------------------------------------------------------------


class Transfer:
    """Host arrays of the given sizes and memory for them on the GPU."""

    def __init__(self, *sizes: int) -> None:
        rng = np.random.default_rng(1)
        self.sources = [rng.integers(0, 256, n, np.uint8) for n in sizes]
        self.pool = cuda.Allocator("pool", 0)
        self.stream = cuda.thread_stream(0)
        self.targets = [self.pool.allocate(n, self.stream) if n else 0 for n in sizes]

    def run(self) -> None:
        cuda.upload(
            0,
            [(t, s.ctypes.data, len(s)) for t, s in zip(self.targets, self.sources, strict=True)],
        )

    def check(self) -> None:
        for target, source in zip(self.targets, self.sources, strict=True):
            found = ctypes.string_at(target, len(source)) if len(source) else b""
            assert found == source.tobytes()

    def close(self) -> None:
        for target, source in zip(self.targets, self.sources, strict=True):
            if target:
                self.pool.deallocate(target, len(source), self.stream)


MIB = 1 << 20


@pytest.mark.parametrize(
    "sizes", [(), (0,), (3, 0, 1000), (MIB, MIB - 1), (40 * MIB + 5, 1, 9 * MIB, 4 * MIB)]
)
@pytest.mark.parametrize("threads", [1, 4])
def test_upload(fake: FakeDriver, sizes: tuple[int, ...], threads: int) -> None:
    _testing.override_allowed_threads(threads)
    try:
        transfer = Transfer(*sizes)
        transfer.run()
        transfer.check()
        transfer.close()
        pinned = sum(
            int(c.split("(")[1].split(",")[0].rstrip(")")) for c in fake.calls("cuMemHostAlloc")
        )
        assert pinned <= 64 * MIB
        assert (pinned > 0) == (sum(sizes) >= 2 * MIB)
    finally:
        _testing.override_allowed_threads(0)


def test_upload_fails_at_every_call(fake: FakeDriver) -> None:
    transfer = Transfer(9 * MIB, 70)
    transfer.run()
    before = fake.live()
    for name in ("cuMemHostAlloc", "cuEventCreate", "cuMemcpyHtoDAsync", "cuEventRecord",
                 "cuEventSynchronize", "cuStreamSynchronize"):  # fmt: skip
        for k in range(1, 5):
            with fake.failing(name, k, fakes.ILLEGAL_ADDRESS) as hits:
                try:
                    transfer.run()
                except cudaexec.DeviceError:
                    failed = True
                else:
                    failed = False
            assert failed == (hits[0] > 0), (name, k)
            assert fake.live() == before
    transfer.run()
    transfer.check()
    transfer.close()


# ---- captures ------------------------------------------------------------------------------------


def test_a_call_on_a_captured_stream(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    """Refused before anything is done, so the capture goes on and the next call works."""
    stream = cuda.Stream(0)
    with cudaexec.load(write("COUNT")) as module:
        count = module.method("count")
        count(X, stream=stream.handle)

        def capture() -> None:
            gpus.call("cuStreamBeginCapture", stream.handle, ctypes.c_uint(1))
            with pytest.raises(cudaexec.CaptureError, match="captured"):
                count(X, stream=stream.handle)
            graph = ctypes.c_uint64()
            gpus.call("cuStreamEndCapture", stream.handle, ctypes.byref(graph))
            gpus.call("cuGraphDestroy", graph.value)

        cuda.guarded(0, capture)
        np.testing.assert_array_equal(count(X, stream=stream.handle), X * 4)
