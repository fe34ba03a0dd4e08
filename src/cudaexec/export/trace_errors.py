"""What torch.export refuses, in words about the model: the place in its source and what to do."""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

import cudaexec
from cudaexec.export.dynamic_dims import DeclaredDim
from cudaexec.export.errors import ExportError, first_line

_TORCH = str(Path(torch.__file__).parent)
_NO_MODEL_CODE = (_TORCH, str(Path(cudaexec.__file__).parent), sysconfig.get_paths()["stdlib"])
_LAYERS = str(Path(_TORCH) / "nn" / "modules")
_DATA_DEPENDENT = re.compile(r"data-dependent|DataDependent|DynamicOutputShape", re.IGNORECASE)
_USER_CODE = re.compile(r'^\s*(File ".*?", line \d+, in \S+)\s*\n\s*(.*)$', re.MULTILINE)
_SIZE = r"(\w+) = L\['(\w+)'\](\S*)\.size\(\)\[(\d+)\]"


def trace_error(
    method: str, error: Exception, dims: Sequence[DeclaredDim] = (), *, strict: bool = False
) -> ExportError:
    """Return the error to raise in place of torch's.

    Args:
        method: for the message.
        error: from torch.export.
        dims: the sizes that were declared dynamic.
        strict: it was traced with TorchDynamo.
    """
    head = f"method {method!r}"
    text = str(error)
    place = _model_place(error)
    if "Constraints violated" in text:
        return ExportError(f"{head}: {_constraints(text, dims)}")
    kind = type(error).__name__
    if _DATA_DEPENDENT.search(kind) or _DATA_DEPENDENT.search(text.split("\n\n", maxsplit=1)[0]):
        return ExportError(
            f"{head}: a branch, a Python number or a size depends on the values of a tensor"
            f"{place}; a traced program has one path for all values. For a branch use torch.where "
            f"or torch.cond; for a number keep the 0-d tensor instead of int(), float(), bool() "
            f"or .item(); for a size check it with torch._check(). torch says: {_own_part(error)}"
        )
    advice = ""
    if isinstance(error, RuntimeError | TypeError | IndexError | AssertionError | AttributeError):
        advice = ". Check that the model runs on these example arguments without export"
        if not strict:
            advice += "; ExportOptions(strict=True) traces in another way"
    return ExportError(
        f"{head}: torch.export could not trace the model: {kind}: {_own_part(error)}{place}{advice}"
    )


def _own_part(error: Exception) -> str:
    """Return the message with sizes by name and without torch's hints for its own developers."""
    text = first_line(error)
    text = re.sub(r"\s*(For more information|\(unhinted:)[^\n]*", "", text)
    return _readable(text.strip().rstrip("."), {})


def _model_place(error: Exception) -> str:
    """Return ` (File "model.py", line 3, in forward: the line)` of the model's innermost frame."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<")
    ]
    first = next((i for i, f in enumerate(frames) if f.filename.startswith(_TORCH)), len(frames))
    traced = frames[first:]
    own = [frame for frame in traced if not frame.filename.startswith(_NO_MODEL_CODE)]
    if own:
        frame = own[-1]
        line = f": {frame.line}" if frame.line else ""
        return f' (File "{frame.filename}", line {frame.lineno}, in {frame.name}{line})'
    inside = str(error).partition("from user code:")[2]  # TorchDynamo's frames are no Python frames
    found = [match for match in _USER_CODE.findall(inside) if f'"{_TORCH}/_' not in match[0]]
    if found:
        return f" ({found[-1][0]}: {found[-1][1].strip()})"
    layers = [
        frame
        for frame in traced
        if frame.filename.startswith(_LAYERS) and not frame.filename.endswith("/module.py")
    ]
    if layers:
        frame = layers[-1]
        return f' (File "{frame.filename}", line {frame.lineno}, in {frame.name})'
    return ""


def _constraints(text: str, dims: Sequence[DeclaredDim]) -> str:
    """Say which declared sizes the model's code does not allow to vary, and how to declare them."""
    by_label = _by_label(dims)
    problems = [
        problem
        for line in text.splitlines()
        if line.strip().startswith("- ") and (problem := _constraint(line.strip()[2:], by_label))
    ]
    _, _, fixes = text.partition("Suggested fixes:")
    wanted = [line.strip() for line in fixes.splitlines() if " = " in line]
    problems = list(dict.fromkeys(problems))[:6] or [_own_part(ValueError(text))]
    advice = (
        f"Declare what the code allows ({'; '.join(wanted)}), or change the code that needs it"
        if wanted
        else "Declare these dimensions static or narrower, or change the code that needs it"
    )
    return (
        f"the model does not work for all the sizes declared in dynamic_shapes: "
        f"{'; '.join(problems)}. {advice}."
    )


def _by_label(dims: Sequence[DeclaredDim]) -> dict[str, list[DeclaredDim]]:
    by_label: dict[str, list[DeclaredDim]] = {}
    for declared in dims:
        by_label.setdefault(declared.label, []).append(declared)
    return by_label


def _constraint(line: str, by_label: Mapping[str, Sequence[DeclaredDim]]) -> str:
    constant = re.search(
        r"You marked (\S+) as dynamic but your code specialized it .*\((\d+)\)", line
    )
    if constant:
        label, size = constant.groups()
        return f"{_where(label, by_label)} became the constant {size}, the example's size"
    equal = re.search(rf"The values? of {_SIZE} and {_SIZE} must always be equal", line)
    if equal:
        first, second = equal.group(1), equal.group(5)
        return f"{_where(first, by_label)} has to be the same as {_where(second, by_label)}"
    guard = re.search(rf"Not all values of {_SIZE} .* satisfy the generated guard (.*)$", line)
    if guard:
        label = guard.group(1)
        condition = _readable(guard.group(5).rstrip("."), by_label)
        return f"{_where(label, by_label)} has to meet {condition}"
    return _readable(line, by_label)


def _where(label: str, by_label: Mapping[str, Sequence[DeclaredDim]]) -> str:
    found = by_label.get(label)
    return str(found[0]) if found else f"the dimension {label!r}"


def _readable(text: str, by_label: Mapping[str, Sequence[DeclaredDim]]) -> str:
    """Put the names of Dims, else `x.shape[0]`, for torch's `L['x'].size()[0]`."""
    names = {
        (declared.input, declared.dim): label
        for label, dims in by_label.items()
        for declared in dims
    }

    def spelled(match: re.Match[str]) -> str:
        path, dim = match.group(1) + match.group(2), int(match.group(3))
        return names.get((path, dim), f"{path}.shape[{dim}]")

    return re.sub(r"L\['(\w+)'\]((?:\[[^\]]*\]|\.\w+)*?)\.size\(\)\[(\d+)\]", spelled, text)
