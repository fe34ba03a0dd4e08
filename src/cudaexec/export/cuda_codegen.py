"""What holds while Inductor generates code for a GPU: precision, choices, folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from cudaexec.export.code_target import CodeTarget
from cudaexec.export.inductor_api import V, choices, select_algorithm

# Call-outs that have a C interface; Inductor offers variants of them that only libtorch can run.
_CALLABLE = ("mm", "addmm", "bmm", "baddbmm", "_int_mm", "convolution")


@contextmanager
def codegen_context(targets: Sequence[CodeTarget], directory: Path) -> Iterator[None]:
    """Set what code generation for GPUs reads from globals; all of it is undone at the end.

    Args:
        targets: nothing is set for those of the CPU.
        directory: a private one, for Triton's files.
    """
    gpu = next((target for target in targets if target.kind == "cuda"), None)
    if gpu is None:
        yield
        return
    with ExitStack() as stack:
        stack.enter_context(torch.cuda.device(gpu.device_index))
        # Fused attention exists as calls into libtorch only; as products and a softmax it fuses.
        stack.enter_context(sdpa_kernel([SDPBackend.MATH]))
        stack.enter_context(_precision(tf32=gpu.tf32))
        triton_dir = str(directory / "triton")
        stack.enter_context(_environment({"TRITON_CACHE_DIR": triton_dir, **_NO_LINE_INFO}))
        stack.enter_context(_choices(tuned=gpu.gemm == "triton"))
        yield


# Line tables in kernels hold paths of the exporting machine and a third of the bytes.
_NO_LINE_INFO = {"TRITON_DISABLE_LINE_INFO": "1"}


@contextmanager
def _environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Set or remove variables, and put back what was there."""
    before = {name: os.environ.get(name) for name in values}
    _set_environment(values)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _precision(*, tf32: bool) -> Iterator[None]:
    """Set the precision of float32 products in matrix products and convolutions."""
    owners: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    changed = []
    try:
        for owner in owners:
            before = owner.fp32_precision
            if (before == "tf32") != tf32:
                changed.append((owner, before))
                owner.fp32_precision = "tf32" if tf32 else "ieee"
        yield
    finally:
        for owner, before in changed:
            owner.fp32_precision = before


@contextmanager
def _choices(*, tuned: bool) -> Iterator[None]:
    """Restrict what Inductor chooses from, by its own hooks for that."""
    cache = select_algorithm.get_algorithm_selector_cache()
    hook = partial(runnable_choices, tuned=tuned)
    cache.add_preprocessing_fn(hook)
    try:
        with V.set_choices_handler(choices.InductorChoices() if tuned else _CallsOnly()):
            yield
    finally:
        cache.preprocessing_fns.remove(hook)


class _CallsOnly(choices.InductorChoices):  # type: ignore[misc]
    """Does not write out kernels for matrix products that a call serves: that takes most time."""

    def _finalize_template_configs(self, *args: Any, **kwargs: Any) -> list[Any]:
        found = super()._finalize_template_configs(*args, **kwargs)
        calls = [item for item in found if isinstance(item.template, _CALL)]
        return calls or list(found)


def runnable_choices(offered: list[Any], *, tuned: bool) -> list[Any]:
    """Return what a program can run of the choices for an operator.

    Args:
        offered: Triton kernels in several configurations, and calls of libraries.
        tuned: take all Triton kernels there are, to be compared by time. Otherwise a call for a
            matrix product, and for a convolution, which no library offers, the first kernel.

    A call of a library would win some comparisons, but needs that library at run time.
    """
    kernels = [choice for choice in offered if isinstance(choice, _TRITON)]
    calls = [choice for choice in offered if choice.name in _CALLABLE]
    if tuned and kernels:
        return kernels
    if any(choice.name == "convolution" for choice in calls):
        return kernels[:1] or calls[:1]
    return calls[:1] or kernels[:1] or offered


_TRITON = select_algorithm.TritonTemplateCaller
_CALL = select_algorithm.ExternKernelChoice
