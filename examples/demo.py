"""Exports a small image classifier, runs it in a process without torch, and compares with eager.

Run it with `make demo`. It writes `out/demo.pte` (program) and `out/demo.ptd` (weights).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

OUT = Path(__file__).parents[1] / "out"

# What a deployment looks like: numpy and cudaexec, no torch.
RUN = """
import json, sys, time
sys.modules["torch"] = None
import numpy as np
import cudaexec
x = np.load(sys.argv[2])
start = time.perf_counter()
m = cudaexec.load(sys.argv[1])
loaded = time.perf_counter()
y = m.forward(x)
first = time.perf_counter()
times = []
for _ in range(200):
    t = time.perf_counter()
    m.forward(x)
    times.append(time.perf_counter() - t)
np.save(sys.argv[3], y)
print(json.dumps({"load": loaded - start, "first": first - loaded, "call": sorted(times)[100]}))
"""


def make_model():
    """Build a ResNet-style classifier of 64 x 64 images into 10 classes, with random weights."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
            self.norm1 = nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
            self.norm2 = nn.BatchNorm2d(width)
            self.act = nn.ReLU()

        def forward(self, x):
            return self.act(x + self.norm2(self.conv2(self.act(self.norm1(self.conv1(x))))))

    return nn.Sequential(
        nn.Conv2d(3, 32, 5, stride=2, padding=2), nn.ReLU(), Block(32),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(), Block(64),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    ).eval()  # fmt: skip


def main() -> None:
    """Export, run without torch, compare."""
    import numpy as np
    import torch

    import cudaexec

    OUT.mkdir(exist_ok=True)
    torch.manual_seed(0)
    model, x = make_model(), torch.randn(1, 3, 64, 64)

    report = cudaexec.export(model, (x,), path=OUT / "demo.pte", target="cpu")
    print(report)

    with torch.inference_mode():
        expected = model(x).numpy()
        times = []
        for _ in range(200):
            start = time.perf_counter()
            model(x)
            times.append(time.perf_counter() - start)
    np.save(OUT / "x.npy", x.numpy())
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(OUT / "demo.pte"), str(OUT / "x.npy"), str(OUT / "y.npy")],
        check=True,
        capture_output=True,
        text=True,
    )
    took = json.loads(done.stdout)
    got = np.load(OUT / "y.npy")
    difference = float(np.abs(got - expected).max())

    print(f"largest difference from eager torch: {difference:.2e}")
    for name in ("demo.pte", "demo.ptd"):
        print(f"{name}: {(OUT / name).stat().st_size:,} bytes")
    print(
        f"without torch: load {took['load'] * 1e3:.1f} ms, first call {took['first'] * 1e3:.2f} ms"
    )
    print(
        f"per call (median of 200): cudaexec {took['call'] * 1e6:.0f} us, "
        f"eager torch {statistics.median(times) * 1e6:.0f} us"
    )
    if difference > 1e-3:
        sys.exit("the outputs differ")


if __name__ == "__main__":
    main()
