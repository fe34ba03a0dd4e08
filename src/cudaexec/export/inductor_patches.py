"""The only place that changes torch's own code, and the torch versions that export knows.

Each patch says for which torch versions it is needed, which symbol it replaces, why, and how to
find out whether that symbol still is what it was when the patch was written. All are undone when
the export ends.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from cudaexec.export.errors import ExportError
from cudaexec.export.inductor_api import cpu_vec_isa

SUPPORTED_TORCH = ((2, 11), (2, 16))


@dataclass(frozen=True)
class Patch:
    """One replaced symbol of torch.

    Attributes:
        versions: first torch version that has it and the first that has not, as (major, minor).
        owner: the module or class; attribute: its attribute that is replaced.
        reason: why the patch exists.
        self_test: returns nothing if the symbol is as expected, else what is different.
        make: returns the replacement, given the original.
    """

    versions: tuple[tuple[int, int], tuple[int, int]]
    owner: Any
    attribute: str
    reason: str
    self_test: Callable[[Any], str]
    make: Callable[[Any], Any]

    @property
    def symbol(self) -> str:
        """The dotted name of what is replaced."""
        name = getattr(self.owner, "__name__", str(self.owner))
        module = getattr(self.owner, "__module__", "")
        return f"{module}.{name}.{self.attribute}" if module else f"{name}.{self.attribute}"


class _Avx512(cpu_vec_isa.VecAVX512):
    """AVX-512 as x86-64-v4 has it: no extension that only the exporting machine has."""

    def build_arch_flags(self) -> str:
        return "-mavx512f -mavx512dq -mavx512vl -mavx512bw -mfma"

    __hash__ = cpu_vec_isa.VecAVX512.__hash__


def _both_levels(_original: Any) -> Callable[[], list[Any]]:
    levels = [_Avx512(), cpu_vec_isa.VecAVX2()]
    return lambda: levels


def _vector_classes_as_expected(original: Any) -> str:
    if inspect.signature(original).parameters:
        return "it takes arguments"
    if cpu_vec_isa.VecAVX512().build_macro() != ["CPU_CAPABILITY_AVX512"]:
        return f"VecAVX512 defines {cpu_vec_isa.VecAVX512().build_macro()}"
    if cpu_vec_isa.VecAVX2().build_macro() != ["CPU_CAPABILITY_AVX2"]:
        return f"VecAVX2 defines {cpu_vec_isa.VecAVX2().build_macro()}"
    if (_Avx512().bit_width(), cpu_vec_isa.VecAVX2().bit_width()) != (512, 256):
        return "the vector widths are not 512 and 256"
    return ""


PATCHES: tuple[Patch, ...] = (
    Patch(
        versions=((2, 11), (2, 16)),
        owner=cpu_vec_isa,
        attribute="valid_vec_isa_list",
        reason="Inductor offers only what the exporting machine has, found by compiling probes "
        "that fail without libtorch and then silently select scalar code; a file holds code for "
        "fixed levels instead",
        self_test=_vector_classes_as_expected,
        make=_both_levels,
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


def active_patches() -> list[Patch]:
    """Return the patches that the installed torch needs.

    Raises:
        ExportError: a patch's self-test failed, so this torch differs from what was expected.
    """
    version = torch_version()
    patches = [patch for patch in PATCHES if patch.versions[0] <= version < patch.versions[1]]
    for patch in patches:
        original = getattr(patch.owner, patch.attribute, None)
        difference = "it does not exist" if original is None else patch.self_test(original)
        if difference:
            raise ExportError(
                f"torch {torch.__version__}: {patch.symbol} is not as export expects: "
                f"{difference}. It is replaced because {patch.reason}. Use another torch version "
                f"in the supported range."
            )
    return patches


@contextmanager
def patched() -> Iterator[None]:
    """Apply the patches while the context is open."""
    check_torch_version()
    with ExitStack() as stack:
        for patch in active_patches():
            original = getattr(patch.owner, patch.attribute)
            stack.callback(setattr, patch.owner, patch.attribute, original)
            setattr(patch.owner, patch.attribute, patch.make(original))
        yield
