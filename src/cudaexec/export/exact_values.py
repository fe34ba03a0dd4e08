"""Replacements of what Inductor computes with another value than eager mode."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from cudaexec.export.inductor_api import V, inductor_lowering


def exact_remainder(original: Any) -> Any:
    """Compute a floating-point remainder from fmod, which is exact, as eager mode does.

    `a - floor(a / b) * b` loses every digit that the quotient has too many.
    """

    def remainder(a: Any, b: Any) -> Any:
        if not a.dtype.is_floating_point:
            return original(a, b)
        return (
            f"[&] {{ auto r = {a}.fmod({b}); const decltype(r) zero(0); "
            f"return decltype(r)::blendv(r, r + {b}, "
            f"(r != zero) & ((r < zero) ^ ({b} < zero))); }}()"
        )

    return staticmethod(remainder)


def remainder_as_expected(original: Any) -> str:
    """Tell what differs from the symbol that the patch was written for."""
    if not isinstance(original, staticmethod):
        return "it is no static method"
    names = list(inspect.signature(original).parameters)
    return "" if names == ["a", "b"] else f"its parameters are {names}"


def variance_of_one(original: Callable[..., Any]) -> Callable[..., Any]:
    """Compute the variance of one element from it, so that NaN and infinity give NaN."""

    def var_mean_helper(
        x: Any, *, axis: Any, correction: Any, keepdim: Any, return_mean: Any
    ) -> Any:
        lowering = inductor_lowering
        size = x.get_size()
        count = 1
        for dim in lowering._validate_reduction_axis(x, axis):
            count = count * size[dim]
        arguments = {"correction": correction, "keepdim": keepdim, "return_mean": return_mean}
        if not V.graph.sizevars.statically_known_equals(count, 1):
            return original(x, axis=axis, **arguments)
        dtype = x.get_dtype()
        wide = lowering.to_dtype(x, lowering.get_computation_dtype(dtype), copy=False)
        results = lowering.var_mean_sum_(x=wide, axis=axis, **arguments)
        results = tuple(lowering.to_dtype(item, dtype, copy=False) for item in results)
        return results if return_mean else results[0]

    return var_mean_helper


def variance_as_expected(original: Any) -> str:
    """Tell what differs from the symbol that the patch was written for."""
    names = list(inspect.signature(original).parameters)
    expected = ["x", "axis", "correction", "keepdim", "return_mean"]
    if names != expected:
        return f"its parameters are {names}"
    helper = getattr(inductor_lowering, "var_mean_sum_", None)
    if helper is None or list(inspect.signature(helper).parameters) != expected:
        return "var_mean_sum_ is not beside it"
    return ""
