"""Finding, opening and refusing a driver."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cudaexec
from cuda_fake import fake as fakes
from cuda_fake.fake import FakeDriver
from cudaexec._core import _testing

cuda = _testing.cuda

CHILD = """
import sys
{body}
"""


def run_child(body: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", body],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_import_opens_no_driver() -> None:
    body = (
        "from cudaexec._core import _testing\n"
        "assert not _testing.cuda.initialised()\n"
        "print('libcuda.so' in open('/proc/self/maps').read())"
    )
    assert run_child(body).strip() == "False"


@pytest.mark.parametrize("library", ["libcudaexec_shims.so.1", "../_core"])
def test_our_libraries_do_not_need_a_driver(library: str) -> None:
    path = Path(fakes.LIBRARIES / library)
    if library == "../_core":
        path = (
            Path(_testing.__spec__.origin) if _testing.__spec__ else Path(cudaexec._core.__file__)
        )
    text = subprocess.run(
        ["readelf", "-d", path], capture_output=True, text=True, check=True
    ).stdout
    needed = [line for line in text.splitlines() if "(NEEDED)" in line]
    assert needed
    assert not [line for line in needed if "libcuda" in line and "libcudaexec" not in line]


def test_a_missing_driver_is_a_device_error_with_advice() -> None:
    body = (
        "import cudaexec\n"
        "from cudaexec._core import _testing\n"
        "_testing.cuda.use_driver('/nowhere/libcuda.so.1')\n"
        "try:\n"
        "    _testing.cuda.device_count()\n"
        "except cudaexec.DeviceError as error:\n"
        "    print(error)\n"
    )
    message = run_child(body)
    assert "no NVIDIA driver: /nowhere/libcuda.so.1 cannot be opened" in message
    assert "install the NVIDIA driver" in message
    assert 'device="cpu"' in message


def test_no_gpu_visible(fake: FakeDriver) -> None:
    fake.set_devices(0)
    with pytest.raises(cudaexec.DeviceError, match="no GPU is visible.*CUDA_VISIBLE_DEVICES"):
        cuda.device_count()
    assert "no GPU is visible" in cuda.problem()
    fake.set_devices(1)
    assert cuda.problem() is None  # the next call works
    assert cuda.device_count() == 1


@pytest.mark.parametrize("version", [11040, 11080])
def test_an_old_driver_is_refused(fake: FakeDriver, version: int) -> None:
    fake.set_driver(version)
    with pytest.raises(
        cudaexec.DeviceError, match=rf"supports CUDA 11\.{version // 10 % 100}.*12\.0"
    ):
        cuda.device_count()


def test_the_oldest_driver_works(fake: FakeDriver) -> None:
    fake.set_driver(12000)
    assert cuda.device_count() == 1


def test_initialisation_failure_names_the_reason(fake: FakeDriver) -> None:
    fake.set_driver(init_result=999)
    with pytest.raises(cudaexec.DeviceError, match=r"CUDA_ERROR_UNKNOWN \(999\)"):
        cuda.device_count()


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (fakes.OUT_OF_MEMORY, cudaexec.OutOfMemory),
        (fakes.CAPTURE_UNSUPPORTED, cudaexec.CaptureError),
        (906, cudaexec.CaptureError),
        (fakes.NO_BINARY_FOR_GPU, cudaexec.TargetError),
        (fakes.NOT_SUPPORTED, cudaexec.NotSupported),
        (fakes.ILLEGAL_ADDRESS, cudaexec.DeviceError),
        (fakes.NO_DEVICE, cudaexec.DeviceError),
        (fakes.INVALID_VALUE, cudaexec.Error),
        (12345, cudaexec.Error),
    ],
)
def test_failures_are_typed_and_say_where(
    fake: FakeDriver, result: int, kind: type[Exception]
) -> None:
    fake.fail("cuStreamCreate", 1, result)
    with pytest.raises(
        kind, match=rf"\({result}\).*cuStreamCreate\(.*\) at stream\.cpp:\d+"
    ) as info:
        cuda.Stream(0)
    if kind is cudaexec.Error:
        assert type(info.value) is cudaexec.Error
    cuda.Stream(0)


def test_a_lost_context_says_so(fake: FakeDriver) -> None:
    fake.fail("cuStreamSynchronize", 1, fakes.ILLEGAL_ADDRESS)
    with pytest.raises(cudaexec.DeviceError, match="start a new one"):
        cuda.synchronize(0, 0)


def test_a_forked_child_gets_an_error_and_ends_quietly(fake: FakeDriver) -> None:
    stream = cuda.Stream(0)
    memory = cuda.Allocator("pool").allocate(100)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # nothing of pytest may run here
        try:
            cuda.device_count()
            text = "no error"
        except cudaexec.DeviceError as error:
            text = str(error)
        del stream
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    text = b"".join(iter(lambda: os.read(reader, 4096), b"")).decode()
    os.close(reader)
    assert os.waitpid(child, 0)[1] == 0
    assert "forked" in text
    assert "spawn" in text
    cuda.Allocator("pool").deallocate(memory, 100)
    stream.synchronize()  # the parent goes on


def test_the_interposed_names_are_exported() -> None:
    shims = ctypes.CDLL(str(fakes.LIBRARIES / "libcudaexec_shims.so.1"))
    for name in [
        "cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction", "cuFuncSetAttribute",
        "cuLaunchKernel", "cuGetErrorString", "cudaEventCreate", "cudaEventCreateWithFlags",
        "cudaEventDestroy", "cudaEventQuery", "cudaEventRecord", "cudaEventSynchronize", "cudaFree",
        "cudaGetDevice", "cudaGetErrorString", "cudaGetLastError", "cudaMalloc", "cudaMemcpy",
        "cudaMemcpyAsync", "cudaPointerGetAttributes", "cudaSetDevice",
        "cudaStreamCreateWithFlags", "cudaStreamDestroy", "cudaStreamSynchronize",
    ]:  # fmt: skip
        assert hasattr(shims, name), name
