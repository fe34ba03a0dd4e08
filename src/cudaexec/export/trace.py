"""torch.export with the parts it leaves to the reader of its warnings made errors."""

from __future__ import annotations

import logging
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from cudaexec.export.dynamic_dims import DeclaredDim
from cudaexec.export.errors import ExportError, first_line
from cudaexec.export.trace_errors import trace_error

# Warnings raised below these directories are torch's about torch: no user can act on them.
_NOISE_DIRECTORIES = tuple(
    str(Path(module.__file__).parent) for module in (torch, os) if module.__file__
)
_DIFFERENT_IN_TRAINING = (
    torch.nn.modules.dropout._DropoutNd,
    torch.nn.modules.batchnorm._BatchNorm,
)
_ASSIGNED = re.compile(r"The tensor attributes? (.*?) (?:was|were) assigned during export")


@dataclass
class MethodRequest:
    """What the caller asked for: a module with example arguments, or an exported program."""

    name: str
    model: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None


def training_notes(request: MethodRequest) -> list[str]:
    """Return a line for the report if parts of the model act as in training: seldom wanted."""
    if not isinstance(request.model, torch.nn.Module):
        return []
    kinds = {
        type(part).__name__
        for part in request.model.modules()
        if part.training and isinstance(part, _DIFFERENT_IN_TRAINING)
    }
    if not kinds:
        return []
    return [
        f"method {request.name!r}: {', '.join(sorted(kinds))} in training mode; call model.eval() "
        f"before the export unless that is meant"
    ]


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Drop torch's notes about itself; pass on other warnings; make lost state an error."""
    with silent_log(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for item in caught:
        text = str(item.message)
        assigned = _ASSIGNED.search(text)
        if assigned and "_flat_weights" not in assigned.group(1):
            raise ExportError(
                f"the model assigns {assigned.group(1)} in forward(), which a program would "
                f"forget. Register it with register_buffer() and write it in place."
            )
        if not assigned and not item.filename.startswith(_NOISE_DIRECTORIES):
            warnings.warn_explicit(item.message, item.category, item.filename, item.lineno)


@contextmanager
def silent_log() -> Iterator[None]:
    """Keep this thread's lines in torch's own log off stderr: what matters comes as an error.

    Whoever sets TORCH_LOGS wants to read them.
    """
    if os.environ.get("TORCH_LOGS"):
        yield
        return
    thread = threading.get_ident()

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "torch"]
    handlers = {handler for name in names for handler in logging.getLogger(name).handlers}
    try:
        for handler in handlers:
            handler.addFilter(of_others)
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(of_others)


@contextmanager
def refuse_seeding() -> Iterator[None]:
    """Make a seed set inside forward() an error: tracing would drop it without a word."""

    def refuse(seed: Any) -> Any:
        raise ExportError(
            f"the model calls torch.manual_seed({seed}) in forward(), which a program cannot do; "
            f"seed the loaded module instead (Module.manual_seed)"
        )

    owners = (torch, torch.random)
    originals = [owner.manual_seed for owner in owners]
    try:
        for owner in owners:
            owner.manual_seed = refuse
        yield
    finally:
        for owner, original in zip(owners, originals, strict=True):
            owner.manual_seed = original


def export_program(
    request: MethodRequest, *, strict: bool, dims: Sequence[DeclaredDim] = ()
) -> ExportedProgram:
    """Run torch.export on a module; an ExportedProgram comes back as it is.

    Args:
        request: the model and its example.
        strict: trace with TorchDynamo.
        dims: the sizes declared dynamic, for messages.

    Raises:
        ExportError: torch.export could not; the message names the place in the model.
    """
    if isinstance(request.model, ExportedProgram):
        return request.model
    try:
        with quiet_torch(), torch.no_grad(), refuse_seeding():
            return torch.export.export(
                request.model,
                request.args,
                request.kwargs,
                dynamic_shapes=request.dynamic_shapes,
                strict=strict,
            )
    except ExportError as error:
        raise ExportError(f"method {request.name!r}: {error}") from error
    except Exception as error:
        raise trace_error(request.name, error, dims, strict=strict) from error


def decompose(method: str, program: ExportedProgram) -> tuple[ExportedProgram, list[str]]:
    """Unroll LSTMs, for which Inductor would call oneDNN's RNN layer through libtorch.

    Returns:
        The program and what was rewritten in it, one line each.
    """
    table = {
        operator: _without_onednn(torch._decomp.decomposition_table[operator])
        for operator in (torch.ops.aten.lstm.input, torch.ops.aten.lstm.data)
    }
    found = [node for node in program.graph.nodes if node.target in table]
    if not found:
        return program, []
    try:
        with quiet_torch(), torch.no_grad():
            program = program.run_decompositions(table)
    except Exception as error:
        raise ExportError(
            f"method {method!r}: the LSTM could not be unrolled: {type(error).__name__}: "
            f"{first_line(error)}. Its sequence length must not be dynamic."
        ) from error
    return program, [f"{len(found)} LSTM unrolled over its steps"]


def _without_onednn(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """Run a decomposition as if oneDNN were switched off; everything else keeps seeing it on."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.backends.mkldnn.flags(enabled=False):
            return decomposition(*args, **kwargs)

    return run
