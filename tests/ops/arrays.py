"""Arrays for `_core._ops` with exactly the strides of a tensor.

numpy's buffers invent strides for sizes of 1, which torch's layout rules look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cudaexec import _core

ops = _core._ops
KERNELS = [name for name in ("portable", "avx2", "avx512") if ops.has_kernels(name)]


def array(tensor: Any, *, constant: bool = False) -> Any:
    """An Array over the memory of a torch tensor."""
    import torch

    raw = tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor
    count = raw.untyped_storage().nbytes() // raw.element_size()
    flat = torch.as_strided(raw, (count,), (1,), 0)
    whole = ops.Array(flat.numpy(), constant=constant)
    return whole.view(list(tensor.shape), list(tensor.stride()), tensor.storage_offset())


def tensor(result: Any) -> Any:
    """A torch tensor over the memory of a result, with its strides."""
    import torch

    flat = np.asarray(result)
    value = torch.from_numpy(flat)
    return value.view(torch.bfloat16) if result.dtype == "bfloat16" else value


def same_strides(ours: Sequence[int], expected: Sequence[int], sizes: Sequence[int]) -> bool:
    """Strides of sizes 1 do not matter."""
    return all(a == b for a, b, size in zip(ours, expected, sizes, strict=True) if size > 1)


def to_bf16(values: np.ndarray) -> np.ndarray:
    """float values as the bits of bfloat16, rounded to nearest even."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)
