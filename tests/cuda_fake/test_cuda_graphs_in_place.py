"""Calls that keep coming back to the same memory: graphs that read and write there, without copies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cudaexec
from cuda_fake.fake import FakeDriver
from cuda_fake.graph_calls import X, host, only_key
from cudaexec._core import _testing

cuda = _testing.cuda
NEEDED = 16  # replays on the same memory before the first capture
GRAPHS = cudaexec.GraphOptions(warmup=1)


def refill(emulated: FakeDriver, tensor: cudaexec.Tensor, array: np.ndarray) -> None:
    address = tensor.__cuda_array_interface__["data"][0]
    cuda.copy(0, address, 0, array.ctypes.data, -1, array.nbytes, 1)
    emulated.run_all()


def test_no_copy_is_left(emulated: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("SCALE"), cuda_graph=GRAPHS) as module:
        scale, x = module.method("scale"), cuda.tensor_on(X)
        for _ in range(2 + NEEDED):
            scale(x)
        assert only_key(module)["in_place"] == 0
        for i in range(5):
            refill(emulated, x, X + i)
            emulated.clear_calls()
            copies, kernels = (
                emulated.launches("cudaexec_batch_copy"),
                emulated.launches("fake_scale"),
            )
            y = scale(x)
            emulated.run_all()
            assert emulated.launches("cudaexec_batch_copy") == copies
            assert emulated.launches("fake_scale") == kernels + 1
            assert len(emulated.calls("cuGraphLaunch")) == 1
            assert emulated.calls("cuGraphExecKernelNodeSetParams") == []
            np.testing.assert_array_equal(host(y), (X + i) * 2 + 0.5)
            del y
        found = only_key(module)
        assert (found["captures"], found["replays"], found["in_place"]) == (1, NEEDED + 5, 5)
        # The same memory with something else in the way of the output: copied, and right.
        kept = [scale(x) for _ in range(3)]
        for y in kept:
            np.testing.assert_array_equal(host(y), (X + 4) * 2 + 0.5)
        assert only_key(module)["in_place"] == 6
        del kept, y, x


def test_outputs_that_take_turns(emulated: FakeDriver, write: Callable[..., Path]) -> None:
    """`y = scale(x)` in a loop: the new output is made while the old one is alive."""
    with cudaexec.load(write("SCALE"), cuda_graph=GRAPHS) as module:
        scale = module.method("scale")
        inputs = [cuda.tensor_on(X), cuda.tensor_on(X + 1)]
        y = None
        for i in range(2 + 2 * NEEDED + 20):
            x = inputs[i % 2]
            y = scale(x)
        assert only_key(module)["in_place"] == 20
        for i in range(4):
            refill(emulated, inputs[i % 2], X * i)
            before = host(y).copy()
            last, y = y, scale(inputs[i % 2])
            np.testing.assert_array_equal(host(y), X * i * 2 + 0.5)
            np.testing.assert_array_equal(host(last), before)
            del last
        del y, x, inputs


@pytest.mark.parametrize("what", ["", "temporary", "same", "input", "cpu"])
def test_outputs(
    emulated: FakeDriver, write: Callable[..., Path], vary: Callable[[str], None], what: str
) -> None:
    """Values, strides and shared memory are those of calls without graphs."""
    vary(what)
    path = write("VARY")
    with cudaexec.load(path, cuda_graph=GRAPHS) as module, cudaexec.load(path) as plain:
        x = cuda.tensor_on(X)
        for i in range(2 + 2 * NEEDED + 4):  # two blocks may change places from call to call
            refill(emulated, x, X + i)
            found, wanted = module.method("vary")(x), plain.method("vary")(x)
            layouts = [[(t.shape, t.strides, t.device) for t in pair] for pair in (found, wanted)]
            assert layouts[0] == layouts[1]
            places = [t.__cuda_array_interface__["data"][0] for t in found if t.device != "cpu"]
            assert x.__cuda_array_interface__["data"][0] not in places
            for left, right in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(host(left), host(right))
            del found, wanted, left, right
        np.testing.assert_array_equal(host(x), X + i)
        assert only_key(module)["phase"] == "replay"
        assert only_key(module)["in_place"] >= 4
        del x


@pytest.mark.parametrize("what", ["strides", "shape", "layout"])
def test_outputs_that_change_at_the_capture_in_place(
    emulated: FakeDriver, write: Callable[..., Path], vary: Callable[[str], None], what: str
) -> None:
    """Code that returns another layout then is not taken: outputs keep that of the graph."""
    vary(what)
    layouts = set()
    for warmup in (1, 2):  # the graph's layout is either of the two
        options = cudaexec.GraphOptions(warmup=warmup)
        with cudaexec.load(write("VARY"), cuda_graph=options) as module:
            x = cuda.tensor_on(X)
            for i in range(3 + NEEDED + 4):
                refill(emulated, x, X + i)
                _, y = module.method("vary")(x)
                expected = (X + i) * 2
                if what != "layout":
                    expected = expected[1:][:: y.strides[0]]
                expected = expected[: y.shape[0]]
                np.testing.assert_array_equal(host(y), expected)
                if i > warmup:
                    layouts.add((warmup, y.shape, y.strides))
                del y, _
            assert only_key(module)["phase"] == "replay"
            del x
    assert len(layouts) == 2


def test_state_changes_once_a_call(emulated: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("COUNT"), cuda_graph=GRAPHS) as module:
        count, x = module.method("count"), cuda.tensor_on(X)
        session = module.session()
        for i in range(1, 2 + NEEDED + 6):
            y = count(x)
            np.testing.assert_array_equal(host(y), X * i * 2)
            del y
        assert only_key(module)["in_place"] == 5
        y = session.method("count")(x)
        np.testing.assert_array_equal(host(y), X * 2)
        module.session().method("count")(x)
        del y, x


def test_memory_that_keeps_changing(emulated: FakeDriver, write: Callable[..., Path]) -> None:
    """Each capture makes the next one dearer, so that most calls are replays; graphs do not pile up."""
    with cudaexec.load(write("SCALE"), cuda_graph=GRAPHS) as module:
        scale = module.method("scale")
        blocks = [cuda.tensor_on(X + i) for i in range(12)]
        scale(blocks[0])
        scale(blocks[0])
        emulated.clear_calls()
        for _ in range(2):
            for i, x in enumerate(blocks):
                for _ in range(40):
                    y = scale(x)
                np.testing.assert_array_equal(host(y), (X + i) * 2 + 0.5)
                del y
        begun = len(emulated.calls("cuStreamBeginCapture"))
        assert (
            0 < begun <= 2 * (4 + 3)
        )  # four; the fifth, after 32 calls, makes the next ones dearer
        assert emulated.live()["graph_execs"] <= 5
        for _ in range(3000):
            scale(blocks[0])
        assert len(emulated.calls("cuStreamBeginCapture")) == begun + 2
        in_place = only_key(module)["in_place"]
        for _ in range(3):  # none of these calls has been there for long
            for x in blocks:
                scale(x)
        assert only_key(module)["in_place"] <= in_place + 1
        assert only_key(module)["captures"] == 1
        del x, blocks
    assert {"graphs", "graph_execs", "pool_blocks"} & {
        k for k, n in emulated.live().items() if n
    } == set()


def test_they_do_not_keep_the_memory(emulated: FakeDriver, write: Callable[..., Path]) -> None:
    """Inputs go when their owners let go."""
    with cudaexec.load(write("SCALE"), cuda_graph=GRAPHS) as module:
        x = cuda.tensor_on(X)
        for _ in range(2 + NEEDED + 2):
            module.method("scale")(x)
        assert only_key(module)["in_place"] == 2
        blocks = emulated.live()["pool_blocks"]
        del x
        emulated.run_all()
        assert emulated.live()["pool_blocks"] == blocks - 1
        other = cuda.tensor_on(X + 1)
        np.testing.assert_array_equal(host(module.method("scale")(other)), (X + 1) * 2 + 0.5)
        del other


def test_outputs_that_become_inputs(emulated: FakeDriver, write: Callable[..., Path]) -> None:
    """`x = scale(x)` in a loop: two blocks change places, and each is read and written there."""
    with cudaexec.load(write("SCALE"), cuda_graph=GRAPHS) as module:
        module.load_weights({"w": np.full(1, 0.5, np.float32)})
        scale = module.method("scale")
        x, expected = scale(cuda.tensor_on(X)), X / 2 + 0.5
        for _ in range(4 + 2 * NEEDED + 20):
            x, expected = scale(x), expected / 2 + np.float32(0.5)
        np.testing.assert_array_equal(host(x), expected)
        assert only_key(module)["in_place"] >= 20
        del x


@pytest.mark.parametrize("end", ["trim", "load_weights", "close", "evict"])
def test_they_go_with_their_graph(
    emulated: FakeDriver, write: Callable[..., Path], end: str
) -> None:
    options = cudaexec.GraphOptions(warmup=1, max_graphs=1)
    module = cudaexec.load(write("SCALE"), cuda_graph=options)
    scale, x = module.method("scale"), cuda.tensor_on(X)
    for _ in range(2 + NEEDED + 2):
        scale(x)
    assert only_key(module)["in_place"] == 2
    assert emulated.live()["graph_execs"] == 2
    if end == "trim":
        module.trim()
    elif end == "load_weights":
        module.load_weights({"w": np.full(1, 3, np.float32)})
    elif end == "evict":
        scale(X)
    else:
        module.close()
    assert emulated.live().get("graph_execs", 0) == 0
    if end in ("trim", "load_weights"):
        for _ in range(2 + NEEDED + 2):
            y = scale(x)
            np.testing.assert_array_equal(host(y), X * (3 if end == "load_weights" else 2) + 0.5)
            del y
        assert emulated.live()["graph_execs"] == 2
    module.close()
    del x


def test_calls_that_stay_as_they_are(
    emulated: FakeDriver, write: Callable[..., Path], vary: Callable[[str], None]
) -> None:
    """Not asked for; from the host; and a capture in place that fails, once."""
    off = cudaexec.GraphOptions(warmup=1, in_place=False)
    with cudaexec.load(write("SCALE"), cuda_graph=off) as module:
        x = cuda.tensor_on(X)
        for _ in range(2 + NEEDED + 4):
            module.method("scale")(x)
        assert only_key(module)["in_place"] == 0
    with cudaexec.load(write("SCALE"), cuda_graph=GRAPHS) as module:
        for _ in range(2 + NEEDED + 4):
            module.method("scale")(X)
        assert only_key(module)["in_place"] == 0
    vary("")
    with cudaexec.load(write("VARY"), cuda_graph=GRAPHS) as module:
        for _ in range(2 + NEEDED):
            module.method("vary")(x)
        vary("fail")
        emulated.clear_calls()
        for _ in range(4 * NEEDED):
            y, _ = module.method("vary")(x)
        np.testing.assert_array_equal(host(y), X * 2)
        assert len(emulated.calls("cuStreamBeginCapture")) == 1
        found = only_key(module)
        assert (found["phase"], found["in_place"]) == ("replay", 0)
        del x, y, _
    with pytest.raises(TypeError, match=r"GraphOptions\.in_place: expected a bool, got int"):
        cudaexec.GraphOptions(in_place=1)  # type: ignore[arg-type]


def test_random_numbers_follow_the_seed(emulated: FakeDriver, write: Callable[..., Path]) -> None:
    """They have no input on the GPU, so they keep their copies; the numbers are those of plain calls."""
    path = write("RANDOM")
    with cudaexec.load(path, cuda_graph=GRAPHS) as module, cudaexec.load(path) as plain:
        module.manual_seed(5)
        plain.manual_seed(5)
        for _ in range(2 + NEEDED + 4):
            np.testing.assert_array_equal(module.method("random")(), plain.method("random")())
