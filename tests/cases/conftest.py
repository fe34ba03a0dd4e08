"""Export-and-compare helpers of the case tests. A case is a fault that users met in a peer runtime."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import case_programs
import pytest
import torch
from torch import nn

import cudaexec
from compare import assert_same

# "cuda" on a machine with a GPU (tests/gpu/run.sh cases): host inputs and results are the same.
TARGET = os.environ.get("CUDAEXEC_CASES_TARGET", "cpu")


class Case:
    """One exported module beside its eager original."""

    def __init__(self, model: nn.Module, path: Path) -> None:
        self.eager = copy.deepcopy(model)
        self.path = path
        self.module = cudaexec.load(path)

    def check(self, *args: Any, rtol: float = 1e-5, atol: float = 1e-5, **kwargs: Any) -> Any:
        """Run both on copies of the same inputs; values, dtypes, shapes, structure must agree."""
        inputs = copy.deepcopy((args, kwargs))
        with torch.no_grad():
            expected = self.eager(*inputs[0], **inputs[1])
        got = self.module(*args, **kwargs)
        assert_same(got, expected, rtol, atol)
        return got


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those marked `gpu` need this run to export for one."""
    skip = pytest.mark.skip(reason="set CUDAEXEC_CASES_TARGET=cuda on a GPU")
    for item in items:
        here = item.path.parent == Path(__file__).parent
        if here and TARGET != "cuda" and item.get_closest_marker("gpu"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def on_gpu() -> bool:
    """Whether programs run on a GPU. An index out of range ends CUDA for the process there."""
    return TARGET == "cuda"


@pytest.fixture(scope="session")
def program(once: Callable[[str, Callable[[Path], None]], Path]) -> Callable[[str], Path]:
    """`program("mlp")` is the path of that program of case_programs.py, for the target of this run."""

    def get(name: str) -> Path:
        def make(directory: Path) -> None:
            cudaexec.export(
                path=directory / "model.pte",
                target=TARGET,
                options=cudaexec.ExportOptions(gemm="cublas"),
                **case_programs.build(name),
            )

        return once(f"cases-{name}-{TARGET}", make) / "model.pte"

    return get


@pytest.fixture
def export_case(tmp_path: Path) -> Callable[..., Case]:
    """`export_case(model, args, kwargs=None, dynamic_shapes=None)` exports, loads, returns a Case."""
    cases: list[Case] = []

    def make(
        model: nn.Module | Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        dynamic_shapes: Any = None,
    ) -> Case:
        if not isinstance(model, nn.Module):
            model = Function(model)
        path = tmp_path / f"case{len(cases)}.pte"
        cudaexec.export(
            model.eval(),
            args,
            kwargs,
            path=path,
            dynamic_shapes=dynamic_shapes,
            target=TARGET,
            options=cudaexec.ExportOptions(gemm="cublas"),
        )
        cases.append(Case(model, path))
        return cases[-1]

    yield make
    for made in cases:
        made.module.close()


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.forward = function  # keeps the parameter names of the function
