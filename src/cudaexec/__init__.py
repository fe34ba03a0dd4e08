"""Runs PyTorch models without PyTorch.

``export`` (needs torch) compiles a model to ``model.pte`` and ``model.ptd``; ``load`` runs them
anywhere. Importing this package imports neither torch nor numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudaexec._core import (
    Binding,
    Method,
    Module,
    Session,
    Tensor,
    __version__,
    log_level,
    set_log_level,
)
from cudaexec.attrdict import AttrDict
from cudaexec.errors import (
    CaptureError,
    ClosedError,
    ContextFull,
    CudaexecWarning,
    DeviceError,
    DtypeError,
    Error,
    ExportError,
    FileError,
    FormatError,
    InputError,
    MissingFileError,
    NotSupported,
    OutOfMemory,
    SessionBusy,
    ShapeError,
    TargetError,
    VersionError,
    WeightsError,
)
from cudaexec.load_options import GraphOptions, LoadOptions
from cudaexec.runtime import load
from cudaexec.specs import TensorSpec

if TYPE_CHECKING:
    from cudaexec.export import ExportReport, export
    from cudaexec.kv_spec import Flat, KvCacheSpec, Ring
    from cudaexec.options import ExportOptions

__all__ = [
    "AttrDict",
    "Binding",
    "CaptureError",
    "ClosedError",
    "ContextFull",
    "CudaexecWarning",
    "DeviceError",
    "DtypeError",
    "Error",
    "ExportError",
    "ExportOptions",
    "ExportReport",
    "FileError",
    "Flat",
    "FormatError",
    "GraphOptions",
    "InputError",
    "KvCacheSpec",
    "LoadOptions",
    "Method",
    "MissingFileError",
    "Module",
    "NotSupported",
    "OutOfMemory",
    "Ring",
    "Session",
    "SessionBusy",
    "ShapeError",
    "TargetError",
    "Tensor",
    "TensorSpec",
    "VersionError",
    "WeightsError",
    "__version__",
    "export",
    "load",
    "log_level",
    "set_log_level",
]

# Names that only exporting needs, with the modules that hold them.
_LAZY = {
    "ExportOptions": "cudaexec.options",
    "ExportReport": "cudaexec.export",
    "Flat": "cudaexec.kv_spec",
    "KvCacheSpec": "cudaexec.kv_spec",
    "Ring": "cudaexec.kv_spec",
    "export": "cudaexec.export",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'cudaexec' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(_LAZY[name])
    # `export` is a package that can be called: one object, whichever way the name was reached.
    value = module if name == "export" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
