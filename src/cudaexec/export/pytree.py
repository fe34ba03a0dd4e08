"""The structure of arguments and results as the manifest's trees.

torch's own serialisation of pytree specs knows only the types it registered itself and fails on
others; this one keeps any registered container, with field names and its class.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from torch.utils import _pytree

from cudaexec.export.errors import ExportError
from cudaexec.export.manifest import encode_key

Tree = dict[str, Any]

_LEAF: Tree = {"leaf": True}


class NullLeaf:
    """Stands in a leaf list for a field that torch dropped because it was None."""


NULL_LEAF = NullLeaf()


def children_of(spec: Any) -> list[Any]:
    """Return the child specs (the attribute's name differs between torch versions)."""
    children = getattr(spec, "children", None)
    if callable(children):
        return list(children())
    return list(spec.children_specs)


def tree_of(spec: Any, where: str) -> tuple[Tree, list[Any]]:
    """Translate a torch TreeSpec.

    Returns:
        The manifest's tree and, for each of its leaves in order, either the index of torch's leaf
        or `NULL_LEAF` for a dropped None field of a dataclass.

    Raises:
        ExportError: a dict key that is not a str, int, bool or None, naming `where`.
    """
    slots: list[Any] = []
    counter = iter(range(spec.num_leaves))
    return _translate(spec, where, counter, slots), slots


def class_name(cls: type) -> str:
    """Return `module:QualName`."""
    return f"{cls.__module__}:{cls.__qualname__}"


def _translate(spec: Any, where: str, counter: Iterator[int], slots: list[Any]) -> Tree:
    if spec.is_leaf():
        slots.append(next(counter))
        return dict(_LEAF)
    kind = _kind(spec.type)
    if kind == "dataclass":
        return _dataclass(spec, where, counter, slots)
    children = [_translate(child, where, counter, slots) for child in children_of(spec)]
    tree: Tree = {"type": kind, "children": children}
    if kind in ("dict", "ordereddict", "defaultdict"):
        keys = spec.context[1] if kind == "defaultdict" else spec.context
        tree["keys"] = [_key(key, where) for key in keys]
    elif kind == "namedtuple":
        tree["keys"] = list(_namedtuple_class(spec)._fields)
    elif kind == "custom":
        tree["keys"] = _custom_keys(spec)
    if kind in ("namedtuple", "custom"):
        tree["class"] = class_name(_namedtuple_class(spec) if kind == "namedtuple" else spec.type)
    return tree


def _namedtuple_class(spec: Any) -> Any:
    """Return the class: torch keeps it as the context of specs of the plain type namedtuple."""
    return spec.context if isinstance(spec.context, type) else spec.type


def _kind(cls: Any) -> str:
    from collections import OrderedDict, defaultdict, deque, namedtuple

    plain: dict[Any, str] = {
        tuple: "tuple",
        list: "list",
        dict: "dict",
        OrderedDict: "ordereddict",
        defaultdict: "defaultdict",
        deque: "list",
        namedtuple: "namedtuple",
    }
    if cls in plain:
        return plain[cls]
    if isinstance(cls, type) and issubclass(cls, tuple):
        if hasattr(cls, "_fields"):
            return "namedtuple"
        return "tuple"  # torch.return_types.* too: they are built from a sequence alone
    if dataclasses.is_dataclass(cls):
        return "dataclass"
    return "custom"


def _dataclass(spec: Any, where: str, counter: Iterator[int], slots: list[Any]) -> Tree:
    children = children_of(spec)
    names, none_names = _dataclass_fields(spec)
    if names is None or len(names) != len(children):
        keys = _custom_keys(spec)
        trees = [_translate(child, where, counter, slots) for child in children]
        return {
            "type": "custom",
            "children": trees,
            "keys": keys,
            "class": class_name(spec.type),
        }
    trees = [_translate(child, where, counter, slots) for child in children]
    for _ in none_names:
        slots.append(NULL_LEAF)
        trees.append(dict(_LEAF))
    return {
        "type": "dataclass",
        "children": trees,
        "keys": [*names, *none_names],
        "class": class_name(spec.type),
    }


def _dataclass_fields(spec: Any) -> tuple[list[str] | None, list[str]]:
    """Read the context of torch's dataclass registration: [field names, dropped None fields]."""
    context = spec.context
    if isinstance(context, (list, tuple)) and len(context) == 2:
        names, none_names = context
        if all(isinstance(part, (list, tuple)) for part in (names, none_names)):
            return list(names), list(none_names)
    return None, []


def _custom_keys(spec: Any) -> list[str]:
    """Return the names of a registered container's children, by position where it has none."""
    count = len(children_of(spec))
    node = _pytree.SUPPORTED_NODES.get(spec.type)
    with_keys = getattr(node, "flatten_with_keys_fn", None)
    if node is not None and with_keys is not None:
        dummies = [object() for _ in range(count)]
        try:
            pairs, _ = with_keys(node.unflatten_fn(dummies, spec.context))
        except Exception:  # a class that checks its fields: fall through to what it says itself
            pairs = []
        if len(pairs) == count:
            return [_entry_name(key) for key, _ in pairs]
    context = spec.context
    if (
        isinstance(context, (list, tuple))
        and len(context) == count
        and all(isinstance(item, str) for item in context)
    ):
        return list(context)
    fields = getattr(spec.type, "__match_args__", ())
    if len(fields) == count:
        return list(fields)
    return [str(index) for index in range(count)]


def _entry_name(entry: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


def _key(key: Any, where: str) -> list[Any]:
    try:
        return encode_key(key)
    except ValueError as error:
        raise ExportError(
            f"{where}: a dict with the key {key!r} of type {type(key).__name__} cannot be recorded "
            f"in the file; expected str, int, float, bool or None. Change the key in the model."
        ) from error


def leaf_names(spec: Any, parameters: list[str]) -> list[str]:
    """Name each leaf of an (args, kwargs) spec as a user writes it: `x`, `state['k'][0]`.

    Args:
        spec: torch's input spec, a tuple of the args tuple and the kwargs dict.
        parameters: names of the positional parameters of `forward`; may be too short.
    """
    args_spec, kwargs_spec = children_of(spec)
    names: list[str] = []
    for index, child in enumerate(children_of(args_spec)):
        base = parameters[index] if index < len(parameters) else f"arg{index}"
        names += [base + path for path in _paths(child)]
    for key, child in zip(kwargs_spec.context, children_of(kwargs_spec), strict=True):
        names += [str(key) + path for path in _paths(child)]
    return names


def _paths(spec: Any) -> list[str]:
    if spec.is_leaf():
        return [""]
    kind = _kind(spec.type)
    children = children_of(spec)
    if kind in ("tuple", "list"):
        steps = [f"[{index}]" for index in range(len(children))]
    elif kind in ("dict", "ordereddict", "defaultdict"):
        keys = spec.context[1] if kind == "defaultdict" else spec.context
        steps = [f"[{key!r}]" for key in keys]
    elif kind == "namedtuple":
        steps = [f".{name}" for name in _namedtuple_class(spec)._fields]
    else:
        steps = [f".{name}" for name in _custom_keys(spec)]
    return [
        step + tail for step, child in zip(steps, children, strict=True) for tail in _paths(child)
    ]
