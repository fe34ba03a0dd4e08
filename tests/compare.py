"""Compares what a program returned with eager torch: value, dtype, shape, structure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def assert_same(got: Any, expected: Any, rtol: float, atol: float, where: str = "output") -> None:
    if isinstance(expected, torch.Tensor):
        tensor = got if isinstance(got, torch.Tensor) else torch.from_dlpack(got)
        assert tensor.dtype == expected.dtype, f"{where}: {tensor.dtype} != {expected.dtype}"
        assert tuple(tensor.shape) == tuple(expected.shape), f"{where}: shape {tensor.shape}"
        torch.testing.assert_close(
            tensor, expected, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{where}: {m}"
        )
    elif isinstance(expected, Mapping):
        assert list(got.keys()) == list(expected.keys()), where
        for key in expected:
            assert_same(got[key], expected[key], rtol, atol, f"{where}[{key!r}]")
    elif isinstance(expected, (list, tuple)):
        assert type(got) is type(expected), f"{where}: {type(got)} != {type(expected)}"
        assert len(got) == len(expected), where
        for i, (a, b) in enumerate(zip(got, expected, strict=True)):
            assert_same(a, b, rtol, atol, f"{where}[{i}]")
    else:
        assert type(got) is type(expected), f"{where}: {type(got)} != {type(expected)}"
        assert got == expected, where
