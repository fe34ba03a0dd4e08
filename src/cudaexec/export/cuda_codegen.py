"""What holds while Inductor generates code for a GPU: precision, kernels to choose from, folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from cudaexec.export.code_target import CodeTarget
from cudaexec.export.inductor_api import select_algorithm

# Call-outs that have a C interface; Inductor offers variants of them that only libtorch can run.
_CALLABLE = ("mm", "addmm", "bmm", "baddbmm", "_int_mm", "convolution")


@contextmanager
def codegen_context(targets: Sequence[CodeTarget]) -> Iterator[None]:
    """Set what code generation for GPUs reads from globals; all of it is undone at the end."""
    gpu = next((target for target in targets if target.kind == "cuda"), None)
    if gpu is None:
        yield
        return
    with ExitStack() as stack:
        stack.enter_context(torch.cuda.device(gpu.device_index))
        # Fused attention exists as calls into libtorch only; as products and a softmax it fuses.
        stack.enter_context(sdpa_kernel([SDPBackend.MATH]))
        stack.enter_context(_precision(tf32=gpu.tf32))
        stack.enter_context(_environment({"TRITON_CACHE_DIR": None, **_NO_LINE_INFO}))
        stack.enter_context(_choices())
        yield


# Line tables in kernels hold paths of the exporting machine and a third of the bytes.
_NO_LINE_INFO = {"TRITON_DISABLE_LINE_INFO": "1"}


@contextmanager
def _environment(values: dict[str, str | None]) -> Iterator[None]:
    """Set or remove variables, and put back what was there."""
    before = {name: os.environ.get(name) for name in values}
    _set_environment(values)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: dict[str, str | None]) -> None:
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
def _choices() -> Iterator[None]:
    """Restrict what Inductor chooses from, by its own hook for that."""
    cache = select_algorithm.get_algorithm_selector_cache()
    cache.add_preprocessing_fn(runnable_choices)
    try:
        yield
    finally:
        cache.preprocessing_fns.remove(runnable_choices)


def runnable_choices(choices: list[Any]) -> list[Any]:
    """Return the Triton kernels among the choices for an operator, else the one plain call-out.

    A call-out would win some comparisons by time, but needs a library at run time.
    """
    kernels = [choice for choice in choices if isinstance(choice, _TRITON)]
    if kernels:
        return kernels
    calls = [choice for choice in choices if choice.name in _CALLABLE]
    return calls[:1] or choices


_TRITON = select_algorithm.TritonTemplateCaller
