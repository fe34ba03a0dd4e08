"""What tests of calls as CUDA graphs share."""

from __future__ import annotations

from typing import Any

import numpy as np

import cudaexec
from cudaexec._core import _testing

cuda = _testing.cuda
X = np.arange(4, dtype=np.float32)
LEGACY = 1
# What calls ask of the driver, but for contexts.
WORK = ("cuLaunchKernel", "cuMemcpyHtoDAsync", "cuMemcpyDtoDAsync", "cuMemcpyDtoHAsync",
        "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuStreamSynchronize", "cuEventSynchronize",
        "cuStreamWaitEvent", "cuPointerGetAttributes", "cuGraphLaunch",
        "cuGraphExecKernelNodeSetParams", "cuStreamBeginCapture")  # fmt: skip


def on_gpu(array: np.ndarray, index: int = 0, stream: int = LEGACY) -> cudaexec.Tensor:
    return cuda.tensor_on(array, index, stream)


def host(tensor: Any) -> np.ndarray:
    if isinstance(tensor, np.ndarray):
        return tensor
    return tensor.numpy() if tensor.device == "cpu" else tensor.to_host().numpy()


def pointer(tensor: cudaexec.Tensor) -> int:
    """Of a tensor on the GPU; 0 for one on the host."""
    if tensor.device == "cpu":
        return 0
    return int(tensor.__cuda_array_interface__["data"][0])


def graphs(module: cudaexec.Module, method: str) -> dict[str, Any]:
    [entry] = [m for m in module.stats()["methods"] if m["name"] == method]
    return entry["graphs"]


def only_key(module: cudaexec.Module, method: str | None = None) -> dict[str, Any]:
    """Of a method (the first) that was called with one signature."""
    [key] = graphs(module, method or module.stats()["methods"][0]["name"])["keys"]
    return key


def phase(module: cudaexec.Module, method: str | None = None) -> str:
    return only_key(module, method)["phase"]
