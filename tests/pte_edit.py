"""Edits a program file that cudaexec wrote and brings its digest up to date again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from cudaexec._core import _format

MANIFEST_KEY = "cudaexec_manifest"
DIGEST_KEY = "cudaexec_digest"


def edit_manifest(source: Path, target: Path, edit: Callable[[bytes], bytes]) -> None:
    """Write `source` to `target` with `edit(manifest)`, which may not be longer than the manifest."""
    found = _format.parse_pte(source)
    data = bytearray(source.read_bytes())
    start, nbytes = found["named_data"][MANIFEST_KEY]
    edited = edit(bytes(data[start : start + nbytes]))
    assert len(edited) <= nbytes, (len(edited), nbytes)
    data[start : start + nbytes] = edited.ljust(nbytes)
    digest = hashlib.sha256(data[: found["program_size"]])
    for method in found["methods"]:
        for delegate in method["delegates"]:
            offset, size = delegate["place"]
            digest.update(data[offset : offset + size])
    digest.update(data[start : start + nbytes])
    place, size = found["named_data"][DIGEST_KEY]
    data[place : place + size] = digest.digest()
    target.write_bytes(data)
