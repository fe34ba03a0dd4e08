"""A method with its compiled variants, and what the manifest and the report say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cudaexec.export.aoti_compile import GeneratedCode
from cudaexec.export.elf import ElfFacts
from cudaexec.export.errors import ExportError
from cudaexec.export.kv_lower import method_cache_json
from cudaexec.export.lower import LoweredMethod
from cudaexec.export.payload import PayloadVariant
from cudaexec.export.report import MethodReport, VariantReport
from cudaexec.export.toolchain import CPU_FLAGS


@dataclass
class CodeVariant:
    """Compiled code of a method for one target."""

    generated: GeneratedCode
    binary: bytes
    key: str
    facts: ElfFacts
    callouts: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return the manifest entry."""
        target = self.generated.target
        level = target.cpu_level
        if target.kind == "cuda":
            facts: dict[str, Any] = {"sm": target.sm, "ptx": target.ptx}
            facts["sm_count"] = target.sm_count
        else:
            facts = {"isa": level, "cpu_flags": list(CPU_FLAGS[level])}
        return {"target": target.kind, **facts, "code": self.key, "callouts": self.callouts}

    def payload_entry(self) -> PayloadVariant:
        """Return what the delegate's payload says of it."""
        target = self.generated.target
        return PayloadVariant(self.key, target.sm, target.ptx, fallback_only=target.ptx != 0)


@dataclass
class CompiledMethod:
    """A lowered method with its variants, best first, and its constants.

    Attributes:
        names: a constant's FQN in the files by its FQN in the graph.
    """

    lowered: LoweredMethod
    variants: list[CodeVariant] = field(default_factory=list)
    constants: list[dict[str, Any]] = field(default_factory=list)
    mutated: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)

    @property
    def payload_variants(self) -> list[CodeVariant]:
        """What the delegate's payload names: all GPU code, or the baseline of the CPU's."""
        on_gpu = [v for v in self.variants if v.generated.target.kind == "cuda"]
        return on_gpu or self.variants[-1:]


def check_same_constants(method: str, first: GeneratedCode, other: GeneratedCode) -> None:
    """Raise ExportError where two variants of a method do not have the same constants."""
    if first.constants != other.constants:
        raise ExportError(
            f"method {method!r}: the code for {first.target.name} and for {other.target.name} has "
            f"different constants ({len(first.constants)} and {len(other.constants)}). Export for "
            f"one level with ExportOptions(cpu_levels=...)."
        )


def method_json(method: CompiledMethod) -> dict[str, Any]:
    """Return the method's entry in the manifest."""
    lowered = method.lowered
    kv = {}
    if lowered.kv is not None:
        kv["kv"] = method_cache_json(lowered.kv, lowered.kv_position, method.names)
    return {
        **kv,
        "name": lowered.name,
        "variants": [variant.to_json() for variant in method.variants],
        "symbols": [spec.to_json() for spec in lowered.symbols.specs],
        "inputs": lowered.inputs,
        "omitted": lowered.omitted,
        "outputs": lowered.outputs,
        "num_graph_inputs": len(lowered.graph_inputs),
        "num_graph_outputs": len(lowered.graph_outputs),
        "guards": lowered.symbols.guards,
        "in_spec": lowered.in_spec,
        "out_spec": lowered.out_spec,
        "constants": method.constants,
    }


def method_report(method: CompiledMethod, aliases: Mapping[str, str]) -> MethodReport:
    """Return the method's part of the report; `aliases` are the further names of tied tensors."""
    lowered = method.lowered
    used = {aliases.get(entry["fqn"], entry["fqn"]) for entry in method.constants}
    unused = {fqn for fqn in lowered.parameters if aliases.get(fqn, fqn) not in used}
    tied = {fqn: aliases[fqn] for fqn in lowered.owned if aliases.get(fqn) in used}
    return MethodReport(
        name=lowered.name,
        inputs=len(lowered.inputs),
        outputs=len(lowered.outputs),
        variants=tuple(
            VariantReport(
                variant.generated.target.kind,
                variant.generated.target.name,
                len(variant.binary),
                tuple(variant.callouts),
            )
            for variant in method.variants
        ),
        constants=tuple(entry["fqn"] for entry in method.constants),
        mutated=tuple(sorted(method.mutated)),
        unused=tuple(sorted(unused)),
        tied=tuple(f"{fqn} is {target}" for fqn, target in sorted(tied.items())),
        dynamic=tuple(_range_text(lowered, spec) for spec in lowered.symbols.specs),
        guards=tuple(guard["text"] for guard in lowered.symbols.guards),
        rewrites=tuple(lowered.rewrites),
    )


def _range_text(lowered: LoweredMethod, spec: Any) -> str:
    name = lowered.inputs[spec.input]["name"]
    high = "unbounded" if spec.maximum is None else spec.maximum
    text = f"{spec.name} = {name}.shape[{spec.dim}] in [{spec.minimum}, {high}]"
    if not spec.above_one:
        return text
    if lowered.traced_before:
        return f"{text} (not 1: torch.export assumed more; export the module itself)"
    return f"{text} (not 1: the model does something else there)"
