"""Programs that ExecuTorch's exporter wrote: run where the code is ours to run, refused by name else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cudaexec
from cudaexec._core import _testing

SAMPLES = Path(__file__).parents[1] / "data" / "et_samples"
EXPECTED = json.loads((SAMPLES / "expected.json").read_text())
REFUSED = {
    "a_mlp_portable": (cudaexec.NotSupported, ["aten::addmm.out", "aten::relu.out"]),
    "a_mlp_portable_dyn": (cudaexec.NotSupported, ["aten::permute_copy.out"]),
    "a_mlp_xnnpack": (cudaexec.NotSupported, ["XnnpackBackend"]),
    "b_mlp_ext": (cudaexec.NotSupported, ["aten::addmm.out"]),
}


GPU_CODE = ["d_cuda_v12", "d_cuda_v14", "d_cuda_v15", "gpu/v12_mlp", "gpu/v15_mlp", "gpu/v15_dec"]


@pytest.mark.parametrize("device", [None, "cpu"])
def test_cpu_code_runs(device: str | None) -> None:
    case = EXPECTED["d_aoti_cpu"]["forward"]
    with cudaexec.load(SAMPLES / "d_aoti_cpu.pte", device=device) as module:
        assert module.methods == ["forward"]
        inputs = [np.array(value, np.float32) for value in case["inputs"]]
        for _ in range(3):
            np.testing.assert_allclose(module(*inputs), case["output"], rtol=0, atol=1e-7)
        with pytest.raises(cudaexec.ShapeError, match="arg0"):
            module(np.zeros((2, 8), np.float32))


def test_data_file_under_executorchs_name(tmp_path: Path) -> None:
    shutil.copy(SAMPLES / "d_aoti_cpu.pte", tmp_path / "m.pte")
    with pytest.raises(cudaexec.WeightsError, match="weights_blob"):
        cudaexec.load(tmp_path / "m.pte")
    shutil.copy(SAMPLES / "d_aoti_cpu.ptd", tmp_path / "aoti_cpu_blob.ptd")
    with cudaexec.load(tmp_path / "m.pte") as module:
        assert module(np.zeros((1, 8), np.float32)).shape == (1, 4)


def test_data_file_of_another_program() -> None:
    with pytest.raises(cudaexec.WeightsError, match="weights_blob"):
        cudaexec.load(SAMPLES / "d_aoti_cpu.pte", SAMPLES / "d_cuda_v14.ptd")


def test_constant_methods_answer_beside_refused_ones() -> None:
    with cudaexec.load(SAMPLES / "c_multi.pte") as module:
        assert module.method("get_max_batch")() == 1
        assert module.method("get_name")() == "demo"
        assert module.method("get_sizes")() == (8, 16, 4)
        assert module.method("get_scale")() == 2.0
        assert module.method("get_flag")() is True
        with pytest.raises(cudaexec.NotSupported, match=r"'scale'.*aten::add\.out, aten::mul\.out"):
            module.method("scale")
        with pytest.raises(cudaexec.NotSupported, match="'forward'"):
            module.method("forward")
        with pytest.raises(cudaexec.InputError, match="get_max_batch"):
            module.method("absent")
        refused = [m["name"] for m in module.stats()["methods"] if "refused" in m]
        assert refused == ["forward", "scale"]


@pytest.mark.parametrize("name", REFUSED)
def test_other_programs_are_refused_by_name(name: str) -> None:
    error, parts = REFUSED[name]
    with pytest.raises(error) as caught:
        cudaexec.load(SAMPLES / f"{name}.pte")
    for part in [name, "forward", *parts]:
        assert part in str(caught.value)


@pytest.mark.parametrize("name", GPU_CODE)
def test_gpu_code_does_not_run_on_the_cpu(name: str) -> None:
    with pytest.raises(cudaexec.TargetError, match=r"'(forward|prefill|decode)'.*is not CPU code"):
        cudaexec.load(SAMPLES / f"{name}.pte", device="cpu")


@pytest.mark.skipif(_testing.cuda.problem() is None, reason="there is a GPU")
@pytest.mark.parametrize("device", [None, "cuda:0"])
@pytest.mark.parametrize("name", GPU_CODE)
def test_gpu_code_without_a_gpu(name: str, device: str | None) -> None:
    with pytest.raises(cudaexec.DeviceError, match="NVIDIA driver") as caught:
        cudaexec.load(SAMPLES / f"{name}.pte", device=device)
    assert Path(name).name in str(caught.value)


@pytest.mark.parametrize(
    ("device", "error", "match"),
    [
        ("cuda", cudaexec.TargetError, "holds cpu"),
        ("cuda:1", cudaexec.TargetError, "holds cpu"),
        ("tpu", cudaexec.DeviceError, "'tpu'"),
    ],
)
def test_other_devices(device: str, error: type, match: str) -> None:
    with pytest.raises(error, match=match):
        cudaexec.load(SAMPLES / "d_aoti_cpu.pte", device=device)


@pytest.mark.torch
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_code_without_a_manifest_runs_on_one_thread(tmp_path: Path) -> None:
    """Its reductions have one slot per thread of the exporting machine, so more would overflow."""
    import torch

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * 2 + 1).sum()

    path = tmp_path / "m.pte"
    cudaexec.export(Net(), (torch.zeros(1 << 20),), path=path, target="cpu")
    bare = path.read_bytes()
    for name in (b"cudaexec_manifest", b"cudaexec_digest"):
        assert bare.count(name) == 1
        bare = bare.replace(name, b"x" + name[1:])
    (tmp_path / "bare.pte").write_bytes(bare)
    script = """
import sys, os, numpy as np, cudaexec
count = lambda: len(os.listdir("/proc/self/task"))
before = count()
module = cudaexec.load(sys.argv[1])
assert module(np.ones(1 << 20, np.float32)) == 3 << 20
print(count() - before)
"""
    started = {
        name: int(subprocess.check_output([sys.executable, "-c", script, tmp_path / name]))
        for name in ("m.pte", "bare.pte")
    }
    assert started["m.pte"] >= 1
    assert started["bare.pte"] == 0
