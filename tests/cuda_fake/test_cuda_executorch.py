"""ExecuTorch's own GPU programs: real files, around a container that the fake driver can run."""

from __future__ import annotations

import ctypes
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import cudaexec
from cuda_fake import programs
from cuda_fake.fake import FakeDriver, Launch
from cuda_fake.programs import Once
from cudaexec._core import _format, _testing

cuda = _testing.cuda
SAMPLES = Path(__file__).parents[1] / "data" / "et_samples" / "gpu"
EXPECTED = json.loads((SAMPLES / "expected.json").read_text())
# Small constants are part of the samples' code: parameter 2 of the README's rule.
FC2_BIAS = ((np.arange(4) * 11) % 31 - 15).astype(np.float32) / 64


def mlp(launched: Launch) -> None:
    def array(index: int, *shape: int) -> np.ndarray:
        address = launched.argument(index, ctypes.c_uint64).value
        numbers = (ctypes.c_float * int(np.prod(shape))).from_address(address)
        return np.frombuffer(numbers, np.float32).reshape(shape)

    hidden = np.maximum(array(1, 16, 8) @ array(0, 8) + array(2, 16), 0)
    array(4, 4)[:] = array(3, 4, 16) @ hidden + FC2_BIAS


def with_code(name: str, image: bytes, target: Path) -> Path:
    """The sample with other code in the place of its own."""
    source = SAMPLES / f"{name}.pte"
    data = bytearray(source.read_bytes())
    for offset, nbytes in _format.parse_pte(source)["named_data"].values():
        assert len(image) <= nbytes
        data[offset : offset + nbytes] = image.ljust(nbytes, b"\0")
    path = target / f"{name}.pte"
    path.write_bytes(data)
    shutil.copy(source.with_suffix(".ptd"), target)
    return path


@pytest.mark.parametrize("name", ["v15_mlp", "v12_mlp"])
def test_mlp(gpus: FakeDriver, once: Once, tmp_path: Path, name: str) -> None:
    """Weights by name with copies around the delegate, and a dense block without."""
    gpus.register_kernel("fake_mlp", [8, 8, 8, 8, 8], mlp)
    path = with_code(name, programs.code(once, "MLP"), tmp_path)
    case = EXPECTED[name]["forward"]
    x = np.array(case["inputs"][0], np.float32)
    for device in ("cuda:0", "cuda:1"):
        with cudaexec.load(path, device=device) as module:
            assert module.methods == ["forward"]
            for _ in range(2):
                np.testing.assert_allclose(module(x), case["output"], rtol=0, atol=1e-6)
            there = cuda.tensor_on(x, int(device[-1]))
            y = module(there)
            assert y.device == device
            np.testing.assert_allclose(y.to_host().numpy(), case["output"], rtol=0, atol=1e-6)
            with pytest.raises(cudaexec.ShapeError, match="arg0"):
                module(np.zeros((2, 8), np.float32))
            del there, y
    assert gpus.used(0) == gpus.used(1) == 0


def test_specs_of_two_methods(gpus: FakeDriver, once: Once, tmp_path: Path) -> None:
    """The delegate takes its inputs in another order than the method; both methods share weights."""
    path = with_code("v15_dec", programs.code(once, "MLP"), tmp_path)
    with pytest.raises(cudaexec.FormatError, match=r"'decode'.*takes 1 inputs"):
        cudaexec.load(path)


def test_damaged_code_is_refused(gpus: FakeDriver, tmp_path: Path) -> None:
    for name in ("v15_mlp", "v12_mlp"):
        path = with_code(name, b"\x7fELF-FAKE-SO", tmp_path)
        with pytest.raises(cudaexec.FormatError, match=name):
            cudaexec.load(path)
