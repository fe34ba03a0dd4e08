"""Code of the exporter: a check that fails inside a parallel region, and one call's worth of shims."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from libraries import SHIMS, testing

import cudaexec

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
]


EXPORT = """
import sys, numpy as np, torch, cudaexec
torch.manual_seed(0)
model = torch.nn.Embedding(50, 8)
count = {0: torch.export.Dim("n", min=2, max=100_000)}
example = (torch.zeros(64, dtype=torch.int64),)
np.save(sys.argv[1] + "/table.npy", model.weight.detach().numpy())
cudaexec.export(model, example, path=sys.argv[1] + "/model.pte", dynamic_shapes=(count,), target="cpu")
"""


@pytest.fixture(scope="module")
def embedding(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Rows of a table of 50 by any number of indices."""

    def make(directory: Path) -> None:  # apart: torch makes every later collection of garbage slow
        subprocess.run([sys.executable, "-c", EXPORT, str(directory)], check=True)

    return once("aoti_embedding", make) / "model.pte"


@pytest.mark.parametrize("count", [4, 20_000])
def test_an_index_out_of_range(embedding: Path, count: int) -> None:
    """The next call is right, and the process lives."""
    table = np.load(embedding.parent / "table.npy")
    with cudaexec.load(embedding) as module:
        good = np.arange(count) % 50
        for bad, value in ((0, 50), (count // 2, -51), (count - 1, 2**40)):
            indices = good.copy()
            indices[bad] = value
            with pytest.raises(cudaexec.errors.InputError, match="method 'forward': .*of size 50 "):
                module(indices)
            np.testing.assert_array_equal(np.asarray(module(good)), table[good])


def test_its_code_needs_our_library_alone(embedding: Path) -> None:
    image = embedding.read_bytes()
    code = image[image.index(b"\x7fELF") :]
    facts = cudaexec._core.inspect_elf(code)
    assert facts["needed"][0] == SHIMS
    assert "libgomp.so.1" not in facts["needed"]
    assert "GOMP_parallel" in facts["undefined"]
    assert facts["missing"] == facts["unique"] == []
    owners = dict(testing.open_library(code).bound_symbol_owners())
    assert owners["GOMP_parallel"].endswith(SHIMS)
    if "__cxa_thread_atexit" in facts["undefined"]:  # torch 2.11 keeps no state of threads
        assert owners["cudaexec_tls_atexit"].endswith(SHIMS)
    else:
        assert "cudaexec_tls_atexit" not in owners
