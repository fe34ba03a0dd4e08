"""Tests that need an NVIDIA GPU: skipped where the driver shows none."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if HERE in item.path.parents]
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if gpus == 0:
            item.add_marker(pytest.mark.skip(reason="torch sees no GPU"))
        elif gpus < 2 and item.get_closest_marker("two_gpus"):
            item.add_marker(pytest.mark.skip(reason="one GPU, two are needed"))


@pytest.fixture(scope="session", autouse=True)
def _exact_float32() -> None:
    """Eager mode computes float32 products exactly, as programs do by default."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


@pytest.fixture(scope="session")
def gpu_export(once: Callable[[str, Callable[[Path], None]], Path]) -> Callable[..., Path]:
    """`gpu_export(name, built, **options)` exports once per run; the path of the `.pte`."""

    def export(name: str, built: Any, target: str = "cuda", **options: Any) -> Path:
        def make(directory: Path) -> None:
            import cudaexec

            sources = os.environ.get("CUDAEXEC_GPU_SOURCES")
            cudaexec.export(
                built.model,
                built.args,
                built.kwargs,
                path=directory / "model.pte",
                dynamic_shapes=built.dynamic_shapes,
                target=target,
                options=cudaexec.ExportOptions(
                    progress=False,
                    keep_sources=Path(sources) / name if sources else None,
                    **options,
                ),
            )

        return once(f"gpu-{name}", make) / "model.pte"

    return export
