"""A few programs for compute-sanitizer: kernels of every kind, without torch on the GPU.

Programs are exported in a child process that the sanitizer does not see; this one runs them from
numpy, so that every report is about our own work.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

ROWS = ("tiny", "mlp_dynamic_batch", "index_copy_cache", "conv_net_dynamic_size", "integers")
EXPORT = """
import pickle, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import torch, models, cudaexec
folder = Path({folder!r})
for name in {rows!r}:
    built = next(case for case in models.CASES if case.name == name).build()
    cudaexec.export(built.model, built.args, path=folder / f"{{name}}.pte", target="cuda",
                    dynamic_shapes=built.dynamic_shapes,
                    options=cudaexec.ExportOptions(progress=False, gemm="triton"))
    built = next(case for case in models.CASES if case.name == name).build()
    calls = []
    with torch.no_grad():
        for args in (built.args, *built.more):
            out = built.model(*(a.clone() for a in args))
            outs = out if isinstance(out, tuple) else (out,)
            calls.append(([a.numpy() for a in args], [o.numpy() for o in outs]))
    (folder / f"{{name}}.pickle").write_bytes(pickle.dumps(calls))
"""


def export_all(folder: str) -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LD_PRELOAD", "CUDA_INJECTION", "NV_SANITIZER", "NV_COMPUTE"))
    }
    tests = str(Path(__file__).parents[1])
    script = EXPORT.format(tests=tests, folder=folder, rows=ROWS)
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


def main() -> None:
    import numpy as np

    import cudaexec

    prepared = os.environ.get("CUDAEXEC_SANITIZER_PROGRAMS")
    with tempfile.TemporaryDirectory() as made:
        folder = prepared or made
        if prepared is None:
            export_all(folder)
        for name in ROWS:
            calls = pickle.loads((Path(folder) / f"{name}.pickle").read_bytes())
            with cudaexec.load(Path(folder) / f"{name}.pte") as module:
                for args, expected in calls:
                    got = module(*args)
                    outputs = got if isinstance(got, tuple) else (got,)
                    for a, b in zip(outputs, expected, strict=True):
                        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
            print(f"{name}: {len(calls)} calls, as eager", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--export"]:
        export_all(sys.argv[2])
    else:
        main()
