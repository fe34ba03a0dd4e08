"""Inductor as a code generator: a flat graph to C++ sources, nothing compiled by it."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from cudaexec.export import kv_op
from cudaexec.export.callouts import operator_places
from cudaexec.export.code_target import LEVELS, CodeTarget
from cudaexec.export.cuda_codegen import codegen_context
from cudaexec.export.errors import ExportError, first_line, source_line
from cudaexec.export.inductor_api import compile_fx_aot, compile_fx_inner
from cudaexec.export.inductor_api import config as inductor_config
from cudaexec.export.inductor_patches import patched
from cudaexec.export.lower import LoweredMethod
from cudaexec.export.narrowing import GuardWatch, NeedsSizesAboveOneError
from cudaexec.export.small_sizes import oblivious_sizes
from cudaexec.export.teams import limit_teams
from cudaexec.export.trace import quiet_torch

# The base class refers to weights linked into the library; ours has none, and never reads these.
_NO_EMBEDDED_WEIGHTS = """
uint8_t _binary_constants_bin_start[1] = {};
uint8_t _binary_constants_bin_end[1] = {};
"""

_INTERFACE_END = '} // extern "C"'
_KERNELS_BEGIN = "#include <torch/csrc/inductor/cpp_prefix.h>"


aten = torch.ops.aten
_PRODUCTS = (aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default)
_GPU_PRODUCTS = tuple(f"aoti_torch_cuda_{name}_out" for name in ("mm", "bmm", "addmm", "baddbmm"))


@dataclass(frozen=True)
class ConstantInfo:
    """One constant of the container, read from the generated constructor."""

    name: str
    fqn: str
    device: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass
class GeneratedCode:
    """The sources of one method for one target.

    Attributes:
        interface: the container half, the same text for every model.
        wrapper: the model half without its kernels. kernels: the loops.
        definitions, include_dirs, cflags, isa_flags: from Inductor's flags.
        objects: what is linked besides: the compiled GPU kernels.
        constants: in container order. values: each constant's tensor by container name.
        proxied: operators that only libtorch's proxy executor could run.
        places: operator name without namespace and overload to the model's source lines.
    """

    target: CodeTarget
    interface: str
    wrapper: str
    kernels: str
    definitions: list[str]
    include_dirs: list[str]
    cflags: list[str]
    isa_flags: list[str]
    objects: list[Path]
    constants: list[ConstantInfo]
    values: dict[str, torch.Tensor]
    proxied: list[str] = field(default_factory=list)
    places: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def as_ptx(self) -> GeneratedCode:
        """Return the same code over its kernels' PTX, which Inductor leaves beside them.

        Raises:
            ExportError: a kernel has none.
        """
        kernels = [path.with_name(path.name.split(".")[0] + ".ptx") for path in self.objects]
        absent = [path.name for path in kernels if not path.is_file()]
        if absent:
            raise ExportError(f"ExportOptions.ptx: Inductor left no {', '.join(absent)}")
        return replace(self, target=self.target.as_ptx(), objects=kernels)

    def value_of(self, info: ConstantInfo) -> torch.Tensor | None:
        """Return the value of a constant that code generation made up, in host memory."""
        value = self.values.get(info.name, self.values.get(info.fqn))
        return None if value is None else value.cpu()


@contextmanager
def private_inductor_dir(directory: Path) -> Iterator[None]:
    """Keep Inductor's own cache files inside `directory` and the environment as it was."""
    name = "TORCHINDUCTOR_CACHE_DIR"
    before = os.environ.get(name)
    os.environ[name] = str(directory)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


def generate(
    method: LoweredMethod, targets: Sequence[CodeTarget], directory: Path
) -> tuple[list[GeneratedCode], Mutations]:
    """Generate the sources of a method for each target of one device.

    The graph is functionalised and decomposed once; only the code generator runs per target.

    Args:
        method: from `lower`.
        targets: CPU levels, or one GPU.
        directory: a private directory for everything that Inductor writes.

    Raises:
        ExportError: Inductor failed, generated scalar code, or narrowed a dynamic size.
        NeedsSizesAboveOneError: see narrowing.py.
    """
    run = _GeneratorRun(method, targets, directory)
    watch = GuardWatch(method.shape_env)
    try:
        with (
            quiet_torch(),
            torch.no_grad(),
            oblivious_sizes(method.oblivious),
            private_inductor_dir(directory),
            patched(gpu=targets[0].kind == "cuda"),
            codegen_context(targets, directory),
        ):
            compile_fx_aot(
                method.graph_module,
                list(method.example_inputs),
                inner_compile=run.generate_targets,
                config_patches=run.options(targets[0]),
            )
    except ExportError:
        raise
    except Exception as error:
        if method.oblivious:  # some lowerings cannot do without knowing that sizes are above 1
            raise NeedsSizesAboveOneError from error
        if "inputs that are mutated" in str(error):
            raise ExportError(
                f"method {method.name!r}: the model writes a parameter or buffer whose memory "
                f"another one shares (a view of it, or a second name); make one a copy of the "
                f"other, or write through one name only"
            ) from error
        raise ExportError(
            f"method {method.name!r}: Inductor could not generate code: "
            f"{type(error).__name__}: {first_line(error)}"
        ) from error
    watch.check(method.symbols, oblivious=method.oblivious)
    codes = [_collect(method.name, target, run.produced[target]) for target in targets]
    for code in codes:
        code.places = run.places
        if run.integer_products and any(name in code.wrapper for name in _GPU_PRODUCTS):
            raise ExportError(
                f"method {method.name!r}: matrix products of integers do not exist on a GPU, as in "
                f"eager mode: {'; '.join(run.integer_products)}. Compute them in floating point."
            )
    return codes, run.mutations


@dataclass
class Mutations:
    """What the compiled graph writes.

    Attributes:
        constants: FQNs. inputs: indices of graph inputs.
        outputs: the fake value of each graph output, as this device computes it.
    """

    constants: set[str] = field(default_factory=set)
    inputs: set[int] = field(default_factory=set)
    outputs: list[Any] = field(default_factory=list)


class _GeneratorRun:
    """Takes the place of Inductor's code generator: runs it once per target on the same graph."""

    def __init__(
        self, method: LoweredMethod, targets: Sequence[CodeTarget], directory: Path
    ) -> None:
        self._declared = kv_op.inductor_options() if method.kv is not None else {}
        self._targets = targets
        self._directory = directory
        self.produced: dict[CodeTarget, Any] = {}
        self.mutations = Mutations()
        self.places: dict[str, tuple[str, ...]] = {}
        self.integer_products: list[str] = []

    def options(self, target: CodeTarget) -> dict[str, Any]:
        folder = self._directory / target.name
        folder.mkdir(parents=True, exist_ok=True)
        return {**target.inductor_options(folder), **self._declared}

    def generate_targets(self, graph: Any, example_inputs: Any, **arguments: Any) -> Any:
        self._note_mutations(graph)
        self.places = operator_places(graph)
        self.integer_products = integer_products(graph)
        result = None
        for target in self._targets:
            copied = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
            copied.meta.update(graph.meta)
            with inductor_config.patch(self.options(target)):
                result = compile_fx_inner(copied, example_inputs, **arguments)
            self.produced[target] = result.filename
        return result

    def _note_mutations(self, graph: Any) -> None:
        """Functionalisation left one trailing `copy_` per written buffer or input."""
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        results = next(node for node in graph.graph.nodes if node.op == "output").args[0]
        self.mutations.outputs = [getattr(item, "meta", {}).get("val") for item in results]
        for node in graph.graph.nodes:
            if node.target is not torch.ops.aten.copy_.default:
                continue
            written = node.args[0]
            if written.op == "get_attr":
                self.mutations.constants.add(str(written.target))
            elif written.op == "placeholder":
                self.mutations.inputs.add(placeholders.index(written))


def integer_products(graph: Any) -> list[str]:
    """Return the matrix products of a decomposed graph that are not in floating point."""
    return [
        f"{node.target}{source_line(node)}"
        for node in graph.graph.nodes
        if node.target in _PRODUCTS and not node.meta["val"].dtype.is_floating_point
    ]


def _collect(method: str, target: CodeTarget, produced: Any) -> GeneratedCode:
    files = [Path(item) for item in produced if isinstance(item, str)]
    values = next((dict(item) for item in produced if isinstance(item, dict)), {})
    source = _only(method, files, ".wrapper.cpp").read_text(encoding="utf-8")
    flags = json.loads(_only(method, files, "_compile_flags.json").read_text(encoding="utf-8"))
    metadata = json.loads(_only(method, files, "wrapper_metadata.json").read_text(encoding="utf-8"))
    _check_metadata(method, target, metadata)
    interface, wrapper, kernels = split_source(method, source)
    return GeneratedCode(
        target=target,
        interface=interface,
        wrapper=wrapper,
        kernels=kernels,
        definitions=[definition.strip() for definition in flags["definitions"]],
        include_dirs=list(flags["include_dirs"]),
        cflags=list(flags["cflags"]),
        isa_flags=[flag for text in flags["passthrough_args"] for flag in text.split()],
        objects=[path for path in files if path.name.endswith((".cubin.o", ".fatbin.o"))],
        constants=read_constants(wrapper),
        values={name: entry[0] for name, entry in values.items()},
        proxied=_proxied(files),
    )


def _check_metadata(method: str, target: CodeTarget, metadata: dict[str, Any]) -> None:
    """Compare what Inductor says that it generated with what was asked for."""
    if target.kind == "cuda":
        key, expected = "AOTI_COMPUTE_CAPABILITY", str(target.sm)
    else:
        key, expected = "AOTI_CPU_ISA", LEVELS[target.cpu_level][1]
    found = str(metadata.get(key, "missing"))
    if found != expected:
        raise ExportError(
            f"method {method!r}: Inductor generated {found} code for {target.name}, expected "
            f"{expected}; a slow or useless file is not written. Please report this with the torch "
            f"version ({torch.__version__})."
        )


def _proxied(files: list[Path]) -> list[str]:
    """Read which operators the code would ask libtorch's proxy executor for."""
    names = []
    for path in files:
        if path.suffix != ".json" or path.stem.endswith(("_flags", "_metadata")):
            continue
        content = json.loads(path.read_text(encoding="utf-8"))
        for item in content.get("nodes", ()) if isinstance(content, dict) else ():
            target = str(item.get("node", {}).get("target", "an operator"))
            names.append(target.removeprefix("torch.ops.").replace("::", "."))
    return list(dict.fromkeys(names))


def _only(method: str, files: list[Path], suffix: str) -> Path:
    found = [path for path in files if path.name.endswith(suffix)]
    if len(found) != 1:
        raise ExportError(
            f"method {method!r}: Inductor produced {len(found)} files named *{suffix}, expected "
            f"one; torch {torch.__version__} works differently from what export knows"
        )
    return found[0]


def split_source(method: str, source: str) -> tuple[str, str, str]:
    """Split a generated source into container half, model half and kernels."""
    end = source.find(_INTERFACE_END)
    if end < 0:
        raise ExportError(
            f"method {method!r}: the generated source has no container half; torch "
            f"{torch.__version__} works differently from what export knows"
        )
    end += len(_INTERFACE_END)
    begin = source.find(_KERNELS_BEGIN, end)
    tail = source.rfind("// Compile cmd")
    tail = len(source) if tail < end else tail
    begin = tail if begin < 0 else begin
    kernels = limit_teams(source[begin:tail])
    return source[:end] + _NO_EMBEDDED_WEIGHTS, source[end:begin] + "\n", kernels + "\n"


_CONSTANT = re.compile(r"constants_info_\[(\d+)\]\.(\w+) = (.*);\s*$", re.MULTILINE)


def read_constants(wrapper: str) -> list[ConstantInfo]:
    """Read the container's constants from the generated constructor."""
    fields: dict[int, dict[str, str]] = {}
    for index, name, value in _CONSTANT.findall(wrapper):
        fields.setdefault(int(index), {})[name] = value
    return [
        ConstantInfo(
            name=json.loads(entry["name"]),
            fqn=json.loads(entry["original_fqn"]),
            device="cuda" if entry.get("device_type", "").endswith("cuda") else "cpu",
            shape=_braced(entry["shape"]),
            strides=_braced(entry["stride"]),
            offset=int(entry["offset"].rstrip("L")),
        )
        for _, entry in sorted(fields.items())
    ]


def _braced(text: str) -> tuple[int, ...]:
    return tuple(int(item.rstrip("L")) for item in re.findall(r"-?\d+L?", text))
