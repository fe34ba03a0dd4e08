"""Export: a PyTorch model to `model.pte` and `model.ptd`. Needs torch and a C++ compiler."""

from __future__ import annotations

import inspect
import os
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudaexec.export.report import ExportReport
from cudaexec.options import ExportOptions

if TYPE_CHECKING:
    from os import PathLike

    from cudaexec.export.trace import MethodRequest

__all__ = ["ExportReport", "export"]


def export(
    model: Any = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    path: str | bytes | PathLike[Any],
    dynamic_shapes: Any = None,
    target: str | Sequence[str] | None = None,
    methods: Mapping[str, Any] | None = None,
    options: ExportOptions | None = None,
) -> ExportReport:
    """Compile a model ahead of time into a program file and a weights file.

    The model is not changed. It is traced as it is: call `model.eval()` first unless the program
    shall behave as in training. Files appear complete or not at all.

    Args:
        model: an `nn.Module`, a `torch.export.ExportedProgram`, or None with `methods`. It becomes
            the method "forward".
        args: example positional arguments; their shapes, dtypes and strides are what the program
            takes. Python numbers, strings and None are compiled in.
        kwargs: example keyword arguments.
        path: the program file. Weights go beside it under the suffix `.ptd`; without weights there
            is no such file.
        dynamic_shapes: as for `torch.export.export`: which sizes may vary, and their ranges.
        target: "cpu", "cuda", "cuda:<index>" for the GPU to compile on, "cuda:sm_<nn>" to insist on
            an architecture. None: CUDA if torch sees a GPU, else the CPU. For CUDA a model on the
            CPU is compiled as if it had been moved to the GPU; a file runs on any GPU of the same
            architecture.
        methods: name to `(module, args, kwargs, dynamic_shapes)` (the last two may be left out) or
            to an `ExportedProgram`. Methods share weights and mutable buffers by name.
        options: see `ExportOptions`.

    Returns:
        An `ExportReport`: files, sizes, call-outs, dynamic sizes, stage times.

    Raises:
        ExportError: the model cannot be traced or compiled, lost a dynamic size, uses operators or
            dtypes that the runtime lacks (all are named), or a file cannot be written.
        TypeError, ValueError: an argument is of the wrong kind.
    """
    try:
        import torch  # noqa: F401
    except ImportError as error:
        from cudaexec.export.errors import ExportError

        raise ExportError(
            "export needs torch (>= 2.11, < 2.16): pip install 'cudaexec[export]'"
        ) from error
    if options is None:
        options = ExportOptions()
    elif not isinstance(options, ExportOptions):
        raise TypeError(f"options: expected ExportOptions, got {type(options).__name__}")
    from cudaexec.export.inductor_patches import check_torch_version
    from cudaexec.export.targets import gpu_there, parse_targets

    check_torch_version()
    targets = parse_targets(target, gpu_there)
    requests = _requests(model, args, kwargs, dynamic_shapes, methods)
    from cudaexec.export.pipeline import run_export

    return run_export(requests, targets, _output_path(path), options)


def _output_path(path: str | bytes | PathLike[Any]) -> Path:
    from cudaexec.export.errors import ExportError

    output = Path(os.fsdecode(path)).absolute()
    if output.suffix == ".ptd":
        raise ValueError(f"path {str(output)!r}: '.ptd' is the suffix of the weights file")
    if output.is_dir():
        raise ExportError(f"path {str(output)!r} is a directory; expected the name of a file")
    if not output.parent.is_dir():
        raise ExportError(f"directory {str(output.parent)!r} does not exist; create it first")
    return output


def _requests(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    methods: Mapping[str, Any] | None,
) -> list[MethodRequest]:
    if methods is None:
        return [_request("forward", model, args, kwargs, dynamic_shapes)]
    if model is not None or args or kwargs or dynamic_shapes is not None:
        raise ValueError(
            "methods: expected model=None and no args, kwargs or dynamic_shapes beside it; give "
            "each method its own"
        )
    if not methods:
        raise ValueError("methods: expected at least one")
    requests = []
    for name, spec in methods.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"methods: expected names that are strings, got {name!r}")
        if isinstance(spec, tuple):
            if not 2 <= len(spec) <= 4:
                raise ValueError(
                    f"methods[{name!r}]: expected (module, args, kwargs, dynamic_shapes), got "
                    f"{len(spec)} items"
                )
            requests.append(_request(name, *spec))
        else:
            requests.append(_request(name, spec))
    return requests


def _request(
    name: str,
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> MethodRequest:
    import torch
    from torch.export import ExportedProgram

    from cudaexec.export.trace import MethodRequest

    if isinstance(model, ExportedProgram):
        if args or kwargs or dynamic_shapes is not None:
            raise ValueError(
                f"method {name!r}: an ExportedProgram has its arguments and dynamic shapes already"
            )
        return MethodRequest(name, model)
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"method {name!r}: expected an nn.Module or an ExportedProgram, got "
            f"{type(model).__name__}"
        )
    if isinstance(args, torch.Tensor) or not isinstance(args, (tuple, list)):
        args = (args,)
    args, kwargs = _as_declared(model, args, kwargs or {})
    return MethodRequest(name, model, args, kwargs, dynamic_shapes)


def _as_declared(
    model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Make arguments positional where `forward` allows it, so that the program takes both forms."""
    try:
        bound = inspect.signature(model.forward).bind(*args, **kwargs)
    except (TypeError, ValueError):  # torch says what is wrong with them
        return tuple(args), dict(kwargs)
    return bound.args, bound.kwargs


class _CallableModule(types.ModuleType):
    """`cudaexec.export` is this package and the function: importing a submodule binds the name."""

    __call__ = staticmethod(export)


sys.modules[__name__].__class__ = _CallableModule
