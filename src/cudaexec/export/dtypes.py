"""Dtypes that a program can hold, and the refusal of the others."""

from __future__ import annotations

from typing import Any

import torch

from cudaexec.export.errors import ExportError, source_line
from cudaexec.export.missing import operators_without_code

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

    Code cannot be generated for it, so the operators that would need libtorch are looked for here.

    Raises:
        ExportError: names every input and operator with such a dtype, every other operator that a
            program cannot have, and their source lines.
    """
    found: dict[tuple[str, str], str] = {}
    modules = [m for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    for node in (node for module in modules for node in module.graph.nodes):
        for value in _tensors_of(node.meta.get("val")):
            if value.dtype in DTYPE_NAMES and value.layout == torch.strided:
                continue
            what = f"{value.dtype}".removeprefix("torch.")
            if value.layout != torch.strided:
                what = f"a tensor of layout {value.layout}"
            where = f"input {node.name!r}" if node.op == "placeholder" else f"{node.target}"
            found.setdefault((where, what), source_line(node))
    if not found:
        return
    items = [f"{where} uses {what}{place}" for (where, what), place in found.items()]
    named = {where for where, _ in found}
    items += [
        f"{operator} needs libtorch{place}"
        for operator, place in operators_without_code(program).items()
        if operator not in named
    ]
    listed = items[0] if len(items) == 1 else "".join(f"\n  {item}" for item in items) + "\n"
    raise ExportError(
        f"method {method!r}: a program cannot have {'this' if len(items) == 1 else 'these'}: "
        f"{listed}{'. ' if len(items) == 1 else ''}Supported: {', '.join(DTYPE_NAMES.values())}; "
        f"docs/operators.md lists the operators. Compute the rest outside of the model."
    )


def _tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [item for part in value for item in _tensors_of(part)]
    return []
