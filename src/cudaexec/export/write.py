"""Layout of the two files and their appearance, both or neither."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cudaexec.export.dtypes import dtype_name
from cudaexec.export.errors import ExportError
from cudaexec.export.lower import LoweredMethod
from cudaexec.export.manifest import MANIFEST_KEY
from cudaexec.export.payload import PayloadConstant, PayloadVariant, encode_payload
from cudaexec.export.ptd_writer import WeightBlob, build_ptd
from cudaexec.export.pte_writer import ProgramMethod, TensorValue, build_pte
from cudaexec.export.segments import ContainerImage
from cudaexec.export.symbols import SymbolTable
from cudaexec.export.weights import WeightsTable

CPU_DELEGATE = "AotiCpuBackend"
CUDA_DELEGATE = "CudaBackend"
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class FilePair:
    """The written files; `ptd` is None where there are no weights. Sizes in bytes."""

    pte: Path
    ptd: Path | None
    pte_nbytes: int
    ptd_nbytes: int


def program_method(
    lowered: LoweredMethod,
    variants: Sequence[PayloadVariant],
    constants: Sequence[dict[str, Any]],
    storage_nbytes: dict[str, int],
) -> ProgramMethod:
    """Describe a method for the `.pte`: its tensors and the delegate's payload.

    Args:
        lowered: the method.
        variants: what the payload names: GPU code, or the baseline of the CPU's.
        constants: its manifest entries.
        storage_nbytes: size of each blob by storage key.
    """
    payload = encode_payload(
        variants,
        [
            PayloadConstant(
                fqn=item["fqn"],
                storage_key=item["storage_key"],
                storage_nbytes=storage_nbytes[item["storage_key"]],
                dtype=item["dtype"],
                device=item["device"],
                offset=item["offset"],
                sizes=item["shape"],
                strides=item["strides"],
            )
            for item in constants
        ],
    )
    on_gpu = variants[0].target_sm != 0
    return ProgramMethod(
        name=lowered.name,
        inputs=[_tensor_value(value, lowered.symbols) for value in lowered.graph_inputs],
        outputs=[_tensor_value(value, lowered.symbols) for value in lowered.graph_outputs],
        delegate_id=CUDA_DELEGATE if on_gpu else CPU_DELEGATE,
        payload=payload,
        compile_specs={"target_device": b"cuda:0"} if on_gpu else {},
    )


def _tensor_value(value: Any, symbols: SymbolTable) -> TensorValue:
    import torch

    if not isinstance(value, torch.Tensor):
        kinds = {torch.SymInt: "int64", torch.SymFloat: "float64", torch.SymBool: "bool"}
        return TensorValue(kinds[type(value)], ())
    sizes = []
    dynamism = "static"
    for size in value.shape:
        if isinstance(size, int):
            sizes.append(min(size, _INT32_MAX))
            continue
        bound = symbols.bounds(size)[1]
        if bound is None or bound > _INT32_MAX:
            dynamism = "unbound"
            sizes.append(_example_size(size))
        else:
            dynamism = "bound" if dynamism == "static" else dynamism
            sizes.append(bound)
    order = _dim_order(value)
    return TensorValue(dtype_name(value.dtype), tuple(sizes), dynamism, order, value.device.type)


def _example_size(size: Any) -> int:
    hint = getattr(size.node, "hint", None)
    return int(hint) if isinstance(hint, int) else 0


def _dim_order(value: Any) -> tuple[int, ...] | None:
    strides = [
        stride if isinstance(stride, int) else _example_size(stride) for stride in value.stride()
    ]
    if any(stride == 0 for stride in strides):
        return None
    return tuple(sorted(range(len(strides)), key=lambda dim: -strides[dim]))


def write_files(
    path: Path,
    methods: Sequence[ProgramMethod],
    blobs: dict[str, bytes],
    manifest: bytes,
    table: WeightsTable,
) -> FilePair:
    """Write `path` and, if there are weights, its sibling with the suffix `.ptd`.

    Both are complete under temporary names beside their targets before either is renamed; if
    anything fails, what was there before is still there and nothing else is.
    """
    program = build_pte(methods, {**blobs, MANIFEST_KEY: manifest})
    images: list[tuple[Path, ContainerImage]] = []
    data_path = path.with_suffix(".ptd")
    if table.entries:
        weights = build_ptd(
            WeightBlob(key, entry.nbytes, entry.data, entry.digest)
            for key, entry in table.entries.items()
        )
        images.append((data_path, weights))
    images.append((path, program))
    try:
        _replace_all(images)
    except OSError as error:
        raise ExportError(
            f"could not write {error.filename or path}: {error.strerror or error}. Nothing was "
            f"changed."
        ) from error
    sizes = {target: image.nbytes for target, image in images}
    ptd = data_path if table.entries else None
    return FilePair(path, ptd, sizes[path], sizes.get(data_path, 0))


def _replace_all(images: Sequence[tuple[Path, ContainerImage]]) -> None:
    with ExitStack() as cleanup:
        parts = [(_write_beside(target, image, cleanup), target) for target, image in images]
        with ExitStack() as undo:  # closes first: the old files are still there under other names
            for part, target in parts:
                backup = _keep_old(target, cleanup)
                part.replace(target)
                if backup is None:
                    undo.callback(target.unlink, missing_ok=True)
                else:
                    undo.callback(backup.replace, target)
            undo.pop_all()


def _write_beside(target: Path, image: ContainerImage, cleanup: ExitStack) -> Path:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    part = Path(name)
    cleanup.callback(part.unlink, missing_ok=True)
    with os.fdopen(handle, "wb") as file:
        image.write_to(file)
        file.flush()
        os.fsync(file.fileno())
    umask = os.umask(0)
    os.umask(umask)
    part.chmod(0o666 & ~umask)
    return part


def _keep_old(target: Path, cleanup: ExitStack) -> Path | None:
    """Keep a second name of a file that is about to be replaced; None if there is none."""
    if not target.exists():
        return None
    backup = Path(tempfile.mktemp(dir=target.parent, prefix=f".{target.name}.", suffix=".old"))
    os.link(target, backup)
    cleanup.callback(backup.unlink, missing_ok=True)
    return backup
