"""What patches put in the place of torch's own functions, and whether those are what they were.

`..._as_expected` are the self-tests: they return nothing, or what is different.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch.fx.experimental import _config as symbolic_config
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.value_ranges import bound_sympy

from cudaexec.export import teams
from cudaexec.export.errors import ExportError, source_line
from cudaexec.export.inductor_api import cpp_codegen, cpu_vec_isa, inductor_ir


class Avx512(cpu_vec_isa.VecAVX512):  # type: ignore[misc]
    """AVX-512 as x86-64-v4 has it: no extension that only the exporting machine has, no probe."""

    def build_arch_flags(self) -> str:
        """Return the compiler's flags."""
        return "-mavx512f -mavx512dq -mavx512vl -mavx512bw -mfma"

    def __bool__(self) -> bool:
        return True

    __hash__ = cpu_vec_isa.VecAVX512.__hash__


class Avx2(cpu_vec_isa.VecAVX2):  # type: ignore[misc]
    """AVX2, without the probe."""

    def __bool__(self) -> bool:
        return True

    __hash__ = cpu_vec_isa.VecAVX2.__hash__


def both_levels(_original: Any) -> Callable[[], list[Any]]:
    """Offer AVX-512 and AVX2 as the levels of a file have them, without probes."""
    levels = [Avx512(), Avx2()]
    return lambda: levels


def vector_classes_as_expected(original: Any) -> str:
    """Tell what differs from the symbol that the patch was written for."""
    if inspect.signature(original).parameters:
        return "it takes arguments"
    macros = [Avx512().build_macro(), Avx2().build_macro()]
    if macros != [["CPU_CAPABILITY_AVX512"], ["CPU_CAPABILITY_AVX2"]]:
        return f"the vector classes define {macros}"
    if (Avx512().bit_width(), Avx2().bit_width()) != (512, 256):
        return "the vector widths are not 512 and 256"
    return ""


def without_guards(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let a convolution be traced without what it asks about sizes."""

    def convolution(fake_mode: Any, *args: Any, **kwargs: Any) -> Any:
        if fake_mode.shape_env is None:
            return original(fake_mode, *args, **kwargs)
        with fake_mode.shape_env.suppress_guards():
            return original(fake_mode, *args, **kwargs)

    return convolution


def convolution_as_expected(original: Any) -> str:
    """Tell what differs from the symbol that the patch was written for."""
    first = next(iter(inspect.signature(original).parameters), "")
    if first != "fake_mode":
        return f"its first parameter is {first!r}"
    if not hasattr(ShapeEnv, "suppress_guards"):
        return "ShapeEnv has no suppress_guards"
    return ""


class OrderingEnv:
    """A ShapeEnv that answers `a < b` without a guard where the ranges decide it but for a tie."""

    def __init__(self, shape_env: Any) -> None:
        self._shape_env = shape_env

    def evaluate_expr(self, expr: Any, *args: Any, **kwargs: Any) -> Any:
        """Answer from the ranges where they decide, else ask the ShapeEnv."""
        if isinstance(expr, sympy.StrictLessThan | sympy.StrictGreaterThan):
            less, more = (expr.lts, expr.gts)
            difference = bound_sympy(more - less, self._shape_env.var_to_range)
            if difference.lower >= 0:
                return True
            if difference.upper <= 0:
                return False
        return self._shape_env.evaluate_expr(expr, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shape_env, name)


def order_up_to_ties(original: Callable[..., Any]) -> Callable[..., Any]:
    """Sort by what the ranges decide, without guards for ties."""

    def argsort_sym(shape_env: Any, *args: Any, **kwargs: Any) -> Any:
        return original(OrderingEnv(shape_env), *args, **kwargs)

    return argsort_sym


def argsort_as_expected(original: Any) -> str:
    """Tell what differs from the symbol that the patch was written for."""
    names = list(inspect.signature(original).parameters)
    return "" if names[:2] == ["shape_env", "seq"] else f"its parameters are {names}"


def stride_size_obliviously(original: Callable[..., Any]) -> Callable[..., Any]:
    """Find strides of views without asking whether a size is 1."""

    def compute_stride(*args: Any, **kwargs: Any) -> Any:
        if symbolic_config.backed_size_oblivious:
            kwargs["size_oblivious"] = True
        return original(*args, **kwargs)

    return compute_stride


def compute_stride_as_expected(original: Any) -> str:
    """Tell what differs from the symbol that the patch was written for."""
    names = list(inspect.signature(original).parameters)
    return "" if names[3:] == ["size_oblivious"] else f"its parameters are {names}"


def states_as_given(original: Callable[..., Any]) -> Callable[..., Any]:
    """Give final states the shapes of the initial ones."""

    def one_layer_lstm(inp: Any, hidden: Any, *args: Any, **kwargs: Any) -> Any:
        out, final = original(inp, hidden, *args, **kwargs)
        states = zip(final, hidden, strict=True)
        return out, tuple(state.reshape(given.shape) for state, given in states)

    return one_layer_lstm


def lstm_as_expected(original: Any) -> str:
    """Tell what differs from the symbol that the patch was written for."""
    names = list(inspect.signature(original).parameters)
    return "" if names[:2] == ["inp", "hidden"] else f"its parameters are {names}"


def layouts_fixed_at_once(_original: Any) -> Callable[[Any, Any], Any]:
    """Fix the layout of an operand when its strides are read."""

    def strides(self: Any, node: Any) -> Any:
        inductor_ir.ExternKernel.realize_input(node)
        if isinstance(node.data.layout, inductor_ir.FlexibleLayout):
            node.data.freeze_layout()
        return node.get_stride()

    return strides


def layouts_as_expected(original: Any) -> str:
    """Tell what differs from the symbol that the patch was written for."""
    names = list(inspect.signature(original).parameters)
    return "" if names == ["self", "node"] else f"its parameters are {names}"


def statistics_as_expected(original: Any) -> str:
    """Tell what differs from the symbol that the patch was written for."""
    names = list(inspect.signature(original).parameters)
    return "" if names == ["event_name", "timings"] else f"its parameters are {names}"


NOTES = teams.WorkNotes()


def decide_as_expected(original: Any) -> str:
    """Tell what differs from the symbol that the patch was written for."""
    names = list(inspect.signature(original).parameters)
    if names != ["self", "max_parallel_depth", "threads"]:
        return f"its parameters are {names}"
    fields = list(inspect.signature(cpp_codegen.ParallelDepth).parameters)
    return "" if fields == ["parallel_depth", "start_depth"] else f"ParallelDepth has {fields}"


def sharing_as_expected(original: Any) -> str:
    """Tell what differs from the symbol that the patch was written for."""
    names = list(inspect.signature(original).parameters)
    if names != ["self", "threads"]:
        return f"its parameters are {names}"
    return "" if "code" in inspect.getsource(cpp_codegen.WorkSharing.__init__) else "no code buffer"


def with_dtypes_checked(original: Callable[..., Any]) -> Callable[..., Any]:
    """Compare what code is generated for with what the trace says; nothing else would notice."""

    def run_node(self: Any, node: Any) -> Any:
        result = original(self, node)
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor):
            return result
        found = result.get_dtype() if isinstance(result, inductor_ir.IRNode) else value.dtype
        if found == value.dtype:
            return result
        raise ExportError(
            f"{node.target} gives {found} in generated code and {value.dtype} in eager mode"
            f"{source_line(node)}; convert its operands or its result in the model"
        )

    return run_node


def run_node_as_expected(original: Any) -> str:
    """Tell what differs from the symbol that the patch was written for."""
    names = list(inspect.signature(original).parameters)
    return "" if names == ["self", "n"] else f"its parameters are {names}"
