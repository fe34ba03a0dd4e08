"""Export for CUDA as far as it can be tested without a GPU: targets, rewrites, placement, payload."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402
from torch.nn.functional import (  # noqa: E402
    conv1d,
    conv2d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    scaled_dot_product_attention,
)

import cudaexec  # noqa: E402
from cudaexec.errors import NotSupported  # noqa: E402
from cudaexec.export.code_target import CodeTarget  # noqa: E402
from cudaexec.export.compiled import CodeVariant  # noqa: E402
from cudaexec.export.cuda_codegen import runnable_choices  # noqa: E402
from cudaexec.export.cuda_headers import cuda_include_dir  # noqa: E402
from cudaexec.export.cuda_rewrites import rewrite_for_gpu  # noqa: E402
from cudaexec.export.errors import ExportError  # noqa: E402
from cudaexec.export.inductor_api import select_algorithm  # noqa: E402
from cudaexec.export.payload import PayloadVariant  # noqa: E402
from cudaexec.export.placement import StorageMover, align_examples  # noqa: E402
from cudaexec.export.targets import Target, code_targets, find_gpu, parse_targets  # noqa: E402
from cudaexec.export.trace import MethodRequest  # noqa: E402

SM90 = CodeTarget.cuda(90, 132, 0, "triton", tf32=False)


@pytest.mark.parametrize(
    ("named", "gpu", "expected"),
    [
        (None, False, [Target("cpu")]),
        (None, True, [Target("cuda")]),
        ("cpu", True, [Target("cpu")]),
        ("cuda", True, [Target("cuda")]),
        ("cuda:3", True, [Target("cuda", index=3)]),
        ("cuda:sm_90", True, [Target("cuda", sm=90)]),
        ("cuda:sm_90a", True, [Target("cuda", sm=90)]),
        (["cuda"], True, [Target("cuda")]),
    ],
)
def test_targets(named, gpu, expected):
    assert parse_targets(named, lambda: gpu) == expected


@pytest.mark.parametrize(
    "named", ["gpu", "cuda:", "cuda:x", "cuda:sm_9", "CPU", "", [], ["cpu"] * 2]
)
def test_unknown_targets(named):
    with pytest.raises(ExportError, match="expected 'cpu', 'cuda'"):
        parse_targets(named, lambda: True)


def test_the_gpu_is_not_asked_for_on_the_cpu():
    def ask():
        raise AssertionError("asked")

    assert parse_targets("cpu", ask) == [Target("cpu")]


def test_one_device_per_file():
    with pytest.raises(NotSupported, match="Export twice"):
        parse_targets(["cuda", "cpu"], lambda: True)


def test_ptx_only_where_it_runs_elsewhere(monkeypatch):
    class Facts:
        major, minor, multi_processor_count, name = 9, 0, 132, "H200"

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Facts)
    options = cudaexec.ExportOptions(ptx=True)
    with pytest.raises(NotSupported, match="sm_90 .H200. runs on no other GPU"):
        code_targets([Target("cuda")], options)
    Facts.major = 8
    [target] = code_targets([Target("cuda")], options)
    fallback = target.as_ptx()
    assert (fallback.name, fallback.sm, fallback.ptx) == ("compute_80", 80, 80)


def test_cuda_without_a_gpu(tmp_path):
    with pytest.raises(ExportError, match="torch sees none here"):
        parse_targets("cuda", lambda: False)
    if not torch.cuda.is_available():
        with pytest.raises(ExportError, match="torch sees none here"):
            cudaexec.export(nn.ReLU(), (torch.ones(1),), path=tmp_path / "m.pte", target="cuda:0")


def test_the_gpu_of_a_target(monkeypatch):
    class Facts:
        major, minor, multi_processor_count, name = 9, 0, 132, "H200"

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Facts)
    gpu = find_gpu(Target("cuda"))
    assert (gpu.index, gpu.sm, gpu.sm_count) == (1, 90, 132)
    assert find_gpu(Target("cuda", index=0, sm=90)).index == 0
    with pytest.raises(ExportError, match="'cuda:2': the highest index here is 1"):
        find_gpu(Target("cuda", index=2))
    with pytest.raises(NotSupported, match="'cuda:sm_80': GPU 1 .H200. is sm_90"):
        find_gpu(Target("cuda", sm=80))


def test_gemm_option():
    with pytest.raises(ValueError, match=r"gemm: expected 'triton' or 'cublas', got 'cutlass'"):
        cudaexec.ExportOptions(gemm="cutlass")


def test_what_a_variant_says():
    class Code:
        target = SM90

    variant = CodeVariant(Code, b"", "key", None, ["aoti_torch_cuda_mm_out"])
    assert variant.to_json() == {
        "target": "cuda",
        "sm": 90,
        "ptx": 0,
        "sm_count": 132,
        "code": "key",
        "callouts": ["aoti_torch_cuda_mm_out"],
    }
    assert variant.payload_entry() == PayloadVariant("key", target_sm=90)
    Code.target = SM90.as_ptx()
    assert variant.to_json()["ptx"] == 90
    assert variant.payload_entry().fallback_only


def test_headers_are_found_in_the_order_of_preference(tmp_path, monkeypatch):
    names = ("cuda.h", "cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h")
    for folder in ("inductor", "home/include"):
        (tmp_path / folder).mkdir(parents=True)
    for name in names:
        (tmp_path / "home/include" / name).touch()
        (tmp_path / "inductor" / name).touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert cuda_include_dir([str(tmp_path / "inductor")]) == str(tmp_path / "inductor")
    (tmp_path / "inductor" / "cuda_fp8.h").unlink()
    assert cuda_include_dir([str(tmp_path / "inductor")]) == str(tmp_path / "home/include")


class Choice:
    def __init__(self, name):
        self.name = name


def kernel(name):
    made = select_algorithm.TritonTemplateCaller.__new__(select_algorithm.TritonTemplateCaller)
    made.name = name
    return made


def test_choices():
    mm, bias, conv = Choice("addmm"), Choice("bias_addmm"), Choice("convolution")
    one, two = kernel("triton_mm_0"), kernel("triton_mm_1")
    assert runnable_choices([bias, mm, one, two], tuned=True) == [one, two]
    assert runnable_choices([bias, mm, one, two], tuned=False) == [mm]
    assert runnable_choices([bias, mm], tuned=True) == [mm]
    assert runnable_choices([conv, one, two], tuned=True) == [one, two]
    assert runnable_choices([conv, one, two], tuned=False) == [one]
    assert runnable_choices([conv], tuned=False) == [conv]


def traced(function, *args):
    class Net(nn.Module):
        def forward(self, *values):
            return function(*values)

    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using padding='same'")
        return torch.export.export(Net(), args, strict=False).module()


CONVOLUTIONS = {
    "conv1d": (lambda x, w, b: conv1d(x, w, b, stride=2, padding=1), (2, 4, 9), (6, 4, 3), 6),
    "conv1d without a batch": (lambda x, w, b: conv1d(x, w, b), (4, 9), (6, 4, 3), 6),
    "conv1d grouped": (lambda x, w, b: conv1d(x, w, b, groups=2), (2, 4, 9), (6, 2, 3), 6),
    "conv1d same": (lambda x, w, b: conv1d(x, w, b, padding="same"), (2, 4, 9), (6, 4, 4), 6),
    "dilated": (lambda x, w, b: conv2d(x, w, b, padding=2, dilation=(2, 1)), (2, 3, 9, 8), (5, 3, 3, 2), 5),
    "dilated same": (lambda x, w, b: conv2d(x, w, b, padding="same", dilation=2), (1, 3, 9, 8), (5, 3, 3, 2), 5),
    "transposed 1-d": (lambda x, w, b: conv_transpose1d(x, w, b, stride=3, padding=1), (2, 4, 5), (4, 6, 4), 6),
    "transposed": (
        lambda x, w, b: conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1),
        (2, 4, 7, 5), (4, 6, 3, 3), 6,
    ),
    "transposed grouped dilated": (
        lambda x, w, b: conv_transpose2d(x, w, b, stride=(1, 2), groups=2, dilation=(2, 3)),
        (2, 4, 7, 5), (4, 3, 3, 2), 6,
    ),
    "transposed, padding beyond the kernel": (
        lambda x, w, b: conv_transpose2d(x, w, b, stride=2, padding=3), (1, 2, 8, 8), (2, 3, 3, 3), 3,
    ),
    "transposed 3-d": (
        lambda x, w, b: conv_transpose3d(x, w, b, stride=2), (1, 2, 3, 4, 3), (2, 3, 2, 2, 3), 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_become_plain_ones(name):
    torch.manual_seed(0)
    function, x_shape, weight_shape, channels = CONVOLUTIONS[name]
    args = (
        torch.randn(x_shape, dtype=torch.float64),
        torch.randn(weight_shape, dtype=torch.float64),
        torch.randn(channels, dtype=torch.float64),
    )
    module = traced(function, *args)
    [note] = rewrite_for_gpu(module)
    assert note.startswith("1 ")
    left = [node.target for node in module.graph.nodes if "conv" in str(node.target)]
    assert left == [torch.ops.aten.convolution.default]
    [plain] = [node for node in module.graph.nodes if node.target in left]
    assert len(plain.args[3]) >= 2
    assert set(plain.args[5]) == {1}
    assert plain.args[6] is False
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using padding='same'")
        expected = function(*args)
    torch.testing.assert_close(module(*args), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("transposed", [False, True])
def test_dynamic_sizes_stay_dynamic(transposed):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            kind = nn.ConvTranspose1d if transposed else nn.Conv1d
            self.conv = kind(4, 6, 3, stride=2)

        def forward(self, x):
            return self.conv(x)

    net = Net()
    dims = {0: torch.export.Dim("n", min=2, max=9), 2: torch.export.Dim("l", min=8, max=64)}
    program = torch.export.export(net, (torch.randn(3, 4, 16),), dynamic_shapes=(dims,))
    module = program.module()
    assert rewrite_for_gpu(module)
    for shape in ((3, 4, 16), (7, 4, 33)):
        x = torch.randn(shape)
        torch.testing.assert_close(module(x), net(x))


def test_a_plain_convolution_stays():
    module = traced(
        lambda x, w: conv2d(x, w, stride=2), torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3)
    )
    assert rewrite_for_gpu(module) == []


def test_attention_keeps_the_layout_of_the_trace():
    """The trace on the CPU sees results with heads inside; later views rely on it."""

    def attend(q, k, v):
        y = scaled_dot_product_attention(q, k, v)
        return y.transpose(1, 2).flatten(2)

    q, k, v = (torch.randn(2, 5, 4, 8).transpose(1, 2) for _ in range(3))
    module = traced(attend, q, k, v)
    rewrite_for_gpu(module)
    [node] = [n for n in module.graph.nodes if "scaled_dot_product" in str(n.target)]
    [permuted] = node.users
    assert permuted.args[1] == [0, 2, 1, 3]
    torch.testing.assert_close(module(q, k, v), attend(q, k, v))


def test_the_cpu_kernel_of_attention_becomes_the_general_operator():
    def attend(q, k, v):
        return scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)

    q, k, v = (torch.randn(2, 4, 5, 8) for _ in range(3))

    class Net(nn.Module):
        def forward(self, q, k, v):
            return attend(q, k, v)

    program = torch.export.export(Net(), (q, k, v), strict=False)
    table = {torch.ops.aten.scaled_dot_product_attention.default: lambda q, k, v, *a, **kw: (
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True, scale=0.3)[0]
    )}  # fmt: skip
    module = program.run_decompositions(table).module()
    assert "flash_attention_for_cpu" in str(module.graph)
    rewrite_for_gpu(module)
    assert "flash_attention_for_cpu" not in str(module.graph)
    torch.testing.assert_close(module(q, k, v), attend(q, k, v))


def test_moving_keeps_ties_and_views():
    base = torch.arange(12.0).reshape(3, 4)
    mover = StorageMover(torch.device("cpu"))
    first, turned, row = (mover.move(t) for t in (base, base.t(), base[1]))
    assert first.data_ptr() != base.data_ptr()
    assert turned.data_ptr() == first.data_ptr()
    assert turned.stride() == (1, 4)
    assert row.storage_offset() == 4
    for moved, given in ((first, base), (turned, base.t()), (row, base[1])):
        assert torch.equal(moved, given)
    empty = mover.move(torch.empty(0, 3))
    assert empty.shape == (0, 3)


def test_examples_go_where_the_model_is():
    class OnMeta(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(2, device="meta"))

    x = torch.randn(3, 2)
    request = align_examples(MethodRequest("forward", OnMeta(), (x, 3), {"y": [x.t()]}))
    assert request.args[0].device.type == "meta"
    assert request.args[1] == 3
    assert request.kwargs["y"][0].stride() == (1, 2)
    unchanged = align_examples(MethodRequest("forward", nn.Linear(2, 2), (x,)))
    assert unchanged.args[0] is x
