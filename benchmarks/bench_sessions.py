"""Wall time of sessions that run at the same time, on the CPU, beside one alone.

    python benchmarks/bench_sessions.py [--calls N] [--rounds N] [--realtime]

Each of 1, 2 and 4 Python threads makes the same number of calls of a model with state, on a session
of its own; a call uses one CPU thread. The ratio is the wall time of all of them to that of one:
1.0 is perfect while there are as many processors as threads, threads / processors otherwise. It is
that of the best rounds, since whoever else works on the machine slows one thread down as well.
`--realtime` (as root) measures under SCHED_FIFO, which keeps other processes off the processors.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import cudaexec

COUNTS = (1, 2, 4)
# Width, layers, rows: 6 products of 16 x 256 x 256, say.
MODELS = {"recurrent 64, batch 4": (64, 2, 4), "recurrent 256, batch 16": (256, 6, 16),
          "recurrent 1024, batch 8": (1024, 4, 8)}  # fmt: skip


def export(path: Path, width: int, layers: int, rows: int) -> None:
    """Write a model that keeps its last output in a buffer."""
    import torch
    from torch import nn

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)])
            self.register_buffer("state", torch.zeros(rows, width))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.tanh(self.net(x) + self.state)
            self.state.copy_(y)
            return y

    torch.manual_seed(0)
    cudaexec.export(Recurrent().eval(), (torch.randn(rows, width),), path=path, target="cpu")


def wall(sessions: list[cudaexec.Session], x: np.ndarray, calls: int) -> float:
    """Seconds for `calls` calls of every session, each in a thread of its own."""
    barrier = threading.Barrier(len(sessions))
    times: list[tuple[float, float]] = []  # this thread may get a processor late, so theirs count

    def work(session: cudaexec.Session) -> None:
        forward = session.method("forward")
        forward(x)
        barrier.wait()
        start = time.perf_counter()
        for _ in range(calls):
            forward(x)
        times.append((start, time.perf_counter()))

    threads = [threading.Thread(target=work, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(end for _, end in times) - min(start for start, _ in times)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=0, help="a thread; 0: about 0.2 s of them")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--realtime", action="store_true")
    options = parser.parse_args()
    processors = len(os.sched_getaffinity(0))
    print(f"{processors} processors; best wall time of {options.rounds} rounds (ratio to one)")
    with tempfile.TemporaryDirectory() as folder:
        for name, (width, layers, rows) in MODELS.items():
            path = Path(folder) / f"{width}.pte"
            export(path, width, layers, rows)
            if options.realtime:
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
            x = np.random.default_rng(0).standard_normal((rows, width)).astype(np.float32)
            with cudaexec.load(path, options=cudaexec.LoadOptions(threads=1)) as module:
                sessions = [module.session() for _ in range(max(COUNTS))]
                calls = options.calls or max(20, int(0.2 * 50 / wall(sessions[:1], x, 50)))
                times: dict[int, list[float]] = {count: [] for count in COUNTS}
                for _ in range(options.rounds):
                    for count in random.sample(COUNTS, len(COUNTS)):
                        times[count].append(wall(sessions[:count], x, calls))
            if options.realtime:
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            best = {count: min(values) for count, values in times.items()}
            row = ", ".join(
                f"{count} threads {best[count] * 1e3:.0f} ms ({best[count] / best[1]:.2f}; "
                f"median {statistics.median(times[count]) * 1e3:.0f})"
                for count in COUNTS
            )
            print(f"{name}: {best[1] / calls * 1e6:.1f} us a call; {row}")


if __name__ == "__main__":
    main()
