"""`any` and `all` of uint8, which give uint8 in eager mode alone among the integer dtypes.

Inductor gives bool, so what the model computes from the result would be computed in another dtype.
"""

from __future__ import annotations

import torch
from torch import fx

aten = torch.ops.aten
_REDUCTIONS = tuple(
    getattr(packet, overload)
    for packet in (aten.any, aten.all)
    for overload in ("default", "dim", "dims")
)


def rewrite_byte_logic(module: fx.GraphModule) -> None:
    """Reduce bools and convert the result, in a traced module and the graphs inside it."""
    for inner in module.modules():
        if not isinstance(inner, fx.GraphModule):
            continue
        found = [node for node in inner.graph.nodes if node.target in _REDUCTIONS]
        for node in found:
            _rewrite(inner.graph, node)
        if found:
            inner.recompile()


def _rewrite(graph: fx.Graph, node: fx.Node) -> None:
    x = node.args[0] if node.args else node.kwargs.get("self")
    if not isinstance(x, fx.Node) or x.meta["val"].dtype is not torch.uint8:
        return
    with graph.inserting_before(node):
        flags = graph.call_function(aten.ne.Scalar, (x, 0))
    flags.meta = {**node.meta, "val": x.meta["val"].ne(0)}
    result = node.meta["val"]
    node.replace_input_with(x, flags)
    with graph.inserting_after(node):
        converted = graph.call_function(aten._to_copy.default, (node,), {"dtype": torch.uint8})
    node.replace_all_uses_with(converted, delete_user_cb=lambda user: user is not converted)
    converted.meta = dict(node.meta)
    node.meta = {**node.meta, "val": result.to(torch.bool)}


__all__ = ["rewrite_byte_logic"]
