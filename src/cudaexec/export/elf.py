"""What compiled code needs, read from its ELF image by the runtime's own check."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from cudaexec._core import exported_symbols, inspect_elf
from cudaexec.export.errors import ExportError
from cudaexec.export.toolchain import SHIMS_NAME, shims_library


@dataclass(frozen=True)
class ElfFacts:
    """Facts of one library, as the loader will see them.

    Attributes:
        needed: DT_NEEDED in order. unknown_needed: those that programs may not use.
        undefined: names it wants. missing: of these, what neither we nor the system have.
        unique: definitions that would prevent unloading.
        isa: the marked x86-64 level. min_glibc, min_glibcxx: like "2.34" and "3.4.30".
    """

    name: str
    needed: tuple[str, ...]
    unknown_needed: tuple[str, ...]
    undefined: tuple[str, ...]
    missing: tuple[str, ...]
    unique: tuple[str, ...]
    isa: str
    min_glibc: str
    min_glibcxx: str

    def require_level(self, level: str) -> None:
        """Check what the link line promised.

        Raises:
            ExportError: the compiler or linker did not do as told.
        """
        faults = []
        if not self.needed or self.needed[0] != SHIMS_NAME:
            faults.append(f"first needed library {self.needed[:1]}, expected {SHIMS_NAME}")
        if "libgomp.so.1" in self.needed:
            faults.append("it needs libgomp.so.1")
        if self.unique:
            faults.append(f"unique symbols {list(self.unique[:3])}, which prevent unloading")
        if self.isa != level:
            faults.append(f"marked for {self.isa or 'no level'}, expected {level}")
        if faults:
            raise ExportError(
                f"code of {self.name} is not as linked: {'; '.join(faults)}. Use GCC 11 or newer "
                f"with GNU binutils 2.36 or newer (ExportOptions(compiler=...))."
            )


def inspect(image: bytes, name: str) -> ElfFacts:
    """Read an ELF image; nothing is loaded."""
    facts = inspect_elf(image, name)
    return ElfFacts(
        name,
        tuple(facts["needed"]),
        tuple(facts["unknown_needed"]),
        tuple(facts["undefined"]),
        tuple(facts["missing"]),
        tuple(facts["unique"]),
        facts["isa"],
        facts["min_glibc"],
        facts["min_glibcxx"],
    )


@lru_cache(maxsize=1)
def provided_functions() -> frozenset[str]:
    """Return the names of the C functions that our runtime library exports."""
    return frozenset(exported_symbols(str(shims_library())))
