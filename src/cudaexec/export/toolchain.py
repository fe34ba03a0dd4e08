"""The C++ compiler: our own compile and link lines for generated sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from cudaexec.export.errors import ExportError

SHIMS_NAME = "libcudaexec_shims.so.1"

# Inductor's flags that are not taken over: debug info, warnings, the machine, and our own choices.
_DROPPED = ("g", "W", "march=", "mtune=", "O", "shared", "fPIC", "pedantic", "fopenmp")
_LEVEL_FLAGS: dict[str, frozenset[str]] = {
    "x86-64-v3": frozenset({"-mavx2", "-mfma", "-mf16c"}),
    "x86-64-v4": frozenset(
        {"-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mavx512cd", "-mfma"}
    ),
}
# What a machine of the level must report, as /proc/cpuinfo spells it.
CPU_FLAGS: dict[str, tuple[str, ...]] = {
    "x86-64-v3": ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"),
    "x86-64-v4": (
        *("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"),
        *("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    ),
}

_EXPORTS = "{ global: AOTInductor*; local: *; };\n"


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: command and what `--version` said first."""

    command: str
    version: str


def find_compiler(requested: str | None) -> Compiler:
    """Find the compiler: the option, then `$CXX`, then `g++`.

    Raises:
        ExportError: there is none, or it does not run.
    """
    command = requested or os.environ.get("CXX") or "g++"
    path = shutil.which(command)
    if path is None:
        raise ExportError(
            f"no C++ compiler: {command!r} is not on PATH. Install g++ (Debian: apt-get install "
            f"g++) or name one with ExportOptions(compiler=...) or $CXX."
        )
    return Compiler(path, _version(path))


@lru_cache(maxsize=16)
def _version(path: str) -> str:
    result = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    lines = result.stdout.splitlines()
    if result.returncode != 0 or not lines:
        raise ExportError(f"the C++ compiler {path!r} does not run: {result.stderr.strip()[:300]}")
    return lines[0].strip()


def shims_library() -> Path:
    """Return our runtime library, which exported code is linked with.

    Raises:
        ExportError: the installation is incomplete.
    """
    import cudaexec

    for base in (Path(cudaexec.__file__).parent, *map(Path, cudaexec.__path__)):
        library = base / "lib" / SHIMS_NAME
        if library.is_file():
            return library
    raise ExportError(
        f"{SHIMS_NAME} is not in {Path(cudaexec.__file__).parent / 'lib'}; exported code is linked "
        f"with it. Reinstall cudaexec."
    )


@dataclass(frozen=True)
class FlagSet:
    """What the compile lines of one level have in common.

    Attributes:
        level: "x86-64-v3" or "x86-64-v4".
        definitions, cflags: taken over from Inductor, without the leading -D and -.
        include_dirs: torch's headers.
        changed_headers: names the contents of those that take the place of torch's.
    """

    level: str
    definitions: tuple[str, ...]
    cflags: tuple[str, ...]
    include_dirs: tuple[str, ...]
    changed_headers: str = ""

    @classmethod
    def from_inductor(
        cls,
        level: str,
        definitions: Sequence[str],
        cflags: Sequence[str],
        include_dirs: Sequence[str],
        isa_flags: Sequence[str],
    ) -> FlagSet:
        """Keep what matters of Inductor's flags.

        Raises:
            ExportError: Inductor asks for instructions that machines of `level` may lack.
        """
        beyond = set(isa_flags) - _LEVEL_FLAGS[level]
        if beyond:
            raise ExportError(
                f"Inductor asks for {' '.join(sorted(beyond))}, which {level} does not include"
            )
        kept = tuple(flag for flag in cflags if flag == "DNDEBUG" or not flag.startswith(_DROPPED))
        wanted = tuple(name for name in definitions if name != "TORCH_INDUCTOR_PRECOMPILE_HEADERS")
        headers = tuple(path for path in include_dirs if "torch" in Path(path).parts)
        return cls(level, wanted, kept, headers)

    def without_vectors(self) -> FlagSet:
        """Return the flags of code that has no loops: the lowest level, no vector types."""
        names = tuple(name for name in self.definitions if not name.startswith("CPU_CAPABILITY"))
        return FlagSet("x86-64-v3", names, self.cflags, self.include_dirs)

    def with_changed_headers(self, directory: Path) -> FlagSet:
        """Return the flags with a directory in front of torch's, whose name stands for it."""
        directories = (str(directory), *self.include_dirs)
        return replace(self, include_dirs=directories, changed_headers=directory.name)

    def with_last_include(self, directory: str) -> FlagSet:
        """Return the flags with another directory behind torch's."""
        return replace(self, include_dirs=(*self.include_dirs, directory))

    def identity(self, optimise: str) -> list[str]:
        """Return the flags that the object code depends on; the headers are torch's version."""
        return [
            *(f"-D{name}" for name in self.definitions),
            *(f"-{flag}" for flag in self.cflags),
            optimise,
            f"-march={self.level}",
            "-fPIC",
            "-fopenmp",
            "-fvisibility=hidden",
            "-fvisibility-inlines-hidden",
            "-fno-gnu-unique",
            "-g0",
            "-w",
        ]

    def arguments(self, optimise: str) -> list[str]:
        """Return the compile flags, without source and output."""
        return [
            *self.identity(optimise),
            *(f"-isystem{path}" for path in self.include_dirs),
            *(f"-ffile-prefix-map={path}=torch" for path in self.include_dirs),
        ]


class Toolchain:
    """Runs one compiler; every failure is an ExportError that keeps the compiler's words."""

    def __init__(self, compiler: Compiler) -> None:
        """Args: compiler: from `find_compiler`."""
        self.compiler = compiler

    def precompile(self, header: Path, output: Path, flags: FlagSet, optimise: str) -> None:
        """Write a header in the compiler's precompiled form."""
        arguments = [*flags.arguments(optimise), "-x", "c++-header", str(header), "-o", str(output)]
        self._run(arguments, header.parent)

    def compile(
        self,
        source: Path,
        output: Path,
        flags: FlagSet,
        optimise: str,
        prefix: Path | None = None,
    ) -> None:
        """Compile one source; paths in the object do not depend on where it lies.

        Args:
            source: the file.
            output: the object.
            flags: of its level.
            optimise: like "-O3".
            prefix: a header that is included first; its precompiled form lies beside it.
        """
        seed = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
        self._run(
            [
                *flags.arguments(optimise),
                f"-ffile-prefix-map={source.parent}=.",
                f"-frandom-seed={seed}",
                *(["-include", str(prefix)] if prefix is not None else []),
                "-c",
                source.name,
                "-o",
                str(output),
            ],
            source.parent,
        )

    def assemble(self, source: Path, output: Path) -> None:
        """Make an object of an assembler source."""
        self._run(["-c", source.name, "-o", str(output)], source.parent)

    def link(self, objects: Sequence[Path], output: Path, level: str) -> None:
        """Link a program: ours is the first library it needs, and only its interface is visible."""
        script = output.with_suffix(".version")
        script.write_text(_EXPORTS, encoding="utf-8")
        self._run(
            [
                "-shared",
                "-fPIC",
                "-o",
                str(output),
                *map(str, objects),
                "-Wl,--no-as-needed",
                str(shims_library()),
                "-Wl,--as-needed",
                f"-Wl,-z,{level}",
                "-Wl,-z,now,-z,relro,-z,noexecstack",
                "-Wl,--build-id=sha1",
                "-Wl,--hash-style=gnu",
                "-Wl,--gc-sections",
                f"-Wl,--version-script={script}",
                "-Wl,-rpath-link," + str(shims_library().parent),
                "-s",
            ],
            output.parent,
        )

    def _run(self, arguments: list[str], directory: Path) -> None:
        environment = {**os.environ, "LC_ALL": "C"}
        result = subprocess.run(
            [self.compiler.command, *arguments],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            said = "\n".join(result.stderr.strip().splitlines()[:12])
            raise ExportError(
                f"{self.compiler.version} failed with status {result.returncode} on generated "
                f"code:\n{said}"
            )
