"""Takes a decoder's cache out of a traced graph: writes and attention become one operator."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from cudaexec.export.dtypes import dtype_name
from cudaexec.export.errors import ExportError, source_line
from cudaexec.export.kv_graph import (
    CacheLayer,
    CacheWrite,
    NoCacheError,
    argument,
    cache_writes,
    find_layer,
)
from cudaexec.export.kv_op import KV_ATTEND
from cudaexec.export.kv_prove import CacheProof
from cudaexec.export.symbols import SymbolTable
from cudaexec.kv_spec import Flat, KvCacheSpec, Ring

aten = torch.ops.aten


@dataclass
class KvMethod:
    """What a method does with the cache.

    Attributes:
        layers: manifest entries without the capacity of rings.
        width: tokens of a step, as a size in the manifest. max_width: the most.
        position_placeholder: the placeholder that holds positions, None if state does.
        rewrites: for the report.
        position_states: FQNs of the method's own counts of tokens.
    """

    layers: list[dict[str, Any]]
    width: Any
    max_width: int
    position_placeholder: str | None
    position_states: list[str]
    rewrites: list[str] = field(default_factory=list)


class CacheBuffers:
    """The buffers of a spec in any method of an export, whatever each calls them."""

    def __init__(self, spec: KvCacheSpec) -> None:
        """Args: spec: what the user named."""
        self.spec = spec
        self._tensors: dict[str, torch.Tensor] = {}

    def learn(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Note the tensors behind the names, as far as a method has them."""
        for name in (name for pair in self.spec.buffers for name in pair):
            if name in tensors:
                self._tensors.setdefault(name, tensors[name])

    def knows(self, name: str) -> bool:
        """Whether a method so far has a tensor of that name."""
        return name in self._tensors

    def is_buffer(self, name: str, fqn: str, tensor: torch.Tensor) -> bool:
        """Whether a method's tensor `fqn` is the buffer `name`."""
        known = self._tensors.get(name)
        if fqn == name or known is None:
            return fqn == name
        return bool(
            known.numel() > 0
            and known.data_ptr() == tensor.data_ptr()
            and known.shape == tensor.shape
            and known.device == tensor.device
        )


def lower_cache(
    method: str, module: Any, symbols: SymbolTable, buffers: CacheBuffers
) -> KvMethod | None:
    """Rewrite a method that uses the cache; return None for one that has none of its buffers.

    Args:
        method: for messages.
        module: the flat graph module, with real tensors; changed in place.
        symbols: its sizes.
        buffers: of the spec.

    Raises:
        ExportError: the buffers are not used as a cache is; the message says which and how.
    """
    writes = _writes_by_name(module, buffers)
    names = [name for pair in buffers.spec.buffers for name in pair]
    if not any(_mentions(module, name, buffers) for name in names):
        return None
    _refuse_unknown(method, module, buffers, names)
    spec = buffers.spec
    layers = []
    for number, pair in enumerate(spec.buffers):
        try:
            keys, values = (_the_write(name, writes) for name in pair)
            layers.append(find_layer(keys, values, spec.sequence_dim))
        except NoCacheError as error:
            raise _refusal(method, number, pair, error) from None
    width = layers[0].keys.index.meta["val"].shape[0]
    low, high = symbols.bounds(width)
    windows = [
        policy.window if isinstance(policy := spec.layers.get(i, Flat()), Ring) else None
        for i in range(len(layers))
    ]
    try:
        proof = CacheProof(module, layers, step_widths(width, low, high))
        proof.check(windows)
    except NoCacheError as error:
        raise ExportError(
            f"method {method!r}: KvCacheSpec does not fit: {error}. Layers with a sliding window "
            f"are Ring(window); KvCacheSpec.discover() finds what each layer is."
        ) from None
    if high is None:
        raise ExportError(
            f"method {method!r}: the number of tokens of a step has no upper bound; give its Dim a "
            f"max"
        )
    placeholder = _position_input(method, proof, spec)
    entries = [_entry(i, layer, spec, proof) for i, layer in enumerate(layers)]
    for number, layer in enumerate(layers):
        _replace(module.graph, number, layer, spec)
    module.graph.eliminate_dead_code()
    module.recompile()
    count = "1 layer" if len(layers) == 1 else f"{len(layers)} layers"
    return KvMethod(
        layers=entries,
        width=symbols.dimension(width),
        max_width=high,
        position_placeholder=placeholder,
        position_states=list(proof.positions.states),
        rewrites=[f"the KV cache of {count} is kept by the runtime"],
    )


def step_widths(width: Any, low: int, high: int | None) -> list[dict[Any, int]]:
    """Return the sizes of symbols to prove a method for: the example's, the least, one more."""
    if isinstance(width, int) or not width.node.expr.is_Symbol:
        return [{}]
    symbol = width.node.expr
    return [{}, *({symbol: n} for n in {max(low, 1), low + 1} if high is None or n <= high)]


def _mentions(module: Any, name: str, buffers: CacheBuffers) -> bool:
    return any(
        node.op == "get_attr"
        and node.users
        and buffers.is_buffer(name, str(node.target), attribute(module, str(node.target)))
        for node in module.graph.nodes
    )


def _refuse_unknown(method: str, module: Any, buffers: CacheBuffers, names: Sequence[str]) -> None:
    for name in names:
        if buffers.knows(name) or _mentions(module, name, buffers):
            continue
        there = sorted({str(node.target) for node in module.graph.nodes if node.op == "get_attr"})
        near = difflib.get_close_matches(name, there, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the method uses {', '.join(there[:8])}"
        raise ExportError(
            f"method {method!r}: KvCacheSpec.buffers names {name!r}, which the model does not have "
            f"or the method does not use; {hint}"
        )


def attribute(module: Any, name: str) -> torch.Tensor:
    """Return a tensor of the module by FQN."""
    for part in name.split("."):
        module = getattr(module, part)
    tensor: torch.Tensor = module
    return tensor


def _writes_by_name(module: Any, buffers: CacheBuffers) -> dict[str, list[CacheWrite]]:
    names = [name for pair in buffers.spec.buffers for name in pair]
    found: dict[str, list[CacheWrite]] = {name: [] for name in names}
    for write in cache_writes(module.graph):
        fqn = str(write.buffer.target)
        tensor = attribute(module, fqn)
        for name in names:
            if buffers.is_buffer(name, fqn, tensor):
                found[name].append(write)
    return found


def _the_write(name: str, writes: Mapping[str, list[CacheWrite]]) -> CacheWrite:
    found = writes[name]
    if len(found) != 1:
        raise NoCacheError(
            f"{name!r} is written {len(found)} times along one dimension by index_copy_ or an "
            f"indexed assignment, expected once"
        )
    return found[0]


def _refusal(method: str, number: int, pair: tuple[str, str], error: NoCacheError) -> ExportError:
    return ExportError(
        f"method {method!r}: layer {number} of the KV cache ({', '.join(pair)}): {error}. Expected "
        f"one write of the step's tokens and one scaled_dot_product_attention over both buffers; "
        f"every method that uses the cache uses all its layers"
    )


def _position_input(method: str, proof: CacheProof, spec: KvCacheSpec) -> str | None:
    found = [str(node.target) for node in proof.positions.inputs]
    if spec.position is not None:
        if spec.position not in found:
            raise ExportError(
                f"method {method!r}: KvCacheSpec.position is {spec.position!r}, but the cache is "
                f"written at positions from {found or 'state alone'}"
            )
        return spec.position
    if len(found) > 1:
        raise ExportError(
            f"method {method!r}: the cache is written at positions from the inputs "
            f"{', '.join(map(repr, found))}; one must do"
        )
    return found[0] if found else None


def _entry(number: int, layer: CacheLayer, spec: KvCacheSpec, proof: CacheProof) -> dict[str, Any]:
    buffer = layer.keys.buffer.meta["val"]
    values = layer.values.buffer.meta["val"]
    if buffer.shape != values.shape or buffer.dtype != values.dtype:
        raise ExportError(
            f"layer {number} of the KV cache: keys are {buffer.dtype} {list(buffer.shape)}, values "
            f"{values.dtype} {list(values.shape)}; they must be alike"
        )
    if buffer.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ExportError(
            f"layer {number} of the KV cache: {buffer.dtype}; expected float32, float16 or bfloat16"
        )
    policy = spec.layers.get(number, Flat())
    batch, heads = int(buffer.shape[0]), int(buffer.shape[3 - spec.sequence_dim])
    entry: dict[str, Any] = {
        "id": number,
        "batch": batch,
        "heads": heads,
        "head_dim": int(buffer.shape[3]),
    }
    entry["dtype"] = spec.dtype or dtype_name(buffer.dtype)
    if isinstance(policy, Ring):
        return {**entry, "policy": "ring", "window": policy.window}
    return {**entry, "policy": "flat", "capacity": policy.max_len or proof.capacity}


def _replace(graph: fx.Graph, number: int, layer: CacheLayer, spec: KvCacheSpec) -> None:
    attention = layer.attention
    scale = argument(attention, 6, "scale")
    if scale is None:
        scale = 1 / math.sqrt(int(layer.query.meta["val"].shape[3]))
    with graph.inserting_before(attention):
        operands = [layer.query]
        for write in (layer.keys, layer.values):
            operands.append(_heads_first(graph, _tokens_of(graph, number, write), spec))
        index = layer.keys.index
        if index.meta["val"].dtype is not torch.int64:
            value = index.meta["val"].to(torch.int64)
            index = graph.call_function(aten.to.dtype, (index, torch.int64))
            index.meta["val"] = value
        attend = graph.call_function(KV_ATTEND, (*operands, index, number, float(scale)))
    attend.meta = dict(attention.meta)
    attention.replace_all_uses_with(attend)
    for write in (layer.keys, layer.values):
        _erase_chain(graph, write, attention)
    graph.erase_node(attention)
    for write in (layer.keys, layer.values):
        _erase_write(graph, write)


def _tokens_of(graph: fx.Graph, number: int, write: CacheWrite) -> fx.Node:
    """Return what is written, in four dimensions: an assignment drops leading sizes of 1."""
    expected = list(write.buffer.meta["val"].shape)
    expected[write.dim] = write.index.meta["val"].shape[0]
    tokens = write.tokens
    while tokens.meta["val"].dim() < 4:
        value = tokens.meta["val"].unsqueeze(0)
        tokens = graph.call_function(aten.unsqueeze.default, (tokens, 0))
        tokens.meta["val"] = value
    if list(tokens.meta["val"].shape) != expected:
        raise ExportError(
            f"layer {number} of the KV cache: {list(write.tokens.meta['val'].shape)} is written "
            f"where {expected} is expected{source_line(write.result)}"
        )
    return tokens


def _heads_first(graph: fx.Graph, tokens: fx.Node, spec: KvCacheSpec) -> fx.Node:
    if spec.sequence_dim == 2:
        return tokens
    turned = graph.call_function(aten.transpose.int, (tokens, 1, 2))
    turned.meta["val"] = tokens.meta["val"].transpose(1, 2)
    return turned


def _erase_chain(graph: fx.Graph, write: CacheWrite, attention: fx.Node) -> None:
    """Detach the nodes between the written buffer and the attention; dead code takes them."""
    chain = []
    node = write.result
    while node is not attention:
        node = next(user for user in node.users if user not in write.nodes)
        chain.append(node)
    for node in reversed(chain[:-1]):
        attention.replace_input_with(node, write.tokens)
        graph.erase_node(node)
    attention.replace_input_with(write.result, write.tokens)


def _erase_write(graph: fx.Graph, write: CacheWrite) -> None:
    for node in write.nodes:
        graph.erase_node(node)
    if not write.buffer.users:
        graph.erase_node(write.buffer)


def cache_json(methods: Iterable[tuple[str, KvMethod]]) -> dict[str, Any] | None:
    """Return the manifest's `kv_cache`: the layers that all methods share; None without any.

    Raises:
        ExportError: two methods have different layers.
    """
    methods = list(methods)
    if not methods:
        return None
    first_name, first = methods[0]
    for name, method in methods[1:]:
        if method.layers != first.layers:
            raise ExportError(
                f"the KV cache differs between the methods {first_name!r} and {name!r}: "
                f"{first.layers} and {method.layers}"
            )
    most = max(method.max_width for _, method in methods)
    layers = []
    for entry in first.layers:
        layer = {key: value for key, value in entry.items() if key != "dtype"}
        if layer["policy"] == "ring":
            layer["capacity"] = layer["window"] + most - 1
        layers.append(layer)
    return {"version": 1, "dtype": first.layers[0]["dtype"], "layers": layers}


def method_cache_json(kv: KvMethod, position: int | None, names: Mapping[str, str]) -> Any:
    """Return a method's `kv` in the manifest.

    Args:
        kv: from `lower_cache`.
        position: the input leaf that holds positions.
        names: FQN in the manifest by FQN in the graph, of the constants that the code has.
    """
    return {
        "layers": [entry["id"] for entry in kv.layers],
        "width": kv.width,
        "max_width": kv.max_width,
        "position_input": position,
        "position_states": [names[name] for name in kv.position_states if name in names],
    }


__all__ = [
    "CacheBuffers",
    "KvMethod",
    "cache_json",
    "lower_cache",
    "method_cache_json",
    "step_widths",
]
