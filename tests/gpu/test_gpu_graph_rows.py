"""Every model of the table with CUDA graphs: warm-up, capture and replays give eager's results."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import cudaexec
from compare import assert_same
from gpu_rows import REFUSED, Row, rows, to_device

ROWS = [row for row in rows() if row.case.name not in REFUSED and row.dtype is None]
ROUNDS = 5

pytestmark = pytest.mark.filterwarnings("ignore:RNN module weights")


@pytest.mark.parametrize("device", ["cuda", "cpu"], ids=["device_inputs", "host_inputs"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_replays(row: Row, device: str, gpu_export: Callable[..., Path]) -> None:
    path = gpu_export(row.name, row.build(), gemm="cublas")
    built = row.build()
    eager = copy.deepcopy(built.model).cuda()
    examples = [(built.args, built.kwargs), *((args, {}) for args in built.more)]
    options = cudaexec.GraphOptions(warmup=1)
    kept: list[Any] = []
    with cudaexec.load(path, cuda_graph=options) as module:
        for _ in range(ROUNDS):
            for args, kwargs in examples:
                with torch.no_grad():
                    expected = eager(*to_device(args, "cuda"), **to_device(kwargs, "cuda"))
                got = module(*to_device(args, device), **to_device(kwargs, device))
                expected = copy.deepcopy(to_device(expected, device))
                assert_same(got, expected, row.rtol, row.atol)
                kept.append((got, expected))
        for got, expected in kept:
            assert_same(got, expected, row.rtol, row.atol, "earlier output")
        print(row.name, module.stats())
