"""Generated sources to shared libraries, in parallel."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from cudaexec.export.aoti_compile import GeneratedCode
from cudaexec.export.build_cache import BuildCache
from cudaexec.export.cuda_headers import cuda_include_dir
from cudaexec.export.toolchain import FlagSet, Toolchain
from cudaexec.export.torch_headers import overlay

# The wrapper is straight-line calls: more than -O1 costs minutes for large models and gains
# nothing. The container half does nothing per call but forward it.
_WRAPPER_OPTIMISE = "-O1"
_KERNEL_OPTIMISE = "-O3"
_MAX_WORKERS = 8


@dataclass(frozen=True)
class _Unit:
    """One source to compile; equal units give equal objects."""

    kind: str
    text: str
    flags: FlagSet
    optimise: str

    def key(self) -> str:
        """Return everything that the object depends on besides torch and the compiler."""
        flags = " ".join(self.flags.identity(self.optimise))
        return "\n".join((self.kind, flags, self.flags.changed_headers, self.text))

    def digest(self) -> str:
        return hashlib.sha256(self.key().encode()).hexdigest()[:24]


_CPU_INCLUDE = "#include <torch/csrc/inductor/aoti_include/cpu.h>\n"
_CUDA_INCLUDE = "#include <torch/csrc/inductor/aoti_include/cuda.h>\n"
# What a precompiled header holds for each kind of source.
_PREFIXES = {
    "wrapper": _CPU_INCLUDE,
    "wrapper_cuda": _CUDA_INCLUDE + _CPU_INCLUDE,
    "kernels": "#include <torch/csrc/inductor/cpp_prefix.h>\n",
}


class ProgramBuilder:
    """Compiles each distinct source once; the container half comes from the cache."""

    def __init__(
        self, toolchain: Toolchain, cache: BuildCache, directory: Path, *, precompile: bool
    ) -> None:
        """Args: directory: a private one, for objects. precompile: keep precompiled headers."""
        self._toolchain = toolchain
        self._cache = cache
        self._directory = directory
        self._precompile = precompile
        self._objects: dict[str, Future[Path]] = {}
        self._overlay: tuple[Path | None] | None = None
        self.shared_half_cached = True

    def build(self, sources: list[list[GeneratedCode]]) -> list[list[bytes]]:
        """Return the library of each method and level, in the order of `sources`."""
        self._directory.mkdir(parents=True)
        # One more than processors: three equal pieces on two of them end sooner side by side.
        workers = min(_MAX_WORKERS, len(os.sched_getaffinity(0)) + 1)
        with ThreadPoolExecutor(workers, thread_name_prefix="cudaexec-cxx") as pool:
            objects = [[self._submit_all(pool, code) for code in codes] for codes in sources]
            links = [
                [
                    pool.submit(self._link, [item.result() for item in parts], code)
                    for parts, code in zip(row, codes, strict=True)
                ]
                for row, codes in zip(objects, sources, strict=True)
            ]
            return [[link.result() for link in row] for row in links]

    def _submit_all(self, pool: ThreadPoolExecutor, code: GeneratedCode) -> list[Future[Path]]:
        return [self._submit(pool, unit) for unit in self._units(code)]

    def _units(self, code: GeneratedCode) -> list[_Unit]:
        level = code.target.cpu_level
        flags = FlagSet.from_inductor(
            level, code.definitions, code.cflags, code.include_dirs, code.isa_flags
        )
        kind = code.target.kind
        if kind == "cuda":
            flags = flags.with_last_include(cuda_include_dir(code.include_dirs))
        # Container and wrapper hold no loops: one object, for the lowest level, serves all.
        base = flags.without_vectors()
        if self._overlay is None:
            self._overlay = (overlay(self._cache, code.include_dirs),)
        if self._overlay[0] is not None:
            base = base.with_changed_headers(self._overlay[0])
        wrapper_kind = "wrapper" if kind == "cpu" else "wrapper_cuda"
        wrapper = _PREFIXES[wrapper_kind] + code.wrapper
        units = [
            _Unit("container", code.interface, base, _WRAPPER_OPTIMISE),
            _Unit(wrapper_kind, wrapper, base, _WRAPPER_OPTIMISE),
        ]
        if code.kernels.strip():
            units.append(_Unit("kernels", code.kernels, flags, _KERNEL_OPTIMISE))
        return units

    def _submit(self, pool: ThreadPoolExecutor, unit: _Unit) -> Future[Path]:
        digest = unit.digest()
        if digest not in self._objects:
            make = self._shared if unit.kind == "container" else self._compile
            self._objects[digest] = pool.submit(make, unit)
        return self._objects[digest]

    def _compile(self, unit: _Unit) -> Path:
        folder = self._directory / unit.digest()
        folder.mkdir()
        source = folder / f"{unit.kind}.cpp"
        source.write_text(unit.text, encoding="utf-8")
        output = folder / f"{unit.kind}.o"
        prefix = self._prefix(unit) if self._precompile else None
        self._toolchain.compile(source, output, unit.flags, unit.optimise, prefix)
        return output

    def _prefix(self, unit: _Unit) -> Path | None:
        """Return a header whose precompiled form lies beside it in the cache."""
        text = _PREFIXES.get(unit.kind)
        if text is None:
            return None
        header = _Unit(unit.kind + " header", text, unit.flags, unit.optimise)
        key = self._cache_key(header)
        plain, _ = self._cache.get("prefix.h", key, lambda target: _write(target, text))

        def build(target: Path) -> None:
            self._toolchain.precompile(plain, target, unit.flags, unit.optimise)

        compiled, _ = self._cache.get("prefix.h.gch", key, build)
        return plain if compiled.parent == plain.parent else None

    def _shared(self, unit: _Unit) -> Path:
        path, cached = self._cache.get(
            "container.o", self._cache_key(unit), lambda target: self._compile_to(unit, target)
        )
        self.shared_half_cached = self.shared_half_cached and cached
        return path

    def _cache_key(self, unit: _Unit) -> str:
        return "\n".join((torch.__version__, self._toolchain.compiler.version, unit.key()))

    def _compile_to(self, unit: _Unit, target: Path) -> None:
        target.write_bytes(self._compile(unit).read_bytes())

    def _link(self, objects: list[Path], code: GeneratedCode) -> bytes:
        level = code.target.cpu_level
        names = "\n".join([*map(str, objects), *map(str, code.objects), code.target.name])
        folder = self._directory / hashlib.sha256(names.encode()).hexdigest()[:24]
        folder.mkdir(exist_ok=True)
        output = folder / "program.so"
        kernels = [self._embed(path, folder) for path in code.objects]
        self._toolchain.link([*objects, *kernels], output, level)
        return output.read_bytes()

    def _embed(self, kernel: Path, folder: Path) -> Path:
        """Return an object that holds a kernel: Inductor's own, or one around its PTX."""
        if kernel.suffix == ".o":
            return kernel
        source = folder / f"{kernel.stem}.S"
        source.write_text(_EMBEDDED.format(name=kernel.stem, path=kernel), encoding="utf-8")
        output = source.with_suffix(".o")
        self._toolchain.assemble(source, output)
        return output


# The names are those that Inductor's code refers to; the driver reads PTX up to the zero.
_EMBEDDED = """
.section .rodata,"a",@progbits
.balign 16
.globl __{name}_start
__{name}_start:
.incbin "{path}"
.byte 0
.globl __{name}_end
__{name}_end:
.section .note.GNU-stack,"",@progbits
"""


def _write(target: Path, text: str) -> None:
    target.write_text(text, encoding="utf-8")
