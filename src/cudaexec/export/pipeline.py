"""The stages of an export, from a module to two files."""

from __future__ import annotations

import gc
import hashlib
import os
import platform
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

import cudaexec
from cudaexec.export.aoti_compile import GeneratedCode, generate
from cudaexec.export.build import ProgramBuilder
from cudaexec.export.build_cache import BuildCache, default_cache_dir
from cudaexec.export.callouts import (
    MissingOperator,
    called_functions,
    callouts,
    operator_of,
    places_of,
    refuse,
)
from cudaexec.export.compiled import (
    CodeVariant,
    CompiledMethod,
    check_same_constants,
    method_json,
    method_report,
)
from cudaexec.export.elf import inspect, provided_functions
from cudaexec.export.errors import ExportError
from cudaexec.export.kv_lower import CacheBuffers, cache_json
from cudaexec.export.lower import LoweredMethod, lower, shape_env_of
from cudaexec.export.manifest import code_key, code_section, encode_manifest, weights_section
from cudaexec.export.narrowing import NeedsSizesAboveOneError
from cudaexec.export.placement import GpuPlacement, align_examples, take_output_layouts
from cudaexec.export.progress import Stages
from cudaexec.export.report import ExportReport
from cudaexec.export.targets import Target, code_targets
from cudaexec.export.toolchain import Toolchain, find_compiler
from cudaexec.export.trace import MethodRequest, training_notes
from cudaexec.export.weights import WeightsTable
from cudaexec.export.write import FilePair, program_method, write_files
from cudaexec.options import ExportOptions

# Inductor keeps its configuration in globals: one export at a time in a process.
_LOCK = threading.Lock()


def run_export(
    requests: Sequence[MethodRequest],
    targets: Sequence[Target],
    path: Path,
    options: ExportOptions,
) -> ExportReport:
    """Export the methods into `path` and, if there are weights, `path` with `.ptd`.

    Raises:
        ExportError: see `cudaexec.export`.
    """
    with (
        _LOCK,
        tempfile.TemporaryDirectory(
            prefix="cudaexec-export-",
            ignore_cleanup_errors=True,  # a compiler may still write
        ) as name,
        _programs_unchanged(requests),
    ):
        return _Export(requests, targets, path, options, Path(name)).run()


class _Export:
    """One export in a private directory."""

    def __init__(
        self,
        requests: Sequence[MethodRequest],
        targets: Sequence[Target],
        path: Path,
        options: ExportOptions,
        directory: Path,
    ) -> None:
        self._requests = [align_examples(request) for request in requests]
        self._targets = code_targets(targets, options)
        gpu = self._targets[0]
        self._placement = GpuPlacement(gpu.device_index) if gpu.kind == "cuda" else None
        self._path = path
        self._options = options
        self._directory = directory
        self._stages = Stages(options.progress)
        self._toolchain = Toolchain(find_compiler(options.compiler))
        cache_dir = Path(options.cache_dir) if options.cache_dir else default_cache_dir()
        self._cache = BuildCache(cache_dir, directory / "cache")
        self._cached = True
        self._kv = CacheBuffers(options.kv_cache) if options.kv_cache is not None else None

    def run(self) -> ExportReport:
        with self._stages.stage("trace"), _collector_paused():
            methods = [CompiledMethod(self._lower(request)) for request in self._requests]
            self._check_cache(methods)
        with self._stages.stage("generate"), _collector_paused():
            sources = [
                self._generate(method, request)
                for method, request in zip(methods, self._requests, strict=True)
            ]
            self._refuse_missing(methods, sources)
        with self._stages.stage("compile"):
            self._compile(methods, sources)
        with self._stages.stage("check"):
            self._check_linked(methods)
        table = WeightsTable()
        with self._stages.stage("weights"):
            self._collect_weights(methods, table)
        with self._stages.stage("write"):
            files = self._write(methods, table)
        return self._report(methods, table, files)

    def _lower(self, request: MethodRequest, *, small_sizes: bool = True) -> LoweredMethod:
        lowered = lower(
            request, strict=self._options.strict, small_sizes=small_sizes, cache=self._kv
        )
        if self._placement is not None:
            self._placement.place(lowered)
        return lowered

    def _check_cache(self, methods: list[CompiledMethod]) -> None:
        if self._kv is not None and not any(method.lowered.kv for method in methods):
            names = [name for pair in self._kv.spec.buffers for name in pair]
            raise ExportError(
                f"ExportOptions.kv_cache: no method reads or writes any of {', '.join(names[:4])}"
            )

    def _generate(self, method: CompiledMethod, request: MethodRequest) -> list[GeneratedCode]:
        targets = self._targets
        folder = self._directory / "inductor" / hashlib.sha256(request.name.encode()).hexdigest()
        try:
            codes, mutations = generate(method.lowered, targets, folder / "first")
        except NeedsSizesAboveOneError:
            method.lowered = self._lower(request, small_sizes=False)
            codes, mutations = generate(method.lowered, targets, folder / "second")
        if targets[0].kind == "cuda":
            take_output_layouts(method.lowered, mutations.outputs)
        method.mutated = mutations.constants
        for spec in method.lowered.inputs:
            if spec["kind"] == "tensor":
                spec["mutated"] = spec["graph_input"] in mutations.inputs
        if self._options.ptx and targets[0].kind == "cuda":
            codes.append(codes[0].as_ptx())
        self._keep_sources(request.name, codes)
        return codes

    def _keep_sources(self, method: str, codes: list[GeneratedCode]) -> None:
        if self._options.keep_sources is None:
            return
        for code in codes:
            folder = Path(self._options.keep_sources) / method / code.target.name
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("interface", "wrapper", "kernels"):
                (folder / f"{name}.cpp").write_text(getattr(code, name), encoding="utf-8")

    def _refuse_missing(
        self, methods: list[CompiledMethod], sources: list[list[GeneratedCode]]
    ) -> None:
        """Refuse operators that the runtime lacks before anything is compiled."""
        available = provided_functions()
        missing = []
        for method, codes in zip(methods, sources, strict=True):
            lowered = method.lowered
            for code in codes:
                for operator in code.proxied:
                    places = places_of(operator, code.places)
                    missing.append(
                        MissingOperator(lowered.name, operator, "libtorch's dispatcher", places)
                    )
                for symbol in called_functions(code.wrapper + code.kernels):
                    if symbol in available or "proxy_executor" in symbol:
                        continue
                    operator = operator_of(symbol, code.wrapper)
                    places = places_of(operator, code.places)
                    missing.append(MissingOperator(lowered.name, operator, symbol, places))
        refuse(missing)

    def _compile(self, methods: list[CompiledMethod], sources: list[list[GeneratedCode]]) -> None:
        builder = ProgramBuilder(
            self._toolchain,
            self._cache,
            self._directory / "build",
            precompile=self._options.precompiled_headers or bool(os.environ.get("CUDAEXEC_PCH")),
        )
        binaries = builder.build(sources)
        self._cached = builder.shared_half_cached
        for method, codes, built in zip(methods, sources, binaries, strict=True):
            for code, binary in zip(codes, built, strict=True):
                facts = inspect(binary, f"{method.lowered.name} for {code.target.name}")
                variant = CodeVariant(
                    code, binary, code_key(binary), facts, callouts(facts.undefined)
                )
                method.variants.append(variant)

    def _check_linked(self, methods: list[CompiledMethod]) -> None:
        missing = []
        for method in methods:
            for variant in method.variants:
                for symbol in variant.facts.missing:
                    operator = operator_of(symbol, variant.generated.wrapper)
                    missing.append(MissingOperator(method.lowered.name, operator, symbol))
                unknown = variant.facts.unknown_needed
                if unknown:
                    raise ExportError(
                        f"compiled code needs {', '.join(unknown)}, which programs may not use; "
                        f"compile with plain g++ (ExportOptions(compiler=...))"
                    )
                variant.facts.require_level(variant.generated.target.cpu_level)
        refuse(missing)

    def _collect_weights(self, methods: list[CompiledMethod], table: WeightsTable) -> None:
        for method in methods:
            lowered = method.lowered
            code = method.variants[0].generated
            for variant in method.variants[1:]:
                check_same_constants(lowered.name, code, variant.generated)
            for info in code.constants:
                tensor = lowered.tensors.get(info.fqn, code.value_of(info))
                if tensor is None:
                    raise ExportError(
                        f"method {lowered.name!r}: the generated code has a constant "
                        f"{info.name!r} ({info.fqn!r}) that the model does not have"
                    )
                owned = info.fqn in lowered.owned
                entry = table.add_constant(lowered.name, info, tensor, owned=owned)
                entry["mutated"] = info.fqn in method.mutated
                entry["kv"] = False
                method.constants.append(entry)
                method.names[info.fqn] = entry["fqn"]
        for method in methods:
            table.add_aliases(method.lowered.tensors.items())
        table.compute_digests(torch.get_num_threads())

    def _write(self, methods: list[CompiledMethod], table: WeightsTable) -> FilePair:
        blobs = {variant.key: variant.binary for method in methods for variant in method.variants}
        manifest = encode_manifest(self._manifest(methods, table, blobs))
        programs = [
            program_method(
                method.lowered,
                [variant.payload_entry() for variant in method.payload_variants],
                method.constants,
                {key: entry.nbytes for key, entry in table.entries.items()},
            )
            for method in methods
        ]
        return write_files(self._path, programs, {**blobs}, manifest, table)

    def _manifest(
        self, methods: list[CompiledMethod], table: WeightsTable, blobs: dict[str, bytes]
    ) -> dict[str, Any]:
        facts = [variant.facts for method in methods for variant in method.variants]
        entries = {key: (entry.nbytes, entry.digest) for key, entry in table.entries.items()}
        cache = cache_json((m.lowered.name, m.lowered.kv) for m in methods if m.lowered.kv)
        return {
            **({"kv_cache": cache} if cache else {}),
            "producer": {
                "cudaexec": cudaexec.__version__,
                "torch": torch.__version__,
                "triton": self._triton_version(),
                "nvcc": None,
                "compiler": self._toolchain.compiler.version,
                "python": platform.python_version(),
            },
            "platform": {
                "os": "linux",
                "machine": platform.machine(),
                "glibc": _highest(item.min_glibc for item in facts),
                "glibcxx": _highest(item.min_glibcxx for item in facts),
            },
            "code": code_section(blobs),
            "weights": weights_section(entries),
            "aliases": table.aliases,
            "methods": [method_json(method) for method in methods],
        }

    def _triton_version(self) -> str | None:
        return version("triton") if self._targets[0].kind == "cuda" else None

    def _report(
        self, methods: list[CompiledMethod], table: WeightsTable, files: FilePair
    ) -> ExportReport:
        return ExportReport(
            pte=str(files.pte),
            ptd=None if files.ptd is None else str(files.ptd),
            pte_nbytes=files.pte_nbytes,
            ptd_nbytes=files.ptd_nbytes,
            weights_nbytes=sum(entry.nbytes for entry in table.entries.values()),
            methods=tuple(method_report(method, table.aliases) for method in methods),
            stages=tuple(self._stages.times),
            torch_version=torch.__version__,
            compiler=self._toolchain.compiler.version,
            shared_half_cached=self._cached,
            notes=tuple(note for request in self._requests for note in training_notes(request)),
        )


@contextmanager
def _programs_unchanged(requests: Sequence[MethodRequest]) -> Iterator[None]:
    """Put back what code generation adds to the ShapeEnv of a caller's ExportedProgram."""
    kept: list[tuple[Any, list[Any], dict[Any, Any], dict[Any, Any]]] = []
    for request in requests:
        env = shape_env_of(request.model) if isinstance(request.model, ExportedProgram) else None
        if env is not None:
            kept.append((env, list(env.guards), dict(env.var_to_range), dict(env.replacements)))
    try:
        yield
    finally:
        for env, guards, ranges, replacements in kept:
            env.guards[:] = guards
            for table, before in ((env.var_to_range, ranges), (env.replacements, replacements)):
                table.clear()
                table.update(before)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector: Inductor's imports alone take 0.7 s more with it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _highest(versions: Iterable[str]) -> str:
    return max(versions, key=lambda text: [int(part) for part in text.split(".") if part])


__all__ = ["run_export"]
