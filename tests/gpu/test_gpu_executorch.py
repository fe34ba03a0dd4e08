"""CUDA programs that ExecuTorch's exporter wrote on an H200 run with the outputs recorded there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import cudaexec

SAMPLES = Path(__file__).parents[1] / "data" / "et_samples" / "gpu"
EXPECTED = json.loads((SAMPLES / "expected.json").read_text())
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int64": torch.int64}


def inputs_of(method: cudaexec.Method, case: dict[str, list], device: str) -> list[torch.Tensor]:
    return [
        torch.tensor(value, dtype=DTYPES[str(spec.dtype)], device=device)
        for spec, value in zip(method.inputs, case["inputs"], strict=True)
    ]


@pytest.fixture(autouse=True)
def _sm_90() -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the samples hold code for sm_90")


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("name", ["v15_mlp", "v12_mlp"])
def test_mlp(name: str, device: str) -> None:
    case = EXPECTED[name]["forward"]
    with cudaexec.load(SAMPLES / f"{name}.pte") as module:
        forward = module.method("forward")
        for _ in range(3):
            y = forward(*inputs_of(forward, case, device))
            assert y.device == torch.device(device)
            torch.testing.assert_close(y.cpu(), torch.tensor(case["output"]), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_prefill_and_decode_share_their_cache(device: str) -> None:
    for _ in range(2):  # a Module starts from the cache of the file
        with cudaexec.load(SAMPLES / "v15_dec.pte") as module:
            for name in ("prefill", "decode"):
                case = EXPECTED["v15_dec"][name]
                method = module.method(name)
                y = method(*inputs_of(method, case, device))
                expected = torch.tensor(case["output"], dtype=torch.float32)
                torch.testing.assert_close(y.float().cpu(), expected, rtol=2e-2, atol=2e-2)


def test_decode_reads_what_prefill_wrote() -> None:
    case = EXPECTED["v15_dec"]["decode"]
    with cudaexec.load(SAMPLES / "v15_dec.pte") as module:
        decode = module.method("decode")
        alone = decode(*inputs_of(decode, case, "cpu")).float()
    assert not torch.allclose(alone, torch.tensor(case["output"]), rtol=2e-2, atol=2e-2)


@pytest.mark.two_gpus
def test_on_the_second_gpu() -> None:
    case = EXPECTED["v15_mlp"]["forward"]
    x = np.array(case["inputs"][0], np.float32)
    with cudaexec.load(SAMPLES / "v15_mlp.pte", device="cuda:1") as module:
        np.testing.assert_allclose(module(x), case["output"], rtol=1e-3, atol=1e-3)
    assert torch.cuda.current_device() == 0
