"""Convolutions against torch in float64, by every engine, with torch's strides."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from arrays import ops

import cudaexec
from cudaexec import _core

torch = pytest.importorskip("torch")
from arrays import array, same_strides, tensor  # noqa: E402

pytestmark = pytest.mark.torch

TOLERANCE = {
    torch.float32: 2e-5,
    torch.float64: 1e-12,
    torch.bfloat16: 3e-2,
    torch.float16: 4e-3,
}
HALF_IN_ONEDNN = torch.ops.mkldnn._is_mkldnn_fp16_supported()
needs_onednn = pytest.mark.skipif(not ops.has_onednn(), reason="built without oneDNN")


class Case(NamedTuple):
    spatial: int
    batch: int
    channels: int
    outputs: int
    size: int
    kernel: int
    options: dict[str, Any]


CASES = [
    Case(2, 1, 3, 8, 11, 3, {}),
    Case(2, 2, 4, 6, 9, 3, {"padding": 1}),
    Case(2, 2, 4, 6, 9, 3, {"padding": 1, "stride": 2}),
    Case(2, 1, 8, 8, 9, 3, {"padding": 2, "dilation": 2}),
    Case(2, 2, 8, 8, 7, 3, {"groups": 8, "padding": 1}),
    Case(2, 2, 8, 4, 7, 3, {"groups": 2}),
    Case(2, 3, 5, 7, 6, 1, {}),
    Case(2, 1, 48, 40, 9, 1, {}),
    Case(2, 3, 5, 7, 6, 1, {"stride": 2}),
    Case(2, 1, 64, 64, 14, 3, {"padding": 1}),
    Case(2, 1, 1, 4, 8, 3, {}),
    Case(2, 2, 6, 5, 1, 1, {}),
    Case(2, 2, 4, 1, 5, 1, {}),
    Case(1, 2, 4, 6, 17, 5, {"padding": 2}),
    Case(1, 1, 8, 8, 20, 3, {"stride": 2, "groups": 4}),
    Case(1, 2, 16, 8, 30, 1, {}),
    Case(3, 1, 2, 4, 6, 3, {"padding": 1}),
    Case(3, 2, 4, 4, 5, 2, {"stride": 2}),
    Case(3, 1, 4, 4, 6, 3, {"groups": 4}),
    Case(2, 2, 4, 6, 7, 3, {"transposed": True}),
    Case(2, 2, 4, 6, 7, 3, {"transposed": True, "stride": 2, "padding": 1, "output_padding": 1}),
    Case(2, 1, 8, 8, 5, 3, {"transposed": True, "groups": 2, "stride": 3}),
    Case(2, 1, 4, 4, 7, 3, {"transposed": True, "dilation": 2, "groups": 4}),
    Case(2, 2, 4, 6, 7, 1, {"transposed": True}),
    Case(1, 2, 4, 6, 9, 4, {"transposed": True, "stride": 2, "padding": 1}),
    Case(3, 1, 4, 4, 4, 2, {"transposed": True, "stride": 2}),
]


def arguments(case: Case) -> dict[str, Any]:
    """The options with one number for each dimension, in the order of aten.convolution."""
    count = case.spatial
    get = case.options.get
    return {
        "stride": [get("stride", 1)] * count,
        "padding": [get("padding", 0)] * count,
        "dilation": [get("dilation", 1)] * count,
        "transposed": get("transposed", False),
        "output_padding": [get("output_padding", 0)] * count,
        "groups": get("groups", 1),
    }


def operands(case: Case, dtype: torch.dtype, layout: str) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    groups = case.options.get("groups", 1)
    first = (case.channels, case.outputs // groups)
    if not case.options.get("transposed", False):
        first = (case.outputs, case.channels // groups)
    x = torch.randn(case.batch, case.channels, *[case.size] * case.spatial).to(dtype)
    fan_in = case.channels // groups * case.kernel**case.spatial
    w = (torch.randn(*first, *[case.kernel] * case.spatial) / fan_in**0.5).to(dtype)
    last = {2: torch.channels_last, 3: torch.channels_last_3d}.get(case.spatial)
    if layout == "input last" and last is not None:
        x = x.to(memory_format=last)
    if layout == "weight last" and last is not None:
        w = w.to(memory_format=last)
    return x, w, torch.randn(case.outputs).to(dtype)


def check(got: Any, expected: Any, eager: Any, dtype: torch.dtype) -> None:
    assert same_strides(got.strides, eager.stride(), eager.shape), (got.strides, eager.stride())
    error = (tensor(got).double() - expected).abs().max().item()
    assert error <= TOLERANCE[dtype] * max(1.0, expected.abs().max().item())


@pytest.mark.parametrize("layout", ["planes", "input last", "weight last"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
def test_as_torch(case: Case, dtype: torch.dtype, layout: str) -> None:
    if dtype is torch.float16 and case.spatial == 3 and layout != "planes" and HALF_IN_ONEDNN:
        pytest.skip("eager keeps channels last here, on processors with products of float16 alone")
    x, w, bias = operands(case, dtype, layout)
    options = arguments(case)
    for b in (None, bias):
        exact = torch.ops.aten.convolution(
            x.double(), w.double(), None if b is None else b.double(), *options.values()
        )
        eager = torch.ops.aten.convolution(x, w, b, *options.values())
        for engine in ("best", "gathered", "onednn"):
            for constant in (False, True):
                weight = array(w, constant=constant)
                extra = None if b is None else array(b)
                try:
                    got = ops.convolution(array(x), weight, extra, engine=engine, **options)
                except cudaexec.NotSupported:
                    # oneDNN 3.2 has no kernel for some dtypes; the other engines serve every one.
                    assert engine == "onednn"
                    continue
                check(got, exact, eager, dtype)


@needs_onednn
@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
def test_onednn_serves_float32(case: Case) -> None:
    x, w, _ = operands(case, torch.float32, "planes")
    ops.convolution(array(x), array(w), engine="onednn", **arguments(case))


def test_integers_and_unbatched_input() -> None:
    x = torch.randint(-9, 9, (2, 3, 8, 8))
    w = torch.randint(-9, 9, (4, 3, 3, 3))
    exact = torch.nn.functional.conv2d(x.double(), w.double(), padding=1)
    for dtype in (torch.int64, torch.int32, torch.int16):
        got = ops.convolution(array(x.to(dtype)), array(w.to(dtype)), padding=[1])
        assert torch.equal(tensor(got).double(), exact)
    single = ops.convolution(array(x[1].float()), array(w.float()), padding=[1])
    assert single.shape == [4, 8, 8]
    torch.testing.assert_close(tensor(single).double(), exact[1])


@pytest.mark.parametrize("threads", [1, 2])
def test_threads(threads: int) -> None:
    case = Case(2, 2, 32, 48, 40, 3, {"padding": 1})
    x, w, bias = operands(case, torch.float32, "planes")
    exact = torch.nn.functional.conv2d(x.double(), w.double(), bias.double(), padding=1)
    weight = array(w, constant=True)
    with ops.threads(threads):
        for engine in ("best", "gathered"):
            got = ops.convolution(array(x), weight, array(bias), padding=[1], engine=engine)
            check(got, exact, exact.float(), torch.float32)


@needs_onednn
def test_one_primitive_runs_with_fewer_threads_than_it_was_made_for() -> None:
    """The number of threads is part of a primitive's key, so each limit has its own."""
    case = Case(2, 1, 16, 16, 33, 3, {"padding": 1})
    x, w, _ = operands(case, torch.float32, "planes")
    exact = torch.nn.functional.conv2d(x.double(), w.double(), padding=1)
    for threads in (2, 1, 2):
        with ops.threads(threads):
            got = ops.convolution(array(x), array(w), padding=[1], engine="onednn")
        check(got, exact, exact.float(), torch.float32)


@pytest.mark.parametrize("engine", ["gathered", "onednn"])
def test_constants_are_reordered_once_for_all_sizes(engine: str) -> None:
    if engine == "onednn" and not ops.has_onednn():
        pytest.skip("built without oneDNN")
    before_bytes = ops.packed_bytes()
    w = torch.randn(16, 16, 3, 3)
    weight = array(w, constant=True)
    counts = []
    for size in (9, 12, 9, 15):
        x = torch.randn(1, 16, size, size).to(memory_format=torch.channels_last)
        got = ops.convolution(array(x), weight, engine=engine)
        torch.testing.assert_close(
            tensor(got), torch.nn.functional.conv2d(x, w), rtol=1e-4, atol=1e-4
        )
        counts.append(ops.packed_count())
    assert counts[0] == counts[-1]
    assert ops.packed_bytes() > before_bytes
    del weight
    assert ops.packed_bytes() == before_bytes


def test_concurrent_calls_share_the_weight() -> None:
    w = torch.randn(24, 24, 3, 3)
    weight = array(w, constant=True)
    x = torch.randn(2, 24, 17, 17)
    expected = torch.nn.functional.conv2d(x, w)
    barrier = threading.Barrier(4)
    errors: list[float] = []

    def work() -> None:
        source = array(x)
        barrier.wait()
        for _ in range(20):
            got = tensor(ops.convolution(source, weight))
            errors.append((got - expected).abs().max().item())

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(errors) == 80
    assert max(errors) < 1e-3


@needs_onednn
def test_primitives_are_bounded() -> None:
    weight = array(torch.randn(1, 1, 3))
    for size in range(3, 300):
        ops.convolution(array(torch.randn(1, 1, size)), weight, engine="onednn")
    assert 0 < ops.cached_primitives() <= 256


@pytest.mark.parametrize(
    ("shapes", "options", "error", "message"),
    [
        (((1, 3, 8, 8), (4, 4, 3, 3)), {}, "ShapeError", "expected 4 input channels"),
        (((1, 3, 8, 8), (4, 3, 3)), {}, "ShapeError", "expected 3 dimensions"),
        (((1, 3, 2, 8), (4, 3, 3, 3)), {}, "ShapeError", "has no output"),
        (((1, 3, 8, 8), (4, 3, 3, 3)), {"stride": [0]}, "ShapeError", "stride is .*below 1"),
        (((1, 3, 8, 8), (4, 3, 3, 3)), {"padding": [1, 1, 1]}, "ShapeError", "expected 2 numbers"),
        (((1, 4, 8, 8), (4, 2, 3, 3)), {"groups": 3}, "ShapeError", "do not fit 3 groups"),
        (
            ((1, 3, 8, 8), (3, 4, 3, 3)),
            {"transposed": True, "output_padding": [1]},
            "ShapeError",
            "output_padding",
        ),
    ],
)
def test_operands_are_checked(shapes: Any, options: Any, error: str, message: str) -> None:
    x, w = (ops.Array(np.zeros(shape, np.float32)) for shape in shapes)
    with pytest.raises(getattr(cudaexec, error), match=message):
        ops.convolution(x, w, **options)


def test_dtypes_and_bias_are_checked() -> None:
    x, w = torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3)
    with pytest.raises(cudaexec.DtypeError, match="float64"):
        ops.convolution(array(x), array(w.double()))
    with pytest.raises(cudaexec.ShapeError, match="expected 4 elements"):
        ops.convolution(array(x), array(w), array(torch.randn(3)))
    with pytest.raises(cudaexec.DtypeError, match="bool"):
        ops.convolution(array(x.bool()), array(w.bool()))


def test_empty_batch() -> None:
    x = torch.zeros(0, 3, 8, 8)
    got = ops.convolution(array(x), array(torch.randn(4, 3, 3, 3)))
    assert got.shape == [0, 4, 6, 6]


def test_through_the_c_interface() -> None:
    from shim_call import call

    x, w, bias = torch.randn(2, 4, 9, 9), torch.randn(6, 4, 3, 3), torch.randn(6)
    for b in (None, bias):
        got = call("convolution", x, w, b, [1, 2], [1, 0], [1, 1], 0, [0, 0], 1)
        expected = torch.nn.functional.conv2d(x, w, b, stride=(1, 2), padding=(1, 0))
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


RUN = """
import numpy as np
{first}
from cudaexec import _core
ops = _core._ops
x = ops.Array(np.ones((1, 16, 9, 9), np.float32))
w = ops.Array(np.ones((16, 16, 3, 3), np.float32))
print(ops.has_onednn(), np.asarray(ops.convolution(x, w)).max())
"""


def run_child(first: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUN.format(first=first)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )


@needs_onednn
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the loader's log")
@pytest.mark.parametrize("first", ["", "import torch"], ids=["alone", "torch first"])
def test_onednn_uses_our_threads(first: str) -> None:
    child = run_child(first, LD_DEBUG="bindings")
    assert child.stdout.split() == ["True", "144.0"]
    bound = re.findall(
        r"binding file \S*libdnnl\.so\.3 \[0\] to (\S+) \[0\]: normal symbol `((?:GOMP|omp)_\w+)'",
        child.stderr,
    )
    assert {"GOMP_parallel_start", "omp_get_max_threads"} <= {name for _, name in bound}
    elsewhere = {name: lib for lib, name in bound if "libcudaexec_shims.so" not in lib}
    assert not elsewhere


def test_without_the_onednn_library(tmp_path: Path) -> None:
    """A build without it computes the same by matrix products."""
    package = tmp_path / "cudaexec"
    (package / "lib").mkdir(parents=True)
    core = Path(_core.__file__).resolve()
    shims = core.parent / "lib" / "libcudaexec_shims.so.1"
    shutil.copy(core, package / core.name)
    shutil.copy(shims.resolve(), package / "lib" / shims.name)
    for entry in Path(cudaexec.__file__).resolve().parent.iterdir():
        if entry.suffix == ".py" or (entry.is_dir() and entry.name not in ("lib", "__pycache__")):
            (package / entry.name).symlink_to(entry)
    child = run_child("", PYTHONPATH=str(tmp_path))
    assert child.stdout.split() == ["False", "144.0"]
