"""Sizes declared dynamic: checked before the trace, and compared with its result."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cudaexec.export.errors import ExportError


@dataclass(frozen=True)
class DeclaredDim:
    """One size declared dynamic.

    Attributes:
        input: the input's name, as `pytree.leaf_names` spells it. dim: the dimension.
        label: the Dim's name, or "AUTO" and "DYNAMIC". size: that of the example.
        minimum, maximum: the declared range; None where there is none.
        assumed: the lowest size that tracing assumes by itself (it takes a Dim to be 2 or more).
        rank: the input's number of dimensions.
    """

    input: str
    dim: int
    label: str
    size: int
    minimum: int | None
    maximum: int | None
    assumed: int = 2
    rank: int = 1

    @property
    def name(self) -> str | None:
        """The name of a plain Dim; None for AUTO, DYNAMIC and what is derived from a Dim."""
        named = self.label.isidentifier() and self.label not in ("AUTO", "DYNAMIC")
        return self.label if named else None

    def __str__(self) -> str:
        """Return how messages name it."""
        return f"input {self.input!r}: dimension {self.dim} ({self.label!r})"


def declared_dims(
    forward: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> list[DeclaredDim]:
    """List the dynamic sizes of a `dynamic_shapes` argument.

    Forms that torch alone understands (its `ShapesCollection`) and malformed ones give nothing
    here; torch reports the latter.
    """
    if hasattr(dynamic_shapes, "dynamic_shapes"):  # ShapesCollection
        return []
    if dynamic_shapes is None:
        return []
    try:
        bound = inspect.signature(forward).bind(*args, **kwargs).arguments
    except TypeError:
        return []
    values = _flatten_variadic(forward, bound)
    if isinstance(dynamic_shapes, Mapping):
        pairs = [(name, values[name], dynamic_shapes.get(name)) for name in values]
    elif isinstance(dynamic_shapes, (tuple, list)):
        pairs = [(n, v, s) for (n, v), s in zip(values.items(), dynamic_shapes, strict=False)]
    else:
        return []
    variadic = _variadic_name(forward)
    found: list[DeclaredDim] = []
    for name, value, shapes in pairs:
        if name == variadic and isinstance(value, tuple) and isinstance(shapes, (tuple, list)):
            for index, (part, spec) in enumerate(zip(value, shapes, strict=False)):
                found += _visit(f"{name}_{index}", part, spec)
        else:
            found += _visit(name, value, shapes)
    return found


def _variadic_name(forward: Any) -> str | None:
    for parameter in inspect.signature(forward).parameters.values():
        if parameter.kind == parameter.VAR_POSITIONAL:
            return parameter.name
    return None


def _flatten_variadic(forward: Any, bound: Mapping[str, Any]) -> dict[str, Any]:
    """Spread `**kwargs` parameters: torch names each keyword argument by itself."""
    values: dict[str, Any] = {}
    for name, value in bound.items():
        kind = inspect.signature(forward).parameters[name].kind
        if kind == inspect.Parameter.VAR_KEYWORD:
            values.update(value)
        else:
            values[name] = value
    return values


def _visit(path: str, value: Any, shapes: Any) -> Iterator[DeclaredDim]:
    if shapes is None:
        return
    if isinstance(value, torch.Tensor):
        items = shapes.items() if isinstance(shapes, Mapping) else enumerate(shapes)
        for dim, spec in items:
            declared = _declared(path, value, int(dim), spec)
            if declared is not None:
                yield declared
    elif isinstance(value, Mapping) and isinstance(shapes, Mapping):
        for key, item in value.items():
            yield from _visit(f"{path}[{key!r}]", item, shapes.get(key))
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        parts = shapes if isinstance(shapes, (tuple, list)) else ()
        for name, item, part in zip(value._fields, value, parts, strict=False):
            yield from _visit(f"{path}.{name}", item, part)
    elif isinstance(value, (tuple, list)) and isinstance(shapes, (tuple, list)):
        for index, (item, part) in enumerate(zip(value, shapes, strict=False)):
            yield from _visit(f"{path}[{index}]", item, part)


def _declared(path: str, value: torch.Tensor, dim: int, spec: Any) -> DeclaredDim | None:
    if spec is None or isinstance(spec, int):
        return None
    rank = value.dim()
    there = -rank <= dim < rank
    dim = dim % rank if there else dim
    size = int(value.shape[dim]) if there else 0
    hint = getattr(spec, "type", None)
    if hint is not None and not isinstance(spec, type) and hasattr(hint, "name"):
        if hint.name == "STATIC":
            return None
        return DeclaredDim(path, dim, hint.name, size, spec.min, spec.max, rank=rank)
    name = getattr(spec, "__name__", None)
    if name is None:
        return None
    maximum = getattr(spec, "max", None)
    bounded = isinstance(maximum, int) and maximum < 1 << 62
    minimum = int(getattr(spec, "min", 0))
    highest = maximum if bounded else None
    return DeclaredDim(path, dim, str(name), size, minimum, highest, _assumed(spec), rank)


def _assumed(spec: Any) -> int:
    root, function = getattr(spec, "root", None), getattr(spec, "fn", None)
    if root is None or function is None:
        return max(int(getattr(spec, "min", 0)), 2)
    return int(function(max(int(root.min), 2)))


def check_examples(method: str, dims: Sequence[DeclaredDim]) -> None:
    """Refuse dimensions that an example does not have, and sizes of 0 or 1 in dynamic ones.

    Raises:
        ExportError: torch would make the size constant, with or without saying so.
    """
    for declared in dims:
        if not -declared.rank <= declared.dim < declared.rank:
            raise ExportError(
                f"method {method!r}, {declared} is declared dynamic, but the example has "
                f"{declared.rank} dimensions. Correct dynamic_shapes."
            )
        if declared.size < 2:
            raise ExportError(
                f"method {method!r}, {declared} is dynamic, but the example has size "
                f"{declared.size}, which tracing treats as a constant. Pass an example of size 2 "
                f"or more, or declare the dimension static."
            )


def check_traced(
    method: str, dims: Sequence[DeclaredDim], inputs: Mapping[str, Any], bounds: Any
) -> None:
    """Check that every declared size is still dynamic, over the declared range.

    Args:
        method: for messages.
        dims: from `declared_dims`.
        inputs: name to fake tensor.
        bounds: (size) -> (lowest, highest or None).

    Raises:
        ExportError: the trace made a size constant or narrowed its range.
    """
    for declared in dims:
        value = inputs.get(declared.input)
        if not isinstance(value, torch.Tensor) or declared.dim >= value.dim():
            continue
        size = value.shape[declared.dim]
        if _is_constant(size):
            raise ExportError(
                f"method {method!r}, {declared} was declared dynamic, but the trace holds for size "
                f"{size} alone. Find the code that compares or uses it as a constant (an int() or "
                f"len() of it, a reshape with fixed numbers), or declare it static."
            )
        if declared.minimum is None and declared.maximum is None:
            continue  # AUTO and DYNAMIC leave the range to the trace; the report shows it
        low, high = bounds(size)
        narrowed = high is not None and (declared.maximum is None or high < declared.maximum)
        if low > max(declared.minimum or 0, declared.assumed) or narrowed:
            raise ExportError(
                f"method {method!r}, {declared} was declared for {_span(declared)}, but the trace "
                f"holds for {low} to {'any' if high is None else high} only. Declare that range, "
                f"or change the code that needs it."
            )


def _is_constant(size: Any) -> bool:
    return isinstance(size, int) or not size.node.expr.free_symbols


def _span(declared: DeclaredDim) -> str:
    high = "any size" if declared.maximum is None else declared.maximum
    return f"{declared.minimum or 0} to {high}"
