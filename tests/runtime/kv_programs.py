"""Decoders with a cache kept by the runtime, exported once per run, and eager ones beside them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim

import cudaexec
import kv_models
from cudaexec import ExportOptions, KvCacheSpec

CAPACITY = 1500
WINDOW = 40
WIDEST = 256
VOCABULARY = 32


def decoder(kind: str) -> kv_models.Decoder:
    """`flat`, `ring` (one layer of each kind), `batch` (2 sequences)."""
    torch.manual_seed(0)
    return kv_models.Decoder(
        heads=4,
        kv_heads=2,
        dim=64,
        batch=2 if kind == "batch" else 1,
        windows=(None, WINDOW) if kind == "ring" else (None, None),
        mask="float" if kind == "batch" else "bool",
    ).eval()


def export(kind: str, directory: Path, dtype: str | None = None) -> Path:
    """Methods `prefill` (2 to WIDEST tokens) and `decode` (one token)."""
    model = decoder(kind)
    batch = 2 if kind == "batch" else 1
    width = Dim("width", min=2, max=WIDEST)
    with torch.no_grad():
        prefill = torch.export.export(
            model,
            (torch.zeros(batch, 3, dtype=torch.int64), torch.arange(3)),
            dynamic_shapes={"tokens": {1: width}, "positions": {0: width}},
        )
        decode = torch.export.export(
            model, (torch.zeros(batch, 1, dtype=torch.int64), torch.arange(1))
        )
    spec = KvCacheSpec.discover(prefill)
    spec = KvCacheSpec(
        buffers=spec.buffers,
        sequence_dim=spec.sequence_dim,
        position=spec.position,
        layers=spec.layers,
        dtype=dtype,
    )
    path = directory / "model.pte"
    cudaexec.export(
        methods={"prefill": prefill, "decode": decode},
        path=path,
        target="cpu",
        options=ExportOptions(kv_cache=spec),
    )
    return path


class Eager:
    """The model with its cache in buffers, at a position."""

    def __init__(self, kind: str) -> None:
        self.model, self.position = decoder(kind), 0

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(self.position, self.position + tokens.shape[1])
        with torch.no_grad():
            logits: torch.Tensor = self.model(tokens, positions)
        self.position += tokens.shape[1]
        return logits

    def fork(self) -> Eager:
        return copy.deepcopy(self)


def step(surface: Any, tokens: torch.Tensor, position: int | None = None) -> torch.Tensor:
    """A step of a session or module, at its position unless another one is given."""
    first = surface.position if position is None else position
    method = surface.method("decode" if tokens.shape[1] == 1 else "prefill")
    logits: torch.Tensor = method(tokens, torch.arange(first, first + tokens.shape[1]))
    return logits


def close_to(ours: torch.Tensor, eager: torch.Tensor) -> bool:
    """Logits of up to 60, of float32 sums in another order: 16 units in the last place."""
    return float((ours - eager).abs().max()) <= 6e-5
