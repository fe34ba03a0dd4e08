"""Every model of the table against eager torch, in this process and in one that has no torch."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import cudaexec
import models
from compare import assert_same

pytestmark = pytest.mark.torch

RUNNER = Path(__file__).parent / "helpers" / "run_without_torch.py"


def eager_outputs(case: models.Case) -> list[tuple[tuple[Any, ...], dict[str, Any], Any]]:
    """(args, kwargs, output) for each call of the case, in order, on a fresh eager module."""
    built = case.build()
    calls = [(built.args, built.kwargs)] + [(args, {}) for args in built.more]
    results = []
    with torch.no_grad():
        for args, kwargs in calls:
            output = built.model(*copy.deepcopy(args), **copy.deepcopy(kwargs))
            results.append((args, kwargs, copy.deepcopy(output)))
    return results


@pytest.mark.parametrize("case", models.CASES, ids=lambda c: c.name)
def test_against_eager(case: models.Case, exported: Callable[[str], Path]) -> None:
    with cudaexec.load(exported(case.name)) as module:
        kept = []
        for args, kwargs, expected in eager_outputs(case):
            before = copy.deepcopy((args, kwargs))
            got = module(*args, **kwargs)
            assert_same(got, expected, case.rtol, case.atol)
            assert_same([args, kwargs], list(before), 0, 0, "caller's inputs")
            kept.append((got, expected))
        for got, expected in kept:
            assert_same(got, expected, case.rtol, case.atol, "earlier output")


@pytest.mark.parametrize("case", models.CASES, ids=lambda c: c.name)
def test_without_torch(case: models.Case, exported: Callable[[str], Path], tmp_path: Path) -> None:
    """numpy in, numpy out, in a child process where importing torch fails; stderr stays empty."""

    def to_numpy(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.dtype is torch.bfloat16:
                return ("bfloat16", value.contiguous().view(torch.int16).numpy())
            return value.numpy()
        return value

    def leaves(value: Any) -> list[Any]:
        if isinstance(value, dict):
            return [leaf for item in value.values() for leaf in leaves(item)]
        if isinstance(value, (list, tuple)):
            return [leaf for item in value for leaf in leaves(item)]
        return [to_numpy(value)]

    calls = [
        ([to_numpy(a) for a in args], {k: to_numpy(v) for k, v in kwargs.items()}, leaves(expected))
        for args, kwargs, expected in eager_outputs(case)
    ]
    spec = tmp_path / "calls.pickle"
    spec.write_bytes(pickle.dumps((str(exported(case.name)), calls, case.rtol, case.atol)))
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(RUNNER), str(spec)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


class Decoder(nn.Module):
    """One attention layer over a cache: prefill writes many positions, decode one."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.qkv = nn.Linear(16, 48)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("keys", torch.zeros(1, 12, 16))
        self.register_buffer("values", torch.zeros(1, 12, 16))

    def forward(self, ids: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.embed(ids)).chunk(3, -1)
        self.keys.index_copy_(1, position, k)
        self.values.index_copy_(1, position, v)
        seen = torch.arange(12)[None, :] <= position[:, None]
        scores = (q @ self.keys.transpose(1, 2)) / 4.0
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        return self.head(weights @ self.values)


def decoder_calls() -> list[tuple[str, tuple[torch.Tensor, torch.Tensor]]]:
    calls = [("prefill", (torch.tensor([[3, 1, 4, 1]]), torch.arange(4)))]
    calls += [("decode", (torch.tensor([[7 + i]]), torch.tensor([4 + i]))) for i in range(4)]
    return calls


def test_two_methods_share_weights_and_cache(
    once: Callable[[str, Callable[[Path], None]], Path],
) -> None:
    torch.manual_seed(0)
    model = Decoder().eval()
    prefill, decode = decoder_calls()[0][1], decoder_calls()[1][1]

    def make(directory: Path) -> None:
        cudaexec.export(
            None,
            methods={
                "prefill": (model, prefill, None, None),
                "decode": (model, decode, None, None),
            },
            path=directory / "model.pte",
            target="cpu",
        )

    path = once("decoder", make) / "model.pte"
    eager = copy.deepcopy(model)
    with cudaexec.load(path) as module:
        assert set(module.methods) == {"prefill", "decode"}
        for name, args in decoder_calls():
            with torch.no_grad():
                expected = eager(*args)
            assert_same(module.method(name)(*args), expected, 1e-4, 1e-4, name)
        state = module.state_dict()
        assert_same(torch.as_tensor(state["keys"]), eager.keys, 1e-5, 1e-5, "keys")
    weights = sum(
        t.numel() * t.element_size() for t in {id(p): p for p in model.parameters()}.values()
    )
    assert path.with_suffix(".ptd").stat().st_size < weights + 2 * 12 * 16 * 4 + 4096
