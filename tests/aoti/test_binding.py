"""Generated code is bound to our shims, whatever else is in the process."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest
from libraries import HERE, LIB, SHIMS

HAS_TORCH = importlib.util.find_spec("torch") is not None

ORDERS = {
    "never": "",
    "first": "import torch",
    "last": "",
    "global": """
import ctypes, importlib.util, os
lib = os.path.join(os.path.dirname(importlib.util.find_spec("torch").origin), "lib")
sys.setdlopenflags(ctypes.RTLD_GLOBAL | 2)
import torch
ctypes.CDLL(os.path.join(lib, "libtorch_cpu.so"), mode=ctypes.RTLD_GLOBAL)
sys.setdlopenflags(2)
ctypes.CDLL(None).aoti_torch_empty_strided  # visible to everybody now
""",
}

SCRIPT = """
import json, sys
sys.path.insert(0, {here!r})
{before}
from libraries import *
{after}
code, weights = sample_library()
library = testing.open_library(code, "sample")
model = testing.Container(library)
model.bind_blob(weights)
values = [((k % 13) - 6) / 8 for k in range(8)]
output = unpack(model.run([("float32", [1, 8], floats(*values)[2])])[0])
print(json.dumps([library.bound_symbol_owners(), output, "torch" in sys.modules]))
"""


@pytest.mark.parametrize("order", ORDERS)
def test_every_shim_is_ours(order: str) -> None:
    if order != "never" and not HAS_TORCH:
        pytest.skip("needs torch")
    after = "import torch" if order == "last" else ""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            SCRIPT.format(here=str(HERE), before=ORDERS[order], after=after),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    owners, output, has_torch = json.loads(done.stdout)
    assert has_torch == (order != "never")
    ours = [
        (name, path)
        for name, path in owners
        if name.startswith(("aoti_torch_", "cudaexec_", "cxec_"))
    ]
    assert len(ours) >= 20
    assert [path for _, path in ours if not path.endswith("/cudaexec/lib/" + SHIMS)] == []
    assert output == [-0.23779296875, -0.119842529296875, 0.140960693359375, -0.19140625]


def test_nothing_of_ours_is_global() -> None:
    """Other libraries do not find our names, unless they ask for our library."""
    script = f"""
import ctypes, sys
sys.path.insert(0, {str(HERE)!r})
from libraries import *
code, _ = sample_library()
library = testing.open_library(code)
assert library.path
everybody = ctypes.CDLL(None)
for name in ("aoti_torch_empty_strided", "GOMP_parallel", "AOTInductorModelContainerRun"):
    assert not hasattr(everybody, name), name
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_standard_error_of_others_works(tmp_path: object) -> None:
    """std::cerr of the C++ runtime stays what it is, also where we brought the runtime."""
    script = f"""
import ctypes, sys
sys.path.insert(0, {str(HERE)!r})
import pathlib
from libraries import *
code, _ = sample_library()
library = testing.open_library(code)
build('#include <iostream>\\nextern "C" void say() {{ std::cerr << "heard" << std::endl; }}',
      pathlib.Path(sys.argv[1]) / "say.so", shims=False)
ctypes.CDLL(sys.argv[1] + "/say.so").say()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stderr == "heard\n"


@pytest.mark.skipif(not (LIB / "libcudaexec_onednn.so").exists(), reason="built without oneDNN")
def test_onednn_uses_our_pool() -> None:
    """Its OpenMP names are ours too, though it is linked with libgomp."""
    script = f"""
import ctypes, json, os, sys
sys.path.insert(0, {str(HERE)!r})
from libraries import *
path = str(LIB / "libcudaexec_onednn.so")
ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
dnnl = next(line.split()[-1] for line in open("/proc/self/maps") if "libdnnl.so" in line)
print(json.dumps(testing.bound_symbol_owners(dnnl)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    owners = [(n, o) for n, o in json.loads(done.stdout) if n.startswith(("GOMP_", "omp_"))]
    assert len(owners) >= 8
    assert [owner for _, owner in owners if not owner.endswith(SHIMS)] == []
