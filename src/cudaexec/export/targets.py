"""The targets that a caller names, and the GPU they stand for."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cudaexec.errors import NotSupported
from cudaexec.export.code_target import CodeTarget
from cudaexec.export.errors import ExportError
from cudaexec.options import ExportOptions

_CUDA = re.compile(r"cuda(?::(?:(\d{1,3})|sm_(\d{2,3})a?))?")


@dataclass(frozen=True)
class Target:
    """One entry of `target=`.

    Attributes:
        kind: "cpu" or "cuda".
        index: the GPU to compile on, None for the current one.
        sm: the architecture that the file must hold, None for that of the GPU.
    """

    kind: str
    index: int | None = None
    sm: int | None = None


def parse_targets(
    target: str | Sequence[str] | None, gpu_there: Callable[[], bool]
) -> list[Target]:
    """Return the targets named: "cpu", "cuda", "cuda:<index>", "cuda:sm_<architecture>".

    Args:
        target: one name, several, or None for CUDA where there is a GPU and else the CPU.
        gpu_there: whether torch sees a GPU; not asked for the CPU.

    Raises:
        ExportError: an unknown name, none at all, a device named twice, or CUDA without a GPU.
        NotSupported: both devices in one file.
    """
    if target is None:
        return [Target("cuda" if gpu_there() else "cpu")]
    names = [target] if isinstance(target, str) else list(target)
    targets = [_parse(name) for name in names]
    shown = ", ".join(map(repr, names)) or "[]"
    kinds = [item.kind for item in targets]
    if not targets or len(set(kinds)) != len(kinds):
        raise ExportError(
            f"target {shown}: expected 'cpu', 'cuda', 'cuda:<index>', 'cuda:sm_<nn>', or a list "
            f"that names each device once"
        )
    if len(kinds) > 1:
        raise NotSupported(
            f"target {shown}: a file holds code for one device. Export twice, into two files."
        )
    if "cuda" in kinds and not gpu_there():
        raise ExportError(
            f"target {shown}: compiling for CUDA needs a GPU and a torch built for CUDA; torch "
            f"sees none here. Export on a machine with one; the files run on others."
        )
    return targets


def _parse(name: str) -> Target:
    if name == "cpu":
        return Target("cpu")
    found = _CUDA.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        raise ExportError(
            f"target {name!r}: expected 'cpu', 'cuda', 'cuda:<index>' or 'cuda:sm_<nn>'"
        )
    index, sm = found.groups()
    return Target("cuda", None if index is None else int(index), None if sm is None else int(sm))


@dataclass(frozen=True)
class Gpu:
    """The GPU that code is generated on: its index, architecture (90 for sm_90) and SM count."""

    index: int
    sm: int
    sm_count: int
    name: str


def find_gpu(target: Target) -> Gpu:
    """Return the GPU of a CUDA target.

    Raises:
        ExportError: there is no GPU of that index.
        NotSupported: it is of another architecture than the one asked for.
    """
    import torch

    index = torch.cuda.current_device() if target.index is None else target.index
    count = torch.cuda.device_count()
    if index >= count:
        raise ExportError(f"target 'cuda:{index}': the highest index here is {count - 1}")
    facts = torch.cuda.get_device_properties(index)
    sm = facts.major * 10 + facts.minor
    if target.sm is not None and target.sm != sm:
        raise NotSupported(
            f"target 'cuda:sm_{target.sm}': GPU {index} ({facts.name}) is sm_{sm}, and code is "
            f"tuned on the GPU it is for. Export on a GPU of that architecture."
        )
    return Gpu(index, sm, facts.multi_processor_count, facts.name)


def gpu_there() -> bool:
    """Whether torch sees a GPU; initialises nothing where it is built for the CPU."""
    import torch

    return bool(torch.cuda.is_available())


def code_targets(targets: Sequence[Target], options: ExportOptions) -> list[CodeTarget]:
    """Return what code is generated for, best variant first."""
    if targets[0].kind == "cpu":
        return [CodeTarget.cpu(level) for level in options.cpu_levels]
    gpu = find_gpu(targets[0])
    target = CodeTarget.cuda(gpu.sm, gpu.sm_count, gpu.index, options.gemm, tf32=options.tf32)
    if options.ptx and not target.ptx_is_portable:
        raise NotSupported(
            f"ExportOptions.ptx: PTX that Triton makes for sm_{gpu.sm} ({gpu.name}) runs on no "
            f"other GPU. Export on a GPU of compute capability below 9.0, or leave ptx out."
        )
    return [target]
