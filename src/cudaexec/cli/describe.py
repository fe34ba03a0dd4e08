"""What a program and its weights hold, as plain data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cudaexec._core import _format
from cudaexec.cli.text import counted, expression_text, name_of
from cudaexec.errors import FileError

__all__ = ["describe"]

MANIFEST = "cudaexec_manifest"
# ExecuTorch's codes of element types, which are torch's.
DTYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32",
    7: "float64", 11: "bool", 15: "bfloat16",
}  # fmt: skip


def describe(pte: Path, ptd: Path | None) -> dict[str, Any]:
    """Read both files and check their structure; nothing is run.

    A program with code for GPUs makes this look for a driver and its GPUs.

    Args:
        pte: the program.
        ptd: the weights; None for the ``.ptd`` file beside the program, if there is one.

    Returns:
        A JSON-like dict: ``program`` and ``weights`` (sizes in bytes), ``producer``, ``platform``,
        ``methods``, ``kv_cache`` (as in the manifest; None without one), ``problems`` (why `load`
        would refuse these weights, as far as names and sizes tell; their contents are not read). A
        method's ``variants`` have ``text``, ``runs_on`` (devices of this machine) and ``reasons``
        (why not on others).

    Raises:
        FormatError: a file is damaged. FileError: a file cannot be read.
    """
    program = _format.parse_pte(pte)
    if ptd is None and pte.with_suffix(".ptd").is_file():
        ptd = pte.with_suffix(".ptd")
    manifest, here = _manifest(pte, program)
    weights = None if ptd is None else _weights(ptd)
    return {
        "program": {
            "path": str(pte),
            "nbytes": pte.stat().st_size,
            "named_data": {key: nbytes for key, (_, nbytes) in program["named_data"].items()},
        },
        "weights": weights,
        "problems": _problems(manifest, weights),
        "producer": manifest.get("producer"),
        "platform": manifest.get("platform"),
        "aliases": manifest.get("aliases", {}),
        "kv_cache": manifest.get("kv_cache"),
        "methods": [
            _method(method, _entry(manifest, method["name"]), here.get(method["name"], []))
            for method in program["methods"]
        ],
    }


def _manifest(pte: Path, program: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the manifest and, by method, where its code variants run on this machine.

    Both are empty for a program that cudaexec did not write.
    """
    if MANIFEST not in program["named_data"]:
        return {}, {}
    offset, nbytes = program["named_data"][MANIFEST]
    try:
        with pte.open("rb") as file:
            file.seek(offset)
            text = file.read(nbytes)
    except OSError as error:
        failure = FileError(f"{pte}: cannot read the manifest: {error}")
        failure.errno, failure.filename = error.errno, str(pte)
        raise failure from error
    _format.parse_manifest(text)  # raises what is wrong with it
    return json.loads(text), _format.code_here(text)


def _entry(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    for method in manifest.get("methods", []):
        if method["name"] == name:
            return dict(method)
    return {}


def _weights(ptd: Path) -> dict[str, Any]:
    entries = _format.parse_ptd(ptd)["entries"]
    return {
        "path": str(ptd),
        "nbytes": ptd.stat().st_size,
        "entries": {key: nbytes for key, (_, nbytes, _) in entries.items()},
    }


def _problems(manifest: dict[str, Any], weights: dict[str, Any] | None) -> list[str]:
    """Compare the weights with what the program says of them."""
    expected = manifest.get("weights", {}).get("entries", {})
    if weights is None:
        return [f"no .ptd file: the program needs {counted(len(expected), 'weight')}"] * bool(
            expected
        )
    found = weights["entries"]
    problems = [f"{name_of(key)}: not in {weights['path']}" for key in expected if key not in found]
    for key, entry in expected.items():
        if key in found and found[key] != entry["nbytes"]:
            problems.append(
                f"{name_of(key)}: {found[key]} bytes in {weights['path']}, the program expects "
                f"{entry['nbytes']}"
            )
    return problems


def _method(
    method: dict[str, Any], entry: dict[str, Any], here: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "name": method["name"],
        "delegates": [
            {"id": delegate["id"], "nbytes": delegate["place"][1]}
            for delegate in method["delegates"]
        ],
        "operators": sorted(
            {step[1] for chain in method["chains"] for step in chain if step[0] == "kernel"}
        ),
        "inputs": _specs(method, entry, "inputs"),
        "outputs": _specs(method, entry, "outputs"),
        "symbols": {
            symbol["name"]: [symbol["min"], symbol["max"]] for symbol in entry.get("symbols", [])
        },
        "guards": [guard["text"] for guard in entry.get("guards", [])],
        "variants": [
            {**variant, **places}
            for variant, places in zip(entry.get("variants", []), here, strict=True)
        ],
        "constants": [
            {
                "fqn": constant["fqn"],
                "dtype": constant["dtype"],
                "shape": constant["shape"],
                "mutated": constant["mutated"],
            }
            for constant in entry.get("constants", [])
        ],
    }


def _specs(method: dict[str, Any], entry: dict[str, Any], which: str) -> list[dict[str, Any]]:
    """Inputs or outputs by the manifest; without one, what the plan says (upper bounds)."""
    if entry:
        return [_tensor(spec, spec.get("name", "")) for spec in entry[which]]
    return [_planned(method["values"][index]) for index in method[which]]


def _planned(value: Any) -> dict[str, Any]:
    if isinstance(value, dict) and value["type"] == "tensor":
        code = value["scalar_type"]
        return {
            "kind": "tensor",
            "dtype": DTYPES.get(code, f"type {code}"),
            "shape": value["sizes"],
        }
    if isinstance(value, dict):
        return {"kind": f"list of {value['of']}", "value": value["items"]}
    return {"kind": "constant", "value": value}


def _tensor(spec: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name} if name else {}
    found["kind"] = spec["kind"]
    if "shape" in spec:
        found["dtype"] = spec["dtype"]
        found["shape"] = [expression_text(size) for size in spec["shape"]]
    if "value" in spec:
        value = spec["value"]
        found["value"] = expression_text(value) if spec["kind"] == "expression" else value
    return found
