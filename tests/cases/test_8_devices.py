"""Cases, section 8: devices.

Elsewhere: A66 on two GPUs is tests/gpu/test_gpu_two.py (files exported on either, run on either, the
current device unchanged); A69 is tests/gpu/test_gpu_processes.py (programs on the CPU touch no GPU)
and, over a fake driver, tests/cuda_fake/test_cuda_processes.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import case_programs
import numpy as np
import pytest
import torch

import cudaexec

pytestmark = pytest.mark.torch

X, Y = torch.arange(32.0).reshape(4, 8), torch.full((4, 8), 3.0)


def check(outputs: Any, x: torch.Tensor = X, y: torch.Tensor = Y) -> None:
    for got, expected in zip(outputs, (x * 2 + y, (x - y).t()), strict=True):
        torch.testing.assert_close(torch.as_tensor(got).cpu(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("device", ["cuda:99", "cuda:-1", "cuda:", "gpu", "cuda:1e1", ""])
def test_a66_a_device_that_there_is_not(program: Callable[[str], Path], device: str) -> None:
    # A program without code for GPUs says so, whichever of them it is asked to run on.
    with pytest.raises((cudaexec.DeviceError, cudaexec.TargetError), match=f"'?{device}'?"):
        cudaexec.load(program("two"), device=device)
    with cudaexec.load(program("two")) as module:
        check(module(X, Y))


def test_a67_inputs_from_any_place(program: Callable[[str], Path], on_gpu: bool) -> None:
    """Host memory of every kind is copied; outputs are on the GPU if any input is."""
    places: dict[str, Callable[[torch.Tensor], Any]] = {
        "cpu": lambda t: t,
        "numpy": lambda t: t.numpy(),
        "buffer": lambda t: memoryview(t.numpy()),
    }
    if on_gpu:
        places |= {"pinned": lambda t: t.pin_memory(), "cuda": lambda t: t.cuda()}
    with cudaexec.load(program("two")) as module:
        for first, second in itertools.product(places, repeat=2):
            outputs = module(places[first](X), places[second](Y))
            if "buffer" in (first, second):
                outputs = [torch.from_dlpack(out) for out in outputs]
            check(outputs)
            if "cuda" in (first, second):
                assert all(torch.as_tensor(out).is_cuda for out in outputs)


class Liar:
    """Says that unpinned host memory is a GPU's."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.array.__array_interface__ | {"version": 3}


class OtherDevice:
    """Memory of a GPU that there is not."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 77)

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("was asked for memory of a device that the program cannot use")


def test_a67_memory_that_is_not_where_it_is_said(program: Callable[[str], Path]) -> None:
    with cudaexec.load(program("two")) as module:
        for wrong in (Liar(Y.numpy()), OtherDevice()):
            with pytest.raises(cudaexec.DeviceError, match="input 'y'"):
                module(X, wrong)
            check(module(X, Y))


@pytest.mark.gpu
def test_a67_gpu_memory_for_a_program_on_the_cpu(tmp_path: Path) -> None:
    path = tmp_path / "cpu.pte"
    cudaexec.export(path=path, target="cpu", **case_programs.build("two"))
    with cudaexec.load(path) as module:
        with pytest.raises(cudaexec.DeviceError, match="input 'y'"):
            module(X, Y.cuda())
        check(module(X, Y))
