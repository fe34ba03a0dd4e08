"""Every driver call of a capture, a first launch and a replay fails once: the call is right or raises,
the state changes once or not at all, the next call is right, and nothing is left."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cudaexec
from cuda_fake import fake as fakes
from cuda_fake.fake import FakeDriver, emulate_kernels
from cuda_fake.test_cuda_program_faults import FREES, calls_of
from cudaexec._core import _testing

cuda = _testing.cuda
X = np.arange(1, 5, dtype=np.float32)
GRAPHS = cudaexec.GraphOptions(warmup=1)
CAPTURE_IN_PLACE = 18  # calls before it: a run, a capture, replays
PHASES = [
    pytest.param(True, 1, id="capture-host"), pytest.param(False, 1, id="capture"),
    pytest.param(True, 2, id="replay-host"), pytest.param(False, 2, id="replay"),
    pytest.param(False, CAPTURE_IN_PLACE, id="capture-in-place"),
    pytest.param(False, CAPTURE_IN_PLACE + 1, id="replay-in-place"),
]  # fmt: skip
CAPTURES = (1, CAPTURE_IN_PLACE)
# Where these fail, what they should have freed is lost, which a warning says.
LOST = FREES | {"cuGraphDestroy", "cuGraphExecDestroy", "cuStreamDestroy"}


@pytest.fixture
def gpu(gpus: FakeDriver, write: Callable[..., Path]) -> FakeDriver:
    if not cuda.image_names():
        pytest.skip("built without nvcc: there is no device code")
    emulate_kernels()
    with cudaexec.load(write("SCALE"), cuda_graph=GRAPHS) as module:
        for _ in range(4):
            module.method("scale")(X)
    return gpus


def counts(driver: FakeDriver) -> dict[str, int]:
    gc.collect(1)
    return {**_testing.live_counts(), **driver.live(), "modules held": cuda.live_modules(),
            "working": cuda.live_working_memory(), "context": driver.context_depth()}  # fmt: skip


def expected(model: str, total: np.ndarray) -> np.ndarray:
    return X * 2 + 0.5 if model == "SCALE" else total * 2


@pytest.mark.parametrize("model", ["SCALE", "COUNT"])
@pytest.mark.parametrize(("on_host", "calls_before"), PHASES)
@pytest.mark.parametrize("result", [fakes.OUT_OF_MEMORY, fakes.CAPTURE_INVALIDATED])
def test_driver_calls(
    gpu: FakeDriver, write: Callable[..., Path], model: str, on_host: bool, calls_before: int,
    result: int,
) -> None:  # fmt: skip
    path = write(model)
    before = counts(gpu)
    outcomes = {"right": 0, "raised": 0}

    def values(y: object) -> np.ndarray:
        return y if isinstance(y, np.ndarray) else y.to_host().numpy()  # type: ignore[attr-defined]

    def run(name: str | None = None, k: int = 0) -> list[tuple[str, int]]:
        with cudaexec.load(path, cuda_graph=GRAPHS) as module:
            method = module.method(model.lower())
            total = np.zeros(4, np.float32)
            x = X if on_host else cuda.tensor_on(X)
            for _ in range(calls_before):
                total += X
                method(x)
            gpu.clear_calls()
            if name is not None:
                gpu.fail(name, k, result)
            try:
                y = method(x)
            except cudaexec.Error as error:
                planned = []
                assert gpu.clear_faults() == 1, (name, k)
                outcomes["raised"] += 1
                del error
                if model == "COUNT":
                    found = module.state_dict()["total"].to_host().numpy().copy()
                    steps = found / X
                    assert set(steps) in ({calls_before}, {calls_before + 1}), (name, k, found)
                    total = found
            else:
                planned = calls_of(gpu, LOST)
                assert gpu.clear_faults() == (name is not None), (name, k)
                outcomes["right"] += 1
                total += X
                np.testing.assert_array_equal(values(y), expected(model, total), str((name, k)))
                del y
            for _ in range(3):
                total += X
                y = method(x)
                np.testing.assert_array_equal(values(y), expected(model, total), str((name, k)))
                del y
            [key] = module.stats()["methods"][0]["graphs"]["keys"]
            assert key["phase"] in ("replay", "disabled"), (name, k)
            assert (key["nbytes"] > 0) == (key["phase"] == "replay")
            if name is None and calls_before >= CAPTURE_IN_PLACE:
                assert key["in_place"] == calls_before - CAPTURE_IN_PLACE + 4
            del x
        del module, method
        _testing.cleanup_reports()
        assert counts(gpu) == before, (name, k)
        return planned

    planned = run()
    assert any(name == "cuGraphLaunch" for name, _ in planned)
    for name, k in planned:
        run(name, k)
    # A capture that fails is a call without a graph, or with the one that there was; a launch that
    # fails is an error.
    assert outcomes["right"] > 10 if calls_before in CAPTURES else outcomes["raised"] > 5


def test_allocations_of_a_capture(gpu: FakeDriver, write: Callable[..., Path]) -> None:
    """Under a limit that graphs do not fit, calls run without them."""
    options = cudaexec.LoadOptions(memory_limit=100_000)
    with cudaexec.load(write("SCALE"), cuda_graph=GRAPHS, options=options) as module:
        for i in range(5):
            np.testing.assert_array_equal(module.method("scale")(X + i), (X + i) * 2 + 0.5)
        [key] = module.stats()["methods"][0]["graphs"]["keys"]
        assert key["phase"] == "disabled"
        assert "100000" in key["reason"]
        assert module.memory_stats()["working_current"] == 0


@pytest.mark.parametrize("model", ["SCALE", "COUNT"])
@pytest.mark.parametrize(("on_host", "calls_before"), PHASES)
def test_sites(
    gpu: FakeDriver, write: Callable[..., Path], model: str, on_host: bool, calls_before: int
) -> None:
    """Every allocation and shim of ours fails once: the state changes once or not at all."""
    path = write(model)
    before = counts(gpu)
    failed = 0
    for k in range(1, 100):
        with cudaexec.load(path, cuda_graph=GRAPHS) as module:
            method = module.method(model.lower())
            x = X if on_host else cuda.tensor_on(X)
            for _ in range(calls_before):
                method(x)
            steps = calls_before
            _testing.arm_fault(["allocate", "file", "dlopen", "shim", "container"], k)
            try:
                y = method(x)
                steps += 1
            except cudaexec.Error as error:
                y = None
                assert "injected fault" in str(error), error
                del error
            finally:
                reached = _testing.disarm_fault()
            failed += reached >= k
            if y is None and model == "COUNT":
                found = module.state_dict()["total"].to_host().numpy() / X  # a copy
                assert set(found) in ({steps}, {steps + 1}), (k, found)
                steps = int(found[0])
            for _ in range(3):
                steps += 1
                y = method(x)
                values = y if isinstance(y, np.ndarray) else y.to_host().numpy()
                np.testing.assert_array_equal(values, expected(model, X * steps), str(k))
            [key] = module.stats()["methods"][0]["graphs"]["keys"]
            assert key["phase"] in ("replay", "disabled"), k
            del x, y, values
        del module, method
        assert counts(gpu) == before, k
        if reached < k:
            break
    # A replay asks for nothing but the memory of its outputs, which is there.
    assert failed > 3 if calls_before in CAPTURES else failed <= 2


def test_captures_that_others_break_are_tried_again(
    gpu: FakeDriver, write: Callable[..., Path]
) -> None:
    """Some times: what another thread does during a capture says nothing about the next one."""

    def broken_call(module: cudaexec.Module) -> dict[str, object]:
        gpu.fail("cuStreamEndCapture", 1, fakes.CAPTURE_INVALIDATED)
        np.testing.assert_array_equal(module.method("scale")(X), X * 2 + 0.5)
        assert gpu.clear_faults() == 1
        found = module.stats()["methods"][0]["graphs"]
        return {"failures": found["failures"], **found["keys"][0]}

    for breaks in (1, 2, 3):
        with cudaexec.load(write("SCALE"), cuda_graph=GRAPHS) as module:
            module.method("scale")(X)
            for _ in range(breaks):
                key = broken_call(module)
            ended = breaks == 3
            assert (key["failures"], key["phase"]) == (breaks, "disabled" if ended else "capture")
            assert ("901" in key.get("reason", "")) == ended
            for _ in range(2):
                np.testing.assert_array_equal(module.method("scale")(X), X * 2 + 0.5)
            [key] = module.stats()["methods"][0]["graphs"]["keys"]
            assert key["phase"] == ("disabled" if ended else "replay")


def test_captures_in_place_that_others_break(gpu: FakeDriver, write: Callable[..., Path]) -> None:
    for breaks in (1, 3):
        with cudaexec.load(write("SCALE"), cuda_graph=GRAPHS) as module:
            scale, x = module.method("scale"), cuda.tensor_on(X)
            for _ in range(CAPTURE_IN_PLACE):
                scale(x)
            broken = 0
            for _ in range(70):
                if broken < breaks:
                    gpu.fail("cuStreamEndCapture", 1, fakes.CAPTURE_INVALIDATED)
                y = scale(x)
                np.testing.assert_array_equal(y.to_host().numpy(), X * 2 + 0.5)
                del y
                broken += gpu.clear_faults()
            assert broken == breaks
            [key] = module.stats()["methods"][0]["graphs"]["keys"]
            assert (key["phase"], key["in_place"] > 30) == ("replay", breaks == 1)
            del x


@pytest.mark.parametrize("entry", ["cuGraphExecKernelNodeSetParams", "cuGraphLaunch"])
def test_random_numbers_of_a_launch_that_was_refused(
    gpu: FakeDriver, write: Callable[..., Path], entry: str
) -> None:
    """The call that runs plainly instead, or is made again, gets them: none is left out."""
    path = write("RANDOM")
    for calls_before in (1, 3):  # the capture; a replay
        with cudaexec.load(path, cuda_graph=GRAPHS) as module, cudaexec.load(path) as plain:
            module.manual_seed(5)
            plain.manual_seed(5)
            found = [module.method("random")() for _ in range(calls_before)]
            with gpu.failing(entry, 1, fakes.OUT_OF_MEMORY) as hits:
                if calls_before == 1:
                    found.append(module.method("random")())
                else:
                    with pytest.raises(cudaexec.OutOfMemory):
                        module.method("random")()
            assert hits == [1]
            found += [module.method("random")() for _ in range(3)]
            np.testing.assert_array_equal(found, [plain.method("random")() for _ in found])
