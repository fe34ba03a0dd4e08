"""Two GPUs: a file runs on any of them, whichever it was exported on, also on both at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import cudaexec
import models
from compare import assert_same

pytestmark = pytest.mark.two_gpus


def case(name: str) -> models.Built:
    return next(case for case in models.CASES if case.name == name).build()


@pytest.mark.parametrize("exported_on", [0, 1])
@pytest.mark.parametrize("name", ["mlp_small", "index_copy_cache", "transformer_block"])
def test_any_index(exported_on: int, name: str, gpu_export: Callable[..., Path]) -> None:
    path = gpu_export(
        f"two-{name}-{exported_on}", case(name), target=f"cuda:{exported_on}", gemm="cublas"
    )
    built = case(name)
    with torch.no_grad():
        expected = built.model(*built.args)
    for index in (0, 1):
        current = 1 - index
        torch.cuda.set_device(current)
        with cudaexec.load(path, device=f"cuda:{index}") as module:
            got = module(*(arg.to(f"cuda:{index}") for arg in built.args))
            assert got.device.index == index
            assert_same(got.cpu(), expected, 1e-4, 1e-4)
            assert torch.cuda.current_device() == current
        assert torch.cuda.current_device() == current
    torch.cuda.set_device(0)


def test_both_at_once(gpu_export: Callable[..., Path]) -> None:
    path = gpu_export("two-at-once", case("mlp_small"), gemm="cublas")
    built = case("mlp_small")
    with torch.no_grad():
        expected = built.model(*built.args)
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            with cudaexec.load(path, device=f"cuda:{index}") as module:
                x = built.args[0].to(f"cuda:{index}")
                for _ in range(200):
                    assert_same(module(x).cpu(), expected, 1e-4, 1e-4)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_an_input_on_the_other_gpu_is_refused_or_copied(gpu_export: Callable[..., Path]) -> None:
    """Never a wrong answer: either a DeviceError, or the right one."""
    path = gpu_export("two-at-once", case("mlp_small"), gemm="cublas")
    built = case("mlp_small")
    with torch.no_grad():
        expected = built.model(*built.args)
    with cudaexec.load(path, device="cuda:0") as module:
        try:
            got = module(built.args[0].to("cuda:1"))
        except cudaexec.DeviceError as error:
            assert "cuda:1" in str(error)
        else:
            assert_same(got.cpu(), expected, 1e-4, 1e-4)
