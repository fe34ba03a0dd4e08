"""Every model of the table on the GPU against eager torch there, with inputs on either side."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import cudaexec
import models
from compare import assert_same
from cudaexec.cli.describe import describe
from gpu_rows import REFUSED, Row, eager_calls, rows, tensors_of, to_device

ROWS = [row for row in rows() if row.case.name not in REFUSED]
RUNNER = Path(__file__).parents[1] / "helpers" / "run_without_torch.py"

# Eager's own remark on weights that are not one block, as after a conversion to bfloat16.
pytestmark = pytest.mark.filterwarnings("ignore:RNN module weights")


def by_name(row: Row) -> str:
    return row.name


@pytest.mark.parametrize("row", ROWS, ids=by_name)
def test_device_inputs(row: Row, gpu_export: Callable[..., Path]) -> None:
    path = gpu_export(row.name, row.build(), gemm="cublas")
    with cudaexec.load(path) as module:
        kept = []
        for args, kwargs, expected in eager_calls(row):
            before = copy.deepcopy((args, kwargs))
            got = module(*args, **kwargs)
            assert_on(got, expected)
            assert_same(got, expected, row.rtol, row.atol)
            assert_same([args, kwargs], list(before), 0, 0, "caller's inputs")
            kept.append((got, expected))
        for got, expected in kept:
            assert_same(got, expected, row.rtol, row.atol, "earlier output")


def assert_on(got: Any, expected: Any) -> None:
    for a, b in zip(tensors_of(got), tensors_of(expected), strict=True):
        assert a.device == b.device


@pytest.mark.parametrize("row", ROWS, ids=by_name)
def test_host_inputs(row: Row, gpu_export: Callable[..., Path]) -> None:
    path = gpu_export(row.name, row.build(), gemm="cublas")
    with cudaexec.load(path) as module:
        for args, kwargs, expected in eager_calls(row):
            got = module(*to_device(args, "cpu"), **to_device(kwargs, "cpu"))
            on_host = to_device(expected, "cpu")
            assert_on(got, on_host)
            assert_same(got, on_host, row.rtol, row.atol)


@pytest.mark.parametrize("row", [row for row in ROWS if row.dtype is None], ids=by_name)
def test_without_torch(row: Row, gpu_export: Callable[..., Path], tmp_path: Path) -> None:
    """numpy in, numpy out, in a child process where importing torch fails; stderr stays empty."""

    def to_numpy(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            value = value.cpu()
            if value.dtype is torch.bfloat16:
                return ("bfloat16", value.contiguous().view(torch.int16).numpy())
            return value.numpy()
        return value

    def leaves(value: Any) -> list[Any]:
        if isinstance(value, dict):
            return [leaf for item in value.values() for leaf in leaves(item)]
        if isinstance(value, (list, tuple)):
            return [leaf for item in value for leaf in leaves(item)]
        return [to_numpy(value)]

    path = gpu_export(row.name, row.build(), gemm="cublas")
    calls = [
        ([to_numpy(a) for a in args], {k: to_numpy(v) for k, v in kwargs.items()}, leaves(expected))
        for args, kwargs, expected in eager_calls(row)
    ]
    spec = tmp_path / "calls.pickle"
    spec.write_bytes(pickle.dumps((str(path), calls, row.rtol, row.atol)))
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(RUNNER), str(spec)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_kernel_is_refused_by_name(name: str, tmp_path: Path) -> None:
    built = next(case for case in models.CASES if case.name == name).build()
    with pytest.raises(cudaexec.ExportError, match=REFUSED[name]):
        cudaexec.export(
            built.model, built.args, built.kwargs, path=tmp_path / "m.pte", target="cuda"
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["mlp_small", "mlp_dynamic_batch", "transformer_block"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_products_by_own_kernels(
    name: str, dtype: torch.dtype, gpu_export: Callable[..., Path]
) -> None:
    """Tuned Triton kernels: nothing of cuBLAS is called."""
    wanted = None if dtype == torch.float32 else dtype
    row = next(row for row in ROWS if row.case.name == name and row.dtype == wanted)
    path = gpu_export(f"{row.name}-triton", row.build(), gemm="triton")
    callouts = describe(path, None)["methods"][0]["variants"][0]["callouts"]
    assert not [symbol for symbol in callouts if "mm" in symbol]
    with cudaexec.load(path) as module:
        for args, kwargs, expected in eager_calls(row):
            assert_same(module(*args, **kwargs), expected, row.rtol, row.atol)


def test_resnet18(gpu_export: Callable[..., Path]) -> None:
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    model = torchvision.models.resnet18(weights=None).eval()
    x = torch.randn(2, 3, 224, 224)
    path = gpu_export("resnet18", models.Built(model, (x,)), gemm="cublas")
    with torch.no_grad():
        expected = model.cuda()(x.cuda())
    with cudaexec.load(path) as module:
        assert_same(module(x.cuda()), expected, 1e-3, 1e-3)
        assert_same(module(x), expected.cpu(), 1e-3, 1e-3)


def test_resnet18_half(gpu_export: Callable[..., Path]) -> None:
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    model = torchvision.models.resnet18(weights=None).eval().half()
    x = torch.randn(2, 3, 224, 224).half()
    path = gpu_export("resnet18-f16", models.Built(model, (x,)), gemm="cublas")
    with torch.no_grad():
        expected = model.cuda()(x.cuda())
    with cudaexec.load(path) as module:
        assert_same(module(x.cuda()), expected, 2e-2, 2e-2)
