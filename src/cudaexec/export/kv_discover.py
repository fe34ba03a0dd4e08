"""Finds a decoder's cache in an ExportedProgram, for `KvCacheSpec.discover`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from torch.export import ExportedProgram

from cudaexec.export.errors import ExportError
from cudaexec.export.kv_graph import CacheLayer, CacheWrite, NoCacheError, cache_writes, find_layer
from cudaexec.export.kv_lower import step_widths
from cudaexec.export.kv_prove import CacheProof
from cudaexec.export.lower import unlift
from cudaexec.kv_spec import Flat, KvCacheSpec, Ring


def discover(program: Any) -> KvCacheSpec:
    """See `KvCacheSpec.discover`."""
    if not isinstance(program, ExportedProgram):
        raise TypeError(f"expected an ExportedProgram, got {type(program).__name__}")
    module = unlift(program)
    writes = list(cache_writes(module.graph))
    report: list[str] = []
    layers = _layers(writes, report)
    if not layers:
        raise ExportError(
            "no KV cache found: "
            + ("; ".join(report) or "no buffer is written along one dimension at given positions")
        )
    proof, windows = _proved(module, layers)
    policies: dict[int, Flat | Ring] = {}
    for number, (layer, window) in enumerate(zip(layers, windows, strict=True)):
        policies[number] = Flat(proof.capacity) if window is None else Ring(window)
        shape = list(layer.keys.buffer.meta["val"].shape)
        report.insert(
            number,
            f"layer {number}: {layer.keys.buffer.target}, {layer.values.buffer.target}, "
            f"{layer.keys.buffer.meta['val'].dtype} {shape}: {policies[number]}",
        )
    inputs = [str(node.target) for node in proof.positions.inputs]
    source = f"the input {inputs[0]!r}" if inputs else "state"
    report.append(f"positions come from {source}")
    if proof.positions.states:
        report.append(f"the model counts tokens in {', '.join(proof.positions.states)}")
    return KvCacheSpec(
        buffers=[(str(a.keys.buffer.target), str(a.values.buffer.target)) for a in layers],
        sequence_dim=layers[0].keys.dim,
        position=inputs[0] if len(inputs) == 1 else None,
        layers=policies,
        report=tuple(report),
    )


def _layers(writes: list[CacheWrite], report: list[str]) -> list[CacheLayer]:
    """Pair writes that follow each other and meet in one attention."""
    layers: list[CacheLayer] = []
    taken: set[CacheWrite] = set()
    reasons: dict[str, str] = {}
    for first, second in pairwise(writes):
        if first in taken:
            continue
        for keys, values in ((first, second), (second, first)):
            try:
                layer = find_layer(keys, values, first.dim)
            except NoCacheError as error:
                reasons[str(keys.buffer.target)] = str(error)
                continue
            if layers and layer.keys.dim != layers[0].keys.dim:
                reasons[str(keys.buffer.target)] = "its tokens are in another dimension"
                continue
            layers.append(layer)
            taken |= {first, second}
            break
    for write in writes:
        name = str(write.buffer.target)
        if write not in taken:
            report.append(f"{name} is no cache: {reasons.get(name, 'it is alone')}")
    return layers


def _proved(module: Any, layers: list[CacheLayer]) -> tuple[CacheProof, list[int | None]]:
    width = layers[0].keys.index.meta["val"].shape[0]
    try:
        proof = CacheProof(module, layers, step_widths(width, *_bounds(width)))
        return proof, proof.windows()
    except NoCacheError as error:
        names = ", ".join(str(layer.keys.buffer.target) for layer in layers)
        raise ExportError(f"no KV cache found: {names}: {error}") from None


def _bounds(width: Any) -> tuple[int, int | None]:
    """Return the range of a size, as the trace has it."""
    if isinstance(width, int):
        return width, width
    ranges = width.node.shape_env.var_to_range.get(width.node.expr)
    if ranges is None:
        return 0, None
    high = int(ranges.upper) if ranges.upper.is_number and ranges.upper < 1 << 40 else None
    return int(ranges.lower), high


__all__ = ["discover"]
