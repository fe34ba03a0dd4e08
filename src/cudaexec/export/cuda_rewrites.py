"""Operators of a traced graph in the forms that GPU code generation has kernels for.

Inductor has kernels for plain 2-d and 3-d convolutions; the others are rewritten as those: a 1-d
one gets a dimension of size 1, a dilated one a kernel with zeros between its taps, a transposed one
an input with zeros between its elements. Attention keeps the memory layout that the trace saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten


@dataclass
class _Convolution:
    """The arguments of any convolution, whatever its operator is called."""

    x: Any
    weight: Any
    bias: Any = None
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    transposed: bool = False
    output_padding: Any = 0
    groups: int = 1


_FORWARD = ("x", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("x", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
_GENERAL = (
    *("x", "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding"),
    "groups",
)
# Names of the positional arguments.
_CONVOLUTIONS: dict[Any, tuple[str, ...]] = {
    aten.conv1d.default: _FORWARD,
    aten.conv1d.padding: _FORWARD,
    aten.conv2d.default: _FORWARD,
    aten.conv2d.padding: _FORWARD,
    aten.conv3d.default: _FORWARD,
    aten.conv3d.padding: _FORWARD,
    aten.conv_transpose1d.default: _TRANSPOSED,
    aten.conv_transpose2d.input: _TRANSPOSED,
    aten.conv_transpose3d.input: _TRANSPOSED,
    aten.convolution.default: _GENERAL,
}


def _problem(node: fx.Node) -> _Convolution:
    names = _CONVOLUTIONS[node.target]
    arguments = dict(zip(names, node.args, strict=False))
    for name, value in node.kwargs.items():
        arguments["x" if name == "input" else name] = value
    if names is _TRANSPOSED:
        arguments["transposed"] = True
    return _Convolution(**arguments)


def rewrite_for_gpu(module: fx.GraphModule) -> list[str]:
    """Rewrite a traced module and the graphs inside it.

    Returns:
        One line per kind of rewrite, for the report.
    """
    counts: dict[str, int] = {}
    for part in module.modules():
        if isinstance(part, fx.GraphModule):
            for node in list(part.graph.nodes):
                note = _rewrite(part.graph, node)
                if note:
                    counts[note] = counts.get(note, 0) + 1
            part.recompile()
    return [f"{count} {note}" for note, count in counts.items()]


def _rewrite(graph: fx.Graph, node: fx.Node) -> str:
    if node.op != "call_function":
        return ""
    if node.target in _CONVOLUTIONS:
        return _rewrite_convolution(graph, node)
    if node.target is aten._scaled_dot_product_flash_attention_for_cpu.default:
        node = _as_plain_attention(graph, node)
    if node.target is aten.scaled_dot_product_attention.default:
        _keep_layout(graph, node)
    return ""


class _Builder:
    """Adds calls before a node; they keep the place in the model that it came from."""

    def __init__(self, graph: fx.Graph, node: fx.Node) -> None:
        self._graph = graph
        self._node = node

    def __call__(self, target: Any, *args: Any) -> fx.Node:
        with self._graph.inserting_before(self._node):
            made = self._graph.call_function(target, args)
        for key in ("stack_trace", "nn_module_stack"):
            if key in self._node.meta:
                made.meta[key] = self._node.meta[key]
        return made

    def spread(self, x: Any, first_dim: int, sizes: Sequence[Any], steps: Sequence[int]) -> Any:
        """Put `step - 1` zeros behind each element of the dimensions from `first_dim` on.

        Args:
            x: a tensor node.
            first_dim: the first dimension that is spread.
            sizes: all sizes of `x`.
            steps: one per spread dimension.
        """
        for i, step in enumerate(steps):
            if step == 1:
                continue
            dim = first_dim + i
            x = self(aten.unsqueeze.default, x, dim + 1)
            # The list starts with the last dimension.
            trailing = len(sizes) - dim - 1
            x = self(aten.constant_pad_nd.default, x, [0, 0] * trailing + [0, step - 1], 0)
            x = self(aten.flatten.using_ints, x, dim, dim + 1)
        return x


def _rewrite_convolution(graph: fx.Graph, node: fx.Node) -> str:
    problem = _problem(node)
    weight_shape = problem.weight.meta["val"].shape
    spatial = len(weight_shape) - 2
    stride = _per_dim(problem.stride, spatial)
    dilation = _per_dim(problem.dilation, spatial)
    if spatial > 1 and not problem.transposed and dilation == [1] * spatial:
        return ""
    build = _Builder(graph, node)
    x, weight = problem.x, problem.weight
    batched = len(x.meta["val"].shape) == spatial + 2
    if not batched:
        x = build(aten.unsqueeze.default, x, 0)
    kernel = [int(size) for size in weight_shape[2:]]
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    if problem.transposed:
        extra = _per_dim(problem.output_padding, spatial)
        given = _per_dim(problem.padding, spatial)
        weight = _as_direct_weight(build, weight, weight_shape, problem.groups)
        x = build.spread(x, 2, [0] * (spatial + 2), stride)
        pads = [
            (r - p, r - p + e - (s - 1))
            for r, p, e, s in zip(reach, given, extra, stride, strict=True)
        ]
        stride = [1] * spatial
    else:
        pads = _pads(problem.padding, reach, spatial)
    if dilation != [1] * spatial:
        weight = build.spread(weight, 2, weight_shape, dilation)
        weight = _cut(build, weight, [d - 1 for d in dilation])
    x, padding = _pad(build, x, pads)
    if spatial == 1:
        x = build(aten.unsqueeze.default, x, 2)
        weight = build(aten.unsqueeze.default, weight, 2)
        stride, padding = [1, *stride], [0, *padding]
    count = len(stride)
    result = build(
        aten.convolution.default, x, weight, problem.bias, stride, padding, [1] * count,
        False, [0] * count, problem.groups,
    )  # fmt: skip
    if spatial == 1:
        result = build(aten.squeeze.dim, result, 2)
    if not batched:
        result = build(aten.squeeze.dim, result, 0)
    node.replace_all_uses_with(result)
    graph.erase_node(node)
    what = "transposed" if problem.transposed else "1-d" if spatial == 1 else "dilated"
    return f"{what} convolution(s) as plain ones"


def _per_dim(value: Any, spatial: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * spatial if len(values) == 1 else values


def _pads(padding: Any, reach: Sequence[int], spatial: int) -> list[tuple[int, int]]:
    if padding == "valid":
        return [(0, 0)] * spatial
    if padding == "same":
        return [(r // 2, r - r // 2) for r in reach]
    return [(p, p) for p in _per_dim(padding, spatial)]


def _pad(build: _Builder, x: Any, pads: Sequence[tuple[int, int]]) -> tuple[Any, list[int]]:
    """Return the input and the padding that is left to the convolution: the symmetric part."""
    if all(low == high and low >= 0 for low, high in pads):
        return x, [low for low, _ in pads]
    flat = [amount for pair in reversed(pads) for amount in pair]
    return build(aten.constant_pad_nd.default, x, flat, 0), [0] * len(pads)


def _cut(build: _Builder, weight: Any, amounts: Sequence[int]) -> Any:
    """Take zeros off the end of the spatial dimensions."""
    flat = [amount for cut in reversed(amounts) for amount in (0, -cut)]
    return build(aten.constant_pad_nd.default, weight, flat, 0)


def _as_direct_weight(build: _Builder, weight: Any, shape: Sequence[int], groups: int) -> Any:
    """Turn a weight (in, out / groups, ...) into (out, in / groups, ...) with taps reversed."""
    spatial = [int(size) for size in shape[2:]]
    if groups > 1:
        into, out = int(shape[0]) // groups, int(shape[1])
        weight = build(aten.reshape.default, weight, [groups, into, out, *spatial])
        weight = build(aten.transpose.int, weight, 1, 2)
        weight = build(aten.reshape.default, weight, [groups * out, into, *spatial])
    else:
        weight = build(aten.transpose.int, weight, 0, 1)
    return build(aten.flip.default, weight, list(range(2, 2 + len(spatial))))


def _as_plain_attention(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """Replace the CPU's attention kernel, whose second result nobody but its backward reads."""
    arguments = dict(
        zip(("query", "key", "value", "dropout_p", "is_causal"), node.args, strict=False)
    )
    arguments.update(node.kwargs)
    values = [arguments.pop(name) for name in ("query", "key", "value")]
    order = ("attn_mask", "dropout_p", "is_causal")
    defaults = {"attn_mask": None, "dropout_p": 0.0, "is_causal": False}
    with graph.inserting_before(node):
        plain = graph.call_function(
            aten.scaled_dot_product_attention.default,
            (*values, *(arguments.get(name, defaults[name]) for name in order)),
            {"scale": arguments.get("scale")},
        )
    plain.meta.update(node.meta)
    plain.meta["val"] = node.meta["val"][0]
    for user in list(node.users):
        if user.args[1] == 0:
            user.replace_all_uses_with(plain)
            graph.erase_node(user)
    if not node.users:
        graph.erase_node(node)
    return plain


def _keep_layout(graph: fx.Graph, node: fx.Node) -> None:
    """Give the result the order of dimensions in memory that later views were traced with."""
    value = node.meta["val"]
    order = sorted(range(value.dim()), key=lambda dim: -_hint(value.stride(dim)))
    if order == list(range(value.dim())):
        return
    users = list(node.users)
    with graph.inserting_after(node):
        turned = graph.call_function(aten.permute.default, (node, order))
    with graph.inserting_after(turned):
        dense = graph.call_function(aten.contiguous.default, (turned,))
    back = [order.index(dim) for dim in range(value.dim())]
    with graph.inserting_after(dense):
        result = graph.call_function(aten.permute.default, (dense, back))
    for user in users:
        user.replace_input_with(node, result)


def _hint(size: Any) -> int:
    return size if isinstance(size, int) else int(size.node.hint or 0)
