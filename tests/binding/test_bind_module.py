"""Module and load() over a real program: paths, lifetime, state, options."""

import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudaexec

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Net(torch.nn.Module):
    """One weight, one mutable buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Any, scale: Any) -> dict[str, Any]:
        self.count += 1
        return {"y": self.linear(x) * scale, "count": self.count.clone()}


X = np.arange(6, dtype=np.float32).reshape(2, 3)
SCALE = np.array(2.0, np.float32)


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def program(once: Callable[..., Path], net: Net) -> Path:
    def make(directory: Path) -> None:
        cudaexec.export(
            net, (torch.zeros(2, 3), torch.ones(())), path=directory / "net.pte", target="cpu"
        )

    return once("bind_module", make) / "net.pte"


def expected(net: Net) -> np.ndarray:
    with torch.no_grad():
        return (net.linear(torch.from_numpy(X)) * 2).numpy()


def check(module: cudaexec.Module, net: Net, count: int = 1) -> None:
    got = module(X, SCALE)
    np.testing.assert_allclose(got["y"], expected(net), rtol=1e-5)
    assert got["count"] == count


def test_every_kind_of_path(program: Path, net: Net, tmp_path: Path) -> None:
    odd = tmp_path / "模型 é 'q' #1"
    odd.mkdir()
    (odd / "net.pte").write_bytes(program.read_bytes())
    (odd / "net.ptd").write_bytes(program.with_suffix(".ptd").read_bytes())
    raw = os.fsencode(tmp_path) + b"/\xff\xfe"
    Path(os.fsdecode(raw)).mkdir()
    (Path(os.fsdecode(raw)) / "net.pte").symlink_to(odd / "net.pte")
    (Path(os.fsdecode(raw)) / "net.ptd").symlink_to(odd / "net.ptd")
    pte = odd / "net.pte"
    for path in (pte, str(pte), os.fsencode(pte), raw + b"/net.pte"):
        with cudaexec.load(path) as module:
            check(module, net)
    with cudaexec.load(pte, odd / "net.ptd") as module:
        check(module, net)


def test_relative_paths(program: Path, net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(program.parent.parent)
    module = cudaexec.load(Path(program.parent.name) / program.name)
    monkeypatch.chdir("/")
    check(module, net)
    module.close()


@pytest.mark.parametrize("path", ["", "a\0b", b"", b"a\0b"])
def test_paths_that_are_none(path: Any) -> None:
    with pytest.raises(cudaexec.InputError, match="pte"):
        cudaexec.load(path)
    with pytest.raises(TypeError):
        cudaexec.load(3)  # type: ignore[arg-type]


def test_options(program: Path, net: Net) -> None:
    with cudaexec.load(program, options=cudaexec.LoadOptions(threads=1, verify=False)) as module:
        check(module, net)
    with cudaexec.load(program, device="cpu") as module:
        check(module, net)
    with pytest.raises(cudaexec.NotSupported, match="cuda_graph"):
        cudaexec.load(program, cuda_graph=True)
    with pytest.raises(TypeError):
        cudaexec.LoadOptions(thread=1)  # type: ignore[call-arg]
    for wrong in ({"threads": 0}, {"memory_limit": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            cudaexec.LoadOptions(**wrong)
    with pytest.raises(cudaexec.Error, match="isa|x86-64-v9"):
        cudaexec.load(program, options=cudaexec.LoadOptions(isa="x86-64-v9"))
    small = cudaexec.LoadOptions(memory_limit=8)
    with cudaexec.load(program, options=small) as module, pytest.raises(MemoryError):
        module(X, SCALE)


def test_calls_in_every_spelling(program: Path, net: Net) -> None:
    module = cudaexec.load(program)
    method = module.method("forward")
    calls: list[Callable[[], Any]] = [
        lambda: module(X, SCALE),
        lambda: module.forward(X, SCALE),
        lambda: module(X, scale=SCALE),
        lambda: module(scale=SCALE, x=X),
        lambda: module.forward(scale=SCALE, x=X),
        lambda: module([X, SCALE]),
        lambda: module({"scale": 2, "x": X}),
        lambda: module(X, 2.0),
        lambda: method(X, SCALE),
        lambda: method(scale=2.0, x=X),
    ]
    for i, call in enumerate(calls):
        got = call()
        np.testing.assert_allclose(got["y"], expected(net), rtol=1e-5)
        assert got["count"] == i + 1
    for got in (module(torch.from_numpy(X), 2), module(X, torch.tensor(2.0))):
        assert isinstance(got["y"], torch.Tensor)
    assert isinstance(module(memoryview(X), 2)["y"], cudaexec.Tensor)
    assert module.method("forward") is method
    assert module.methods == ["forward"]
    assert "x: float32[2, 3]" in repr(method)
    with pytest.raises(cudaexec.InputError, match="forward"):
        module.method("backward")
    assert str(inspect.signature(module.forward)) == "(*args, **kwargs)"
    module.close()


def test_wrong_inputs_name_everything(program: Path) -> None:
    with cudaexec.load(program) as module:
        for wrong, error, words in [
            (X.astype(np.float64), cudaexec.DtypeError, ["'x'", "float32[2, 3]", "float64"]),
            (X.astype(np.int64), cudaexec.DtypeError, ["'x'", "float32", "int64"]),
            (X[:, :2], cudaexec.ShapeError, ["'x'", "float32[2, 3]", "[2, 2]"]),
            (X[None], cudaexec.ShapeError, ["'x'", "rank 3"]),
            (X.view(np.uint8), cudaexec.DtypeError, ["'x'", "uint8"]),
        ]:
            with pytest.raises(error) as caught:
                module(wrong, SCALE)
            for word in ["'forward'", *words]:
                assert word in str(caught.value)
        assert module(X, SCALE)["count"] == 1


def test_the_callers_memory_is_never_written(program: Path) -> None:
    frozen = X.copy()
    frozen.flags.writeable = False
    with cudaexec.load(program) as module:
        module(frozen, SCALE)
        module(np.asfortranarray(X), SCALE)
        assert (frozen == X).all()


def test_state_and_weights(program: Path, net: Net) -> None:
    with cudaexec.load(program) as module:
        module(X, SCALE)
        state = module.state_dict()
        assert set(state) == {"linear.weight", "linear.bias", "count"}
        assert state["count"].item() == 1
        np.testing.assert_array_equal(
            state["linear.weight"].numpy(), net.linear.weight.detach().numpy()
        )
        weight = np.arange(6, dtype=np.float32).reshape(3, 2).T
        module.load_weights({"linear.weight": weight, "linear.bias": torch.zeros(2)})
        got = module(X, SCALE)["y"]
        np.testing.assert_allclose(got, X @ weight.T * 2, rtol=1e-5)
        for wrong, error in [
            ({"linear.bias": np.zeros(3, np.float32)}, cudaexec.ShapeError),
            ({"linear.bias": np.zeros(2)}, cudaexec.DtypeError),
            ({"linear.bias": "text"}, cudaexec.InputError),
            ({"nope": np.zeros(2, np.float32)}, cudaexec.WeightsError),
        ]:
            with pytest.raises(error, match=next(iter(wrong))):
                module.load_weights(wrong)
        np.testing.assert_array_equal(module(X, SCALE)["y"], got)
        module.load_weights(net.state_dict())
        np.testing.assert_allclose(module(X, SCALE)["y"], expected(net), rtol=1e-5)
        again = module.state_dict()
        module.load_weights(state)
        assert module.state_dict()["count"].item() == 1
        assert again["count"].item() > 0


def test_statistics(program: Path) -> None:
    with cudaexec.load(program) as module:
        kept = module(X, SCALE)
        stats = module.memory_stats()
        assert stats["working_current"] >= kept["y"].nbytes
        assert stats["working_peak"] >= stats["working_current"]
        assert module.trim() >= 0
        module.manual_seed(2**64 - 1)
        with pytest.raises(TypeError):
            module.manual_seed(-1)
        described = module.stats()
        assert described["methods"][0]["name"] == "forward"
        assert repr(module) == "<cudaexec.Module [forward]>"


def test_close(program: Path, net: Net) -> None:
    module = cudaexec.load(program)
    method = module.method("forward")
    outputs = [module(X, SCALE)["y"], module(torch.from_numpy(X), SCALE)["y"]]
    ours = module(memoryview(X), 2)["y"]
    assert not module.closed
    module.close()
    module.close()
    assert module.closed
    assert "closed" in repr(module)
    for call in (
        lambda: module(X, SCALE),
        lambda: module.forward(X, SCALE),
        lambda: method(X, SCALE),
        module.state_dict,
        lambda: module.load_weights({}),
        lambda: module.manual_seed(1),
        lambda: module.method("forward")(X, SCALE),
    ):
        with pytest.raises(cudaexec.ClosedError):
            call()
    np.testing.assert_allclose(outputs[0], expected(net), rtol=1e-5)
    np.testing.assert_allclose(outputs[1].numpy(), expected(net), rtol=1e-5)
    np.testing.assert_allclose(ours.numpy(), expected(net), rtol=1e-5)


def test_a_method_and_an_output_keep_what_they_need(program: Path, net: Net) -> None:
    def method() -> cudaexec.Method:
        return cudaexec.load(program).method("forward")

    got = method()(X, SCALE)["y"]
    np.testing.assert_allclose(got, expected(net), rtol=1e-5)


def test_close_waits_for_calls(program: Path) -> None:
    module = cudaexec.load(program)
    seen: list[BaseException] = []
    started = threading.Barrier(5)

    def work() -> None:
        started.wait()
        try:
            while True:
                module(X, SCALE)
        except cudaexec.ClosedError as error:
            seen.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    started.wait()
    module(X, SCALE)
    module.close()
    for thread in threads:
        thread.join(timeout=60)
    assert len(seen) == 4


def test_without_torch_and_numpy(program: Path) -> None:
    code = (
        "import sys, array, cudaexec\n"
        "module = cudaexec.load(sys.argv[1])\n"
        "got = module(memoryview(bytes(24)).cast('f', (2, 3)), 2.0)\n"
        "print(got['y'].shape, got['count'].item(), 'numpy' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(program)], check=True, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("(2, 2) 1 False False\n", "")


def test_exit_with_a_module_in_use(program: Path) -> None:
    code = (
        "import sys, threading, numpy as np, cudaexec\n"
        "module = cudaexec.load(sys.argv[1])\n"
        "x = np.zeros((2, 3), np.float32)\n"
        "def work():\n"
        "    while True: module(x, 2.0)\n"
        "for _ in range(3): threading.Thread(target=work, daemon=True).start()\n"
        "for _ in range(20): module(x, 2.0)\n"
    )
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", code, str(program)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_wrong_arguments_of_a_module(program: Path) -> None:
    with cudaexec.load(program) as module:
        for call, message in (
            (lambda: module.method(3), "Module.method: name: expected a str, got int"),
            (lambda: module.manual_seed("x"), "seed: expected an int from 0 to .*, got str"),
            (lambda: module.manual_seed(-1), "seed: expected an int from 0 to .*, got -1"),
            (lambda: module.manual_seed(2**64), "seed: expected an int from 0 to .*, got 1844"),
            (lambda: module.load_weights(3), "weights: expected a dict of names .*, got int"),
        ):
            with pytest.raises(TypeError, match=message):
                call()
        with pytest.raises(cudaexec.InputError, match=r"no method 'forwrd'.*did you mean 'forw"):
            module.method("forwrd")
        with pytest.raises(cudaexec.InputError, match=r"it has \[forward\]$"):
            module.method("decode")
        module.manual_seed(np.int64(3))
        for position in (1.5, "a", None, [1]):
            with pytest.raises(TypeError, match=r"Module\.rewind: position: expected an int.*got"):
                module.rewind(position)
        with pytest.raises(cudaexec.InputError, match=f"rewind: position: .* got {2**70}"):
            module.rewind(2**70)
        for call in (module.method, lambda: module.method("a", "b")):
            with pytest.raises(TypeError, match=r"Module\.method: expected \(name: str\), got \("):
                call()
        for name in ("session", "close", "trim", "stats", "reset", "state_dict"):
            with pytest.raises(TypeError, match=rf"Module\.{name}: expected \(\), got \(int\)"):
                getattr(module, name)(3)
        with pytest.raises(cudaexec.DeviceError, match="load: device is ''"):
            cudaexec.load(program, device="")
        assert module.method("forward").name == "forward"
    with pytest.raises(cudaexec.ClosedError):  # also for a method that was used before
        module.method("forward")


def test_numbers_that_a_scalar_does_not_take(program: Path) -> None:
    with cudaexec.load(program) as module:
        with pytest.raises(cudaexec.DtypeError, match="Python bool; .* must be a float or an int"):
            module(X, True)
        with pytest.raises(cudaexec.InputError, match="an int cannot be used as a tensor"):
            module.load_weights({"linear.bias": 3})


def test_binding(program: Path, net: Net) -> None:
    """Runs read the inputs as they are and write the outputs, of numpy and torch, on the CPU."""
    x, scale = X.copy(), torch.tensor(2.0)
    wide, count = np.zeros((2, 4), np.float32), torch.zeros((), dtype=torch.int64)
    with cudaexec.load(program) as module:
        method = module.method("forward")
        binding = method.bind((x, scale), (wide[:, ::2], count))
        for i in range(3):
            x[:] = X + i
            scale.fill_(i)
            binding.run()
            with torch.no_grad():
                wanted = (net.linear(torch.from_numpy(x)) * i).numpy()
            np.testing.assert_allclose(wide[:, ::2], wanted, rtol=1e-5)
            assert not wide[:, 1::2].any()
            assert int(count) == i + 1
        method.warmup(x, scale)
        assert method(x, scale)["count"] == 5
        with pytest.raises(cudaexec.InputError, match="shares memory"):
            method.bind((x, scale), (x[:, :2], count))
        with pytest.raises(cudaexec.InputError, match="found 1"):
            method.bind((x, scale), (wide[:, ::2],))
        for wrong, error in (
            (wide.astype(">f4"), cudaexec.DtypeError),
            (torch._neg_view(torch.zeros(2, 2)), cudaexec.InputError),
            (torch.zeros(2, 2, dtype=torch.complex64), cudaexec.DtypeError),
            (torch.zeros(2, 2, device="meta"), cudaexec.InputError),
            (memoryview(wide), cudaexec.InputError),
        ):
            with pytest.raises(error, match="method 'forward': bind: output 0: "):
                method.bind((x, scale), (wrong, count))
    with pytest.raises(cudaexec.ClosedError):
        binding.run()
