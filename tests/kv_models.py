"""Small decoders with caches of several kinds, and a reference of what the runtime keeps."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

CAPACITY = 24


class Decoder(nn.Module):
    """Token ids and positions to logits; the cache is written and read as `style` says."""

    def __init__(
        self,
        *,
        layers: int = 2,
        heads: int = 4,
        kv_heads: int = 2,
        dim: int = 16,
        batch: int = 1,
        windows: tuple[int | None, ...] = (None, None),
        style: str = "index_copy",
        mask: str = "bool",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, dim // heads
        self.windows, self.style, self.mask_kind = windows, style, mask
        self.embedding = nn.Embedding(32, dim)
        self.rotations = nn.Parameter(torch.randn(CAPACITY, dim) * 0.3)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "q": nn.Linear(dim, dim),
                    "kv": nn.Linear(dim, 2 * kv_heads * self.size),
                    "out": nn.Linear(dim, dim),
                }
            )
            for _ in range(layers)
        )
        shape = [batch, kv_heads, CAPACITY, self.size]
        if style == "tokens_first":
            shape = [batch, CAPACITY, kv_heads, self.size]
        for i in range(layers):
            self.register_buffer(f"k{i}", torch.zeros(shape), persistent=False)
            self.register_buffer(f"v{i}", torch.zeros(shape), persistent=False)
        self.to(dtype)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.rotations[positions]
        for i, block in enumerate(self.blocks):
            x = x + block["out"](self.attend(i, block, x, positions))
        return F.linear(x, self.embedding.weight)

    def attend(self, i: int, block: Any, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        batch, width, _ = x.shape
        q = block["q"](x).view(batch, width, self.heads, self.size).transpose(1, 2)
        k, v = block["kv"](x).view(batch, width, 2, self.kv_heads, self.size).unbind(2)
        k, v = self.store(f"k{i}", k, positions), self.store(f"v{i}", v, positions)
        groups = self.heads // self.kv_heads
        options = {}
        if self.style == "repeat_kv":
            k, v = (
                t[:, :, None]
                .expand(-1, -1, groups, -1, -1)
                .reshape(batch, self.heads, -1, self.size)
                for t in (k, v)
            )
        elif self.style == "enable_gqa":
            options["enable_gqa"] = True
        else:
            k, v = (t.repeat_interleave(groups, 1) for t in (k, v))
        mask = self.mask(positions, self.windows[i], x.dtype)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3, **options)
        return y.transpose(1, 2).reshape(batch, width, -1)

    def store(self, name: str, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        cache = getattr(self, name)
        if self.style == "tokens_first":
            cache.index_copy_(1, positions, tokens)
            return cache.transpose(1, 2)
        if self.style == "index_put":
            cache[:, :, positions] = tokens.transpose(1, 2)
        else:
            cache.index_copy_(2, positions, tokens.transpose(1, 2))
        return cache

    def mask(self, positions: torch.Tensor, window: int | None, dtype: torch.dtype) -> torch.Tensor:
        keys = torch.arange(CAPACITY, device=positions.device)[None]
        mask = keys <= positions[:, None]
        if window is not None:
            mask = mask & (keys > positions[:, None] - window)
        if self.mask_kind == "float":
            return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -math.inf)
        return mask[None, None]


class ReferenceCache:
    """What `kv_attend` does, in plain torch: the tokens of each layer so far."""

    def __init__(self, windows: tuple[int | None, ...]) -> None:
        self.windows = windows
        self.tokens: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __call__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        index: torch.Tensor,
        layer: int,
        scale: float,
    ) -> torch.Tensor:
        if layer in self.tokens:
            k, v = (torch.cat(pair, 2) for pair in zip(self.tokens[layer], (k, v), strict=True))
        assert k.shape[2] == int(index[-1]) + 1
        self.tokens[layer] = (k, v)
        keys = torch.arange(k.shape[2])[None]
        mask = keys <= index[:, None]
        if self.windows[layer] is not None:
            mask &= keys > index[:, None] - self.windows[layer]
        out = F.scaled_dot_product_attention(q, k, v, mask, scale=scale, enable_gqa=True)
        return out.transpose(1, 2).contiguous().transpose(1, 2)


def llama(capacity: int = 32) -> tuple[nn.Module, Any]:
    """A small random Llama of `transformers` over its StaticCache, as that library exports it."""
    import pytest

    transformers = pytest.importorskip("transformers")
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=50,
        max_position_embeddings=64,
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).eval()
    model.generation_config = transformers.GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        max_length=capacity,
        cache_config={"batch_size": 1, "max_cache_len": capacity},
    )
    return TorchExportableModuleWithStaticCache(model), model
