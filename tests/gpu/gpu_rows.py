"""The model table of `tests/models.py` for GPUs: each row in its own dtype and, if it computes in
float32, in float16 and bfloat16 as well."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

import models

# Rows whose name says a dtype, or that are about something else than computing, stay as they are.
_AS_IS = ("dtype_", "mlp_bf16", "mlp_f16", "mlp_f64", "causal_attention_bf16")
# 16-bit rows are compared with eager mode in that dtype: (relative, absolute).
_TOLERANCE = {torch.float16: (1e-2, 1e-2), torch.bfloat16: (6e-2, 6e-2)}
_INTEGER_ROWS = ("counter", "embedding_bag", "integers")
# Values that are equal in 16 bits may come in either order.
_ORDERING_ROWS = ("search_sort_scan",)
# Operators that no kernel for the GPU exists for yet: refused at export, by name.
REFUSED: dict[str, str] = {}


@dataclass(frozen=True)
class Row:
    name: str
    case: models.Case
    dtype: torch.dtype | None
    rtol: float
    atol: float

    def build(self) -> models.Built:
        built = self.case.build()
        return built if self.dtype is None else _in_dtype(built, self.dtype)


def _in_dtype(built: models.Built, dtype: torch.dtype) -> models.Built:
    def cast(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype) if tensor.dtype == torch.float32 else tensor

    args, more, kwargs = tree_map_only(torch.Tensor, cast, (built.args, built.more, built.kwargs))
    return replace(built, model=built.model.to(dtype), args=args, more=more, kwargs=kwargs)


def rows() -> list[Row]:
    found = []
    for case in models.CASES:
        found.append(Row(case.name, case, None, max(case.rtol, 1e-4), max(case.atol, 1e-4)))
        if case.name.startswith(_AS_IS) or case.name in _INTEGER_ROWS + _ORDERING_ROWS:
            continue
        for dtype, label in ((torch.float16, "f16"), (torch.bfloat16, "bf16")):
            found.append(Row(f"{case.name}-{label}", case, dtype, *_TOLERANCE[dtype]))
    return found


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """The tensors of a result, whatever its containers are."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, Mapping):
        return [tensor for value in tree.values() for tensor in tensors_of(value)]
    if isinstance(tree, (list, tuple)):
        return [tensor for value in tree for tensor in tensors_of(value)]
    return []


def to_device(tree: Any, device: str) -> Any:
    """Copies of the tensors of a tree on a device, with their strides."""

    def move(tensor: torch.Tensor) -> torch.Tensor:
        moved = torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device
        )
        return moved.copy_(tensor)

    return tree_map_only(torch.Tensor, move, tree)


def eager_calls(row: Row) -> list[tuple[Any, Any, Any]]:
    """(args, kwargs, output) of each call of the row on a fresh module; everything on the GPU."""
    built = row.build()
    model = built.model.cuda()
    calls = [(built.args, built.kwargs)] + [(args, {}) for args in built.more]
    results = []
    with torch.no_grad():
        for args, kwargs in calls:
            args, kwargs = to_device(args, "cuda"), to_device(kwargs, "cuda")
            output = model(*copy.deepcopy(args), **copy.deepcopy(kwargs))
            results.append((args, kwargs, copy.deepcopy(output)))
    return results
