"""torch tensors seen through one protocol only, and GPU work that takes long."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

# Cycles of a GPU clock of 1.5 to 2 GHz: about 50 ms.
LONG = 100_000_000


class Two(nn.Module):
    """Two inputs, two outputs, one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.full((8,), 2.0))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * self.w + y, (x - y).t()


class Flags(nn.Module):
    """bool, bfloat16 and int64 in and out."""

    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
        return {"a": ~a, "b": b * 2, "c": c + 1}


class OnlyDlpack:
    """`__dlpack__` of a torch tensor; notes the streams that consumers ask for."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.streams: list[Any] = []

    def __dlpack__(self, **options: Any) -> Any:
        self.streams.append(options.get("stream"))
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


class OnlyInterface:
    """`__cuda_array_interface__` of a torch tensor, with a stream."""

    def __init__(self, tensor: torch.Tensor, stream: int | None) -> None:
        self.tensor = tensor
        self.stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        found = dict(self.tensor.__cuda_array_interface__)
        return {**found, "version": 3, "stream": self.stream}


def keep_busy(stream: torch.cuda.Stream | None = None, cycles: int = LONG) -> None:
    """Puts a kernel that takes about 50 ms on a stream, by default torch's current one."""
    with torch.cuda.stream(stream or torch.cuda.current_stream()):
        torch.cuda._sleep(cycles)
