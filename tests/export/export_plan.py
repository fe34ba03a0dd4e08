"""Traces and generates without compiling: what a manifest would say, in a fraction of a second."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cudaexec.export.aoti_compile import GeneratedCode, Mutations, generate
from cudaexec.export.code_target import CodeTarget
from cudaexec.export.lower import LoweredMethod, lower
from cudaexec.export.narrowing import NeedsSizesAboveOneError
from cudaexec.export.trace import MethodRequest
from cudaexec.export.weights import WeightsTable


class Function(nn.Module):
    """A module around a function; keeps the names of its parameters."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = function


@dataclass
class Plan:
    lowered: LoweredMethod
    code: GeneratedCode
    mutations: Mutations

    @property
    def inputs(self) -> list[dict[str, Any]]:
        return self.lowered.inputs

    @property
    def outputs(self) -> list[dict[str, Any]]:
        return self.lowered.outputs

    @property
    def guards(self) -> list[dict[str, Any]]:
        return self.lowered.symbols.guards

    @property
    def symbols(self) -> list[dict[str, Any]]:
        return [spec.to_json() for spec in self.lowered.symbols.specs]

    def constants(self, table: WeightsTable | None = None) -> dict[str, dict[str, Any]]:
        """Manifest entries by FQN."""
        table = table or WeightsTable()
        entries = {}
        for info in self.code.constants:
            tensor = self.lowered.tensors.get(info.fqn, self.code.values.get(info.name))
            assert tensor is not None, info
            owned = info.fqn in self.lowered.owned
            entry = table.add_constant(self.lowered.name, info, tensor, owned=owned)
            entries[entry["fqn"]] = entry
        table.add_aliases(self.lowered.tensors.items())
        return entries


def traced(
    model: Any,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    name: str = "forward",
    *,
    small_sizes: bool = True,
) -> LoweredMethod:
    if not isinstance(model, (nn.Module, torch.export.ExportedProgram)):
        model = Function(model)
    request = MethodRequest(name, model, args, dict(kwargs or {}), dynamic_shapes)
    return lower(request, small_sizes=small_sizes)


def plan(*args: Any, level: str = "x86-64-v3", **kwargs: Any) -> Plan:
    lowered = traced(*args, **kwargs)
    with tempfile.TemporaryDirectory() as directory:
        target = (CodeTarget.cpu(level),)
        try:
            codes, mutations = generate(lowered, target, Path(directory) / "first")
        except NeedsSizesAboveOneError:
            lowered = traced(*args, small_sizes=False, **kwargs)
            codes, mutations = generate(lowered, target, Path(directory) / "second")
    return Plan(lowered, codes[0], mutations)


def evaluate(expr: Any, symbols: Mapping[str, int]) -> int:
    """Value of a manifest dimension or guard, with Python's arithmetic."""
    operators: dict[str, Callable[[int, int], int]] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "floordiv": lambda a, b: a // b,
        "mod": lambda a, b: a % b,
        "pow": lambda a, b: a**b,
        "min": min,
        "max": max,
        "eq": lambda a, b: int(a == b),
        "ne": lambda a, b: int(a != b),
        "lt": lambda a, b: int(a < b),
        "le": lambda a, b: int(a <= b),
        "gt": lambda a, b: int(a > b),
        "ge": lambda a, b: int(a >= b),
        "and": lambda a, b: int(bool(a) and bool(b)),
        "or": lambda a, b: int(bool(a) or bool(b)),
    }
    stack: list[int] = []
    for item in expr if isinstance(expr, list) else [expr]:
        if isinstance(item, int):
            stack.append(item)
        elif item == "neg":
            stack.append(-stack.pop())
        elif item == "not":
            stack.append(int(not stack.pop()))
        elif item in operators:
            right, left = stack.pop(), stack.pop()
            stack.append(operators[item](left, right))
        else:
            stack.append(symbols[item])
    (value,) = stack
    return value
