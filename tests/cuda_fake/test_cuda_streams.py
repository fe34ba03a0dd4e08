"""`stream=` of calls: what names a stream, whose device it is, and inputs of that name."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cudaexec
from binding.echo_methods import LEAF, arguments, echo, manifest, tensor
from cuda_fake.fake import FakeDriver
from cudaexec._core import _testing

cuda = _testing.cuda
A = np.arange(6, dtype=np.float32).reshape(2, 3)


def method(*inputs: dict[str, Any], index: int = 0, **options: Any) -> Any:
    return cuda.echo_method(manifest(list(inputs or [tensor("x")]), **options), index)


class ByMethod:
    def __init__(self, handle: Any, version: Any = 0) -> None:
        self.answer: Any = (version, handle)

    def __cuda_stream__(self) -> Any:
        return self.answer


class ByProperty(ByMethod):
    @property
    def __cuda_stream__(self) -> Any:  # type: ignore[override]
        return self.answer


class LikeTorch:
    def __init__(self, handle: int, device_index: int = 0) -> None:
        self.cuda_stream = handle
        self.device_index = device_index


class LikeCupy:
    def __init__(self, handle: int) -> None:
        self.ptr = handle


@pytest.mark.parametrize("kind", [int, np.uint64, ByMethod, ByProperty, LikeTorch, LikeCupy])
def test_what_names_a_stream(fake: FakeDriver, kind: Callable[[int], Any]) -> None:
    stream = cuda.Stream(0)
    named = kind(stream.handle) if kind is not np.uint64 else LikeCupy(int(stream.handle))
    x = cuda.tensor_on(A, 0, stream.handle)
    run = method()
    for call in (
        lambda x: run(x, stream=named),
        lambda x: run(x=x, stream=named),
        lambda x: run.run_on(named, x),
        lambda x: run.run_on(named, x=x),
        lambda x: run([x], stream=named),
    ):
        y = call(x)
        assert cuda.last_call() == (stream.handle, stream.handle)
        assert y.tolist() == A.tolist()
    del x, y


@pytest.mark.parametrize("through_dlpack", [False, True])
def test_outputs_keep_the_streams_object(fake: FakeDriver, through_dlpack: bool) -> None:
    """Their memory is given back on it, so it must not be destroyed before."""
    stream = cuda.Stream(0)
    named = ByMethod(stream.handle)
    gone = weakref.ref(named)
    y: Any = method()(cuda.tensor_on(A, 0, stream.handle), stream=named)
    del named
    if through_dlpack:
        y = y.__dlpack__(stream=stream.handle)
    gc.collect()
    assert gone() is not None
    del y
    assert gone() is None


@pytest.mark.parametrize(("number", "found"), [(0, 1), (1, 1), (2, 2)])
def test_default_streams(fake: FakeDriver, number: int, found: int) -> None:
    assert method()(A, stream=number).tolist() == A.tolist()
    assert cuda.last_call() == (found, None)


def test_none_is_no_stream(fake: FakeDriver) -> None:
    assert method()(A, stream=None).tolist() == A.tolist()
    assert cuda.last_call() == (None, None)
    assert method().run_on(None, A).tolist() == A.tolist()
    assert cuda.last_call() == (None, None)


@pytest.mark.parametrize(
    ("stream", "error", "message"),
    [
        (True, cudaexec.InputError, "a bool is no stream; expected None, an int handle"),
        (1.0, cudaexec.InputError, "a float is no stream"),
        ("s", cudaexec.InputError, "a str is no stream"),
        (-1, cudaexec.InputError, "-1 is no handle"),
        (1 << 64, cudaexec.InputError, "18446744073709551616 is no handle"),
        (A, cudaexec.InputError, "a numpy.ndarray is no stream"),
        (ByMethod("x"), cudaexec.InputError, r"gave \(0, 'x'\); expected \(version, handle\)"),
        (ByMethod(-3), cudaexec.InputError, "-3 is no handle"),
        (ByMethod(3, version=1), cudaexec.NotSupported, "is of version 1"),
        (0xDEAD0, cudaexec.InputError, "912080 is no live stream"),
    ],
)
def test_other_things_are_refused(
    fake: FakeDriver, stream: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"^method 'forward': stream: .*{message}"):
        method()(A, stream=stream)
    assert method()(A).tolist() == A.tolist()
    if isinstance(stream, int) and stream == 0xDEAD0:
        assert len(fake.take_misuse()) == 1


def test_errors_of_stream_objects_are_told(fake: FakeDriver) -> None:
    class Broken:
        def __cuda_stream__(self) -> Any:
            raise RuntimeError("closed")

    class Interrupted:
        def __cuda_stream__(self) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(cudaexec.InputError, match="a Broken told no stream: RuntimeError: closed"):
        method()(A, stream=Broken())
    with pytest.raises(KeyboardInterrupt):
        method()(A, stream=Interrupted())


def test_streams_of_other_devices(fake: FakeDriver) -> None:
    fake.set_devices(2)
    other = cuda.Stream(1)
    for stream in (other.handle, ByMethod(other.handle), LikeTorch(0, 1), LikeTorch(0, -1)):
        with pytest.raises(
            cudaexec.DeviceError, match=r"stream: expected a stream of cuda:0, found one of cuda:"
        ):
            method()(A, stream=stream)
    assert method(index=1)(A, stream=other.handle).tolist() == A.tolist()
    del other


def test_programs_on_the_cpu_have_no_streams(fake: FakeDriver) -> None:
    run = echo([tensor("x")])
    assert run(A, stream=None).tolist() == A.tolist()
    for stream in (0, 7, LikeTorch(0)):
        with pytest.raises(cudaexec.InputError, match="runs on the cpu.*expected None"):
            run(A, stream=stream)
        with pytest.raises(cudaexec.InputError, match="runs on the cpu"):
            run.run_on(stream, A)
    assert fake.calls() == []


def test_an_input_named_stream_wins(fake: FakeDriver) -> None:
    run = method(tensor("x"), tensor("stream", shape=(2,)))
    side = 2
    b = np.ones(2, np.float32)
    for call in (lambda: run(A, stream=b), lambda: run(A, b), lambda: run(x=A, stream=b)):
        assert [one.tolist() for one in call()] == [A.tolist(), [1.0, 1.0]]
        assert cuda.last_call() == (None, None)
    assert [one.tolist() for one in run.run_on(side, A, stream=b)] == [A.tolist(), [1.0, 1.0]]
    assert cuda.last_call() == (side, None)
    cpu = echo([tensor("stream")])
    assert cpu(stream=A).tolist() == A.tolist()


def test_keyword_only_inputs_beside_the_stream(fake: FakeDriver) -> None:
    tree = arguments([LEAF], {"stream_size": LEAF, "scale": LEAF})
    inputs = [tensor("x"), tensor("stream_size"), tensor("scale")]
    run = method(*inputs, in_spec=json.loads(json.dumps(tree)))
    got = run(A, scale=A * 3, stream=2, stream_size=A * 2)
    assert [one.tolist() for one in got] == [(A * k).tolist() for k in (1, 2, 3)]
    assert cuda.last_call() == (2, None)
    with pytest.raises(cudaexec.InputError, match=r"missing input"):
        run(A, stream=2, scale=A)


def test_odd_calls(fake: FakeDriver) -> None:
    run = method()
    with pytest.raises(cudaexec.InputError, match="takes the stream as its first argument"):
        run.run_on()
    with pytest.raises(cudaexec.InputError, match="stream was given twice"):
        run.run_on(2, A, stream=2)
    with pytest.raises(cudaexec.InputError, match="missing input"):
        run(stream=2)
