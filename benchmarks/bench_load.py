"""Time of `cudaexec.load` in a fresh process without any program on PATH.

    python benchmarks/bench_load.py [--runs 20] [--layers 24]

The program is a Transformer encoder; its file has about 1 MB. Prints the sizes of its files, the
median and the range of the first load of a process, and of the second one. The loading process
must start no child.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

CHILD = """
import json, os, resource, sys, time
import cudaexec
begin = time.perf_counter()
module = cudaexec.load(sys.argv[1])
first = time.perf_counter() - begin
begin = time.perf_counter()
second_module = cudaexec.load(sys.argv[1])
second = time.perf_counter() - begin
try:
    os.wait()
    children = True
except ChildProcessError:
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss != 0
print(json.dumps([first, second, children]))
"""


def export(path: Path, layers: int) -> None:
    """Export the encoder."""
    import torch
    from torch import nn

    import cudaexec

    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0)
    model = nn.Sequential(
        nn.TransformerEncoder(layer, layers, enable_nested_tensor=False), nn.Linear(128, 8)
    ).eval()
    cudaexec.export(model, (torch.randn(2, 64, 128),), path=path, target="cpu")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--layers", type=int, default=24)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pte"
        export(path, arguments.layers)
        sizes = [
            f"{file.name} {file.stat().st_size / 1e6:.2f} MB"
            for file in sorted(path.parent.iterdir())
        ]
        print(", ".join(sizes))
        environment = {**os.environ, "PATH": folder}
        rows = []
        for _ in range(arguments.runs):
            done = subprocess.run(
                [sys.executable, "-c", CHILD, str(path)],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            rows.append(json.loads(done.stdout))
    for index, name in enumerate(("first load", "second load")):
        times = sorted(row[index] * 1e3 for row in rows)
        print(f"{name}: {statistics.median(times):.1f} ms ({times[0]:.1f}-{times[-1]:.1f})")
    print("child processes started:", any(row[2] for row in rows))


if __name__ == "__main__":
    main()
