"""Names, digests and encoding of the manifest (schema: docs/format.md)."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Final

from cudaexec.export import slots
from cudaexec.export.segments import Buffer

MANIFEST_KEY: Final = slots.MANIFEST_KEY
MANIFEST_VERSION: Final = 1
MANIFEST_MAX_BYTES: Final = 64 << 20
MANIFEST_MAX_DEPTH: Final = 64

Scalar = bool | int | float | str | None


def code_key(code: Buffer) -> str:
    """Return the named-data key of a code blob."""
    return f"{hashlib.sha256(code).hexdigest()}_so_blob"


def storage_key(device: str, fqn: str) -> str:
    """Return the named-data key of a weight; device is "cpu" or "cuda"."""
    return f"cuda_fqn_weight:{device}:{fqn}"


def blob_digest(data: Buffer, threads: int = 1) -> str:
    """Return the tree hash of a weight's bytes, in hexadecimal."""
    from cudaexec._core import _format

    return str(_format.tree_hash(data, threads))


def code_section(blobs: Mapping[str, Buffer]) -> dict[str, Any]:
    """Return the manifest's `code`: code key to digest and size."""
    return {
        key: {"sha256": hashlib.sha256(data).hexdigest(), "nbytes": memoryview(data).nbytes}
        for key, data in blobs.items()
    }


def weights_section(entries: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    """Return the manifest's `weights`, from storage key to (nbytes, digest)."""
    ordered = sorted(entries.items(), key=lambda item: item[0].encode())
    lines = "".join(f"{key} {nbytes} {digest}\n" for key, (nbytes, digest) in ordered)
    return {
        "digest": blob_digest(lines.encode()),
        "entries": {key: {"nbytes": nbytes, "digest": digest} for key, (nbytes, digest) in ordered},
    }


def encode_scalar(value: Scalar) -> Any:
    """Return a `constant` value as JSON holds it; NaN and infinities become an object."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    return value


def encode_key(key: Scalar) -> list[Any]:
    """Return a dictionary key as a tree node holds it. Raises ValueError if it is no scalar."""
    if key is None:
        return ["n"]
    for kind, code in ((bool, "b"), (int, "i"), (float, "f"), (str, "s")):
        if isinstance(key, kind):
            return [code, encode_scalar(key)]
    raise ValueError(f"a dictionary key of type {type(key).__name__}; scalars only")


def encode_manifest(manifest: Mapping[str, Any]) -> bytes:
    """Return the manifest's bytes, with `format` and `version` set.

    Raises ValueError if it is larger or nested deeper than a reader accepts (inputs or outputs that
    nest more than about 28 levels) or holds a value that JSON has not.
    """
    whole = {"format": "cudaexec", "version": MANIFEST_VERSION, **manifest}
    depth = _depth(whole)
    if depth > MANIFEST_MAX_DEPTH:
        raise ValueError(f"manifest nested {depth} deep; at most {MANIFEST_MAX_DEPTH}")
    text = json.dumps(whole, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    data = text.encode()
    if len(data) > MANIFEST_MAX_BYTES:
        raise ValueError(f"manifest of {len(data)} bytes; at most {MANIFEST_MAX_BYTES}")
    return data


def _depth(value: Any) -> int:
    """Return the nesting of a JSON value, counted level by level so that no depth is too much."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, dict | list | tuple)]:
        depth += 1
        level = [
            child for item in level for child in (item.values() if isinstance(item, dict) else item)
        ]
    return depth
