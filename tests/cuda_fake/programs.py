"""GPU programs around the hand-written container (fake_program.cpp), and what their kernels do."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cuda_fake.fake import LIBRARIES, FakeDriver
from cudaexec.export import manifest as m
from cudaexec.export.payload import PayloadConstant, PayloadVariant, encode_payload
from cudaexec.export.ptd_writer import WeightBlob, build_ptd
from cudaexec.export.pte_writer import ProgramMethod, TensorValue, build_pte

Once = Callable[[str, Callable[[Path], None]], Path]
LEAF = {"leaf": True}
WEIGHTS = {
    "w": np.array([2.0], np.float32),
    "k": np.array([0.5], np.float32),
    "total": np.zeros(4, np.float32),
}
HOST_CONSTANTS = {"k"}
STATE = {"total"}
# Constants, number of inputs, number of outputs.
MODELS = {
    "SCALE": (["w", "k"], 1, 1),
    "COUNT": (["w", "total"], 1, 1),
    "READ": (["total"], 0, 2),
    "BUSY": (["w"], 2, 2),
    "VARY": (["w"], 1, 2),
    "RANDOM": ([], 0, 1),
    "ATTEND": ([], 2, 2),
}


def code(once: Once, model: str, *, unloads: bool = False) -> bytes:
    """The container's library. `unloads`: as torch 2.13 and later, which unload their modules."""
    name = f"fake_program_{model}_{int(unloads)}"
    source = Path(__file__).with_name("fake_program.cpp")
    flags = ["-std=c++17", "-O1", "-fPIC", "-shared", "-fno-gnu-unique", f"-DMODEL={model}"]

    def make(directory: Path) -> None:
        libraries = [str(LIBRARIES / "libcudaexec_shims.so.1")]
        command = ["g++", *flags, *(["-DUNLOADS"] if unloads else []), "-o"]
        subprocess.run([*command, str(directory / "code.so"), str(source), *libraries], check=True)

    return (once(name, make) / "code.so").read_bytes()


@dataclass
class Code:
    """One code variant: `sm` 0 is a CPU variant."""

    image: bytes
    sm: int = 90
    ptx: int = 0
    sm_count: int = 132


@dataclass
class Method:
    """`size`: elements of the input, or None for any up to 64."""

    name: str
    model: str
    variants: Sequence[Code]
    size: int | None = 4
    more: dict[str, Any] = field(default_factory=dict)


def _constant(fqn: str, device: str) -> dict[str, Any]:
    value = WEIGHTS[fqn]
    where = "cpu" if fqn in HOST_CONSTANTS else device
    return {
        "name": fqn, "fqn": fqn, "storage_key": m.storage_key(where, fqn), "dtype": "float32",
        "shape": list(value.shape), "strides": [1], "offset": 0, "device": where,
        "mutated": fqn in STATE, "kv": False,
    }  # fmt: skip


def _method(method: Method) -> dict[str, Any]:
    constants, num_inputs, num_outputs = MODELS[method.model]
    size: Any = "s0" if method.size is None else method.size
    tensor = {"dtype": "float32", "shape": [size], "strides": [1], "device": "cuda"}
    inputs = [{"name": "x", "kind": "tensor", **tensor, "mutated": False, "graph_input": 0}]
    if method.model == "ATTEND":
        inputs.append({**inputs[0], "name": "positions", "graph_input": 1})
    if method.model == "BUSY":
        mode = {"dtype": "int64", "shape": [], "strides": [], "device": "cpu"}
        inputs.append(
            {"name": "mode", "kind": "tensor", **mode, "mutated": False, "graph_input": 1}
        )
    outputs: list[dict[str, Any]] = [{"kind": "tensor", "graph_output": 0, **tensor}]
    if method.model == "READ":
        outputs[0]["shape"] = [4]
        outputs.append({"kind": "int", "graph_output": 1})
    if method.model in ("VARY", "ATTEND"):
        outputs.append({**outputs[0], "graph_output": 1})
    if method.model == "RANDOM":
        outputs[0].update(dtype="int64", shape=[4])
    variants = []
    for each in method.variants:
        cuda = {"target": "cuda", "sm": each.sm, "ptx": each.ptx, "sm_count": each.sm_count}
        kind = cuda if each.sm or each.ptx else {"target": "cpu", "isa": "x86-64", "cpu_flags": []}
        variants.append({**kind, "code": m.code_key(each.image), "callouts": []})
    return {
        "name": method.name,
        "variants": variants,
        "symbols": [{"name": "s0", "min": 0, "max": 64, "input": 0, "dim": 0}]
        if method.size is None and num_inputs
        else [],
        "inputs": inputs[:num_inputs],
        "outputs": outputs,
        "num_graph_inputs": num_inputs,
        "num_graph_outputs": num_outputs,
        "guards": [],
        "in_spec": {
            "type": "tuple",
            "children": [
                {"type": "tuple", "children": [LEAF] * num_inputs},
                {"type": "dict", "children": [], "keys": []},
            ],
        },
        "out_spec": LEAF
        if len(outputs) == 1
        else {"type": "tuple", "children": [LEAF] * len(outputs)},
        "constants": [_constant(fqn, "cuda") for fqn in constants],
        **method.more,
    }


def write(
    directory: Path,
    methods: Sequence[Method],
    weights: Mapping[str, np.ndarray] = WEIGHTS,
    more: Mapping[str, Any] | None = None,
) -> Path:
    """Writes program.pte and program.ptd; gives the path of the first. `more`: of the manifest."""
    directory.mkdir(parents=True, exist_ok=True)
    images = {m.code_key(v.image): v.image for each in methods for v in each.variants}
    used = sorted({fqn for each in methods for fqn in MODELS[each.model][0]})
    blobs = {
        c["storage_key"]: weights[c["fqn"]].tobytes() for c in (_constant(f, "cuda") for f in used)
    }
    sections = {key: (len(data), m.blob_digest(data)) for key, data in blobs.items()}
    manifest = {
        "producer": {"cudaexec": "0.1.0", "torch": "2.11.0"},
        "platform": {"os": "linux", "machine": "x86_64"},
        "code": m.code_section(images),
        "weights": m.weights_section(sections),
        "aliases": {},
        "methods": [_method(each) for each in methods],
        **(more or {}),
    }
    programs = []
    for each in methods:
        constants = [
            PayloadConstant(c["fqn"], c["storage_key"], len(blobs[c["storage_key"]]), "float32",
                            c["device"], 0, tuple(c["shape"]), (1,))
            for c in (_constant(f, "cuda") for f in MODELS[each.model][0])
        ]  # fmt: skip
        key = m.code_key(each.variants[0].image)
        sizes = (each.size or 64,)
        count = MODELS[each.model]
        programs.append(
            ProgramMethod(
                each.name,
                [TensorValue("float32", sizes), TensorValue("int64", ())][: count[1]],
                [TensorValue("float32", sizes), TensorValue("int64", ())][: count[2]],
                "CudaBackend",
                encode_payload([PayloadVariant(key, 90)], constants),
            )
        )
    named = {**images, m.MANIFEST_KEY: m.encode_manifest(manifest)}
    path = directory / "program.pte"
    path.write_bytes(build_pte(programs, named).to_bytes())
    path.with_suffix(".ptd").write_bytes(
        build_ptd(
            WeightBlob(key, len(data), data, m.blob_digest(data)) for key, data in blobs.items()
        ).to_bytes()
    )
    return path


def register_kernels(driver: FakeDriver) -> None:
    """What `fake_scale` and `fake_add` compute (driver/fake_kernels.cpp)."""
    driver.lib.fakecuda_register_program_kernels()
