"""Arrays on a GPU in and out, and streams: with long kernels in front, so that a missing order shows.

Every order is proved in the same way: about 50 ms of work is put on the stream that something has to
follow, then the call is made, and the stream must still be busy when the call returns (nothing waited).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cudaexec
import models
from gpu.foreign_gpu import Flags, OnlyDlpack, OnlyInterface, Two, keep_busy

X = torch.arange(32.0).reshape(4, 8)
Y = torch.ones(4, 8) * 3


def expected(x: Any, y: Any, w: float = 2.0) -> list[torch.Tensor]:
    x, y = torch.as_tensor(np.asarray(x)), torch.as_tensor(np.asarray(y))
    return [x * w + y, (x - y).t()]


def check(got: Any, x: Any = X, y: Any = Y, w: float = 2.0) -> None:
    for one, wanted in zip(got, expected(x, y, w), strict=True):
        if isinstance(one, cudaexec.Tensor):
            one = one.to_host().numpy()
        torch.testing.assert_close(torch.as_tensor(one).cpu(), wanted, rtol=0, atol=0)


@pytest.fixture(scope="session")
def two(gpu_export: Callable[..., Path]) -> Path:
    return gpu_export("binding-two", models.Built(Two(), (X, Y)))


@pytest.fixture
def module(two: Path) -> Iterator[cudaexec.Module]:
    with cudaexec.load(two) as loaded:
        loaded(X, Y)  # what a first call does is not what is timed here
        torch.cuda.synchronize()
        yield loaded


@pytest.fixture
def side() -> torch.cuda.Stream:
    return torch.cuda.Stream()


def filled(value: torch.Tensor, stream: torch.cuda.Stream | None = None) -> torch.Tensor:
    """`value` on the GPU, written only after long work of the stream."""
    source = value.cuda()
    target = torch.zeros_like(source)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream or torch.cuda.current_stream()):
        keep_busy(stream)
        target.copy_(source)
        source.record_stream(torch.cuda.current_stream())
    return target


# ---- torch -------------------------------------------------------------------------------------


def test_torch_in_torch_out(module: cudaexec.Module) -> None:
    got = module(X.cuda(), Y.cuda())
    assert [one.device.type for one in got] == ["cuda", "cuda"]
    check(got)
    assert got[1].stride() == (1, 8)


def test_calls_follow_torchs_current_stream(module: cudaexec.Module) -> None:
    y = Y.cuda()  # before the long work: a copy from the host may wait for it
    x = filled(X)
    got = module(x, y)
    assert not torch.cuda.current_stream().query()
    again = [one + 1 for one in got]
    x.zero_()  # put on the same stream, so after the call
    check([one - 1 for one in again])


def test_calls_follow_a_side_stream(module: cudaexec.Module, side: torch.cuda.Stream) -> None:
    y = Y.cuda()
    x = filled(X, side)
    with torch.cuda.stream(side):
        got = module(x, y)
        assert not side.query()
        assert torch.cuda.current_stream() == side
        got = [one.clone() for one in got]
    side.synchronize()
    check(got)


@pytest.mark.parametrize("busy", ["inputs", "chosen"])
def test_a_chosen_stream_and_torchs_follow_each_other(
    module: cudaexec.Module, side: torch.cuda.Stream, busy: str
) -> None:
    y = Y.cuda()
    x = filled(X) if busy == "inputs" else X.cuda()
    if busy == "chosen":
        torch.cuda.synchronize()
        keep_busy(side)
    got = module(x, y, stream=side)
    assert not side.query()
    later = [one + 0 for one in got]
    x.zero_()
    assert not torch.cuda.current_stream().query()
    check(later)
    check(got)


def test_all_kinds_of_streams(module: cudaexec.Module, side: torch.cuda.Stream) -> None:
    x, y = X.cuda(), Y.cuda()
    method = module.method("forward")
    for stream in (0, 1, 2, side, side.cuda_stream, torch.cuda.default_stream(), None):
        check(module(x, y, stream=stream))
        check(method.run_on(stream, x, y=y))
        check(module(X, Y, stream=stream))
    for stream in (True, "side", -1, torch.device("cuda"), object()):
        with pytest.raises(cudaexec.InputError, match="method 'forward': stream: "):
            module(x, y, stream=stream)


def test_streams_of_cuda_core(module: cudaexec.Module) -> None:
    core = pytest.importorskip("cuda.core")
    make = getattr(core, "Device", None) or core.experimental.Device
    device = make(0)
    device.set_current()
    stream = device.create_stream()
    y = Y.cuda()
    x = filled(X)
    got = module(x, y, stream=stream)
    assert not torch.cuda.current_stream().query()
    check([one.clone() for one in got])
    del got
    torch.cuda.synchronize()
    stream.close()


@pytest.mark.two_gpus
def test_streams_of_another_gpu(module: cudaexec.Module) -> None:
    x, y = X.cuda(), Y.cuda()
    with torch.cuda.device(1):
        other = torch.cuda.Stream()
        default = torch.cuda.default_stream(1)
    for stream in (other, other.cuda_stream, default):
        with pytest.raises(cudaexec.DeviceError, match="expected a stream of cuda:0, found one of"):
            module(x, y, stream=stream)
    with pytest.raises(cudaexec.DeviceError, match="input 'y'.*cuda:1"):
        module(x, Y.to("cuda:1"))
    check(module(x, y))
    assert torch.cuda.current_device() == 0


def test_memory_of_outputs_is_not_reused_too_early(
    module: cudaexec.Module, side: torch.cuda.Stream
) -> None:
    """torch drops outputs while its current stream still has to read them."""
    x, y = X.cuda(), Y.cuda()
    copies = []
    for k in range(20):
        got = module(x + k, y, stream=side)
        keep_busy(cycles=2_000_000)
        copies.append([one.clone() for one in got])
        del got
        module(-x, y, stream=side)
    for k, one in enumerate(copies):
        check(one, X + k)


def test_memory_of_inputs_is_not_reused_too_early(
    module: cudaexec.Module, side: torch.cuda.Stream
) -> None:
    y = Y.cuda()
    keep_busy(side)
    got = []
    for k in range(20):
        x = X.cuda() + k
        got.append(module(x, y, stream=side))
        del x
        torch.empty(4, 8, device="cuda").fill_(-1)
    for k, one in enumerate(got):
        check(one, X + k)


def test_outputs_are_inputs(module: cudaexec.Module) -> None:
    x = X.cuda()
    zero = torch.zeros(4, 8, device="cuda")
    for _ in range(10):
        x = module(x, zero)[0]
    torch.testing.assert_close(x.cpu(), X * 2.0**10)


# ---- which memory (A67) ------------------------------------------------------------------------


@pytest.mark.parametrize("x", ["cuda", "cpu", "numpy", "pinned", "list"])
@pytest.mark.parametrize("y", ["cuda", "cpu", "numpy", "pinned"])
def test_host_and_gpu_inputs(module: cudaexec.Module, x: str, y: str) -> None:
    make: dict[str, Callable[[torch.Tensor], Any]] = {
        "cuda": lambda t: t.cuda(), "cpu": lambda t: t.clone(), "numpy": lambda t: t.numpy().copy(),
        "pinned": lambda t: t.clone().pin_memory(), "list": lambda t: t.tolist(),
    }  # fmt: skip
    if x == "list":
        with pytest.raises(cudaexec.InputError, match="method 'forward': input 'x'"):
            module(make[x](X), make[y](Y))
    else:
        got = module(make[x](X), make[y](Y))
        on_gpu = "cuda" in (x, y)
        kinds = {x, y} - {"numpy"}
        assert all(isinstance(one, torch.Tensor if kinds else np.ndarray) for one in got)
        assert not kinds or all(one.is_cuda == on_gpu for one in got)
        check(got)
    check(module(X.cuda(), Y.cuda()))


@pytest.mark.parametrize("pinned", [False, True])
def test_host_inputs_may_be_changed_after_the_call(module: cudaexec.Module, pinned: bool) -> None:
    x = X.clone().pin_memory() if pinned else X.clone()
    y = Y.cuda()
    torch.cuda.synchronize()
    keep_busy()
    got = module(x, y)
    x.fill_(-1)
    check(got)


def test_host_outputs_are_there_on_return(module: cudaexec.Module, side: torch.cuda.Stream) -> None:
    keep_busy(side)
    got = module(X.numpy(), Y.numpy(), stream=side)
    check(got)
    assert side.query()


def test_gpu_memory_for_a_program_on_the_cpu(gpu_export: Callable[..., Path]) -> None:
    path = gpu_export("binding-cpu", models.Built(Two(), (X, Y)), target="cpu")
    with cudaexec.load(path) as module:
        x, y = X.cuda(), Y.cuda()
        for one in (x, OnlyDlpack(x), OnlyInterface(x, 1)):
            with pytest.raises(cudaexec.DeviceError, match="method 'forward': input 'x': .*cpu"):
                module(one, Y)
        with pytest.raises(cudaexec.DeviceError, match="method 'forward': input 'y'"):
            module(X, y)
        with pytest.raises(cudaexec.DeviceError, match="'w'.*cpu"):
            module.load_weights({"w": torch.ones(8, device="cuda")})
        with pytest.raises(cudaexec.InputError, match="runs on the cpu"):
            module(X, Y, stream=torch.cuda.Stream())
        check(module(X, Y))


# ---- other protocols, and tensors of our own -----------------------------------------------------


def test_dlpack_objects_hand_over(module: cudaexec.Module, side: torch.cuda.Stream) -> None:
    y = OnlyDlpack(Y.cuda())
    with torch.cuda.stream(side):
        x = OnlyDlpack(filled(X, side))
        got = module(x, y)
        assert not side.query()
    assert [type(one) for one in got] == [cudaexec.Tensor] * 2
    assert x.streams[0] not in (None, 0, -1)
    check(got)
    chosen = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x = OnlyDlpack(filled(X, side))
        got = module(x, Y, stream=chosen)
        assert x.streams == [chosen.cuda_stream]
        check(got)  # torch tensors, as Y is one: ready on the stream that was current


def test_dlpack_memory_is_kept_until_it_was_read(
    module: cudaexec.Module, side: torch.cuda.Stream
) -> None:
    keep_busy(side)
    x = OnlyDlpack(X.cuda() + 0)
    got = module(x, Y, stream=side)
    del x
    gc.collect()
    for _ in range(20):
        torch.empty(4, 8, device="cuda").fill_(-1)
    check(got)


def test_array_interfaces(module: cudaexec.Module, side: torch.cuda.Stream) -> None:
    y = OnlyInterface(Y.cuda(), 1)
    x = OnlyInterface(filled(X, side), side.cuda_stream)
    got = module(x, y)
    assert not side.query()
    with torch.cuda.stream(side):
        x.tensor.zero_()  # the owner's stream follows the call
    check(got)
    torch.cuda.synchronize()
    check(module(OnlyInterface(X.cuda(), None), OnlyInterface(Y.cuda(), 2)))
    host = OnlyInterface(X.cuda(), None)
    found = host.__cuda_array_interface__ | {"data": (X.data_ptr(), False)}
    broken = type("Broken", (), {"__cuda_array_interface__": found})()
    with pytest.raises(cudaexec.DeviceError, match="input 'x'.*host memory"):
        module(broken, y)
    pinned = X.clone().pin_memory()
    broken = type(
        "Broken", (), {"__cuda_array_interface__": found | {"data": (pinned.data_ptr(), False)}}
    )()
    with pytest.raises(cudaexec.DeviceError, match="input 'x'.*pinned"):
        module(broken, y)


def test_negative_strides_on_the_gpu(module: cudaexec.Module) -> None:
    flipped = X.flip(0).contiguous().cuda()
    torch.cuda.synchronize()
    entries = dict(flipped.__cuda_array_interface__)
    entries["data"] = (flipped[3].data_ptr(), False)
    entries["strides"] = (-32, 4)
    x = type("Flipped", (), {"__cuda_array_interface__": entries})()
    check(module(x, Y.cuda()))


def ours(module: cudaexec.Module, stream: Any = None) -> list[cudaexec.Tensor]:
    """Outputs that are tensors of cudaexec on the GPU."""
    got = module(OnlyDlpack(X.cuda()), OnlyDlpack(Y.cuda()), stream=stream)
    assert [type(one) for one in got] == [cudaexec.Tensor] * 2
    return list(got)


def test_our_tensors(module: cudaexec.Module) -> None:
    first, second = ours(module)
    assert (first.device, first.shape, first.strides) == ("cuda:0", (4, 8), (8, 1))
    assert (second.shape, second.strides) == ((8, 4), (1, 8))
    check([first, second])
    assert first.tolist() == expected(X, Y)[0].tolist()
    for refused in (first.numpy, lambda: np.asarray(first)):
        with pytest.raises(cudaexec.DeviceError, match=r"to_host\(\)"):
            refused()
    with pytest.raises(BufferError, match=r"to_host\(\)"):
        memoryview(first)
    zero = torch.zeros(4, 8).numpy()
    chained = module(module(first, zero)[0], zero)[0]
    assert type(chained) is cudaexec.Tensor
    torch.testing.assert_close(torch.from_dlpack(chained).cpu(), expected(X, Y)[0] * 4)


def test_our_tensors_become_torchs(module: cudaexec.Module, side: torch.cuda.Stream) -> None:
    keep_busy(side)
    got = ours(module, side)
    theirs = [torch.from_dlpack(one) for one in got]
    assert not side.query()
    assert theirs[0].data_ptr() == got[0].__cuda_array_interface__["data"][0]
    check([one + 0 for one in theirs])
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        theirs = [torch.from_dlpack(one) for one in got]
        del got
        keep_busy(other)
        copies = [one.clone() for one in theirs]
        del theirs
    for _ in range(10):
        module(-X, Y, stream=side)
    other.synchronize()
    check(copies)


def test_our_tensors_through_the_array_interface(module: cudaexec.Module) -> None:
    got = ours(module)
    entries = got[1].__cuda_array_interface__
    assert (entries["version"], entries["typestr"], entries["strides"]) == (3, "<f4", (4, 32))
    torch.cuda.synchronize()
    theirs = torch.as_tensor(got[1], device="cuda")
    assert theirs.data_ptr() == entries["data"][0]
    check([torch.as_tensor(got[0], device="cuda"), theirs])


def test_exports_to_the_host_and_copies(module: cudaexec.Module) -> None:
    first = ours(module)[0]
    wanted = expected(X, Y)[0]
    np.testing.assert_array_equal(np.from_dlpack(first, device="cpu"), wanted)
    host = torch.from_dlpack(first, device="cpu", copy=True)
    torch.testing.assert_close(host, wanted)
    copied = torch.from_dlpack(first, copy=True)
    copied.zero_()
    torch.cuda.synchronize()
    np.testing.assert_array_equal(first.to_host().numpy(), wanted)
    with pytest.raises(BufferError, match="copy=False"):
        first.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError):
        first.__dlpack__(dl_device=(2, 77))
    with pytest.raises(ValueError, match="0 is ambiguous"):
        first.__dlpack__(stream=0)


def test_capsules(module: cudaexec.Module) -> None:
    capsule = torch.utils.dlpack.to_dlpack(X.cuda())
    check(module(capsule, Y.cuda()))
    with pytest.raises(ValueError, match="consumed before"):
        module(capsule, Y.cuda())
    first = ours(module)[0]
    capsule = first.__dlpack__(stream=1)
    torch.utils.dlpack.from_dlpack(capsule)
    with pytest.raises(RuntimeError):
        torch.utils.dlpack.from_dlpack(capsule)
    torch.cuda.synchronize()
    before = cudaexec._core._testing.live_counts()["storages"]
    free = torch.cuda.mem_get_info()[0]
    for k in range(1000):
        first.__dlpack__(stream=1 + k % 2, max_version=(1, 0) if k % 3 else None, copy=k % 5 == 0)
    torch.cuda.synchronize()
    assert cudaexec._core._testing.live_counts()["storages"] == before
    assert free - torch.cuda.mem_get_info()[0] < 64 << 20


# ---- layouts and dtypes (A98 to A102) ----------------------------------------------------------


def test_layouts_on_the_gpu(module: cudaexec.Module) -> None:
    y = Y.cuda()
    for x in (
        X.t().contiguous().t(),
        torch.arange(64.0).reshape(4, 16)[:, ::2],
        torch.arange(64.0).reshape(8, 8)[::2],
        torch.arange(8.0).expand(4, 8),
        torch.arange(33.0)[1:].reshape(4, 8),
    ):
        strided = (
            torch.empty_strided(x.shape, x.stride(), device="cuda")
            if 0 not in x.stride()
            else (torch.arange(8.0, device="cuda").expand(4, 8))
        )
        if 0 not in x.stride():
            strided.copy_(x)
        assert strided.stride() == x.stride()
        check(module(strided, y), x)


def test_read_only_arrays(module: cudaexec.Module) -> None:
    x = X.numpy().copy()
    x.flags.writeable = False
    check(module(x, np.broadcast_to(np.float32(3), (4, 8))))
    check(module(x, Y.cuda()))
    assert (x == X.numpy()).all()


def test_dtypes(gpu_export: Callable[..., Path]) -> None:
    a = torch.tensor([[True, False, True]])
    b = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    c = torch.arange(5)
    path = gpu_export("binding-flags", models.Built(Flags(), (a, b, c)))
    with cudaexec.load(path) as module:
        got = module(a.cuda(), b.cuda(), c.cuda())
        assert {name: one.dtype for name, one in got.items()} == {
            "a": torch.bool, "b": torch.bfloat16, "c": torch.int64
        }  # fmt: skip
        for name, wanted in Flags()(a, b, c).items():
            assert torch.equal(got[name].cpu(), wanted)
        got = module(OnlyDlpack(a.cuda()), OnlyDlpack(b.cuda()), OnlyDlpack(c.cuda()))
        assert [got[name].dtype for name in "abc"] == ["bool", "bfloat16", "int64"]
        assert torch.equal(torch.from_dlpack(got["b"]).cpu(), b * 2)
        assert torch.equal(torch.from_dlpack(got["a"]).cpu(), ~a)
        assert not hasattr(got["b"], "__cuda_array_interface__")
        for wrong in (a.cuda().view(torch.uint8), a.cuda().float()):
            with pytest.raises(cudaexec.DtypeError, match="input 'a'"):
                module(wrong, b.cuda(), c.cuda())
        with pytest.raises(cudaexec.DtypeError, match="input 'b'"):
            module(a.cuda(), b.cuda().view(torch.int16), c.cuda())


# ---- weights -----------------------------------------------------------------------------------


def test_weights_from_the_gpu(module: cudaexec.Module, side: torch.cuda.Stream) -> None:
    x, y = X.cuda(), Y.cuda()
    for k, wrap in enumerate(
        (lambda t: t, OnlyDlpack, lambda t: OnlyInterface(t, side.cuda_stream))
    ):
        with torch.cuda.stream(side):
            weight = filled(torch.full((8,), float(k + 5)), side)
            module.load_weights({"w": wrap(weight)})
            weight.zero_()
        check(module(x, y), w=k + 5)
        np.testing.assert_array_equal(
            module.state_dict()["w"].to_host().numpy(), np.full(8, k + 5.0)
        )
    with pytest.raises(cudaexec.ShapeError, match="'w'"):
        module.load_weights({"w": torch.ones(7, device="cuda")})


def test_weights_are_never_half_new(module: cudaexec.Module) -> None:
    """An update, then a call at once on a stream of its own, many times (A75)."""
    x, y = X.cuda(), Y.cuda()
    for k in range(200):
        module.load_weights({"w": torch.full((8,), float(k), device="cuda")})
        got = module(x, y, stream=torch.cuda.Stream())
        if k % 20 == 0:
            check(got, w=float(k))
    check(got, w=199.0)
