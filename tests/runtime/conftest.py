"""Small programs for the runtime's tests, each exported once per run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def _build(name: str) -> dict[str, Any]:
    """The keyword arguments of `cudaexec.export` for one program."""
    import torch
    from torch import nn
    from torch.export import Dim

    class Function(nn.Module):
        def __init__(self, function: Callable[..., Any]) -> None:
            super().__init__()
            self.function = function

        def forward(self, *args: Any) -> Any:
            return self.function(*args)

    def mlp(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()

    batch = {"input": {0: Dim("n", min=1, max=64)}}
    if name in ("mlp_a", "mlp_b"):
        model = mlp(1 if name == "mlp_a" else 2)
        return {"model": model, "args": (torch.randn(4, 8),), "dynamic_shapes": batch}

    if name == "tiny":
        return {"model": Function(lambda x: x * 2 + 1), "args": (torch.randn(16),)}

    if name == "large":  # long enough to be caught in flight
        model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(20)]).eval()
        return {"model": model, "args": (torch.randn(64, 256),)}

    if name == "wide":  # outputs of half a megabyte per row

        def widen(x: torch.Tensor) -> torch.Tensor:
            return x.unsqueeze(1).expand(-1, 1 << 17) * 2.0

        return {
            "model": Function(widen),
            "args": (torch.randn(4),),
            "dynamic_shapes": ((({0: Dim("n", min=1, max=64)}),),),
        }

    if name == "sequence":  # two methods over one weight and one buffer

        class Base(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = nn.Parameter(torch.arange(4.0))
                self.register_buffer("total", torch.zeros(4))

        class Add(nn.Module):
            def __init__(self, base: Base) -> None:
                super().__init__()
                self.base = base

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                self.base.total.add_(x)
                return self.base.total * self.base.weight

        class Read(nn.Module):
            def __init__(self, base: Base) -> None:
                super().__init__()
                self.base = base

            def forward(self) -> tuple[torch.Tensor, torch.Tensor]:
                return self.base.total, self.base.total + self.base.weight

        class Scale(nn.Module):
            def __init__(self, base: Base) -> None:
                super().__init__()
                self.base = base

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x * self.base.weight

        base = Base()
        x = torch.ones(4)
        methods = {"add": (Add(base), (x,)), "read": (Read(base), ()), "scale": (Scale(base), (x,))}
        return {"model": None, "methods": methods}

    if name == "slow":  # a second or so, and it writes its buffer at the end

        class Slow(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("total", torch.zeros(4))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                y = x
                for _ in range(24):
                    y = y @ x
                self.total.add_(1 + 0 * y.sum())
                return self.total + 0

        return {"model": Slow(), "args": (torch.zeros(1024, 1024),)}

    if name == "tied":

        class Tied(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                torch.manual_seed(3)
                self.embed = nn.Embedding(10, 6)
                self.head = nn.Linear(6, 10, bias=False)
                self.head.weight = self.embed.weight

            def forward(self, i: torch.Tensor) -> torch.Tensor:
                return self.head(self.embed(i))

        return {"model": Tied().eval(), "args": (torch.tensor([1, 2, 3]),)}

    if name == "views":

        class Views(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = nn.Parameter(torch.arange(6.0).reshape(2, 3))

            def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
                y = x + 1
                return x, x.t(), x[1:], y, y, self.weight, x[:1].expand(4, 3), self.weight.t()

        return {"model": Views().eval(), "args": (torch.randn(2, 3),)}

    if name == "mutates":

        def mutate(x: torch.Tensor) -> torch.Tensor:
            x.add_(1)
            return x * 2

        return {"model": Function(mutate), "args": (torch.randn(5),)}

    if name == "scalars":

        def scalars(x: torch.Tensor, flag: bool, k: int, s: float, none: None) -> torch.Tensor:
            return x * k + s if flag else x

        return {"model": Function(scalars), "args": (torch.randn(3), True, 3, 0.0, None)}

    if name == "checked":

        def checked(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
            return x[i] * 2

        return {"model": Function(checked), "args": (torch.randn(6), torch.tensor([0, 5]))}

    if name == "random":
        return {"model": Function(lambda x: x + torch.rand(8)), "args": (torch.zeros(8),)}

    raise AssertionError(name)


@pytest.fixture(scope="session")
def program(once: Callable[[str, Callable[[Path], None]], Path]) -> Callable[[str], Path]:
    """`program("mlp_a")` is the path of that program's `.pte`."""

    def get(name: str) -> Path:
        def make(directory: Path) -> None:
            import cudaexec

            cudaexec.export(path=directory / f"{name}.pte", target="cpu", **_build(name))

        return once(f"runtime_{name}", make) / f"{name}.pte"

    return get
