"""The smallest proof: exports one pointwise program and one product for the GPU, and runs both.

Each step is reported by itself, so that a machine on which one fails still tells about the others.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import cudaexec

SOURCES = os.environ.get("CUDAEXEC_GPU_SOURCES")


class Affine(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1


def export(name: str, model: nn.Module, x: torch.Tensor, folder: Path, gemm: Any) -> Path:
    path = folder / f"{name}.pte"
    sources = None if SOURCES is None else Path(SOURCES) / f"tiny-{name}"
    options = cudaexec.ExportOptions(gemm=gemm, progress=False, keep_sources=sources)
    print(cudaexec.export(model, (x,), path=path, target="cuda", options=options))
    return path


def compare(path: Path, model: nn.Module, x: torch.Tensor) -> None:
    with torch.no_grad():
        expected = model.cuda()(x.cuda())
    model.cpu()
    with cudaexec.load(path) as module:
        on_device = module(x.cuda())
        torch.testing.assert_close(on_device, expected, rtol=1e-4, atol=1e-4)
        from_host = module(x.numpy())
        torch.testing.assert_close(
            torch.from_numpy(from_host), expected.cpu(), rtol=1e-4, atol=1e-4
        )


def main() -> int:
    failures = 0

    def step(name: str, run: Callable[[], Any]) -> Any:
        nonlocal failures
        try:
            result = run()
        except Exception:
            failures += 1
            print(f"--- {name}: FAILED")
            traceback.print_exc(limit=-4, file=sys.stdout)
            return None
        print(f"--- {name}: passed", flush=True)
        return result

    torch.manual_seed(0)
    product = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16)).eval()
    rows = [
        ("affine", Affine(), torch.randn(16), "triton"),
        ("product_triton", product, torch.randn(32, 64), "triton"),
        ("product_cublas", product, torch.randn(32, 64), "cublas"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name, model, x, gemm in rows:
            path = step(
                f"export {name}",
                lambda name=name, model=model, x=x, gemm=gemm: export(
                    name, model, x, Path(folder), gemm
                ),
            )
            if path is not None:
                step(f"run {name}", lambda path=path, model=model, x=x: compare(path, model, x))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
