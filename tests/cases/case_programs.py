"""Programs that the case files of sections 8 to 12 share, each exported once per run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.export import Dim


class Mlp(nn.Module):
    """Weights, and a batch that varies."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


class Two(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2 + y, (x - y).t()


class Scale(nn.Module):
    """A result from which the weight that was used can be read."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4096))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


class Total(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 2


class Widen(nn.Module):
    """A megabyte of output per row, and twice as much in between."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.unsqueeze(1).expand(-1, 1 << 18)
        return torch.cumsum(y, 1) - torch.cumsum(y * 0.5, 1)


class Lambda(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def add_in_place(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def build(name: str) -> dict[str, Any]:
    """Arguments of `cudaexec.export` for the program of that name."""
    torch.manual_seed(5)
    rows = ({0: Dim("n", min=2, max=64)},)
    if name == "mlp":
        return {"model": Mlp().eval(), "args": (torch.randn(4, 16),), "dynamic_shapes": rows}
    if name == "two":
        return {"model": Two(), "args": (torch.randn(4, 8), torch.randn(4, 8))}
    if name == "widen":
        return {
            "model": Widen(),
            "args": (torch.randn(4),),
            "dynamic_shapes": ({0: Dim("n", min=2, max=256)},),
        }
    x = torch.randn(64)
    if name == "state":
        return {"methods": {"scale": (Scale(), (torch.ones(4096),)), "total": (Total(), (x,))}}
    if name == "uncapturable":  # beside one that can be captured
        methods = {
            "pick": lambda x: x[torch.nonzero(x > 0)[:, 0]],
            "mask": lambda x: x[x > 0] * 2,
            "plain": lambda x: torch.relu(x) * 3,
        }
        return {"methods": {key: (Lambda(function), (x,)) for key, function in methods.items()}}
    if name == "dtypes":
        matrix, bits = torch.randn(4, 6), torch.tensor([True, False, True])
        return {
            "methods": {
                "plain": (Lambda(lambda x: x * 1.0), (matrix,)),
                "turn": (Lambda(lambda x: ((x + 1).t(), (x + 1)[:, ::2])), (matrix,)),
                "write": (Lambda(add_in_place), (matrix,)),
                "bits": (Lambda(lambda x: (~x, x.to(torch.uint8))), (bits,)),
                "half": (Lambda(lambda x: x * 2), (torch.ones(5, dtype=torch.bfloat16),)),
            }
        }
    raise AssertionError(name)
