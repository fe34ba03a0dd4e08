"""A KV cache in float64 on torch: what the attention over the runtime's cache has to give."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

STORED = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn,
}
LARGEST = {
    "float32": torch.inf,
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float8_e4m3fn": 448.0,
}


def stored(values: torch.Tensor, dtype: str) -> torch.Tensor:
    """Values as the cache keeps them, in float64: to nearest even, saturating."""
    limit = LARGEST[dtype]
    wide = values.float()
    return wide.clamp(-limit, limit).to(STORED[dtype]).double()


@dataclass
class Reference:
    """One layer: keys and values of all tokens, [batch, kv heads, tokens, head size]."""

    dtype: str
    window: int = 0
    keys: list[torch.Tensor] = field(default_factory=list)
    values: list[torch.Tensor] = field(default_factory=list)

    @property
    def position(self) -> int:
        return len(self.keys)

    def rewind(self, position: int) -> None:
        del self.keys[position:], self.values[position:]

    def fork(self) -> Reference:
        return Reference(self.dtype, self.window, list(self.keys), list(self.values))

    def step(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        """Appends k and v, then attends; float64 [batch, heads, tokens, head size]."""
        first, width = self.position, q.shape[2]
        self.keys += stored(k, self.dtype).unbind(2)
        self.values += stored(v, self.dtype).unbind(2)
        low = max(0, first - self.window + 1) if self.window else 0
        group = q.shape[1] // k.shape[1]
        keys = torch.stack(self.keys[low:], 2).repeat_interleave(group, 1)
        values = torch.stack(self.values[low:], 2).repeat_interleave(group, 1)
        scores = q.double() @ keys.transpose(-1, -2) * scale
        at = torch.arange(first, first + width).unsqueeze(1)
        token = torch.arange(low, first + width).unsqueeze(0)
        seen = token <= at
        if self.window:
            seen &= token > at - self.window
        return torch.softmax(scores.masked_fill(~seen, -torch.inf), -1) @ values


def operands(
    shape: tuple[int, int, int, int, int], dtype: torch.dtype, layout: str = "tokens first"
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k, v for (batch, heads, kv heads, tokens, head size)."""
    batch, heads, kv_heads, tokens, dim = shape
    made = []
    for count in (heads, kv_heads, kv_heads):
        if layout == "tokens first":
            made.append(torch.randn(batch, tokens, count, dim).to(dtype).transpose(1, 2))
        elif layout == "heads first":
            made.append(torch.randn(batch, count, tokens, dim).to(dtype))
        else:  # a head's elements apart
            made.append(torch.randn(batch, count, dim, tokens).to(dtype).transpose(2, 3))
    return made[0], made[1], made[2]
