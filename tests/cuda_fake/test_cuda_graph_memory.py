"""Calls under a memory limit: graphs go before a call fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cudaexec
from cuda_fake import programs
from cuda_fake.fake import FakeDriver
from cuda_fake.graph_calls import X, graphs, host, on_gpu, phase
from cuda_fake.programs import Code, Method, Once

GRAPHS = cudaexec.GraphOptions(warmup=1)
SLAB = 256 << 10  # what the graphs of one container hold at least
ROOM = 4 << 10  # 256 outputs


def load(path: Path, limit: int, *, graphs: bool = True) -> cudaexec.Module:
    options = cudaexec.LoadOptions(memory_limit=limit)
    return cudaexec.load(path, cuda_graph=GRAPHS if graphs else False, options=options)


def keep_outputs(module: cudaexec.Module, method: str, count: int) -> list[cudaexec.Tensor]:
    x = on_gpu(X)
    return [module.method(method)(x) for _ in range(count)]


@pytest.mark.parametrize("with_graphs", [True, False])
def test_outputs_that_stay(
    emulated: FakeDriver, write: Callable[..., Path], with_graphs: bool
) -> None:
    """As many as without graphs: the graph gives way."""
    with load(write("SCALE"), SLAB + ROOM, graphs=with_graphs) as module:
        kept = keep_outputs(module, "scale", 300)
        for y in kept:
            np.testing.assert_array_equal(host(y), X * 2 + 0.5)
        del y
        with pytest.raises(cudaexec.OutOfMemory, match=str(SLAB + ROOM)):
            kept += keep_outputs(module, "scale", 100_000)
        del kept[:]
        kept = keep_outputs(module, "scale", 3)
        np.testing.assert_array_equal(host(kept[-1]), X * 2 + 0.5)
        del kept


def test_graphs_of_other_methods_and_sessions(
    emulated: FakeDriver, write: Callable[..., Path]
) -> None:
    """Those of idle containers go; a method gets one again after more calls, each time more."""
    with load(write("SCALE", "COUNT"), SLAB + ROOM) as module:
        session = module.session()
        total = np.zeros((2, 4), np.float32)
        for turn in range(3):
            for _ in range(40):
                y = module.method("scale")(on_gpu(X))
                np.testing.assert_array_equal(host(y), X * 2 + 0.5)
                del y
            # One slab is all there is room for.
            assert phase(module, "scale") == "replay", turn
            assert module.memory_stats()["working_current"] <= SLAB + ROOM
            for i, holder in enumerate((module, session)):
                for _ in range(40):
                    total[i] += X
                    y = holder.method("count")(on_gpu(X))
                    np.testing.assert_array_equal(host(y), total[i] * 2)
                    del y
            assert phase(module, "scale") == "warmup", turn
            phases = [key["phase"] for key in graphs(module, "count")["keys"]]
            assert sorted(phases) == ["replay", "warmup"]
        del session
        # By turns: calls soon stop to take each other's graphs.
        emulated.clear_calls()
        for _ in range(300):
            module.method("scale")(on_gpu(X))
            module.method("count")(on_gpu(X))
        assert len(emulated.calls("cuGraphInstantiateWithFlags")) < 15


def test_graphs_of_other_signatures(emulated: FakeDriver, open_size: Callable[..., Path]) -> None:
    """In the container of the call itself, whose other graphs go first."""
    with load(open_size("SCALE"), SLAB + ROOM) as module:
        scale = module.method("scale")
        for size in (4, 8):
            x = on_gpu(np.ones(size, np.float32))
            for _ in range(4):
                scale(x)
        kept = []
        x = on_gpu(np.ones(4, np.float32))
        for _ in range(300):
            kept.append(scale(x))
        for y in kept:
            np.testing.assert_array_equal(host(y), np.full(4, 2.5))
        assert len(kept) == 300
        found = graphs(module, "scale")["keys"]
        assert [key["nbytes"] for key in found] == [0, 0], found
        del kept, x, y


def test_what_can_never_fit_costs_no_graph(
    emulated: FakeDriver, once: Once, tmp_path: Path
) -> None:
    code = [Code(programs.code(once, "SCALE"))]
    methods = [Method("small", "SCALE", code, 4), Method("large", "SCALE", code, 100_000)]
    with load(programs.write(tmp_path / "sizes", methods), SLAB + ROOM) as module:
        for _ in range(4):
            module.method("small")(on_gpu(X))
        large = on_gpu(np.zeros(100_000, np.float32))
        for _ in range(3):
            with pytest.raises(cudaexec.OutOfMemory, match="400000"):
                module.method("large")(large)
        assert phase(module, "small") == "replay"
        del large


@pytest.mark.slow
def test_threads_take_turns(emulated: FakeDriver, write: Callable[..., Path]) -> None:
    """Calls in flight keep their graphs; nobody waits for another's call, and all results are right."""
    emulated.set_log(False)
    with load(write("SCALE", "COUNT"), 2 * SLAB + ROOM) as module:
        sessions = [module.session() for _ in range(2)]
        wrong: list[object] = []

        def scale(number: int) -> None:
            for i in range(40):
                array = X + 100 * number + i
                y = module.method("scale")(on_gpu(array))
                if not np.array_equal(host(y), array * 2 + 0.5):
                    wrong.append((number, i))

        def count(number: int) -> None:
            for i in range(40):
                y = sessions[number].method("count")(on_gpu(X))
                if not np.array_equal(host(y), X * 2 * (i + 1)):
                    wrong.append((number, i))

        def guarded(work: Callable[[int], None], number: int) -> None:
            try:
                work(number)
            except cudaexec.OutOfMemory:
                pass  # four calls at once may need more than there is
            except BaseException as error:
                wrong.append(error)

        threads = [
            threading.Thread(target=guarded, args=(work, n))
            for work in (scale, count)
            for n in (0, 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        for _ in range(3):
            y = module.method("scale")(on_gpu(X))
            np.testing.assert_array_equal(host(y), X * 2 + 0.5)
        del y
        sessions.clear()
    emulated.set_log(True)
