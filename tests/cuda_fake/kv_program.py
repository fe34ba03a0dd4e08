"""A program whose KV cache is kept by the runtime, around the container ATTEND, and its reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cuda_fake import programs
from cuda_fake.programs import Code, Method, Once

CAPACITY = 100
WINDOW = 10
WIDEST = 40
# A token takes a 32nd of a page of 4 MiB: layer 2, which the code does not use, makes it large.
BLOCK = 32
PAGE = 4 << 20
KV_CACHE = {
    "version": 1,
    "dtype": "float32",
    "layers": [
        {"id": 0, "batch": 1, "heads": 1, "head_dim": 8, "policy": "flat", "capacity": CAPACITY},
        {"id": 1, "batch": 1, "heads": 1, "head_dim": 8, "policy": "ring", "window": WINDOW,
         "capacity": WINDOW + WIDEST - 1},
        {"id": 2, "batch": 1, "heads": 480, "head_dim": 32, "policy": "flat",
         "capacity": CAPACITY},
    ],
}  # fmt: skip


def write(once: Once, directory: Path, *, position_input: int | None = 1) -> Path:
    """Methods `prefill` (2 to WIDEST tokens) and `decode` (one)."""
    methods = []
    for name, width in (("prefill", "s0"), ("decode", 1)):
        x = {"dtype": "float32", "shape": [width, 32], "strides": [32, 1], "device": "cuda"}
        index = {"dtype": "int64", "shape": [width], "strides": [1], "device": "cuda"}
        y = {"dtype": "float32", "shape": [1, 2, width, 8], "device": "cuda"}
        strides = [[width, 16, "mul"] if width == "s0" else 16, 8, 16, 1]
        inputs = [("x", x), ("positions", index)]
        more: dict[str, Any] = {
            "symbols": [{"name": "s0", "min": 2, "max": WIDEST, "input": 0, "dim": 0}]
            if width == "s0"
            else [],
            "inputs": [
                {"name": label, "kind": "tensor", **tensor, "mutated": False, "graph_input": i}
                for i, (label, tensor) in enumerate(inputs)
            ],
            "outputs": [
                {"kind": "tensor", **y, "strides": strides, "graph_output": i} for i in range(2)
            ],
            "kv": {
                "layers": [0, 1, 2],
                "width": width,
                "max_width": WIDEST if width == "s0" else 1,
                "position_input": position_input,
                "position_states": [],
            },
        }
        image = Code(programs.code(once, "ATTEND"))
        methods.append(Method(name, "ATTEND", [image], more=more))
    return programs.write(directory, methods, more={"kv_cache": KV_CACHE})


class Reference:
    """The tokens so far, and what both layers' attention over them is."""

    def __init__(self) -> None:
        self.tokens = np.zeros((0, 32))

    def fork(self) -> Reference:
        other = Reference()
        other.tokens = self.tokens.copy()
        return other

    def step(self, x: np.ndarray) -> list[np.ndarray]:
        """[1, 2, tokens, 8] of each layer, in float64."""
        first = len(self.tokens)
        self.tokens = np.concatenate([self.tokens, x.astype(np.float64)])
        q = x.reshape(len(x), 4, 8)[:, :2].astype(np.float64)
        keys, values = self.tokens[:, 16:24], self.tokens[:, 24:]
        own = np.arange(first, first + len(x))[:, None]
        token = np.arange(len(self.tokens))[None]
        results = []
        for window in (None, WINDOW):
            seen = token <= own
            if window is not None:
                seen &= token > own - window
            scores = np.where(seen[:, None], q @ keys.T * 0.5, -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out = weights / weights.sum(-1, keepdims=True) @ values
            results.append(out.transpose(1, 0, 2)[None])
        return results
