"""GPU programs called from Python: arrays of every kind, streams, weights from the GPU, processes."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudaexec
from cuda_fake import programs
from cuda_fake.fake import DRIVER_DIRECTORY, FakeDriver
from cuda_fake.foreign import CudaArray, CudaProducer, Library, Memory, fetch, waits
from cuda_fake.programs import Code, Method, Once
from cudaexec._core import _testing

cuda = _testing.cuda
TESTS = Path(__file__).parents[1]
X = np.arange(4, dtype=np.float32)


def scaled(x: np.ndarray, w: float = 2, k: float = 0.5) -> list[float]:
    return (x * np.float32(w) + np.float32(k)).tolist()


@pytest.fixture
def gpus(fake: FakeDriver) -> FakeDriver:
    fake.set_devices(2)
    programs.register_kernels(fake)
    return fake


@pytest.fixture
def path(once: Once, tmp_path: Path) -> Path:
    """`forward` computes x * w + k; `count` adds x * w up."""
    methods = [
        Method("forward", "SCALE", [Code(programs.code(once, "SCALE"))]),
        Method("count", "COUNT", [Code(programs.code(once, "COUNT"))]),
    ]
    return programs.write(tmp_path / "program", methods)


@pytest.fixture
def module(gpus: FakeDriver, path: Path) -> Iterator[cudaexec.Module]:
    with cudaexec.load(path) as loaded:
        loaded(X)
        gpus.clear_calls()
        yield loaded
    gc.collect(1)


@pytest.fixture
def streams(gpus: FakeDriver) -> Iterator[list[Any]]:
    made = [cuda.Stream(0) for _ in range(3)]
    yield made
    gc.collect(1)
    Memory.free_all()
    gpus.run_all()
    cuda.wait_and_release_held()
    made.clear()


# ---- calls -------------------------------------------------------------------------------------


def test_every_kind_of_array(streams: list[Any], module: cudaexec.Module, gpus: FakeDriver) -> None:
    library = Library()
    own = library.current[0] = streams[0].handle
    for x, stream in (
        (library.Tensor(X), own),
        (cuda.tensor_on(X, 0, own), own),
        (CudaArray(Memory(X, stream=own)), own),
        (CudaProducer(Memory(X, stream=own)), cuda.thread_stream(0)),
    ):
        gpus.clear_calls()
        y = module(x)
        assert waits(gpus) == []
        assert (type(y), y.device) == (cudaexec.Tensor, "cuda:0")
        entries = y.__cuda_array_interface__
        assert entries["stream"] == stream
        assert fetch(entries["data"][0], X, stream).tolist() == scaled(X)
        del x, y


def test_torch_in_torch_out(
    streams: list[Any], module: cudaexec.Module, monkeypatch: pytest.MonkeyPatch, gpus: FakeDriver
) -> None:
    torch = Library()
    torch.install(monkeypatch)
    own = torch.current[0] = streams[0].handle
    x = torch.Tensor(X)
    y = module(x)
    assert gpus.calls("cuStreamWaitEvent") == []
    assert (type(y), y.device) == (torch.Tensor, (2, 0))
    assert fetch(y.data, X, own).tolist() == scaled(X)
    y = module.forward(x, stream=streams[1].handle)
    assert fetch(y.data, X, own).tolist() == scaled(X)
    host = module(torch.Tensor(X, None))
    assert host.device == (1, 0)


def test_chosen_streams(streams: list[Any], module: cudaexec.Module, gpus: FakeDriver) -> None:
    own, chosen = streams[0].handle, streams[1].handle
    x = CudaArray(Memory(X, stream=own))
    for call in (
        lambda x: module(x, stream=chosen),
        lambda x: module.method("forward").run_on(chosen, x),
    ):
        y = call(x)
        assert y.__cuda_array_interface__["stream"] == chosen
        assert y.tolist() == scaled(X)
    x.memory.free()  # on its own stream, which follows the calls
    cuda.synchronize(0, own)
    assert gpus.misuse() == []
    y = module(X, stream=chosen)
    assert (type(y), y.tolist()) == (np.ndarray, scaled(X))
    other = cuda.Stream(1)
    with pytest.raises(
        cudaexec.DeviceError, match="'forward': stream: .*cuda:0, found one of cuda:1"
    ):
        module(X, stream=other.handle)
    del other


def test_chained_calls(streams: list[Any], module: cudaexec.Module, gpus: FakeDriver) -> None:
    y = cuda.tensor_on(X, 0, streams[0].handle)
    expected = X
    for _ in range(5):
        y = module(y)
        expected = expected * 2 + np.float32(0.5)
    assert gpus.calls("cuStreamWaitEvent") == waits(gpus) == []
    assert y.tolist() == expected.tolist()


def test_state_follows_calls_on_other_streams(streams: list[Any], module: cudaexec.Module) -> None:
    count = module.method("count")
    for k in range(6):
        x = cuda.tensor_on(X, 0, streams[k % 3].handle)
        y = count(x, stream=streams[(k + 1) % 3].handle)
    assert y.tolist() == (X * 12).tolist()
    del x, y


def test_memory_of_another_device(module: cudaexec.Module) -> None:
    for x in (
        cuda.tensor_on(X, 1),
        CudaArray(Memory(X, 1)),
        CudaProducer(Memory(X, 1), device=(2, 1)),
    ):
        with pytest.raises(
            cudaexec.DeviceError, match=r"method 'forward': input 'x': .*cuda:0.* on cuda:1"
        ):
            module(x)
    assert module(X).tolist() == scaled(X)


def test_the_second_device(gpus: FakeDriver, path: Path) -> None:
    with cudaexec.load(path, device="cuda:1") as module:
        y = module(cuda.tensor_on(X, 1))
        assert (y.device, y.tolist()) == ("cuda:1", scaled(X))
        assert y.__dlpack_device__() == (2, 1)
        y = module(CudaProducer(Memory(X, 1), device=(2, 1)))
        assert y.tolist() == scaled(X)
        with pytest.raises(cudaexec.DeviceError, match="'x': .*cuda:1.* on cuda:0"):
            module(cuda.tensor_on(X))
    with pytest.raises(cudaexec.DeviceError, match="cuda:9"):
        cudaexec.load(path, device="cuda:9")


def test_outputs_outlive_the_module(gpus: FakeDriver, path: Path) -> None:
    module = cudaexec.load(path)
    y = module(cuda.tensor_on(X))
    capsule = y.__dlpack__(stream=2)
    module.close()
    with pytest.raises(cudaexec.ClosedError):
        module(X)
    del module
    assert y.tolist() == scaled(X)
    del y, capsule


def test_bytes_in_use(module: cudaexec.Module) -> None:
    before = module.memory_stats()
    assert before["weights_device"] > 0
    y = module(cuda.tensor_on(X))
    assert module.memory_stats()["working_current"] >= before["working_current"] + y.nbytes
    del y
    module.trim()


# ---- weights -----------------------------------------------------------------------------------


def test_weights_from_the_gpu(streams: list[Any], module: cudaexec.Module) -> None:
    library = Library()
    own = library.current[0] = streams[0].handle

    def weight(value: float) -> np.ndarray:
        return np.array([value], np.float32)

    makers: list[Callable[[np.ndarray], Any]] = [
        lambda a: a,
        library.Tensor,
        lambda a: cuda.tensor_on(a, 0, own),
        lambda a: CudaArray(Memory(a, stream=own)),
        lambda a: CudaProducer(Memory(a, stream=own)),
    ]
    for value, make in enumerate(makers, 3):
        given = make(weight(value))
        module.load_weights({"w": given})
        del given
        assert module(X).tolist() == scaled(X, w=value)
        assert module.state_dict()["w"].to_host().tolist() == [value]
    assert CudaProducer.outstanding == []
    for wrong in (cuda.tensor_on(weight(9), 1), CudaArray(Memory(weight(9), 1))):
        with pytest.raises(cudaexec.DeviceError, match=r"weight 'w': .*cuda:1"):
            module.load_weights({"w": wrong})
    with pytest.raises(cudaexec.ShapeError, match="weight 'w'"):
        module.load_weights({"w": cuda.tensor_on(X)})
    assert module(X).tolist() == scaled(X, w=7)
    assert module.method("count")(X).tolist() == (X * 7).tolist()


# ---- processes ---------------------------------------------------------------------------------

CHILD = """
import os, signal, sys, threading, time
sys.path.insert(0, {tests!r})
import numpy as np
import cudaexec
from cuda_fake.fake import FakeDriver
cuda = cudaexec._core._testing.cuda
fake = FakeDriver()
fake.set_log(False)
cuda.use_driver(fake.path)
# Kernels that do nothing: a Python function would end the process when it runs during exit.
fake.register_kernel("fake_scale", [8, 8, 8, 8, 4])
fake.register_kernel("fake_add", [8, 8, 8])
signal.alarm(40)
module = cudaexec.load({path!r})
x = np.ones(4, np.float32)
"""


def child(path: Path, code: str, *flags: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", *flags, "-c",
         CHILD.format(tests=str(TESTS), path=str(path)) + code],
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_a_module_in_a_forked_child(path: Path) -> None:
    child(
        path,
        """
kept = module(cuda.tensor_on(x))
module.method("count")(x)
pid = os.fork()
if pid == 0:
    signal.alarm(10)
    for use in (lambda: module(x), lambda: module(kept), kept.to_host, module.state_dict, module.memory_stats,
                lambda: module.load_weights({"w": np.ones(1, np.float32)}),
                lambda: cudaexec.load(PATH)):
        try:
            use()
            sys.exit(3)
        except cudaexec.DeviceError as error:
            assert "forked" in str(error), error
    module.trim(), module.stats()
    module.close()
    del kept, module
    assert cudaexec._core._testing.cleanup_reports()[1] == 0
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert module(x).shape == (4,)
""".replace("PATH", repr(str(path))),
    )


def test_exit_with_live_modules(path: Path) -> None:
    child(path, "kept = [module(cuda.tensor_on(x)), module.method('count'), module(x)]\n")


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "module.close()", "del module"])
def test_exit_under_daemon_threads(path: Path, end: str) -> None:
    code = f"""
def work(method, kept):
    while True:
        try:
            method(x)
            method(kept)
        except cudaexec.ClosedError:
            return
for name in ("forward", "count", "forward"):
    threading.Thread(target=work, args=(module.method(name), cuda.tensor_on(x)), daemon=True).start()
time.sleep(0.1)
{end}
"""
    for _ in range(3):
        child(path, code)


# ---- the command line --------------------------------------------------------------------------


def inspect(path: Path, *flags: str, **env: str) -> str:
    pytest.importorskip("typer")
    done = subprocess.run(
        [sys.executable, "-m", "cudaexec", "inspect", str(path), *flags],
        capture_output=True, text=True, check=False, timeout=60,
        env={"COLUMNS": "200", "PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path), **env},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_inspect_shows_what_would_run_here(once: Once, tmp_path: Path) -> None:
    image = programs.code(once, "SCALE")
    other = programs.code(once, "SCALE", unloads=True)
    variants = [Code(image), Code(other, sm=80, ptx=80)]
    path = programs.write(tmp_path / "many", [Method("forward", "SCALE", variants)])
    shown = inspect(path, LD_LIBRARY_PATH=str(DRIVER_DIRECTORY))
    assert "code: cuda sm_90; calls out to: none\n    runs on cuda:0 (Fake GPU 0, sm_90)\n" in shown
    assert "code: cuda sm_80 with PTX for compute_80;" in shown
    assert "    not used on cuda:0 (Fake GPU 0, sm_90): cuda sm_90 fits better\n" in shown
    found = json.loads(inspect(path, "--json", LD_LIBRARY_PATH=str(DRIVER_DIRECTORY)))
    first, second = found["methods"][0]["variants"]
    assert (first["text"], first["runs_on"]) == ("cuda sm_90", ["cuda:0 (Fake GPU 0, sm_90)"])
    assert (second["sm"], second["ptx"], second["runs_on"]) == (80, 80, [])


def test_inspect_without_a_driver(path: Path) -> None:
    if cuda.problem() is None:
        pytest.skip("this machine has a driver")
    shown = inspect(path)
    assert "code: cuda sm_90" in shown
    assert "    not used on cuda: no NVIDIA driver" in shown
