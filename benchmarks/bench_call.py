"""One replayed call on a GPU beside its peers: CUDA graphs and bindings against the floor.

    python benchmarks/bench_call.py [--only tiny mlp-cublas mlp-triton] [--without compile]
                                    [--json FILE]

Each call includes a device synchronise; candidates are interleaved in one process. "hand-captured
graph" is the AOTInductor package with the same kind of kernels (products by cuBLAS, or by tuned
Triton kernels), captured once by torch and replayed, without copies. The time of a call on the CPU
is that of putting up to 15 calls on the stream, each with a fresh output.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from bench_gpu import models
from common import measure

NAMES = ["tiny", "mlp-cublas", "mlp-triton"]
TUNED = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "TRITON"}


def hand_captured(model: Any, x: Any, gemm: str) -> Callable[[], object]:
    """Capture AOTInductor's code for `model` once, with torch; return its replay."""
    import torch

    program = torch.export.export(model, (x,))
    with tempfile.TemporaryDirectory() as folder:
        package = torch._inductor.aoti_compile_and_package(
            program,
            package_path=str(Path(folder) / "model.pt2"),
            inductor_configs=TUNED if gemm == "triton" else {},
        )
        # One model and no locks, so that a run records no event.
        loaded = torch._inductor.aoti_load_package(package, run_single_threaded=True)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                loaded(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            kept = loaded(x)
    return lambda: (graph.replay(), kept, loaded)  # the code must stay


def cpu_time(call: Callable[[], object], rounds: int = 200) -> float:
    """Microseconds to put a call on the stream: median over `rounds` bursts of 15."""
    import torch

    samples = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        kept = [call() for _ in range(15)]
        samples.append((time.perf_counter() - begin) / 15 * 1e6)
        del kept
    return statistics.median(samples)


def bench(name: str, folder: Path, without: list[str]) -> dict[str, Any]:
    """Time one model's calls; return microseconds by candidate."""
    import torch

    import cudaexec

    kind = name.partition("-")[0]
    gemm: Literal["triton", "cublas"] = "cublas" if name.endswith("cublas") else "triton"
    model, x = models()[kind]
    path = folder / f"{name}.pte"
    options = cudaexec.ExportOptions(gemm=gemm, progress=False)
    print(cudaexec.export(model, (x,), path=path, target="cuda", options=options), flush=True)
    model, x = model.cuda(), x.cuda()
    graphed = cudaexec.load(path, cuda_graph=True)
    plain = cudaexec.load(path)
    with torch.no_grad():
        expected = model(x)
        calls: dict[str, Callable[[], object]] = {
            "cudaexec, graph": lambda: graphed(x),
            "cudaexec, no graph": lambda: plain(x),
        }
        y = torch.empty_like(expected)
        binding = graphed.method("forward").bind((x,), (y,))
        calls["cudaexec, Binding"] = binding.run
        calls["torch eager"] = lambda: model(x)
        if "compile" not in without:
            compiled = torch.compile(model, mode="reduce-overhead")
            calls["torch.compile reduce-overhead"] = lambda: compiled(x)
            # Its own captures free cuBLAS's workspaces, which a graph captured before would use.
            for _ in range(5):
                compiled(x)
        try:
            calls["hand-captured graph"] = hand_captured(model, x, gemm)
        except Exception as error:
            print(f"{name}: no hand-captured graph: {type(error).__name__}: {error}", flush=True)
        for _ in range(50):  # also past captures in place
            last = graphed(x)
            binding.run()
        del last
        torch.testing.assert_close(graphed(x), expected, rtol=2e-2, atol=2e-2)
        torch.testing.assert_close(y, expected, rtol=2e-2, atol=2e-2)
        for key in graphed.stats()["methods"][0]["graphs"]["keys"]:
            print(f"{name}: {key}")

        def synchronised(call: Callable[[], object]) -> Callable[[], object]:
            def run() -> object:
                result = call()
                torch.cuda.synchronize()
                return result

            return run

        timings = measure({label: synchronised(call) for label, call in calls.items()})
        spent = {label: cpu_time(call) for label, call in calls.items()}
    floor = timings.get("hand-captured graph")
    for label, timing in timings.items():
        ratio = "" if floor is None else f", {timing.median / floor.median:.2f} of hand-captured"
        print(f"{name:10} {label:30} {timing} us{ratio}, CPU {spent[label]:.2f} us", flush=True)
    result = {label: [t.median, t.low, t.high, spent[label]] for label, t in timings.items()}
    graphed.close()
    plain.close()
    return result


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--without", nargs="+", default=[], choices=["compile"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = {name: bench(name, Path(folder), options.without) for name in options.only}
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
