"""Explicit rounding to 16-bit types where torch's code generator would leave it out (before 2.13).

A model that converts float32 to bfloat16 and back rounds on purpose: quantisation-aware code and
checkpoints that keep activations in 16 bits depend on it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from cudaexec.export.inductor_api import inductor_lowering, joint_graph

_LOW = (torch.bfloat16, torch.float16)


def parameters_are(*expected: str) -> Callable[[Any], str]:
    """Return a self-test: the symbol is a function of these parameters."""

    def test(original: Any) -> str:
        names = list(inspect.signature(original).parameters)
        return "" if names[: len(expected)] == list(expected) else f"its parameters are {names}"

    return test


def rounding_conversion(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a lowering of `prims.convert_element_type` that computes in the 16-bit type itself."""

    def convert(x: Any, dtype: torch.dtype) -> Any:
        source = x.get_dtype()
        if source == dtype or dtype.is_complex or source.is_complex:
            return original(x, dtype)
        if source not in _LOW and dtype not in _LOW:
            return original(x, dtype)

        def body(value: Any) -> Any:
            ops = inductor_lowering.ops
            return ops.to_dtype(value, dtype, src_dtype=source, use_compute_types=False)

        return inductor_lowering.make_pointwise(body, override_return_dtype=dtype)(x)

    return convert


def conversion_pattern() -> Any:
    """Return the pattern that replaces two conversions by the second, None if there is none."""
    for patterns in joint_graph.pass_patterns:
        for entries in patterns.patterns.values():
            for entry in entries:
                if getattr(getattr(entry, "handler", None), "__name__", "") == "pointless_convert":
                    return entry
    return None


def keep_narrowing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the pattern's handler for chains whose first conversion loses nothing."""

    def handler(match: Any, arg: Any, dtype1: torch.dtype, dtype2: torch.dtype) -> None:
        value = arg.meta.get("val")
        source = value.dtype if isinstance(value, torch.Tensor) else None
        lossless = source == dtype1 or (
            source in (*_LOW, torch.float32)
            and dtype1 in (torch.float32, torch.float64)
            and dtype1.itemsize > source.itemsize
        )
        if lossless:
            original(match, arg, dtype1, dtype2)

    handler.__name__ = original.__name__
    return handler


__all__ = ["conversion_pattern", "keep_narrowing", "parameters_are", "rounding_conversion"]
