"""Which functions generated code calls in the runtime, and the refusal of those it lacks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cudaexec.export.errors import ExportError, source_line

_NAME = re.compile(r"\b(aoti_torch_\w+)\s*\(")
_ORIGINAL = re.compile(r"Original ATen: \[([^\]]*)\]")

# Handles, attributes, views and checks: part of every program, no operators.
INFRASTRUCTURE = re.compile(
    r"aoti_torch_(get_|dtype_|device_type_|layout_|memory_format_|grad_mode_|delete_|new_tensor|"
    r"new_uninit|create_tensor|empty_strided|_?reinterpret_tensor|clone|item_|scalar_to_tensor_|"
    r"check|is_defined|is_contiguous|assign_tensors|_alloc_from_pool|as_strided|zero_|copy_|"
    r"warn|cpu_copy_$|create_cuda_|delete_cuda_|cuda_guard_|get_current_cuda_stream)"
)


@dataclass(frozen=True)
class MissingOperator:
    """An operator that the runtime does not have."""

    method: str
    operator: str
    symbol: str
    places: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return one line for the error message."""
        where = "".join(self.places[:3])
        return f"  {self.operator} in method {self.method!r}{where}: needs {self.symbol}"


def called_functions(source: str) -> list[str]:
    """Return the `aoti_torch_*` functions that a generated source calls, each once, in order."""
    return list(dict.fromkeys(_NAME.findall(source)))


def callouts(symbols: Iterable[str]) -> list[str]:
    """Return those of the needed symbols that are operators, sorted."""
    return sorted(
        name
        for name in set(symbols)
        if name.startswith("aoti_torch_") and not INFRASTRUCTURE.match(name)
    )


def operator_of(symbol: str, wrapper: str) -> str:
    """Return the ATen operator behind a call-out: by the generated comment, else by its name."""
    if not symbol.startswith("aoti_torch_"):
        return f"the function {symbol}"
    position = wrapper.find(f"{symbol}(")
    comment = None
    for match in _ORIGINAL.finditer(wrapper[:position] if position > 0 else ""):
        comment = match.group(1)
    name = re.sub(r"^aoti_torch_(cpu_|cuda_)?", "", symbol)
    if comment:
        candidates = [item.strip() for item in comment.split(",")]
        for candidate in candidates:
            if name.startswith(candidate.removeprefix("aten.").rstrip("_")):
                return candidate
    return f"aten.{name}"


def operator_places(graph_module: Any) -> dict[str, tuple[str, ...]]:
    """Return the model's source lines by operator name, without namespace and overload."""
    places: dict[str, dict[str, None]] = {}
    for node in graph_module.graph.nodes:
        if node.op == "call_function":
            place = source_line(node)
            if place:
                places.setdefault(_base_name(str(node.target)), {})[place] = None
    return {name: tuple(lines) for name, lines in places.items()}


def places_of(operator: str, places: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the source lines of an operator that is spelled with its namespace."""
    return places.get(_base_name(operator), ())


def _base_name(operator: str) -> str:
    parts = operator.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def refuse(missing: list[MissingOperator]) -> None:
    """Raise ExportError naming every missing operator, if there is any."""
    if not missing:
        return
    lines = "\n".join(str(item) for item in dict.fromkeys(missing))
    raise ExportError(
        f"{len(dict.fromkeys(missing))} operator(s) of the model cannot run without libtorch:\n"
        f"{lines}\nReplace them by others (docs/operators.md lists what there is), or compute them "
        f"outside of the model."
    )
