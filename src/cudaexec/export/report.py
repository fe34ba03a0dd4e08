"""What an export did: stages, sizes, call-outs, rewrites."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class StageTime:
    """One stage of the export; `seconds` is wall time."""

    name: str
    seconds: float


@dataclass(frozen=True)
class VariantReport:
    """One code variant of a method; `nbytes` is the size of its code."""

    target: str
    isa: str
    nbytes: int
    callouts: tuple[str, ...]


@dataclass(frozen=True)
class MethodReport:
    """One method.

    Attributes:
        inputs, outputs: numbers of leaves.
        constants: FQNs of the tensors that the code reads. mutated: those that it writes.
        unused: FQNs of the module's parameters that the code does not read, under this or another
            name; they are not in the file.
        tied: one line per further name of a tensor, `head.weight is embed.weight`.
        dynamic: one line per dynamic size, with its range. guards: other conditions on sizes.
        rewrites: what export changed in the traced graph.
    """

    name: str
    inputs: int
    outputs: int
    variants: tuple[VariantReport, ...]
    constants: tuple[str, ...]
    mutated: tuple[str, ...]
    unused: tuple[str, ...]
    dynamic: tuple[str, ...]
    guards: tuple[str, ...]
    rewrites: tuple[str, ...]
    tied: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExportReport:
    """The result of `export`.

    Attributes:
        pte, ptd: paths of the files; `ptd` is None if the program has no weights.
        pte_nbytes, ptd_nbytes: their sizes in bytes.
        weights_nbytes: bytes of the weights set, each storage once.
        methods: one MethodReport per method, in the order of export.
        stages: name and wall time of each stage, in the order of work.
        torch_version: of the exporting torch. compiler: name and version of the C++ compiler.
        notes: one line per method with parts in training mode.
        shared_half_cached: whether the compiled half that all models share was found in the cache.
    """

    pte: str
    ptd: str | None
    pte_nbytes: int
    ptd_nbytes: int
    weights_nbytes: int
    methods: tuple[MethodReport, ...]
    stages: tuple[StageTime, ...]
    torch_version: str
    compiler: str
    shared_half_cached: bool
    notes: tuple[str, ...] = field(default=())

    @property
    def seconds(self) -> float:
        """Wall time of all stages."""
        return sum(stage.seconds for stage in self.stages)

    def __str__(self) -> str:
        """Return a summary of a few lines."""
        lines = [f"{self.pte}: {_size(self.pte_nbytes)}"]
        if self.ptd is not None:
            lines.append(f"{self.ptd}: {_size(self.ptd_nbytes)}")
        for method in self.methods:
            lines += _method_lines(method)
        stages = ", ".join(f"{stage.name} {stage.seconds:.2f} s" for stage in self.stages)
        cached = "shared half from the cache" if self.shared_half_cached else "shared half compiled"
        lines.append(f"{self.seconds:.2f} s ({stages}; {cached})")
        lines.append(f"torch {self.torch_version}, {self.compiler}")
        lines += self.notes
        return "\n".join(lines)


def _method_lines(method: MethodReport) -> list[str]:
    lines = [
        f"{method.name}: {method.inputs} in, {method.outputs} out, "
        f"{len(method.constants)} constant{'' if len(method.constants) == 1 else 's'}"
        + (f", {len(method.mutated)} of them written" if method.mutated else "")
    ]
    for variant in method.variants:
        names = ", ".join(
            name.removeprefix("aoti_torch_").removeprefix("cpu_") for name in variant.callouts
        )
        lines.append(f"  {variant.isa}: {_size(variant.nbytes)}, call-outs: {names or 'none'}")
    for title, items in (
        ("dynamic", method.dynamic),
        ("guards", method.guards),
        ("tied", method.tied),
        ("unused tensors, left out", method.unused),
        ("rewrites", method.rewrites),
    ):
        if items:
            lines.append(f"  {title}: {', '.join(items)}")
    return lines


def _size(nbytes: int) -> str:
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB"
