"""Attention over the runtime's KV cache on a GPU: time, share of the memory bandwidth, peers.

    python benchmarks/bench_kv.py [--positions 1000 100000] [--dims 64 128] [--rate 4.33]
                                  [--json FILE]

One step of one token (32 query heads, 8 kv heads, bfloat16, batch 1): what the GPU takes for
storing the token, attending and adding up, without the host. Calls are queued behind a pause of the
GPU, so that the host is ahead; layers take turns, so that the L2 cache holds nothing of use. The
floor is the time to read keys and values once at `--rate` TB/s. Beside it: the same with a float8
cache, and torch's scaled_dot_product_attention over a plain cache of exactly that many tokens; then
what a page costs the host.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import cudaexec
from cudaexec import _core

HEADS, KV_HEADS = 32, 8
CAPACITY = 131072
TORCH_CODES = {torch.bfloat16: 15, torch.int64: 4}


def library() -> ctypes.CDLL:
    """Return our shims."""
    for folder in (Path(_core.__file__).parent, Path(cudaexec.__file__).parent):
        path = folder / "lib" / "libcudaexec_shims.so.1"
        if path.exists():
            return ctypes.CDLL(str(path))
    raise FileNotFoundError("libcudaexec_shims.so.1")


def handle_of(shims: ctypes.CDLL, tensor: torch.Tensor) -> ctypes.c_void_p:
    """A tensor handle over a torch tensor's memory."""
    rank = tensor.dim()
    handle = ctypes.c_void_p()
    code = shims.aoti_torch_create_tensor_from_blob_v2(
        ctypes.c_void_p(tensor.data_ptr()),
        ctypes.c_int64(rank),
        (ctypes.c_int64 * rank)(*tensor.shape),
        (ctypes.c_int64 * rank)(*tensor.stride()),
        ctypes.c_int64(0),
        ctypes.c_int32(TORCH_CODES[tensor.dtype]),
        ctypes.c_int32(1),
        ctypes.c_int32(0),
        ctypes.byref(handle),
        ctypes.c_int32(0),
        None,
        ctypes.c_int64(0),
    )
    if code != 0:
        raise RuntimeError("aoti_torch_create_tensor_from_blob_v2 failed")
    return handle


def gpu_seconds(call: Callable[[int], None], count: int = 24, rounds: int = 9) -> list[float]:
    """What the GPU takes for a call, over `rounds` queues of `count` calls."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for i in range(8):
        call(i)
    torch.cuda.synchronize()
    seconds = []
    for _ in range(rounds):
        torch.cuda._sleep(20_000_000)  # some 10 ms: the host goes ahead
        start.record()
        for i in range(count):
            call(i)
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) / 1e3 / count)
    return seconds


def ours(position: int, dim: int, dtype: str, layers: int) -> tuple[Callable[[int], None], Any]:
    """A call that performs layer i % layers of the step at `position`, and what it needs alive."""
    shims = library()
    cache = _core._testing.KvCache(
        [(i, 1, KV_HEADS, dim, 0, CAPACITY) for i in range(layers)], dtype, gpu=0
    )
    stream = torch.cuda.current_stream()
    for first in range(0, position, 8192):  # zeros would be easier on the memory's power
        cache.prepare(min(8192, position - first), stream.cuda_stream)
        cache.commit()
    fill(cache, position, dim, layers, dtype)
    cache.prepare(1, stream.cuda_stream)
    q = torch.randn(1, HEADS, 1, dim, device="cuda", dtype=torch.bfloat16)
    k, v = torch.randn(2, 1, KV_HEADS, 1, dim, device="cuda", dtype=torch.bfloat16)
    index = torch.tensor([position], device="cuda")
    scopes = (_core._ops_misc.Scope(0, stream.cuda_stream), _core._testing.KvStepScope(cache))
    handles = [handle_of(shims, t) for t in (q, k, v, index)]
    scale = ctypes.c_double(dim**-0.5)

    def call(i: int) -> None:
        result = ctypes.c_void_p()
        code = shims.aoti_torch_cuda_kv_attend(
            *handles, ctypes.c_int64(i % layers), scale, ctypes.byref(result)
        )
        if code != 0:
            scopes[0].check()
        shims.aoti_torch_delete_tensor_object(result)

    return call, (cache, scopes, handles, q, k, v, index)


def fill(cache: Any, position: int, dim: int, layers: int, dtype: str) -> None:
    """Random bytes of moderate numbers in every page."""
    block = cache.groups[0]["block"]
    size = {"bfloat16": 2, "float8_e4m3fn": 1}[dtype]
    runtime = ctypes.CDLL("libcuda.so.1")
    count = block * KV_HEADS * dim
    if size == 2:
        noise = torch.randn(count, device="cuda").bfloat16()
    else:
        noise = torch.randn(count, device="cuda").to(torch.float8_e4m3fn)
    torch.cuda.synchronize()
    for first in range(0, position, block):
        for layer in range(layers):
            for values in (False, True):
                address = cache.address(layer, values, 0, 0, first)
                status = runtime.cuMemcpyDtoD_v2(
                    ctypes.c_uint64(address), ctypes.c_uint64(noise.data_ptr()),
                    ctypes.c_size_t(count * size),
                )  # fmt: skip
                if status != 0:
                    raise RuntimeError(f"cuMemcpyDtoD: {status}")


def torch_attention(position: int, dim: int, layers: int) -> Callable[[int], None]:
    """Torch's own attention of one token over `position` + 1 tokens, [B, H, S, D] in memory."""
    shape = (1, KV_HEADS, position + 1, dim)
    caches = [
        tuple(torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        for _ in range(layers)
    ]
    q = torch.randn(1, HEADS, 1, dim, device="cuda", dtype=torch.bfloat16)

    def call(i: int) -> None:
        k, v = caches[i % layers]
        F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    return call


def read_rate() -> float:
    """TB/s of a sum over 2 GiB, for comparison."""
    x = torch.ones(1 << 29, device="cuda", dtype=torch.int32)
    return x.numel() * 4 / statistics.median(gpu_seconds(lambda _: x.sum(), 8)) / 1e12


def page_microseconds() -> dict[str, float]:
    """What the host takes for a step inside a page and for one that maps a page more."""
    cache = _core._testing.KvCache(
        [(i, 1, 8, 64, 0, CAPACITY) for i in range(16)], "bfloat16", gpu=0
    )
    stream = torch.cuda.current_stream().cuda_stream
    block = cache.groups[0]["block"]
    crossing, inside = [], []
    for position in range(block * 60):
        start = time.perf_counter()
        cache.prepare(1, stream)
        cache.commit()
        (crossing if position % block == 0 else inside).append(time.perf_counter() - start)
    torch.cuda.synchronize()
    return {
        "step": statistics.median(inside) * 1e6,
        "page more": (statistics.median(crossing[1:]) - statistics.median(inside)) * 1e6,
        "page more, worst": (max(crossing[1:]) - statistics.median(inside)) * 1e6,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--positions", type=int, nargs="*", default=[1000, 10_000, 100_000])
    parser.add_argument("--dims", type=int, nargs="*", default=[64, 128])
    parser.add_argument("--rate", type=float, default=4.33, help="TB/s that the GPU reads at")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {"device": torch.cuda.get_device_name(), "rate": options.rate}
    results["sum over 2 GiB, TB/s"] = read_rate()
    print(results)
    print(f"{'dim':>4} {'position':>9} {'floor us':>9} {'ours us':>9} {'share':>6} "
          f"{'f8 us':>9} {'share':>6} {'torch us':>9}")  # fmt: skip
    for dim in options.dims:
        for position in options.positions:
            layers = 4 if position * dim < 10_000_000 else 2
            nbytes = 2 * (position + 1) * KV_HEADS * dim
            row: dict[str, float] = {"floor": nbytes * 2 / options.rate / 1e6}
            for name, dtype in (("ours", "bfloat16"), ("f8", "float8_e4m3fn")):
                call, alive = ours(position, dim, dtype, layers)
                row[name] = statistics.median(gpu_seconds(call)) * 1e6
                del call, alive
            torch_call = torch_attention(position, dim, layers)
            row["torch"] = statistics.median(gpu_seconds(torch_call)) * 1e6
            del torch_call
            row["share"] = row["floor"] / row["ours"]
            row["f8 share"] = row["floor"] / 2 / row["f8"]
            results[f"{dim} {position}"] = row
            print(f"{dim:4} {position:9} {row['floor']:9.1f} {row['ours']:9.1f} "
                  f"{row['share']:6.1%} {row['f8']:9.1f} {row['f8 share']:6.1%} "
                  f"{row['torch']:9.1f}", flush=True)  # fmt: skip
    results["page, us"] = page_microseconds()
    print({name: round(value, 1) for name, value in results["page, us"].items()})
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
