"""Runs the part of a traced graph that a few values depend on, with chosen positions.

What a mask or an index is cannot be read off its operators, models write them too differently; so
it is computed, for many positions, and compared with what a cache needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sympy
import torch
from torch import fx


class PartialRun:
    """The nodes behind `wanted`, in order, writes to what they read included."""

    def __init__(self, module: Any, wanted: Iterable[fx.Node]) -> None:
        """Args: module: the flat graph module. wanted: nodes of it whose values are asked for."""
        self._module = module
        self._wanted = list(wanted)
        needed = set(self._wanted)
        while True:
            size = len(needed)
            for node in reversed(module.graph.nodes):
                if node in needed or (_writes(node) and _root(node) in map(_root, needed)):
                    needed.add(node)
                    needed.update(node.all_input_nodes)
            if len(needed) == size:
                break
        self._nodes = [node for node in module.graph.nodes if node in needed]

    @property
    def placeholders(self) -> list[fx.Node]:
        """The inputs that the values depend on."""
        return [node for node in self._nodes if node.op == "placeholder"]

    def uses_value_of(self, placeholder: fx.Node) -> bool:
        """Whether more than the sizes of an input matter."""
        nodes = set(self._nodes)
        return placeholder in self._wanted or any(
            user in nodes and user.target is not torch.ops.aten.sym_size.int
            for user in placeholder.users
        )

    def tensor(self, name: str) -> torch.Tensor:
        """Return a tensor of the module by FQN."""
        return _attribute(self._module, name)

    @property
    def written(self) -> list[str]:
        """FQNs of the tensors of the module that these nodes write."""
        roots = [_root(node) for node in self._nodes if _writes(node)]
        return list(dict.fromkeys(str(root.target) for root in roots if root.op == "get_attr"))

    def __call__(
        self, inputs: Mapping[fx.Node, torch.Tensor], state: Mapping[str, torch.Tensor]
    ) -> tuple[dict[fx.Node, Any], dict[str, torch.Tensor]]:
        """Compute the wanted values.

        Args:
            inputs: by placeholder; copied, so that nothing of the caller is written.
            state: values for tensors of the module by FQN; the others keep theirs.

        Returns:
            The wanted values, and the module's tensors (copies) after the run.
        """
        values: dict[fx.Node, Any] = {}
        tensors: dict[str, torch.Tensor] = {}
        for node in self._nodes:
            if node.op == "placeholder":
                values[node] = inputs[node].clone()
            elif node.op == "get_attr":
                name = str(node.target)
                if name not in tensors:
                    tensors[name] = _copy(state.get(name, _attribute(self._module, name)))
                values[node] = tensors[name]
            elif node.op == "call_function":
                args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: values[n])
                with torch.no_grad():
                    values[node] = node.target(*args, **kwargs)
            else:
                raise NotImplementedError(node.op)
        return {node: values[node] for node in self._wanted}, tensors


def concrete_shape(value: torch.Tensor, sizes: Mapping[Any, int]) -> tuple[int, ...]:
    """Return a traced shape with numbers for its symbols: `sizes`, else those of the example."""
    return tuple(_number(size, sizes) for size in value.shape)


def _number(size: Any, sizes: Mapping[Any, int]) -> int:
    if isinstance(size, int):
        return size
    env = size.node.shape_env
    # The table's name changed after torch 2.11.
    examples = getattr(env, "backed_var_to_val", None) or env.var_to_val
    expression = sympy.sympify(size.node.expr)
    known = {symbol: sizes.get(symbol, examples.get(symbol)) for symbol in expression.free_symbols}
    return int(expression.subs(known))


def _attribute(module: Any, name: str) -> torch.Tensor:
    owner = module
    for part in name.split("."):
        owner = getattr(owner, part)
    tensor: torch.Tensor = owner
    return tensor


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone()


def _writes(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and schema.is_mutable


def _root(node: fx.Node) -> fx.Node:
    """The tensor whose memory a node may share: through first arguments, so perhaps too far."""
    while node.op == "call_function" and node.args and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


__all__ = ["PartialRun", "concrete_shape"]
