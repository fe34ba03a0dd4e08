"""Dtypes that a program can hold, and the refusal of the others."""

from __future__ import annotations

from typing import Any

import torch

from cudaexec.export.errors import ExportError, source_line

DTYPE_NAMES: dict[torch.dtype, str] = {
    torch.bool: "bool",
    torch.uint8: "uint8",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
}


def dtype_name(dtype: torch.dtype) -> str:
    """Return the manifest's name of a supported dtype."""
    return DTYPE_NAMES[dtype]


def check_graph_dtypes(method: str, program: Any) -> None:
    """Refuse a traced program that uses an unsupported dtype anywhere.

    Raises:
        ExportError: names the dtype, the operator or input, and the model's source line.
    """
    modules = [m for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    for node in (node for module in modules for node in module.graph.nodes):
        for value in _tensors_of(node.meta.get("val")):
            if value.dtype in DTYPE_NAMES and value.layout == torch.strided:
                continue
            what = f"{value.dtype}".removeprefix("torch.")
            if value.layout != torch.strided:
                what = f"a tensor of layout {value.layout}"
            where = f"input {node.name!r}" if node.op == "placeholder" else f"{node.target}"
            raise ExportError(
                f"method {method!r}: {where} uses {what}, which a CPU program cannot hold"
                f"{source_line(node)}. Supported: {', '.join(DTYPE_NAMES.values())}."
            )


def _tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [item for part in value for item in _tensors_of(part)]
    return []
