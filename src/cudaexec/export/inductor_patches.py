"""The only place that changes torch's own code, and the torch versions that export knows.

Each patch says for which torch versions it is needed, which symbol it replaces, why, and how to
find out whether that symbol still is what it was when the patch was written. All are undone when
the export ends.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._decomp import decompositions
from torch._subclasses import fake_impls
from torch.export import _trace as export_trace

from cudaexec.export import exact_values, kernel_runs, replacements, rounding, teams
from cudaexec.export.errors import ExportError
from cudaexec.export.inductor_api import (
    cpp_codegen,
    cpu_vec_isa,
    inductor_graph,
    inductor_ir,
    inductor_lowering,
    select_algorithm,
    triton_heuristics,
)

SUPPORTED_TORCH = ((2, 11), (2, 16))


@dataclass(frozen=True)
class Patch:
    """One replaced symbol of torch.

    Attributes:
        versions: first torch version that has it and the first that has not, as (major, minor).
        symbol: what is replaced, for messages.
        owner: the module, class or dictionary that holds it. key: its name (or key) there.
        reason: why the patch exists.
        self_test: returns nothing if the symbol is as expected, else what is different.
        make: returns the replacement, given the original.
        optional: what is lost without it is said in `reason`, and the export stays right; then a
            failed self-test only leaves the symbol as it is.
        gpu: needed only where code for a GPU is generated.
    """

    versions: tuple[tuple[int, int], tuple[int, int]]
    symbol: str
    owner: Any
    key: Any
    reason: str
    self_test: Callable[[Any], str]
    make: Callable[[Any], Any]
    optional: bool = False
    gpu: bool = False

    def get(self) -> Any:
        """Return what is there now, None if nothing is; a module sees the built-in names too."""
        if isinstance(self.owner, dict):
            return self.owner.get(self.key)
        value = inspect.getattr_static(self.owner, self.key, None)
        if isinstance(value, staticmethod):  # put back as one
            return value
        return getattr(self.owner, self.key, getattr(builtins, str(self.key), None))

    def put(self, value: Any) -> None:
        """Replace it."""
        if isinstance(self.owner, dict):
            self.owner[self.key] = value
        else:
            setattr(self.owner, self.key, value)


PATCHES: tuple[Patch, ...] = (
    Patch(
        versions=((2, 11), (2, 16)),
        symbol="torch.export._trace.print",
        owner=export_trace,
        key="print",
        reason="a trace that fails prints its graph to stderr, once per level of wrapping",
        self_test=lambda original: "" if original is print else "it is not the built-in",
        make=lambda original: lambda *args, **kwargs: None,
        optional=True,
    ),
    Patch(
        versions=((2, 11), (2, 16)),
        symbol="torch._inductor.graph.GraphLowering.run_node",
        owner=inductor_graph.GraphLowering,
        key="run_node",
        reason="an operator that is lowered to another dtype than eager's changes what the model "
        "computes from it, without an error",
        self_test=replacements.run_node_as_expected,
        make=replacements.with_dtypes_checked,
    ),
    Patch(
        versions=((2, 11), (2, 16)),
        symbol="torch._inductor.cpu_vec_isa.valid_vec_isa_list",
        owner=cpu_vec_isa,
        key="valid_vec_isa_list",
        reason="Inductor offers only what the exporting machine has, found by compiling probes "
        "that fail without libtorch and then silently select scalar code; a file holds code for "
        "fixed levels instead",
        self_test=replacements.vector_classes_as_expected,
        make=replacements.both_levels,
    ),
    Patch(
        versions=((2, 11), (2, 16)),
        symbol="torch._subclasses.fake_impls.conv",
        owner=fake_impls.op_implementations_dict,
        key=torch.ops.aten.convolution.default,
        reason="it asks which of ATen's kernels eager mode would take, which silently narrows a "
        "dynamic batch to the example's side of 16 (2 to 15); nothing here depends on the answer",
        self_test=replacements.convolution_as_expected,
        make=replacements.without_guards,
    ),
    Patch(
        versions=((2, 11), (2, 16)),
        symbol="torch._inductor.ir.argsort_sym",
        owner=inductor_ir,
        key="argsort_sym",
        reason="sorting strides asks whether 16 * n > 16, which excludes n = 1 although a tie has "
        "no wrong order there",
        self_test=replacements.argsort_as_expected,
        make=replacements.order_up_to_ties,
        optional=True,
    ),
    Patch(
        versions=((2, 13), (2, 16)),
        symbol="torch._subclasses.fake_impls._compute_stride",
        owner=fake_impls,
        key="_compute_stride",
        reason="views in a size-oblivious trace ask whether a size is 1, which excludes it "
        "although the strides found without asking hold for it too",
        self_test=replacements.compute_stride_as_expected,
        make=replacements.stride_size_obliviously,
        optional=True,
    ),
    Patch(
        versions=((2, 11), (2, 16)),
        symbol="torch._inductor.select_algorithm.TritonTemplateKernel."
        "get_stride_and_maybe_freeze_layout",
        owner=select_algorithm.TritonTemplateKernel,
        key="get_stride_and_maybe_freeze_layout",
        reason="kernels are written for strides that an operand may still lose, and the check "
        "comes late or never, in the hope for a library call to fall back to",
        self_test=replacements.layouts_as_expected,
        make=replacements.layouts_fixed_at_once,
        gpu=True,
    ),
    Patch(
        versions=((2, 11), (2, 16)),
        symbol="torch._inductor.runtime.triton_heuristics.CachingAutotuner.run",
        owner=triton_heuristics.CachingAutotuner,
        key="run",
        reason="it runs kernels on memory without values, and one that checks its indices then "
        "ends CUDA for the process",
        self_test=kernel_runs.run_as_expected,
        make=kernel_runs.without_checked_kernels,
        gpu=True,
    ),
    Patch(
        versions=((2, 11), (2, 16)),
        symbol="torch._inductor.select_algorithm.PRINT_AUTOTUNE",
        owner=select_algorithm,
        key="PRINT_AUTOTUNE",
        reason="tables of timings of GPU kernels go to stderr",
        self_test=lambda original: "" if isinstance(original, bool) else "it is no bool",
        make=lambda original: False,
        optional=True,
        gpu=True,
    ),
    Patch(
        versions=((2, 11), (2, 16)),
        symbol="torch._inductor.select_algorithm._log_autotune_choices_stats",
        owner=select_algorithm,
        key="_log_autotune_choices_stats",
        reason="so do their statistics",
        self_test=replacements.statistics_as_expected,
        make=lambda original: lambda *args: None,
        optional=True,
        gpu=True,
    ),
    Patch(
        versions=((2, 11), (2, 13)),
        symbol="torch._inductor.lowering of prims.convert_element_type",
        owner=inductor_lowering.lowerings,
        key=torch.ops.prims.convert_element_type.default,
        reason="a conversion to a 16-bit type is computed in float32, without the rounding",
        self_test=rounding.parameters_are("x", "dtype"),
        make=rounding.rounding_conversion,
    ),
    Patch(
        versions=((2, 11), (2, 13)),
        symbol="torch._inductor.codegen.cpp.CppKernel.cache_dtype_convert",
        owner=cpp_codegen.CppKernel,
        key="cache_dtype_convert",
        reason="what was rounded to a 16-bit type is used in its unrounded form afterwards",
        self_test=rounding.parameters_are("self", "dst", "dst_dtype", "src", "src_dtype"),
        make=lambda original: lambda self, dst, dst_dtype, src, src_dtype: None,
    ),
    Patch(
        versions=((2, 11), (2, 13)),
        symbol="torch._inductor.fx_passes.joint_graph.pointless_convert",
        owner=rounding.conversion_pattern(),
        key="handler",
        reason="it drops a conversion to a 16-bit type that is followed by one to float32",
        self_test=rounding.parameters_are("match", "arg", "dtype1", "dtype2"),
        make=rounding.keep_narrowing,
    ),
    Patch(
        versions=((2, 11), (2, 13)),
        symbol="torch._decomp.decompositions.one_layer_lstm",
        owner=decompositions,
        key="one_layer_lstm",
        reason="the final states keep a dimension of size 1 too many unless the batch is 1",
        self_test=replacements.lstm_as_expected,
        make=replacements.states_as_given,
    ),
    Patch(
        versions=((2, 11), (2, 16)),
        symbol="torch._inductor.codegen.cpp.CppVecOverrides.remainder",
        owner=cpp_codegen.CppVecOverrides,
        key="remainder",
        reason="a floating-point remainder loses digits, all of them where the quotient is large",
        self_test=exact_values.remainder_as_expected,
        make=exact_values.exact_remainder,
    ),
    Patch(
        versions=((2, 11), (2, 16)),
        symbol="torch._inductor.lowering.var_mean_helper_",
        owner=inductor_lowering,
        key="var_mean_helper_",
        reason="the variance of one element is the constant 0, also where it is NaN in eager mode",
        self_test=exact_values.variance_as_expected,
        make=exact_values.variance_of_one,
    ),
    Patch(
        versions=((2, 11), (2, 16)),
        symbol="torch._inductor.codegen.cpp.CppKernel.decide_parallel_depth",
        owner=cpp_codegen.CppKernel,
        key="decide_parallel_depth",
        reason="with a dynamic number of threads it makes a parallel region of every loop, "
        "however short",
        self_test=replacements.decide_as_expected,
        make=lambda original: teams.deciding(
            original, cpp_codegen.ParallelDepth, cpp_codegen.cexpr_index, replacements.NOTES
        ),
        optional=True,
    ),
    Patch(
        versions=((2, 11), (2, 16)),
        symbol="torch._inductor.codegen.cpp.WorkSharing.parallel",
        owner=cpp_codegen.WorkSharing,
        key="parallel",
        reason="a region does not say how much work it has, so every one would start all threads",
        self_test=replacements.sharing_as_expected,
        make=lambda original: teams.marking(original, replacements.NOTES),
        optional=True,
    ),
)


def torch_version() -> tuple[int, int]:
    """Return (major, minor) of the installed torch."""
    major, minor = torch.__version__.split("+")[0].split(".")[:2]
    return int(major), int(minor)


def check_torch_version() -> None:
    """Raise ExportError outside the range of torch versions that export was written for."""
    low, high = SUPPORTED_TORCH
    if not low <= torch_version() < high:
        raise ExportError(
            f"torch {torch.__version__} cannot be used for export: expected "
            f">= {low[0]}.{low[1]} and < {high[0]}.{high[1]}. Install a version in that range; "
            f"exported files run without torch, so only the exporting environment changes."
        )


def active_patches(*, gpu: bool = False) -> list[Patch]:
    """Return the patches that the installed torch needs.

    Args:
        gpu: code for a GPU is to be generated.

    Raises:
        ExportError: a patch's self-test failed, so this torch differs from what was expected.
    """
    version = torch_version()
    patches = []
    for patch in PATCHES:
        if not patch.versions[0] <= version < patch.versions[1] or patch.gpu > gpu:
            continue
        original = patch.get()
        difference = "it does not exist" if original is None else patch.self_test(original)
        if difference and not patch.optional:
            raise ExportError(
                f"torch {torch.__version__}: {patch.symbol} is not as export expects: "
                f"{difference}. It is replaced because {patch.reason}. Use another torch version "
                f"in the supported range."
            )
        if not difference:
            patches.append(patch)
    return patches


@contextmanager
def patched(*, gpu: bool = False) -> Iterator[None]:
    """Apply the patches while the context is open; `gpu` for those of GPU code as well."""
    check_torch_version()
    with ExitStack() as stack:
        for patch in active_patches(gpu=gpu):
            original = patch.get()
            stack.callback(patch.put, original)
            patch.put(patch.make(original))
        yield
