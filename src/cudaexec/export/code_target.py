"""What code is generated for: a level of the CPU's instruction set, or a GPU architecture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from cudaexec.export.teams import MIN_CHUNK, PLANNED_THREADS

# Width of Inductor's vectors for each level, and what its metadata must then say.
LEVELS: Final[dict[str, tuple[int, str]]] = {
    "x86-64-v3": (256, "AVX2"),
    "x86-64-v4": (512, "AVX512"),
}
# Host code of a GPU program holds calls and, rarely, a loop over host tensors.
_HOST_LEVEL: Final = "x86-64-v3"

_FIRST_PTX_WITHOUT_SUCCESSORS: Final = 90


@dataclass(frozen=True)
class CodeTarget:
    """One variant of a program's code.

    Attributes:
        kind: "cpu" or "cuda".
        cpu_level: of the host code.
        sm: the GPU architecture, 90 for sm_90; 0 for the CPU.
        ptx: 0 where kernels are machine code; else they are PTX of this architecture, which the
            driver compiles for whatever GPU there is.
        sm_count: multiprocessors that the generated code assumes.
        device_index: of the exporting GPU.
        gemm: which kernels matrix products use.
        tf32: whether float32 products may round their operands to TF32.
    """

    kind: Literal["cpu", "cuda"]
    cpu_level: str
    sm: int = 0
    ptx: int = 0
    sm_count: int = 0
    device_index: int = 0
    gemm: Literal["triton", "cublas"] = "triton"
    tf32: bool = False

    @classmethod
    def cpu(cls, level: str) -> CodeTarget:
        """Return the target of a CPU level, a name out of `LEVELS`."""
        return cls("cpu", level)

    @classmethod
    def cuda(
        cls, sm: int, sm_count: int, index: int, gemm: Literal["triton", "cublas"], *, tf32: bool
    ) -> CodeTarget:
        """Return the target of a GPU architecture."""
        return cls("cuda", _HOST_LEVEL, sm, 0, sm_count, index, gemm, tf32)

    @property
    def name(self) -> str:
        """For messages and folders: "x86-64-v3", "sm_90" or "compute_80"."""
        if self.kind == "cpu":
            return self.cpu_level
        return f"compute_{self.ptx}" if self.ptx else f"sm_{self.sm}"

    @property
    def ptx_is_portable(self) -> bool:
        """Whether PTX made for this target runs on later GPUs; Triton's for 9.0 does not."""
        return self.kind == "cuda" and self.sm < _FIRST_PTX_WITHOUT_SUCCESSORS

    def as_ptx(self) -> CodeTarget:
        """Return the target of the same kernels as PTX."""
        return replace(self, ptx=self.sm)

    def inductor_options(self, output_dir: Path) -> dict[str, Any]:
        """Return the configuration that code is generated under (docs/export.md explains it)."""
        options = {**_COMMON, "aot_inductor.output_path": str(output_dir)}
        options["cpp.simdlen"] = LEVELS[self.cpu_level][0]
        return {**options, **(_CPU if self.kind == "cpu" else self._cuda_options())}

    def _cuda_options(self) -> dict[str, Any]:
        return {
            "aot_inductor.embed_kernel_binary": True,
            "aot_inductor.emit_multi_arch_kernel": False,
            "triton.autotune_at_compile_time": True,
            "triton.unique_kernel_names": True,
            # Kernels for convolutions exist only with these; `runnable_choices` picks among them.
            "max_autotune": False,
            "max_autotune_gemm": True,
            "max_autotune_gemm_backends": "ATEN,TRITON",
            "max_autotune_conv_backends": "ATEN,TRITON",
            "autotune_in_subproc": False,
            # Padding copies weights in every call and times libraries that the program lacks.
            "shape_padding": False,
        }


_COMMON: Final[dict[str, Any]] = {
    "aot_inductor.package": True,
    "aot_inductor.package_cpp_only": True,
    "aot_inductor.link_libtorch": False,
    "aot_inductor.package_constants_in_so": False,
    "aot_inductor.package_constants_on_disk_format": "pickle_weights",
    "aot_inductor.precompile_headers": False,
    "aot_inductor.use_runtime_constant_folding": False,
    "cpp_cache_precompile_headers": False,
    "always_keep_tensor_constants": True,
    # An explicit cast to a 16-bit type rounds, as in eager; fusion would drop the casts.
    "emulate_precision_casts": True,
    "joint_graph_constant_folding": False,
    "freezing": False,
    "cpp.vec_isa_ok": True,
    "cpp.threads": PLANNED_THREADS,
    "cpp.dynamic_threads": True,
    "cpp.min_chunk_size": MIN_CHUNK,
    "cpp.enable_kernel_profile": False,
    "cpp.inject_relu_bug_TESTING_ONLY": None,
    "cpp.weight_prepack": False,
    "fx_graph_cache": False,
    "trace.enabled": False,
}
_CPU: Final[dict[str, Any]] = {"max_autotune": False, "max_autotune_gemm": False}
