"""Operators that a program cannot have, found in a trace for which no code can be generated.

Where code can be generated, it says itself what it calls: `callouts.py`.
"""

from __future__ import annotations

from typing import Any

import torch

from cudaexec.export.elf import provided_functions
from cudaexec.export.errors import source_line
from cudaexec.export.inductor_api import decomposition_table, inductor_lowering


def operators_without_code(program: Any) -> dict[str, str]:
    """Return the operators that neither generated code nor the runtime has, with a source line."""
    try:
        with torch.no_grad():
            graph = program.run_decompositions(decomposition_table()).graph
    except Exception:
        graph = program.graph  # what has a decomposition is then not counted
    provided = provided_functions()
    found: dict[str, str] = {}
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and not _has_code(node.target, provided):
            found.setdefault(str(node.target), source_line(node))
    return found


def _has_code(operator: torch._ops.OpOverload, provided: frozenset[str]) -> bool:
    lowering = inductor_lowering.lowerings.get(operator)
    if lowering is not None and not lowering.__qualname__.startswith("fallback_handler"):
        return True
    if lowering is None and torch._decomp.get_decompositions([operator]):
        return True
    if operator.namespace != "aten":
        return operator.namespace in ("prims", "inductor")
    name = operator.__name__.replace(".", "_").removesuffix("_default")
    return any(
        symbol == stem or symbol.startswith(f"{stem}_v")
        for stem in (f"aoti_torch_cpu_{name}", f"aoti_torch_{name}")
        for symbol in provided
    )
