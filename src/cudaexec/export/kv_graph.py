"""Reads a decoder's cache out of a traced graph: the writes, the attention over them, the mask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten

_ATTENTION = aten.scaled_dot_product_attention.default
_COPIES = (aten.clone.default, aten.contiguous.default, aten.alias.default, aten.detach.default)


class NoCacheError(Exception):
    """A buffer is not used as a cache is; the text says what is different."""


@dataclass(eq=False)
class CacheWrite:
    """Tokens written into a buffer: `buffer` is its `get_attr` node, `result` the buffer after it.

    Attributes:
        tokens: what is written, in the buffer's layout.
        index: positions, int64 `[tokens]`.
        nodes: to be erased with the write, users first.
    """

    buffer: fx.Node
    result: fx.Node
    tokens: fx.Node
    index: fx.Node
    dim: int
    nodes: list[fx.Node]


@dataclass
class CacheLayer:
    """One attention over a pair of buffers."""

    keys: CacheWrite
    values: CacheWrite
    attention: fx.Node

    @property
    def mask(self) -> fx.Node | None:
        """The mask of the attention."""
        mask: fx.Node | None = argument(self.attention, 3, "attn_mask")
        return mask

    @property
    def query(self) -> fx.Node:
        """`[batch, heads, tokens, head_dim]`."""
        query: fx.Node = argument(self.attention, 0, "query")
        return query


def argument(node: fx.Node, position: int, name: str, default: Any = None) -> Any:
    """Return an argument of a call, however it was given."""
    if len(node.args) > position:
        return node.args[position]
    return node.kwargs.get(name, default)


def cache_writes(graph: fx.Graph) -> Iterator[CacheWrite]:
    """Yield every write of a whole slice of a buffer at positions along one dimension."""
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node.target in (aten.index_copy_.default, aten.index_copy.default):
            buffer, dim, index, tokens = (
                argument(node, i, name) for i, name in enumerate(("self", "dim", "index", "source"))
            )
            dim %= len(buffer.meta["val"].shape)
        elif node.target in (aten.index_put_.default, aten.index_put.default):
            buffer, indices, tokens = (
                argument(node, i, name) for i, name in enumerate(("self", "indices", "values"))
            )
            places = [i for i, item in enumerate(indices) if item is not None]
            if len(places) != 1 or argument(node, 3, "accumulate", False):
                continue
            dim, index = places[0], indices[places[0]]
        else:
            continue
        if buffer.op != "get_attr" or index.meta["val"].dim() != 1:
            continue
        yield CacheWrite(buffer, node, tokens, index, dim, [*_copies_back(node, buffer), node])


def _copies_back(result: fx.Node, buffer: fx.Node) -> list[fx.Node]:
    """Return the trailing `copy_` into the buffer that functionalisation leaves."""
    return [
        user
        for user in result.users
        if user.target is aten.copy_.default and user.args[:2] == (buffer, result)
    ]


def find_layer(keys: CacheWrite, values: CacheWrite, sequence_dim: int) -> CacheLayer:
    """Return the attention that reads both buffers after their writes.

    Raises:
        NoCacheError: the buffers are used otherwise.
    """
    for write, kind in ((keys, "keys"), (values, "values")):
        if len(write.buffer.meta["val"].shape) != 4:
            raise NoCacheError(f"the {kind} have {len(write.buffer.meta['val'].shape)} dimensions")
        if write.dim != sequence_dim:
            raise NoCacheError(
                f"the {kind} are written along dimension {write.dim}, not {sequence_dim}"
            )
        others = [user for user in write.buffer.users if user not in write.nodes]
        if others:
            raise NoCacheError(f"the {kind} are also used by {others[0].target}")
    key_use = _reader(keys, sequence_dim)
    value_use = _reader(values, sequence_dim)
    if key_use.attention is not value_use.attention or (key_use.slot, value_use.slot) != (1, 2):
        raise NoCacheError("no attention reads it as its keys and values")
    if key_use.groups != value_use.groups:
        raise NoCacheError("keys and values are repeated differently")
    attention = key_use.attention
    if argument(attention, 4, "dropout_p", 0.0):
        raise NoCacheError("the attention has dropout; call model.eval()")
    if argument(attention, 5, "is_causal", False):
        raise NoCacheError(
            "the attention has is_causal=True, which with a cache means another mask; pass one"
        )
    enable_gqa = argument(attention, 7, "enable_gqa", False)
    heads = keys.buffer.meta["val"].shape[3 - sequence_dim]
    query_heads = attention.args[0].meta["val"].shape[1]
    if key_use.groups == 1 and query_heads != heads and not enable_gqa:
        raise NoCacheError(f"{query_heads} query heads over {heads} heads of keys")
    return CacheLayer(keys, values, attention)


@dataclass
class _Reader:
    attention: fx.Node
    slot: int
    groups: int


def _reader(write: CacheWrite, sequence_dim: int) -> _Reader:
    """Follow the written buffer, its heads repeated for the query's groups, to the attention."""
    node, groups = write.result, 1
    is_heads_first = sequence_dim == 2
    while True:
        users = [user for user in node.users if user not in write.nodes]
        if len(users) != 1:
            raise NoCacheError(f"it is read {len(users)} times; one attention must be all")
        user = users[0]
        if user.target is _ATTENTION:
            if not is_heads_first:
                raise NoCacheError("the attention reads it with tokens before heads")
            slots = [i for i in (1, 2) if argument(user, i, ("", "key", "value")[i]) is node]
            if len(slots) != 1 or argument(user, 3, "attn_mask") is node:
                raise NoCacheError("the attention does not read it as its keys or values")
            return _Reader(user, slots[0], groups)
        if user.target in _COPIES or _keeps_dtype(user):
            node = user
        elif user.target is aten.transpose.int and sorted(_dims(user)) == [1, 2]:
            is_heads_first = not is_heads_first
            node = user
        elif (
            user.target is aten.repeat_interleave.self_int
            and is_heads_first
            and argument(user, 2, "dim") in (1, -3)
        ):
            groups *= int(argument(user, 1, "repeats"))
            node = user
        elif user.target is aten.unsqueeze.default and is_heads_first:
            node, count = _expanded(user)
            groups *= count
        else:
            raise NoCacheError(f"it is read by {user.target}")


def _keeps_dtype(node: fx.Node) -> bool:
    if node.target not in (aten.to.dtype, aten._to_copy.default, aten.to.dtype_layout):
        return False
    source = node.args[0]
    return isinstance(source, fx.Node) and _same_type(source.meta["val"], node.meta["val"])


def _same_type(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(a.dtype == b.dtype and a.device == b.device and a.shape == b.shape)


def _dims(node: fx.Node) -> list[int]:
    return [int(argument(node, i, name)) % 4 for i, name in ((1, "dim0"), (2, "dim1"))]


def _expanded(unsqueeze: fx.Node) -> tuple[fx.Node, int]:
    """Follow unsqueeze, expand, reshape: each head repeated, neighbours the same."""
    if argument(unsqueeze, 1, "dim") not in (2, -3):
        raise NoCacheError("its heads are not repeated one by one")
    expand = _only_user(unsqueeze)
    if expand.target is not aten.expand.default:
        raise NoCacheError(f"it is read by {expand.target}")
    node = _only_user(expand)
    while node.target in _COPIES:
        node = _only_user(node)
    batch, heads, count, tokens, size = expand.meta["val"].shape
    if node.target not in (
        aten.reshape.default,
        aten.view.default,
        aten._unsafe_view.default,
    ) or tuple(node.meta["val"].shape) != (batch, heads * count, tokens, size):
        raise NoCacheError(f"its repeated heads are read by {node.target}")
    return node, int(count)


def _only_user(node: fx.Node) -> fx.Node:
    if len(node.users) != 1:
        raise NoCacheError(f"{node.target} on the way to the attention has {len(node.users)} users")
    return next(iter(node.users))


__all__ = ["CacheLayer", "CacheWrite", "NoCacheError", "argument", "cache_writes", "find_layer"]
