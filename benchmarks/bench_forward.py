"""Time of one forward call on the CPU, beside torch eager, the AOTInductor package and XNNPACK.

    python benchmarks/bench_forward.py [--threads 1 2] [--only NAME ...] [--suite] [--json FILE]
                                       [--without aoti ...] [--realtime]

All candidates of a row run in one process, interleaved. XNNPACK comes from `executorch==1.5.1`, if
it can be imported (`make bench` puts it into `.bench-site`, without dependencies). `--suite` adds
every model of the test table; `--without` leaves peers out; `--realtime` (as root) measures under
SCHED_FIFO, which keeps other processes off the processors.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

ROWS = ("tiny", "mlp_64_128_10_b1", "mlp_1024_4096_1024_b8")


def build_row(name: str) -> tuple[Any, tuple[Any, ...], dict[str, Any], Any]:
    """(model, args, kwargs, dynamic_shapes) of a row."""
    import torch

    import models

    torch.manual_seed(0)
    if name == "mlp_64_128_10_b1":
        return models.mlp(64, 128, 10).eval(), (torch.randn(1, 64),), {}, None
    if name == "mlp_1024_4096_1024_b8":
        return models.mlp(1024, 4096, 1024).eval(), (torch.randn(8, 1024),), {}, None
    built = next(c for c in models.CASES if c.name == name).build()
    return built.model, built.args, built.kwargs, built.dynamic_shapes


@contextlib.contextmanager
def quiet() -> Any:
    """XNNPACK's cpuinfo writes warnings to stderr that concern other processors."""
    saved, sink = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(sink)


def xnnpack_candidate(model: Any, args: tuple[Any, ...], folder: Path) -> Callable[[], object]:
    """A call through ExecuTorch's XNNPACK delegate and its Python binding."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.extension.pybindings.portable_lib import _load_for_executorch

    lowered = to_edge_transform_and_lower(
        torch.export.export(model, args), partitioner=[XnnpackPartitioner()]
    ).to_executorch()
    (folder / "xnnpack.pte").write_bytes(lowered.buffer)
    program, inputs = _load_for_executorch(str(folder / "xnnpack.pte")), list(args)
    program.forward(inputs)
    return lambda: program.forward(inputs)


def aoti_candidate(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any, folder: Path
) -> Callable[[], object]:
    """A call through torch's own AOTInductor package."""
    import torch

    exported = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes)
    package = torch._inductor.aoti_compile_and_package(
        exported, package_path=str(folder / "aoti.pt2")
    )
    runner = torch._inductor.aoti_load_package(package)
    return lambda: runner(*args, **kwargs)


def row_candidates(name: str, folder: Path, without: list[str]) -> dict[str, Callable[[], object]]:
    """All ways of running the row that work here, but those of `without`."""
    import torch

    import cudaexec

    model, args, kwargs, dynamic_shapes = build_row(name)
    candidates: dict[str, Callable[[], object]] = {"eager": lambda: model(*args, **kwargs)}
    if "aoti" not in without:
        try:
            candidates["aoti"] = aoti_candidate(model, args, kwargs, dynamic_shapes, folder)
        except Exception as error:
            print(f"  aoti: not available: {type(error).__name__}", file=sys.stderr)
    if not kwargs and name in ROWS and "xnnpack" not in without:
        try:
            with quiet():
                candidates["xnnpack"] = xnnpack_candidate(model, args, folder)
        except Exception as error:
            print(f"  xnnpack: not available: {type(error).__name__}: {error}", file=sys.stderr)
    path = folder / "model.pte"
    cudaexec.export(model, args, kwargs, path=path, dynamic_shapes=dynamic_shapes, target="cpu")
    module = cudaexec.load(path, options=cudaexec.LoadOptions(threads=torch.get_num_threads()))
    candidates["cudaexec (torch)"] = lambda: module.forward(*args, **kwargs)

    def has_numpy(value: Any) -> bool:
        return not isinstance(value, torch.Tensor) or value.dtype is not torch.bfloat16

    if all(map(has_numpy, args)) and all(map(has_numpy, kwargs.values())):

        def convert(value: Any) -> Any:
            return value.numpy() if isinstance(value, torch.Tensor) else value

        arrays = tuple(map(convert, args))
        named = {key: convert(value) for key, value in kwargs.items()}
        candidates["cudaexec (numpy)"] = lambda: module.forward(*arrays, **named)
    return candidates


@contextlib.contextmanager
def realtime(wanted: bool) -> Any:
    """Run this thread, and the threads that it starts, ahead of every ordinary process."""
    if wanted:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    try:
        yield
    finally:
        if wanted:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def child(threads: int, names: list[str], without: list[str], alone: bool) -> None:
    """Measure the rows with this many threads; prints one JSON line a row."""
    import torch

    from common import measure

    torch.set_num_threads(threads)
    for name in names:
        with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
            candidates = row_candidates(name, Path(folder), without)
            with realtime(alone):
                timings = measure(candidates)
        print(json.dumps({"row": name, "threads": threads,
                          "us": {k: [t.median, t.low, t.high] for k, t in timings.items()}}),
              flush=True)  # fmt: skip


def report(line: dict[str, Any]) -> None:
    """Print one row as a table, with the ratio to eager."""
    eager = line["us"]["eager"][0]
    print(f"\n{line['row']}, {line['threads']} thread(s)")
    for name, (median, low, high) in line["us"].items():
        print(
            f"  {name:18s} {median:10.2f} us  ({low:.2f}-{high:.2f})  {median / eager:5.2f}x eager"
        )


def main() -> None:
    """Run a child process for each number of threads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", default=None)
    parser.add_argument("--suite", action="store_true")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--without", nargs="+", default=[], choices=["aoti", "xnnpack"])
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--child", type=int, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = list(options.only or ROWS)
    if options.suite:
        import models

        names = list(ROWS) + [c.name for c in models.CASES if c.name not in ROWS]
    if options.child is not None:
        child(options.child, names, options.without, options.realtime)
        return
    lines = []
    passed = ["--without", *options.without] if options.without else []
    passed += ["--realtime"] if options.realtime else []
    for threads in options.threads:
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [os.environ.get("PYTHONPATH"), str(ROOT / ".bench-site")])
        )
        with subprocess.Popen(
            [sys.executable, __file__, "--child", str(threads), "--only", *names, *passed],
            stdout=subprocess.PIPE, text=True, env=environment,
        ) as process:  # fmt: skip
            for text in process.stdout or ():
                if text.startswith("{"):
                    lines.append(json.loads(text))
                    report(lines[-1])
        if process.returncode != 0:
            sys.exit(f"the process for {threads} thread(s) ended with {process.returncode}")
    if options.json is not None:
        options.json.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
