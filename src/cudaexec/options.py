"""Options of the public functions: frozen, and unknown names raise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cudaexec.kv_spec import KvCacheSpec

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["ExportOptions"]

CPU_LEVELS = ("x86-64-v4", "x86-64-v3")


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """How `export` works; the defaults suit most models.

    Attributes:
        cpu_levels: instruction-set levels to compile for, each a code variant of its own in the
            same file; loading takes the best one that the machine can run.
        progress: show the stages on the terminal: True, False, or None for "if stderr is a tty".
        compiler: C++ compiler (GCC 11 or newer); None for `$CXX`, else `g++`.
        cache_dir: where the compiled parts that all models share are kept; None for
            `$CUDAEXEC_CACHE`, else `$XDG_CACHE_HOME/cudaexec`, else `~/.cache/cudaexec`. A
            directory that cannot be written is read, and the export works without it.
        precompiled_headers: keep torch's C++ headers in precompiled form in the cache. That takes
            410 MB and 15 s of processor time once, and saves 3 s of it in every further export;
            worth it for many exports. The environment variable `CUDAEXEC_PCH=1` does the same.
        strict: trace with TorchDynamo (`torch.export`'s `strict=True`) instead of plain Python.
        keep_sources: a directory that receives the generated C++ sources, for debugging.
        gemm: how matrix products run on a GPU. "triton": by kernels that are compiled into the
            program and tuned on the exporting GPU, so that the program needs no library; takes
            seconds to minutes per product. "cublas": by cuBLAS, which must be there at run time;
            nothing is tuned. Products that have no such kernel (float64) are left to cuBLAS in
            either case.
        tf32: let float32 products on a GPU round their operands to TF32: faster, and 10 instead of
            23 bits of mantissa. torch has it off for matrix products and on for convolutions.
        kv_cache: buffers of a decoder that the runtime keeps instead of the program, see
            `KvCacheSpec`; None: they stay ordinary state.
        ptx: add a variant that the driver compiles for later GPUs. Possible on GPUs before 9.0.
    """

    cpu_levels: tuple[str, ...] = CPU_LEVELS
    progress: bool | None = None
    compiler: str | None = None
    cache_dir: str | PathLike[str] | None = None
    precompiled_headers: bool = False
    strict: bool = False
    keep_sources: str | PathLike[str] | None = None
    gemm: Literal["triton", "cublas"] = "triton"
    tf32: bool = False
    ptx: bool = False
    kv_cache: KvCacheSpec | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: a level that does not exist, none at all, or one named twice; another
                `gemm` than the two.
            TypeError: `kv_cache` is no KvCacheSpec, `cpu_levels` is one name.
        """
        if isinstance(self.cpu_levels, str):
            raise TypeError(
                f"ExportOptions.cpu_levels: expected a tuple of names, got {self.cpu_levels!r}"
            )
        unknown = [level for level in self.cpu_levels if level not in CPU_LEVELS]
        if unknown or not self.cpu_levels or len(set(self.cpu_levels)) != len(self.cpu_levels):
            raise ValueError(
                f"ExportOptions.cpu_levels: expected one or more different ones of "
                f"{list(CPU_LEVELS)}, got {list(self.cpu_levels)}"
            )
        if self.gemm not in ("triton", "cublas"):
            raise ValueError(
                f"ExportOptions.gemm: expected 'triton' or 'cublas', got {self.gemm!r}"
            )
        if self.kv_cache is not None and not isinstance(self.kv_cache, KvCacheSpec):
            raise TypeError(
                f"ExportOptions.kv_cache: expected a KvCacheSpec, got "
                f"{type(self.kv_cache).__name__}"
            )
