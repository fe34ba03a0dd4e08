"""The table of models that every target must run: model, inputs, dtype, tolerance.

A case gives a module in eval mode, the example arguments it is exported with, and further argument
tuples of the same program (other values, other sizes where a size is dynamic). Inputs are torch
tensors or Python values.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.export import Dim

Args = tuple[Any, ...]


@dataclass(frozen=True)
class Built:
    model: nn.Module
    args: Args
    more: tuple[Args, ...] = ()
    dynamic_shapes: Any = None
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[], Built]
    rtol: float = 1e-5
    atol: float = 1e-5
    stateful: bool = False


CASES: list[Case] = []


def case(name: str, **options: Any) -> Callable[[Callable[[], Built]], Callable[[], Built]]:
    def register(build: Callable[[], Built]) -> Callable[[], Built]:
        def seeded() -> Built:
            torch.manual_seed(1)
            built = build()
            built.model.eval()
            return built

        CASES.append(Case(name, seeded, **options))
        return build

    return register


class Lambda(nn.Module):
    """A module around a function of its inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


class Affine(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1


@case("tiny")
def _() -> Built:
    return Built(Affine(), (torch.randn(16),), ((torch.randn(16),),))


def mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(itertools.pairwise(widths)):
        layers += [nn.Linear(a, b)] + ([nn.ReLU()] if i < len(widths) - 2 else [])
    return nn.Sequential(*layers)


@case("mlp_small")
def _() -> Built:
    return Built(mlp(64, 128, 10), (torch.randn(1, 64),), ((torch.randn(1, 64),),))


@case("mlp_dynamic_batch")
def _() -> Built:
    sizes = (2, 3, 7, 63, 64)
    return Built(
        mlp(16, 32, 4),
        (torch.randn(6, 16),),
        tuple((torch.randn(n, 16),) for n in sizes),
        ({0: Dim("batch", min=2, max=64)},),
    )


@case("mlp_bf16", rtol=2e-2, atol=2e-2)
def _() -> Built:
    return Built(mlp(64, 96, 10).bfloat16(), (torch.randn(4, 64).bfloat16(),))


@case("mlp_f16", rtol=5e-3, atol=5e-3)
def _() -> Built:
    return Built(mlp(64, 96, 10).half(), (torch.randn(4, 64).half(),))


@case("mlp_f64", rtol=1e-12, atol=1e-12)
def _() -> Built:
    return Built(mlp(64, 96, 10).double(), (torch.randn(4, 64).double(),))


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1, groups=2),
            nn.BatchNorm2d(16),
            nn.GELU(),
            nn.AdaptiveAvgPool2d(2),
        )
        self.line = nn.Conv1d(16, 6, 3, padding=1)
        self.head = nn.Linear(6 * 4, 5)
        for norm in (m for m in self.modules() if isinstance(m, nn.BatchNorm2d)):
            norm.running_mean.uniform_(-1, 1)
            norm.running_var.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.features(x).flatten(2)
        return self.head(self.line(y).flatten(1))


@case("conv_net", rtol=1e-4)
def _() -> Built:
    return Built(ConvNet(), (torch.randn(2, 3, 32, 32),), ((torch.randn(2, 3, 32, 32),),))


@case("conv_net_dynamic_size", rtol=1e-4)
def _() -> Built:
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1))
    shapes = (64, 32, 48, 64, 16, 64)
    return Built(
        net,
        (torch.randn(1, 3, 24, 24),),
        tuple((torch.randn(1, 3, n, n + 8),) for n in shapes),
        ({2: Dim("h", min=8, max=128), 3: Dim("w", min=8, max=128)},),
    )


@case("conv_transposed_and_3d", rtol=1e-4)
def _() -> Built:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1)
            self.cube = nn.Conv3d(2, 4, 3, padding=1)

        def forward(self, x: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.up(x), self.cube(v)

    return Built(Net(), (torch.randn(2, 4, 7, 5), torch.randn(1, 2, 5, 6, 7)))


@case("conv_channels_last", rtol=1e-4)
def _() -> Built:
    net = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 8, 1))
    net = net.to(memory_format=torch.channels_last)
    x = torch.randn(2, 8, 9, 9).to(memory_format=torch.channels_last)
    return Built(net, (x,), ((torch.randn(2, 8, 9, 9),),))


class ResidualBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(x + self.bn2(self.conv2(y)))


@case("resnet_block", rtol=1e-4)
def _() -> Built:
    return Built(ResidualBlock(64), (torch.randn(1, 64, 56, 56),))


@case("transformer_block", rtol=1e-4, atol=1e-4)
def _() -> Built:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True)
    return Built(layer, (torch.randn(2, 17, 64),), ((torch.randn(2, 17, 64),),))


@case("causal_attention_bf16", rtol=3e-2, atol=3e-2)
def _() -> Built:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    shape = (2, 4, 33, 16)
    return Built(Lambda(attend), tuple(torch.randn(shape).bfloat16() for _ in range(3)))


@case("masked_attention", rtol=1e-4)
def _() -> Built:
    def attend(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    q, k, v = torch.randn(2, 4, 5, 16), torch.randn(2, 4, 9, 16), torch.randn(2, 4, 9, 16)
    mask = torch.rand(2, 1, 5, 9) > 0.3
    mask[..., 0] = True
    return Built(Lambda(attend), (q, k, v, mask))


@case("lstm", rtol=1e-4)
def _() -> Built:
    return Built(nn.LSTM(12, 20, num_layers=2, batch_first=True), (torch.randn(3, 7, 12),))


@case("gru", rtol=1e-4)
def _() -> Built:
    return Built(nn.GRU(12, 20, bidirectional=True), (torch.randn(5, 2, 12),))


@case("embedding_bag")
def _() -> Built:
    ids, offsets = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9]), torch.tensor([0, 4, 4])
    return Built(nn.EmbeddingBag(10, 6, mode="mean"), (ids, offsets))


@case("embedding")
def _() -> Built:
    ids = torch.tensor([[1, 2, 4], [4, 3, 9]])
    return Built(nn.Embedding(10, 8), (ids,), ((torch.tensor([[0, 0, 0], [9, 9, 9]]),),))


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count[1] += 1
        self.count[0] += x.sum().long()
        return x + self.count[0]


@case("counter", stateful=True)
def _() -> Built:
    return Built(Counter(), (torch.arange(4.0),), tuple((torch.arange(4.0) + i,) for i in range(3)))


class IndexCopyCache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(8, 4))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(0, position, x)
        return self.cache.cumsum(0) * 2


@case("index_copy_cache", stateful=True)
def _() -> Built:
    def step(i: int) -> Args:
        return torch.randn(1, 4), torch.tensor([i])

    return Built(IndexCopyCache(), step(0), tuple(step(i) for i in (1, 2, 5)))


Pair = namedtuple("Pair", ["first", "second"])


@case("outputs_of_every_kind")
def _() -> Built:
    def outputs(x: torch.Tensor) -> Any:
        s = x.sin()
        return OrderedDict(
            same=(s, s),
            view=s.view(-1),
            row=s[1],
            transposed=s.t(),
            nested=[{"n": None, "i": 3, "f": 2.5, "t": True, "name": "x"}, Pair(x + 1, (x,))],
            input=x,
            scalar=x.sum(),
        )

    return Built(Lambda(outputs), (torch.randn(3, 4),), ((torch.randn(3, 4),),))


@case("zero_size_and_zero_dim")
def _() -> Built:
    def f(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a * 2, a.sum(), b + 1, torch.cat([a, a], 1), b.reshape(1, 1)

    return Built(Lambda(f), (torch.randn(0, 3), torch.tensor(3.5)))


@case("two_dims_tied")
def _() -> Built:
    n = Dim("n", min=2, max=32)
    return Built(
        Lambda(lambda a, b: a @ b + a.shape[0]),
        (torch.randn(5, 7), torch.randn(7, 5)),
        tuple((torch.randn(k, 7), torch.randn(7, k)) for k in (2, 9, 32)),
        (({0: n}, {1: n}),),
    )


@case("integers")
def _() -> Built:
    def f(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a // b, a % b, a & b, a << 1, (a > b), torch.where(a > b, a, b), a.sum(), ~a

    a = torch.randint(-50, 50, (3, 11))
    b = torch.randint(1, 9, (3, 11))
    return Built(Lambda(f), (a, b), ((-a, b),))


DTYPES = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
)


def _dtype_case(dtype_name: str) -> None:
    dtype = getattr(torch, dtype_name)

    @case(f"dtype_{dtype_name}", rtol=1e-2 if dtype_name in ("float16", "bfloat16") else 1e-6)
    def _() -> Built:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("b", torch.tensor([1, 0, 1, 1, 0]).to(dtype))

            def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
                if dtype is torch.bool:
                    return x ^ self.b, x & self.b, x.sum(1), x.t()
                return x + self.b, x * self.b, (x > self.b).to(dtype), x.sum(1), x.t().clone()

        x = (torch.randn(3, 5) * 4).to(dtype)
        return Built(Net(), (x,), ((x.flip(0).contiguous(),),))


for _name in DTYPES:
    _dtype_case(_name)


@case("search_sort_scan")
def _() -> Built:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, order = x.sort(1, descending=True)
        top, where = x.topk(3, 1)
        return values, order, top, where, x.cumsum(0), x.argmax(1), x[x.sum(1) > 0]

    return Built(Lambda(f), (torch.randn(6, 9),), ((torch.randn(6, 9),), (-torch.rand(6, 9),)))


@case("bert", rtol=1e-4, atol=1e-4)
def _() -> Built:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=100, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=96, max_position_embeddings=32, attn_implementation="sdpa",
    )  # fmt: skip
    ids = torch.randint(0, 100, (2, 11))
    mask = torch.ones(2, 11, dtype=torch.int64)
    mask[1, 7:] = 0
    return Built(BertModel(config), (), kwargs={"input_ids": ids, "attention_mask": mask})
