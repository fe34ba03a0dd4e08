"""Random sequences of what callers do to a module with CUDA graphs, against plain arithmetic.

Work of the fake GPU is done only when something waits for it, and freed memory is poisoned there: a
missing order between streams, or memory that goes too early or is used twice, is a wrong number.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudaexec
from cuda_fake import fake as fakes
from cuda_fake.fake import FakeDriver
from cuda_fake.graph_calls import host, pointer
from cudaexec._core import _testing

cuda = _testing.cuda
LEGACY = 1
FAULTS = [
    ("cuStreamEndCapture", fakes.CAPTURE_INVALIDATED), ("cuLaunchKernel", fakes.CAPTURE_INVALIDATED),
    ("cuMemAllocFromPoolAsync", fakes.OUT_OF_MEMORY), ("cuGraphLaunch", fakes.OUT_OF_MEMORY),
    ("cuGraphExecKernelNodeSetParams", fakes.OUT_OF_MEMORY),
]  # fmt: skip


class Fuzz:
    """`slots`: memory on the GPU and what is in it; `sessions`: with their sums."""

    def __init__(self, driver: FakeDriver, path: Path, seed: int) -> None:
        self.driver, self.random = driver, random.Random(seed)
        choose = self.random.choice
        options = cudaexec.GraphOptions(warmup=choose([1, 2]), max_graphs=choose([1, 2, 4]))
        self.module = cudaexec.load(path, cuda_graph=options)
        self.plain = cudaexec.load(path)
        for each in (self.module, self.plain):
            each.manual_seed(seed)
        self.streams = [cuda.Stream(0) for _ in range(2)]
        self.factor = np.float32(2)
        self.slots = [self.slot() for _ in range(4)]
        self.sessions: list[list[Any]] = [[self.module, np.zeros(4, np.float32)]]
        self.bindings: list[tuple[cudaexec.Binding, int, int]] = []
        self.kept: list[tuple[Any, np.ndarray]] = []

    def numbers(self) -> np.ndarray:
        return np.array([self.random.randrange(50) for _ in range(8)], np.float32)

    def slot(self) -> list[Any]:
        values = self.numbers()
        stream = self.random.choice([LEGACY, *(each.handle for each in self.streams)])
        return [cuda.tensor_on(values, 0, stream), values]

    def stream(self) -> int | None:
        return self.random.choice([None, None, None, *(each.handle for each in self.streams)])

    def keep(self, found: Any, expected: np.ndarray) -> None:
        if self.random.random() < 0.4:
            self.kept.append((found, expected))
        if len(self.kept) > 6:
            np.testing.assert_array_equal(*self.host_pair(self.kept.pop(self.random.randrange(6))))

    @staticmethod
    def host_pair(pair: tuple[Any, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        return host(pair[0]), pair[1]

    def call(self) -> None:
        """One place several times: a view of a slot, or what the call before gave."""
        name = self.random.choice(["scale", "scale", "vary", "count"])
        tensor, values = self.random.choice(self.slots)
        offset = self.random.choice([0, 0, 1, 4])
        x, array = cuda.view_of(tensor, [4], [1], offset), values[offset : offset + 4].copy()
        session = self.random.choice(self.sessions)
        method = session[0].method(name)
        chain = name == "scale" and self.random.random() < 0.3
        for _ in range(self.random.choice([1, 3, 40, 40])):
            found = method.run_on(self.stream(), x)
            if name == "count":
                session[1] = session[1] + array
            expected = session[1] * self.factor if name == "count" else array * self.factor
            if name == "scale":
                expected = expected + np.float32(0.5)
            if name == "vary":  # a view of it whose base goes
                self.keep(found[1], expected[1::2])
                found = found[0]
            self.keep(found, expected)
            if chain and expected.max() < 1e30:
                x, array = found, expected

    def faulty(self) -> None:
        """A call that may fail, or have to do without its graph."""
        entry, result = self.random.choice(FAULTS)
        tensor, values = self.random.choice(self.slots)
        with self.driver.failing(entry, 1, result) as hits:
            try:
                found = self.module.method("scale")(cuda.view_of(tensor, [4], [1]))
            except cudaexec.Error:
                found = None
        assert found is not None or hits == [1]
        if found is not None:
            self.keep(found, values[:4] * self.factor + np.float32(0.5))

    def bind_or_run(self) -> None:
        if len(self.bindings) < 4:
            a, b = self.random.sample(range(len(self.slots)), 2)
            x, y = (cuda.view_of(self.slots[i][0], [4], [1]) for i in (a, b))
            self.bindings.append((self.module.method("scale").bind(x, y), a, b))
        binding, a, b = self.random.choice(self.bindings)
        binding.run(stream=self.stream())
        values = self.slots[b][1].copy()
        values[:4] = self.slots[a][1][:4] * self.factor + np.float32(0.5)
        self.slots[b][1] = values
        if values.max() > 1e20:
            self.refill(self.slots[b])
        if self.random.random() < 0.1:
            self.bindings.pop(self.random.randrange(len(self.bindings)))

    def refill(self, slot: list[Any]) -> None:
        values = self.numbers()
        self.driver.run_all()
        cuda.copy(0, pointer(slot[0]), 0, values.ctypes.data, -1, values.nbytes, LEGACY)
        self.driver.run_all()
        slot[1] = values

    def other(self) -> None:
        what = self.random.randrange(7)
        if what == 0:
            self.module.trim()
        elif what == 1:
            self.factor = np.float32(self.random.choice([1, 2]))
            self.module.load_weights({"w": np.full(1, self.factor)})
        elif what == 2:
            self.refill(self.random.choice(self.slots))
        elif what == 3 and len(self.sessions) < 3:
            last, total = self.sessions[-1]
            new = last.fork() if len(self.sessions) > 1 else self.module.session()
            self.sessions.append(
                [new, total if len(self.sessions) > 1 else np.zeros(4, np.float32)]
            )
        elif what == 4:
            session = self.random.choice(self.sessions)
            session[0].reset()
            session[1] = np.zeros(4, np.float32)
        elif what == 5 and len(self.sessions) > 1:
            self.sessions.pop()[0].close()
        elif what == 6:
            found, wanted = (m.method("random")() for m in (self.module, self.plain))
            np.testing.assert_array_equal(found, wanted)

    def run(self, steps: int) -> None:
        actions = [self.call] * 5 + [self.bind_or_run] * 4 + [self.faulty, self.other, self.other]
        for _ in range(steps):
            self.random.choice(actions)()
        for pair in self.kept + [(tensor, values) for tensor, values in self.slots]:
            np.testing.assert_array_equal(*self.host_pair(pair))

    def close(self) -> None:
        for each in (self.bindings, self.kept, self.slots, self.sessions):
            each.clear()
        self.module.close()
        self.plain.close()
        self.streams.clear()  # after what was ordered on them


@pytest.mark.parametrize("seed", range(6))
def test_random_calls(emulated: FakeDriver, write: Callable[..., Path], seed: int) -> None:
    fuzz = Fuzz(emulated, write("SCALE", "COUNT", "VARY", "RANDOM"), seed)
    try:
        fuzz.run(250)
        stats = {m["name"]: m["graphs"] for m in fuzz.module.stats()["methods"]}
        assert stats["scale"]["replays"] > 200
    finally:
        fuzz.close()
