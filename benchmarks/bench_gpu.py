"""One call on a GPU beside torch eager and the AOTInductor package, and the time to a first output.

    python benchmarks/bench_gpu.py [--only tiny mlp start] [--without aoti triton] [--json FILE]

Calls are timed in one process, interleaved, each including a device synchronise; the start is that
of fresh processes, in turn with one that only creates the CUDA context and copies one array.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import measure

START_OURS = """
import numpy as np
import cudaexec
module = cudaexec.load({path!r})
y = module(np.ones(16, dtype=np.float32))
assert y[0] == 3
"""

START_BARE = """
import ctypes
import numpy as np
cuda = ctypes.CDLL("libcuda.so.1")
def check(status):
    assert status == 0, status
device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
check(cuda.cuInit(0))
check(cuda.cuDeviceGet(ctypes.byref(device), 0))
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
check(cuda.cuCtxSetCurrent(context))
x = np.ones(16, dtype=np.float32)
y = np.zeros(16, dtype=np.float32)
check(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(x.nbytes)))
check(cuda.cuMemcpyHtoD_v2(pointer, ctypes.c_void_p(x.ctypes.data), ctypes.c_size_t(x.nbytes)))
check(cuda.cuMemcpyDtoH_v2(ctypes.c_void_p(y.ctypes.data), pointer, ctypes.c_size_t(x.nbytes)))
assert y[0] == 1
"""


def models() -> dict[str, tuple[Any, Any]]:
    """Return the models of design section 11 with an input each, in host memory."""
    import torch
    from torch import nn

    class Affine(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 + 1

    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).bfloat16()
    return {
        "tiny": (Affine(), torch.randn(16)),
        "mlp": (mlp.eval(), torch.randn(8, 1024).bfloat16()),
    }


def ours(model: Any, x: Any, path: Path, gemm: Any) -> Callable[[], object]:
    """Export and load with `gemm`; return a call from a tensor on the GPU."""
    import cudaexec

    options = cudaexec.ExportOptions(gemm=gemm, progress=False)
    print(cudaexec.export(model, (x,), path=path, target="cuda", options=options), flush=True)
    module, on_gpu = cudaexec.load(path), x.cuda()
    return lambda: module(on_gpu)


def aoti_package(model: Any, x: Any, path: Path) -> Callable[[], object]:
    """Compile, package and load with torch itself."""
    import torch

    begin = time.perf_counter()
    program = torch.export.export(model.cuda(), (x.cuda(),))
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(path))
    loaded, on_gpu = torch._inductor.aoti_load_package(package), x.cuda()
    print(f"AOTInductor package: {time.perf_counter() - begin:.1f} s", flush=True)
    return lambda: loaded(on_gpu)


def bench_calls(name: str, folder: Path, without: list[str]) -> dict[str, Any]:
    """Time one model's calls; return microseconds by candidate: median, 10 % and 90 %."""
    import torch

    model, x = models()[name]
    calls: dict[str, Callable[[], object]] = {}
    has_product = name != "tiny"
    if has_product:
        calls["cudaexec, cuBLAS"] = ours(model, x, folder / f"{name}-cublas.pte", "cublas")
    if not has_product or "triton" not in without:
        label = "cudaexec, Triton" if has_product else "cudaexec"
        calls[label] = ours(model, x, folder / f"{name}.pte", "triton")
    if "aoti" not in without:
        calls["AOTInductor package"] = aoti_package(model, x, folder / f"{name}.pt2")
    eager, on_gpu = model.cuda(), x.cuda()
    calls["torch eager"] = lambda: eager(on_gpu)

    with torch.no_grad():
        expected = eager(on_gpu).float()
        for label, call in calls.items():
            error = (torch.as_tensor(call()).float() - expected).abs().max().item()
            print(f"{name}, {label}: largest difference from eager {error:.2g}")

        def synchronised(call: Callable[[], object]) -> Callable[[], object]:
            def run() -> object:
                result = call()
                torch.cuda.synchronize()
                return result

            return run

        timings = measure({label: synchronised(call) for label, call in calls.items()})
    base = timings["torch eager"].median
    for label, timing in timings.items():
        print(f"{name:6} {label:22} {timing} us, {timing.median / base:.2f} of eager", flush=True)
    return {label: [t.median, t.low, t.high] for label, t in timings.items()}


def bench_start(folder: Path) -> dict[str, Any]:
    """Time fresh processes from start to end, in turn; return seconds by candidate."""
    path = folder / "start.pte"
    model, x = models()["tiny"]
    ours(model, x, path, "triton")
    scripts = {"cudaexec": START_OURS.format(path=str(path)), "context and copy": START_BARE}
    samples: dict[str, list[float]] = {name: [] for name in scripts}
    for _ in range(9):
        for name, script in scripts.items():
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", script], check=True)
            samples[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(values[1:]) for name, values in samples.items()}
    ratio = medians["cudaexec"] / medians["context and copy"]
    for name, value in medians.items():
        print(f"start  {name:22} {value * 1e3:9.1f} ms")
    print(f"start  ratio {ratio:.2f} (goal at most 1.5)", flush=True)
    return medians


def main() -> None:
    """Run what the arguments name and print one line per figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=["tiny", "mlp", "start"])
    parser.add_argument("--without", nargs="+", default=[], choices=["aoti", "triton"])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in arguments.only:
            results[part] = (
                bench_start(folder)
                if part == "start"
                else bench_calls(part, folder, arguments.without)
            )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
