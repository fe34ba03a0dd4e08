"""Everything that can fail is made to fail once: one typed error, nothing left, the next call right."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import cudaexec
from cudaexec import _core

pytestmark = pytest.mark.torch
Program = Callable[[str], Path]
testing = _core._testing
SITES = ["allocate", "file", "dlopen", "shim", "container"]

INPUTS = {
    "tiny": (np.arange(16, dtype=np.float32),),
    "mlp_a": (np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8),),
    "views": (np.arange(6, dtype=np.float32).reshape(3, 2).T,),  # copied: not the compiled layout
    "mutates": (np.arange(5, dtype=np.float32),),
}


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    testing.disarm_fault()


def counts() -> dict[str, int]:
    gc.collect()
    return dict(testing.live_counts())


def flat(outputs: object) -> list[np.ndarray]:
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


@pytest.mark.parametrize("name", INPUTS)
def test_load(program: Program, name: str) -> None:
    path = program(name)
    with cudaexec.load(path) as module:
        expected = flat(module(*INPUTS[name]))
    before = counts()
    k = 0
    while True:
        k += 1
        testing.arm_fault(SITES, k)
        try:
            module = cudaexec.load(path)
        except cudaexec.Error as error:
            assert "injected fault" in str(error), error
            assert testing.disarm_fault() >= k
            assert counts() == before, k
            continue
        reached = testing.disarm_fault()
        with module:
            for got, want in zip(flat(module(*INPUTS[name])), expected, strict=True):
                np.testing.assert_array_equal(got, want)
            del got
        if reached < k:
            break
        # An operation whose failure the loader can do without.
        assert k < 1000
    assert k > 5
    assert counts() == before


@pytest.mark.parametrize("name", INPUTS)
def test_call(program: Program, name: str) -> None:
    with cudaexec.load(program(name)) as module:
        expected = flat(module(*INPUTS[name]))
        before = counts()
        failures = 0
        for k in range(1, 1000):
            module.trim()  # so that allocations reach the system
            testing.arm_fault(SITES, k)
            try:
                outputs = flat(module(*INPUTS[name]))
            except cudaexec.Error as error:
                assert "injected fault" in str(error), error
                testing.disarm_fault()
                failures += 1
                del error
                assert counts() == before, k
            else:
                reached = testing.disarm_fault()
                for got, want in zip(outputs, expected, strict=True):
                    np.testing.assert_array_equal(got, want)
                del outputs, got
                if reached < k:
                    break
            for got, want in zip(flat(module(*INPUTS[name])), expected, strict=True):
                np.testing.assert_array_equal(got, want)
            del got
        assert failures > 3


def test_call_with_state(program: Program) -> None:
    """The first call of a session, which copies the buffers, fails at every step in turn."""
    one = np.ones(4, np.float32)
    failures = 0
    for k in range(1, 1000):
        with cudaexec.load(program("sequence")) as module:
            add = module.method("add")
            testing.arm_fault(SITES, k)
            try:
                add(one)
            except cudaexec.Error as error:
                assert "injected fault" in str(error), error
                testing.disarm_fault()
                failures += 1
                # The call may have failed before or after the program wrote its buffer.
                total = module.method("read")()[0].numpy()
                assert np.array_equal(total, one * 0) or np.array_equal(total, one)
                np.testing.assert_array_equal(
                    add(one), (total + 1) * np.arange(4, dtype=np.float32)
                )
            else:
                if testing.disarm_fault() < k:
                    break
    assert failures > 3


def test_load_weights(program: Program) -> None:
    x = np.ones((2, 8), np.float32)
    with cudaexec.load(program("mlp_a")) as module:
        old = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
        expected = module(x)
        failures = 0
        for k in range(1, 1000):
            before = counts()
            testing.arm_fault(["allocate"], k)
            try:
                module.load_weights({name: value * 2 for name, value in old.items()})
            except cudaexec.Error as error:
                assert isinstance(error, cudaexec.OutOfMemory)
                testing.disarm_fault()
                failures += 1
                del error
                assert counts() == before
                np.testing.assert_array_equal(module(x), expected)
            else:
                testing.disarm_fault()
                break
        assert failures >= len(old)
        assert not np.array_equal(module(x), expected)


def test_memory_limit(program: Program) -> None:
    limit = 4 << 20
    options = cudaexec.LoadOptions(memory_limit=limit)
    with cudaexec.load(program("wide"), options=options) as module:
        for _ in range(20):
            with pytest.raises(cudaexec.OutOfMemory) as caught:
                module(np.ones(9, np.float32))
            assert isinstance(caught.value, MemoryError)
            for part in ("method 'forward': ", "bytes asked for", "in use", str(limit)):
                assert part in str(caught.value)
            del caught
            np.testing.assert_array_equal(
                module(np.ones(1, np.float32)), np.full((1, 1 << 17), 2.0)
            )
        kept = [module(np.ones(1, np.float32)) for _ in range(4)]
        with pytest.raises(cudaexec.OutOfMemory):
            kept += [module(np.ones(1, np.float32)) for _ in range(8)]
        del kept
        gc.collect()
        assert module.memory_stats()["working_current"] == 0
        assert module(np.ones(4, np.float32)).shape == (4, 1 << 17)


def test_weights_do_not_count_against_the_limit(program: Program) -> None:
    options = cudaexec.LoadOptions(memory_limit=700)
    with cudaexec.load(program("mlp_a"), options=options) as module:
        assert module.memory_stats()["weights_mapped"] > 700
        for _ in range(10):
            module(*INPUTS["mlp_a"])
        assert module.memory_stats()["working_peak"] <= 700
