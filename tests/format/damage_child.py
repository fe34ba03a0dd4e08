"""Opens damaged copies of files, one after the other, under a 2 GiB limit; says what became of each.

Usage: python damage_child.py DIRECTORY. The directory holds `jobs.pickle`: a list of
(name, pte bytes, ptd bytes or None, must_equal) where `must_equal` is the content that a successful
opening must have, or None. Prints each name before it is tried, so that a crash names its file, and
"ok NAME CLASS" or "bad NAME REASON" after.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LIMIT = 2 << 30
SECONDS_PER_FILE = 5.0


def content(pte: Path, ptd: Path | None) -> Any:
    """All that a runtime takes from the files, verified as a runtime does it."""
    from cudaexec import errors
    from cudaexec._core import _format

    program = _format.parse_pte(pte)
    data = pte.read_bytes()
    manifest = None
    code = {}
    if "cudaexec_manifest" in program["named_data"]:
        start, nbytes = program["named_data"]["cudaexec_manifest"]
        manifest = _format.parse_manifest(data[start : start + nbytes])
        for key, (size, digest) in manifest["code"].items():
            place = program["named_data"].get(key, (0, -1))
            blob = data[place[0] : place[0] + max(place[1], 0)]
            if place[1] != size or hashlib.sha256(blob).hexdigest() != digest:
                raise errors.FormatError(f"code {key}")
            code[key] = digest
    payloads = [
        _format.decode_payload(delegate["processed"], method["name"])
        for method in program["methods"]
        for delegate in method["delegates"]
        if delegate["id"] in ("CudaBackend", "AotiCpuBackend")
    ]
    methods = [
        {k: v for k, v in method.items() if k != "delegates"} for method in program["methods"]
    ]
    return methods, payloads, manifest, code, weights(ptd, manifest)


def weights(ptd: Path | None, manifest: Any) -> dict[str, str]:
    from cudaexec import errors
    from cudaexec._core import _format

    if ptd is None:
        return {}
    found = _format.parse_ptd(ptd)
    data = ptd.read_bytes()
    if manifest is None:
        return dict.fromkeys(found["entries"], "")
    result = {}
    for key, (size, digest) in manifest["weights"].items():
        if key not in found["entries"]:
            raise errors.WeightsError(f"no {key}")
        offset, nbytes, _ = found["entries"][key]
        if nbytes != size or _format.tree_hash(data[offset : offset + nbytes]) != digest:
            raise errors.WeightsError(f"other bytes in {key}")
        result[key] = digest
    return result


class Scratch:
    """Two files in memory where the system has such a place; unchanged content is not written again."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        usable = memory.is_dir() and os.access(memory, os.W_OK)
        self.directory = tempfile.TemporaryDirectory(dir=memory if usable else None)
        self.written: dict[str, bytes] = {}

    def file(self, name: str, data: bytes) -> Path:
        path = Path(self.directory.name) / name
        if self.written.get(name) != data:
            path.write_bytes(data)
            self.written[name] = data
        return path


def attempt(scratch: Scratch, job: tuple[str, bytes, bytes | None, Any]) -> str:
    from cudaexec import errors

    _, pte_bytes, ptd_bytes, must_equal = job
    pte = scratch.file("x.pte", pte_bytes)
    ptd = None if ptd_bytes is None else scratch.file("x.ptd", ptd_bytes)
    started = time.monotonic()
    try:
        found = content(pte, ptd)
    except (errors.FormatError, errors.WeightsError, errors.VersionError) as error:
        if not str(error):
            return "bad an error without a message"
        outcome = f"ok {type(error).__name__}"
    else:
        same = must_equal is None or found == must_equal
        outcome = "ok same" if same else "bad another answer"
    elapsed = time.monotonic() - started
    return outcome if elapsed < SECONDS_PER_FILE else f"bad took {elapsed:.1f} s"


def main() -> None:
    directory = Path(sys.argv[1])
    jobs = pickle.loads((directory / "jobs.pickle").read_bytes())
    scratch = Scratch()
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    for job in jobs:
        print("try", job[0], flush=True)
        try:
            outcome = attempt(scratch, job)
        except Exception as error:  # any other class is the finding
            outcome = f"bad {type(error).__name__}: {error}"
        print(outcome.split(" ", 1)[0], job[0], outcome.split(" ", 1)[1], flush=True)
    scratch.directory.cleanup()
    print("done", len(jobs))


if __name__ == "__main__":
    main()
