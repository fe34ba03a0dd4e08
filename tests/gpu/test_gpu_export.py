"""What export promises on a machine with a GPU: devices, the caller's model, variants, refusals."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim

import cudaexec
from compare import assert_same
from cudaexec.cli.describe import describe

FAST = cudaexec.ExportOptions(gemm="cublas", progress=False)


# Inductor hands a 0-d tensor in host memory to a kernel as a pointer.
OLD_TORCH = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)


class Scaled(nn.Module):
    """Pointwise, with a parameter, a tied view of it and a written buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.arange(1.0, 9.0))
        self.same = self.scale
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x * self.scale + self.same + self.count + torch.arange(8, device=x.device)


def eager(model: nn.Module, *args: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return copy.deepcopy(model).cuda()(*(arg.cuda() for arg in args))


@pytest.mark.parametrize("model_on", ["cpu", "cuda"])
@pytest.mark.parametrize("inputs_on", ["cpu", "cuda"])
def test_model_and_examples_on_either_device(model_on: str, inputs_on: str, tmp_path: Path) -> None:
    model, x = Scaled().to(model_on), torch.randn(3, 8, device=inputs_on)
    before = copy.deepcopy(model.state_dict())
    cudaexec.export(model, (x,), path=tmp_path / "m.pte", target="cuda", options=FAST)
    assert {key: value.device.type for key, value in model.state_dict().items()} == dict.fromkeys(
        before, model_on
    )
    assert model.same is model.scale
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key])
    expected = eager(model, x)
    with cudaexec.load(tmp_path / "m.pte") as module:
        assert_same(module(x.cuda()), expected, 1e-6, 1e-6)
        assert_same(module(x.cuda()), expected + 1, 1e-6, 1e-6)
        assert_same(module(x.cpu()), (expected + 2).cpu(), 1e-6, 1e-6)


def test_an_exported_program_stays_as_it_was(tmp_path: Path) -> None:
    model, x = Scaled(), torch.randn(4, 8)
    program = torch.export.export(
        model, (x,), dynamic_shapes=({0: Dim("n", min=2, max=16)},), strict=False
    )
    text = str(program.graph)
    cudaexec.export(program, path=tmp_path / "m.pte", target="cuda", options=FAST)
    assert str(program.graph) == text
    assert program.state_dict["scale"].device.type == "cpu"
    with cudaexec.load(tmp_path / "m.pte") as module:
        for calls, n in enumerate((2, 9, 16)):
            x = torch.randn(n, 8)
            assert_same(module(x.cuda()), eager(model, x) + calls, 1e-6, 1e-6)
        with pytest.raises(cudaexec.ShapeError):
            module(torch.randn(17, 8).cuda())


def test_the_file_says_what_it_is_for(tmp_path: Path) -> None:
    report = cudaexec.export(
        Scaled(), (torch.randn(2, 8),), path=tmp_path / "m.pte", target="cuda", options=FAST
    )
    facts = torch.cuda.get_device_properties(0)
    [method] = describe(tmp_path / "m.pte", None)["methods"]
    [variant] = method["variants"]
    assert variant["target"] == "cuda"
    assert variant["sm"] == facts.major * 10 + facts.minor
    assert variant["sm_count"] == facts.multi_processor_count
    assert method["delegates"][0]["id"] == "CudaBackend"
    assert f"sm_{variant['sm']}" in str(report)
    assert describe(tmp_path / "m.pte", None)["producer"]["triton"]


def test_the_default_target_is_the_gpu(tmp_path: Path) -> None:
    cudaexec.export(Scaled(), (torch.randn(2, 8),), path=tmp_path / "m.pte", options=FAST)
    assert describe(tmp_path / "m.pte", None)["methods"][0]["variants"][0]["target"] == "cuda"


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    other = "cuda:sm_80" if torch.cuda.get_device_capability()[0] >= 9 else "cuda:sm_90"
    with pytest.raises(cudaexec.NotSupported, match="Export on a GPU of that architecture"):
        cudaexec.export(Scaled(), (torch.randn(2, 8),), path=tmp_path / "m.pte", target=other)
    assert not list(tmp_path.iterdir())


class HostState(nn.Module):
    """On the GPU, with a counter and a factor that stay in host memory."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(8.0, device="cuda"))
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("factor", torch.tensor(2.5))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.count.add_(1)
        return x * self.factor + self.weight, self.count.clone()


def test_constants_in_host_memory(tmp_path: Path) -> None:
    model, x = HostState(), torch.randn(8, device="cuda")
    if OLD_TORCH:
        with pytest.raises(cudaexec.ExportError, match="cpu tensor"):
            cudaexec.export(model, (x,), path=tmp_path / "m.pte", target="cuda", options=FAST)
        return
    cudaexec.export(model, (x,), path=tmp_path / "m.pte", target="cuda", options=FAST)
    with cudaexec.load(tmp_path / "m.pte") as module:
        for call in (1, 2, 3):
            got, count = module(x)
            assert_same(got, x * 2.5 + torch.arange(8.0, device="cuda"), 1e-6, 1e-6)
            assert count.device.type == "cpu"
            assert count.tolist() == [call]


def test_methods_share_weights_and_state(
    once: Callable[[str, Callable[[Path], None]], Path],
) -> None:
    model = Scaled()

    def make(directory: Path) -> None:
        cudaexec.export(
            None,
            methods={
                "two": (model, (torch.randn(2, 8),)),
                "three": (model, (torch.randn(3, 8),)),
            },
            path=directory / "model.pte",
            target="cuda",
            options=FAST,
        )

    path = once("gpu-two-methods", make) / "model.pte"
    x2, x3 = torch.randn(2, 8), torch.randn(3, 8)
    with cudaexec.load(path) as module:
        assert_same(module.method("two")(x2.cuda()), eager(model, x2), 1e-6, 1e-6)
        assert_same(module.method("three")(x3.cuda()), eager(model, x3) + 1, 1e-6, 1e-6)


class Chosen(torch.nn.Module):
    """Rows of a table at computed places: a kernel with a check of indices."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(8, 3)

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        return self.table(s[torch.nonzero(s >= 24).squeeze(1)] - 24)


def test_exporting_checked_indices_leaves_cuda_working(tmp_path: Path) -> None:
    model, s = Chosen(), torch.tensor([3, 25, 30])
    cudaexec.export(model, (s,), path=tmp_path / "m.pte", target="cuda", options=FAST)
    torch.cuda.synchronize()
    with cudaexec.load(tmp_path / "m.pte") as module:
        for values in ([24, 31, 2], [1, 2, 3], [30]):
            s = torch.tensor(values + [0] * (3 - len(values))).cuda()
            assert_same(module(s), eager(model, s), 1e-6, 1e-6)


def test_products_of_integers_are_refused(tmp_path: Path) -> None:
    class Product(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ x.t()

    with pytest.raises(cudaexec.ExportError, match=r"products of integers.*aten\.mm"):
        cudaexec.export(
            Product(),
            (torch.ones(4, 4, dtype=torch.int64),),
            path=tmp_path / "m.pte",
            target="cuda",
            options=FAST,
        )
