"""Generated sources to shared libraries, in parallel."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from cudaexec.export.aoti_compile import GeneratedCode
from cudaexec.export.build_cache import BuildCache
from cudaexec.export.toolchain import FlagSet, Toolchain
from cudaexec.export.torch_headers import overlay

# The wrapper is straight-line calls: more than -O1 costs minutes for large models and gains
# nothing. The container half does nothing per call but forward it.
WRAPPER_OPTIMISE = "-O1"
KERNEL_OPTIMISE = "-O3"


class ProgramBuilder:
    """Compiles each distinct source once; the container half comes from the cache."""

    def __init__(self, toolchain: Toolchain, cache: BuildCache, directory: Path) -> None:
        """Args: directory: a private directory for objects."""
        self._toolchain = toolchain
        self._cache = cache
        self._directory = directory
        self._objects: dict[str, Future[Path]] = {}
        self._overlay: tuple[Path | None] | None = None
        self.shared_half_cached = True

    def build(self, sources: list[list[GeneratedCode]]) -> list[list[bytes]]:
        """Return the library of each method and level, in the order of `sources`."""
        self._directory.mkdir(parents=True)
        workers = max(1, min(8, len(os.sched_getaffinity(0))))
        with ThreadPoolExecutor(workers, thread_name_prefix="cudaexec-cxx") as pool:
            objects = [[self._objects_of(pool, code) for code in codes] for codes in sources]
            links = [
                [
                    pool.submit(self._link, [item.result() for item in parts], code)
                    for parts, code in zip(row, codes, strict=True)
                ]
                for row, codes in zip(objects, sources, strict=True)
            ]
            return [[link.result() for link in row] for row in links]

    def _objects_of(self, pool: ThreadPoolExecutor, code: GeneratedCode) -> list[Future[Path]]:
        flags = FlagSet.from_inductor(
            code.level, code.definitions, code.cflags, code.include_dirs, code.isa_flags
        )
        # Container and wrapper hold no loops: one object, for the lowest level, serves all.
        base = flags.without_vectors()
        if self._overlay is None:
            self._overlay = (overlay(self._cache, code.include_dirs),)
        if self._overlay[0] is not None:
            base = base.with_first_include(str(self._overlay[0]))
        wrapper = '#include <torch/csrc/inductor/aoti_include/cpu.h>\n' + code.wrapper
        return [
            self._submit(pool, "wrapper", wrapper, base, WRAPPER_OPTIMISE, self._compile),
            self._submit(pool, "kernels", code.kernels, flags, KERNEL_OPTIMISE, self._compile),
            self._submit(pool, "container", code.interface, base, WRAPPER_OPTIMISE, self._shared),
        ]

    def _submit(
        self,
        pool: ThreadPoolExecutor,
        kind: str,
        text: str,
        flags: FlagSet,
        optimise: str,
        make: Callable[[str, str, FlagSet, str, str], Path],
    ) -> Future[Path]:
        arguments = " ".join(flags.identity(optimise))
        key = "\n".join((kind, arguments, text))
        digest = hashlib.sha256(key.encode()).hexdigest()[:24]
        if digest not in self._objects:
            self._objects[digest] = pool.submit(make, kind, text, flags, optimise, digest)
        return self._objects[digest]

    def _compile(
        self, kind: str, text: str, flags: FlagSet, optimise: str, digest: str
    ) -> Path:
        folder = self._directory / digest
        folder.mkdir()
        source = folder / f"{kind}.cpp"
        source.write_text(text, encoding="utf-8")
        output = folder / f"{kind}.o"
        self._toolchain.compile(source, output, flags, optimise)
        return output

    def _shared(self, kind: str, text: str, flags: FlagSet, optimise: str, digest: str) -> Path:
        import torch

        def build(target: Path) -> None:
            self._compile(kind, text, flags, optimise, digest).replace(target)

        key = "\n".join(
            (
                torch.__version__,
                self._toolchain.compiler.version,
                " ".join(flags.identity(optimise)),
                str(len(flags.include_dirs)),  # with or without the changed header
                text,
            )
        )
        path, cached = self._cache.get("container.o", key, build)
        self.shared_half_cached = self.shared_half_cached and cached
        return path

    def _link(self, objects: list[Path], code: GeneratedCode) -> bytes:
        names = "\n".join(str(path) for path in objects) + code.level
        folder = self._directory / hashlib.sha256(names.encode()).hexdigest()[:24]
        folder.mkdir(exist_ok=True)
        output = folder / "program.so"
        self._toolchain.link(objects, output, code.level)
        return output.read_bytes()
