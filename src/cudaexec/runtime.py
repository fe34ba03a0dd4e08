"""Loading programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Set
from typing import TYPE_CHECKING, Literal

from cudaexec._core import Module, _set_package_folders
from cudaexec.errors import DeviceError, InputError
from cudaexec.load_options import GraphOptions, LoadOptions

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["load"]


def load(
    pte: str | bytes | PathLike[str] | PathLike[bytes],
    ptd: str | bytes | PathLike[str] | PathLike[bytes] | None = None,
    *,
    device: str | None = None,
    cuda_graph: bool | Set[str] | GraphOptions | Literal["strict"] = False,
    options: LoadOptions = LoadOptions(),  # noqa: B008 - frozen
) -> Module:
    """Load a program and its weights.

    Args:
        pte: path of the program.
        ptd: path of the weights; None for the file of the same name ending in ``.ptd`` beside the
            program, if the program needs one.
        device: ``"cpu"``, ``"cuda"`` (the first GPU) or ``"cuda:<index>"``; None for the first GPU
            if the program has code for it, else the CPU.
        cuda_graph: replay calls as CUDA graphs, for programs on a GPU: True, a set of the names of
            the methods that get graphs, "strict" (`GraphOptions(strict=True)`), or GraphOptions.
            Results are those of calls without graphs; `Module.stats()` tells which calls have one,
            and why others have not.
        options: threads, verification, memory limit (of the program's device), code variant.

    Returns:
        The module: call it as the model was called.

    Raises:
        FormatError: a file is damaged or is no program.
        VersionError: a file needs another version of cudaexec.
        WeightsError: the weights are missing, damaged, or of another model.
        TargetError: no code in the program runs on this machine.
        DeviceError: the device does not exist, or the program needs a GPU and there is no driver.
        NotSupported: CUDA graphs of a program on the CPU.
        InputError: `cuda_graph` names a method that there is not.
        FileError: a file cannot be opened or read.
        OutOfMemory: memory ran out.
        TypeError: an argument is of the wrong kind.

    After an error nothing is left behind.
    """
    graphs = _graph_options(cuda_graph)
    if device is not None and not isinstance(device, str):
        raise TypeError(
            f"load: device: expected None or a str such as 'cpu' or 'cuda:0', got "
            f"{type(device).__name__}"
        )
    if device == "":
        raise DeviceError(
            "load: device is ''; expected 'cpu', 'cuda' or 'cuda:<index>', or None for the first "
            "GPU if the program has code for it, else the CPU"
        )
    if not isinstance(options, LoadOptions):
        raise TypeError(
            f"load: options: expected cudaexec.LoadOptions, got {type(options).__name__}"
        )
    _set_package_folders([folder for folder in sys.path if isinstance(folder, str)])
    return Module._load(
        _path(pte, "pte"),
        b"" if ptd is None else _path(ptd, "ptd"),
        "" if device is None else device,
        threads=options.threads or 0,
        verify=options.verify,
        memory_limit=options.memory_limit or 0,
        isa=options.isa or "",
        graphs=None
        if graphs is None
        else (
            sorted(graphs.methods or ()),
            graphs.warmup,
            graphs.max_graphs,
            graphs.strict,
            graphs.in_place,
        ),
    )


def _graph_options(
    cuda_graph: bool | Set[str] | GraphOptions | Literal["strict"],
) -> GraphOptions | None:
    if isinstance(cuda_graph, GraphOptions):
        return cuda_graph
    if isinstance(cuda_graph, bool):
        return GraphOptions() if cuda_graph else None
    if cuda_graph == "strict":
        return GraphOptions(strict=True)
    if isinstance(cuda_graph, Set) and all(isinstance(name, str) for name in cuda_graph):
        return GraphOptions(methods=frozenset(cuda_graph)) if cuda_graph else None
    raise TypeError(
        f"load: cuda_graph: expected True, False, a set of method names, 'strict' or "
        f"cudaexec.GraphOptions, got {cuda_graph!r}"
    )


def _path(path: str | bytes | PathLike[str] | PathLike[bytes], argument: str) -> bytes:
    try:
        encoded = os.fsencode(path)
    except TypeError:
        raise TypeError(
            f"load: {argument}: expected the path of a file (str, bytes or os.PathLike), got "
            f"{type(path).__name__}"
        ) from None
    if not encoded or b"\0" in encoded:
        raise InputError(
            f"load: {argument} is {path!r}; expected the path of a file, without NUL characters"
        )
    return encoded
