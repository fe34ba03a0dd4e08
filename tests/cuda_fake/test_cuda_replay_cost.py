"""What a replay may not do: allocate in the core, take locks that other Modules take, ask about
pointers, wait, or call more of the driver than one launch and the changes of addresses."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_fake import counting
from cudaexec._core import _testing

TESTS = Path(__file__).parents[1]
START = """
import sys
sys.path.insert(0, {tests!r})
import numpy as np
import cudaexec
from cuda_fake import programs
from cuda_fake.counting import BINDING, CORE, uses
from cuda_fake.fake import FakeDriver, emulate_kernels
from cuda_fake.foreign import Memory
from cudaexec._core import _testing
cuda = _testing.cuda
fake = FakeDriver()
programs.register_kernels(fake)
cuda.use_driver(fake.path)
emulate_kernels()
X = np.arange(4, dtype=np.float32)
module = cudaexec.load({path!r}, cuda_graph=True)

# What a replay may ask of the driver, and how often at most.
MOST = {{"cuGraphLaunch": 1, "cuEventRecord": 1, "cuStreamIsCapturing": 1}}
CONTEXT = {{"cuCtxPushCurrent", "cuCtxPopCurrent"}}

def replays(run, *, changes=0, more=None, before=6):
    for _ in range(before):
        run()
    fake.run_all()
    fake.clear_calls()
    fake.set_log(True)
    run()
    fake.set_log(False)
    most = MOST | {{"cuGraphExecKernelNodeSetParams": changes}} | (more or {{}})
    names = [line.split("(")[0] for line in fake.calls()]
    assert names.count("cuGraphLaunch") == 1, names
    for name in set(names) - CONTEXT:
        assert names.count(name) <= most.get(name, 0), (name, names)
    core, binding = uses(run, CORE, BINDING)
    assert core.allocations == [], "\\n\\n".join(core.allocations)
    fake.run_all()
    return core, binding
"""
END = """
module.close()
fake.run_all()
cuda.use_driver("")
print("done")
"""


@pytest.fixture
def run(write: Callable[..., Path]) -> Callable[[str, str], None]:
    """Runs code in a process of its own, over a program of some models."""
    if not _testing.cuda.image_names():
        pytest.skip("built without nvcc: there is no device code")

    def start(models: str, code: str) -> None:
        path = str(write(*models.split()))
        script = START.format(tests=str(TESTS), path=path)
        script += textwrap.dedent(code).replace("{path!r}", repr(path)) + END
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", script],
            capture_output=True, text=True, timeout=120, check=False, env=counting.environment(),
        )  # fmt: skip
        assert (done.returncode, done.stderr, done.stdout) == (0, "", "done\n"), done.stderr

    return start


def test_the_counter_counts(run: Callable[[str, str], None]) -> None:
    """Calls without a graph allocate, and lock."""
    run(
        "SCALE",
        """
        scale = module.method("scale")
        core, _ = uses(lambda: scale(X), CORE, BINDING)
        assert core.allocations and core.locks
        """,
    )


@pytest.mark.parametrize("model", ["SCALE", "COUNT"])
def test_a_run_of_a_binding(run: Callable[[str, str], None], model: str) -> None:
    """Nothing is allocated, in the binding's own library neither; no address changes."""
    run(
        model,
        f"""
        method = module.method({model.lower()!r})
        x, y = cuda.tensor_on(X), cuda.tensor_on(X)
        binding = method.bind((x,), (y,))
        _, python = replays(binding.run)
        assert python.allocations == [], python.allocations
        del binding, x, y
        """,
    )


def test_a_run_on_the_host(run: Callable[[str, str], None]) -> None:
    """Inputs travel in the launch; the wait is what delivers the outputs."""
    run(
        "SCALE",
        """
        wide = np.zeros(8, np.float32)
        for target in (np.zeros(4, np.float32), wide[::2]):
            x = X.copy()
            binding = module.method("scale").bind((x,), (target,))
            def change():
                x[0] += 1
                binding.run()
            _, python = replays(change, changes=1, more={"cuStreamSynchronize": 1})
            assert python.allocations == [], python.allocations
            del binding
        """,
    )


@pytest.mark.parametrize("model", ["SCALE", "COUNT"])
def test_a_call(run: Callable[[str, str], None], model: str) -> None:
    """The Python object of an output on the GPU is what is left: its cudaexec.Tensor."""
    run(
        model,
        f"""
        method = module.method({model.lower()!r})
        x, other = cuda.tensor_on(X), cuda.tensor_on(X)
        turn = [x, other]
        def call():
            turn.reverse()
            method(turn[0])
        for each in (lambda: method(x), lambda: method(x=x), call):
            _, python = replays(each, changes=2)
            assert len(python.allocations) <= 2, python.allocations
        # In place, for one output address or two that take turns.
        last = []
        def keep():
            last[:] = [method(x)]
        for each in (lambda: method(x), call, keep):
            _, python = replays(each, before=80)
            assert len(python.allocations) <= 2, python.allocations
        [key] = [key for key in module.stats()["methods"][0]["graphs"]["keys"]
                 if "on the host" not in key["inputs"]]
        assert key["in_place"] > 100, key
        for each in (lambda: method(X), lambda: method(x=X)):
            _, python = replays(each, changes=1, more={{"cuStreamSynchronize": 1}})
            assert python.allocations == [], python.allocations
        del x, other, turn, last
        """,
    )


def test_calls_on_streams(run: Callable[[str, str], None]) -> None:
    """A chosen stream is asked for its device, and ordered with the inputs'."""
    run(
        "SCALE",
        """
        context = fake.make("cuDevicePrimaryCtxRetain", 0)
        fake.call("cuCtxPushCurrent", context)
        stream = fake.make("cuStreamCreate", 1)
        method = module.method("scale")
        x = cuda.tensor_on(X)
        more = {"cuStreamGetCtx": 2, "cuEventRecord": 3, "cuStreamWaitEvent": 2,
                "cuStreamIsCapturing": 3}
        # Memory of outputs on a stream that may end is not kept here.
        more |= {"cuMemAllocFromPoolAsync": 1, "cuMemFreeAsync": 1}
        replays(lambda: method.run_on(stream, x), changes=1, more=more)
        y = cuda.tensor_on(X)
        binding = method.bind((x,), (y,))
        _, python = replays(lambda: binding.run(stream), more=more)
        assert python.allocations == [], python.allocations
        fake.run_all()
        module.close()
        del x, y, binding
        fake.call("cuStreamDestroy", stream)
        fake.make("cuCtxPopCurrent")
        fake.call("cuDevicePrimaryCtxRelease", 0)
        """,
    )


def test_random_numbers(run: Callable[[str, str], None]) -> None:
    """Their place in the sequence is an argument of the kernel that draws them."""
    run(
        "RANDOM",
        """
        method = module.method("random")
        y = np.zeros(4, np.int64)
        binding = method.bind((), (y,))
        more = {"cuStreamSynchronize": 1}
        replays(binding.run, changes=1, more=more)
        replays(method, changes=1, more=more)
        del binding
        """,
    )


def test_no_lock_is_shared_by_modules(run: Callable[[str, str], None]) -> None:
    """Each lock that a replay takes belongs to one Module; sessions share those of theirs."""
    run(
        "SCALE COUNT RANDOM",
        """
        other = cudaexec.load({path!r}, cuda_graph=True)
        x, z = cuda.tensor_on(X), cuda.tensor_on(X)
        y = cuda.tensor_on(np.zeros(4, np.float32))
        turn, bindings = [x, z], []
        def locks(loaded):
            found = {}
            def count():
                turn.reverse()
                loaded.method("count")(turn[0])
            bindings.append(loaded.method("scale").bind((x,), (y,)))
            for each in (count, lambda: loaded.method("scale")(turn[0]),
                         lambda: loaded.method("scale")(X), loaded.method("random"),
                         bindings[-1].run):
                for _ in range(6):
                    each()
                fake.run_all()
                core, binding = uses(each, CORE, BINDING)
                found |= core.locks
                assert not binding.locks, binding.locks
            return found
        first, second = locks(module), locks(other)
        assert first and second
        shared = first.keys() & second.keys()
        assert not shared, [first[each] for each in shared]
        assert len(locks(module).keys() & first.keys()) > 0
        other.close()
        del x, y, z, turn, bindings
        """,
    )
