"""Cases, section 12: numpy and DLPack.

Elsewhere: inputs and outputs of every layout, dtype and protocol over scripted programs are
tests/binding/test_bind_numpy.py, test_bind_dlpack.py, test_bind_torch.py and test_bind_buffer.py, on
the GPU tests/gpu/test_gpu_binding.py; A102 without ml_dtypes is
test_bind_numpy.py::test_bfloat16_without_ml_dtypes. Here exported programs do it.
"""

from __future__ import annotations

import array
import ctypes
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.utils.dlpack import to_dlpack

import cudaexec

pytestmark = pytest.mark.torch

X = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.fixture
def module(program: Callable[[str], Path]) -> Iterator[cudaexec.Module]:
    with cudaexec.load(program("dtypes")) as module:
        yield module


def read_only(tmp_path: Path) -> dict[str, np.ndarray[Any, Any]]:
    flag = X.copy()
    flag.flags.writeable = False
    (tmp_path / "x.bin").write_bytes(X.tobytes())
    return {
        "flag": flag,
        "broadcast": np.broadcast_to(X[:1], (4, 6)),
        "memmap": np.memmap(tmp_path / "x.bin", np.float32, "r", shape=(4, 6)),
        "bytes": np.frombuffer(X.tobytes(), np.float32).reshape(4, 6),
    }


def test_a98_read_only_arrays(module: cudaexec.Module, tmp_path: Path) -> None:
    for kind, value in read_only(tmp_path).items():
        before = np.array(value)
        np.testing.assert_array_equal(module.method("plain")(value), before, err_msg=kind)
        # A program that writes to its input writes to a copy.
        np.testing.assert_array_equal(module.method("write")(value), (before + 1) * 2, kind)
        np.testing.assert_array_equal(value, before, err_msg=kind)
        output = np.zeros((4, 6), np.float32)
        module.method("write").bind(value, output).run()
        np.testing.assert_array_equal(output, (before + 1) * 2, err_msg=kind)
        np.testing.assert_array_equal(value, before, err_msg=kind)
        with pytest.raises(cudaexec.InputError, match="read-only"):
            module.method("plain").bind(X, value)


def test_a99_strides_in(module: cudaexec.Module, on_gpu: bool) -> None:
    base = np.arange(96, dtype=np.float32).reshape(8, 12)
    square = {
        "turned": base[:6, :4].T,
        "every second": base[::2, ::2],
        "backwards": base[:4, 5::-1],
        "upside down": base[3::-1, :6],
        "row for all": np.broadcast_to(base[0, :6], (4, 6)),
        "column for all": np.broadcast_to(base[:4, :1], (4, 6)),
    }
    plain = module.method("plain")
    for kind, value in square.items():
        np.testing.assert_array_equal(plain(value), value, err_msg=kind)
        if min(value.strides) >= 0:
            tensor = torch.as_strided(
                torch.from_numpy(base), value.shape, [stride // 4 for stride in value.strides]
            )
            for given in (tensor, tensor.cuda()) if on_gpu else (tensor,):
                np.testing.assert_array_equal(plain(given).cpu(), tensor, err_msg=kind)


def test_a99_strides_out(module: cudaexec.Module) -> None:
    expected = ((X + 1).T, (X + 1)[:, ::2])
    turn = module.method("turn")
    for outputs in (turn(X), [out.numpy() for out in turn(torch.from_numpy(X))]):
        for got, right in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(got, right)
    for out, right in zip(turn(memoryview(X)), expected, strict=True):
        assert isinstance(out, cudaexec.Tensor)
        for view in (
            out.numpy(),
            np.asarray(out),
            np.from_dlpack(out),
            torch.from_dlpack(out).numpy(),
            torch.as_tensor(np.asarray(memoryview(out))).numpy(),
            np.array(out.tolist(), np.float32),
        ):
            np.testing.assert_array_equal(view, right)


def test_a101_bool(module: cudaexec.Module) -> None:
    bits = module.method("bits")
    truth = np.array([False, True, True])
    for value in (truth, torch.from_numpy(truth), memoryview(truth), Producer(truth)):
        inverted, number = bits(value)
        kinds = [str(out.dtype).removeprefix("torch.") for out in (inverted, number)]
        assert kinds == ["bool", "uint8"]
        np.testing.assert_array_equal(np.from_dlpack(inverted), ~truth)
        np.testing.assert_array_equal(np.from_dlpack(number), [0, 1, 1])
    raw = truth.view(np.uint8)
    for value in (raw, torch.from_numpy(raw), Producer(raw), to_dlpack(torch.from_numpy(raw))):
        with pytest.raises(cudaexec.DtypeError, match="expected bool.*found uint8"):
            bits(value)


class Producer:
    """Nothing but DLPack's two methods."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __dlpack_device__(self) -> Any:
        return self.value.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.value.__dlpack__(**options)


def test_a102_bfloat16(module: cudaexec.Module) -> None:
    half = module.method("half")
    values = np.array([0.5, -1.0, 3.0, 1e30, np.inf])
    value = values.astype(ml_dtypes.bfloat16)
    output = half(value)
    assert output.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(output.astype(np.float32), (value * value.dtype.type(2)))
    tensor = torch.tensor(values, dtype=torch.bfloat16)
    assert torch.equal(half(tensor), tensor * 2)
    assert torch.equal(torch.from_dlpack(half(Producer(tensor))), tensor * 2)
    for raw in (value.view(np.uint16), value.view(np.int16), value.view(np.float16)):
        with pytest.raises(cudaexec.DtypeError, match=rf"bfloat16\[5\].*{raw.dtype.name}"):
            half(raw)
    for raw in (value.view(np.uint8), bytearray(value.tobytes()), array.array("H", [0] * 5)):
        with pytest.raises(cudaexec.InputError):
            half(raw)
    assert torch.equal(half(tensor), tensor * 2)


def test_a104_capsules(module: cudaexec.Module) -> None:
    plain = module.method("plain")
    capsule = to_dlpack(torch.from_numpy(X))
    np.testing.assert_array_equal(np.from_dlpack(plain(capsule)), X)
    with pytest.raises(ValueError, match="used"):
        plain(capsule)
    [out] = [plain(memoryview(X))]
    capsule = out.__dlpack__()
    assert torch.equal(torch.from_dlpack(capsule), torch.from_numpy(X))
    with pytest.raises((RuntimeError, ValueError)):
        torch.from_dlpack(capsule)
    np.testing.assert_array_equal(np.from_dlpack(out), X)
    for version in (None, (0, 8), (1, 0), (1, 1), (9, 0)):
        capsule = out.__dlpack__(max_version=version)
        name = "dltensor" if version is None or version[0] == 0 else "dltensor_versioned"
        assert f'"{name}"' in repr(capsule)
    shared = torch.from_dlpack(out)
    own = np.from_dlpack(Copied(out))
    shared[:] = -1
    np.testing.assert_array_equal(np.from_dlpack(out), np.full((4, 6), -1))
    np.testing.assert_array_equal(own, X)
    with pytest.raises(BufferError):
        out.__dlpack__(dl_device=(2, 99))


class Copied(Producer):
    def __dlpack__(self, **options: Any) -> Any:
        return self.value.__dlpack__(**(options | {"copy": True}))


def test_a104_unused_capsules_are_freed(module: cudaexec.Module) -> None:
    """Capsules that nobody takes, and producers that fail: no memory stays."""
    plain = module.method("plain")

    def once() -> None:
        output = plain(memoryview(X))
        output.__dlpack__()
        output.__dlpack__(max_version=(1, 0), copy=True)
        with pytest.raises(cudaexec.DtypeError):
            module.method("bits")(output.__dlpack__(max_version=(1, 0)))

    for _ in range(50):
        once()
    before = resident()
    for _ in range(1000):
        once()
    assert resident() - before <= 1 << 20
    assert module.memory_stats()["working_current"] == 0


def resident() -> int:
    """Bytes of this process, after everything that is free has been given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.gpu
def test_a104_a_host_copy_of_gpu_memory(module: cudaexec.Module) -> None:
    out = module.method("plain")(Producer(torch.from_numpy(X).cuda()))
    assert out.device == "cuda:0"
    assert out.__dlpack_device__() == (2, 0)
    with pytest.raises(BufferError):
        out.__dlpack__(dl_device=(1, 0), copy=False)
    np.testing.assert_array_equal(np.from_dlpack(ToHost(out)), X)
    with pytest.raises(cudaexec.DeviceError, match="to_host"):
        out.numpy()


class ToHost(Producer):
    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **options: Any) -> Any:
        return self.value.__dlpack__(**(options | {"dl_device": (1, 0)}))
