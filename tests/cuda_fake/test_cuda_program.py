"""Programs with code for a GPU: loading, calls from the host, choice of code and device, unloading."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cudaexec
from cuda_fake import programs
from cuda_fake.fake import FakeDriver
from cuda_fake.programs import Code, Method, Once
from cudaexec._core import _testing

cuda = _testing.cuda
X = np.arange(4, dtype=np.float32)


def counts() -> dict[str, int]:
    gc.collect(1)
    return {**_testing.live_counts(), "modules": cuda.live_modules(),
            "shared": cuda.shared_weight_count(), "working": cuda.live_working_memory()}  # fmt: skip


@pytest.mark.parametrize("device", [None, "cuda", "cuda:0", "cuda:1"])
def test_host_arrays_in_and_out(
    gpus: FakeDriver, write: Callable[..., Path], device: str | None
) -> None:
    with cudaexec.load(write("SCALE"), device=device) as module:
        for i in range(3):
            y = module.method("scale")(X + i)
            assert isinstance(y, np.ndarray)
            np.testing.assert_array_equal(y, (X + i) * 2 + 0.5)
        stats = json.loads(module._describe()) if hasattr(module, "_describe") else module.stats()
        assert stats["device"] == (device if device == "cuda:1" else "cuda:0")
        assert stats["gpu"]["sm"] == 90
        memory = module.memory_stats()
        assert memory["weights_device"] == 4
        assert memory["weights_mapped"] == 4  # the constant of the host
    assert gpus.launches("fake_scale") == 3


def test_everything_is_released(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    before = counts()
    for unloads in (False, True):
        module = cudaexec.load(write("SCALE", "COUNT", unloads=unloads))
        module.method("scale")(X)
        module.method("count")(X)
        assert counts()["modules"] >= 2
        assert gpus.live()["modules"] >= 2
        module.close()
        assert counts() == before
        live = gpus.live()
        for kind in ("modules", "device_blocks", "pool_blocks", "host_blocks"):
            assert kind not in live, live
        assert gpus.used(0) == 0
        del module


def test_the_current_device_is_restored(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    def body() -> None:
        current = gpus.make("cuCtxGetCurrent")
        with cudaexec.load(write("SCALE"), device="cuda:1") as module:
            assert gpus.make("cuCtxGetCurrent") == current
            module.method("scale")(X)
            assert gpus.make("cuCtxGetCurrent") == current
        assert gpus.make("cuCtxGetCurrent") == current

    cuda.guarded(0, body)


def test_state_is_shared_by_methods(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("COUNT", "READ")) as module:
        count, read = module.method("count"), module.method("read")
        np.testing.assert_array_equal(read()[0], np.zeros(4))
        np.testing.assert_array_equal(count(X + 1), (X + 1) * 2)
        np.testing.assert_array_equal(count(X + 1), (X + 1) * 4)
        total, first = read()
        np.testing.assert_array_equal(total, (X + 1) * 2)
        assert first == 2
        assert module.memory_stats()["state"] == 16
        state = module.state_dict()
        np.testing.assert_array_equal(state["total"].numpy(), (X + 1) * 2)
        np.testing.assert_array_equal(state["w"].numpy(), [2])


def test_load_weights(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    with cudaexec.load(write("SCALE", "COUNT", "READ")) as module:
        scale, count, read = (module.method(n) for n in ("scale", "count", "read"))
        old = scale(X), count(X)
        module.load_weights({"w": np.array([10], np.float32), "k": np.array([1], np.float32)})
        np.testing.assert_array_equal(scale(X), X * 10 + 1)
        np.testing.assert_array_equal(count(X), X * 20)
        module.load_weights({"total": np.full(4, 7, np.float32)})
        assert read()[1] == 7
        np.testing.assert_array_equal(count(X), (X + 7) * 10)
        np.testing.assert_array_equal(old[0], X * 2 + 0.5)
        with pytest.raises(cudaexec.ShapeError, match="'w'"):
            module.load_weights({"w": np.zeros(2, np.float32)})


def test_weights_are_shared_per_device(gpus: FakeDriver, write: Callable[..., Path]) -> None:
    path = write("SCALE")
    first = cudaexec.load(path)
    used = gpus.used(0)
    allocations = len(gpus.calls("cuMemAllocFromPoolAsync"))
    second = cudaexec.load(path)
    assert len(gpus.calls("cuMemAllocFromPoolAsync")) == allocations
    assert gpus.used(0) == used
    third = cudaexec.load(path, device="cuda:1")
    assert len(gpus.calls("cuMemAllocFromPoolAsync")) == allocations + 1
    first.close()
    for module in (second, third):
        np.testing.assert_array_equal(module.method("scale")(X), X * 2 + 0.5)
        module.close()
    assert gpus.used(0) == gpus.used(1) == 0


def test_memory_limit(gpus: FakeDriver, once: Once, tmp_path: Path) -> None:
    image = programs.code(once, "SCALE")
    path = programs.write(tmp_path / "p", [Method("forward", "SCALE", [Code(image)], None)])
    with cudaexec.load(path, options=cudaexec.LoadOptions(memory_limit=256)) as module:
        with pytest.raises(cudaexec.OutOfMemory, match="256"):
            module(np.zeros(64, np.float32))
        for n in (0, 1, 32):
            np.testing.assert_array_equal(module(X[:1].repeat(n)), np.full(n, 0.5))
        assert module.memory_stats()["working_current"] == 0


# ---- which code, which device --------------------------------------------------------------------


def variants(once: Once, directory: Path, *codes: tuple[int, int]) -> Path:
    """A program whose variants have the given (sm, ptx); (0, 0) is code for the CPU."""
    image = programs.code(once, "SCALE")
    unlike = [Code(image + bytes(i + 1), sm, ptx) for i, (sm, ptx) in enumerate(codes)]
    return programs.write(directory, [Method("forward", "SCALE", unlike)])


@pytest.mark.parametrize(
    ("sm", "codes", "chosen"),
    [
        (90, [(80, 0), (90, 0)], "cuda sm_90"),
        (90, [(90, 0), (80, 80)], "cuda sm_90"),
        (80, [(90, 0), (80, 80)], "cuda sm_80 with PTX for compute_80"),
        (120, [(90, 0), (80, 80)], "cuda sm_80 with PTX for compute_80"),
        (100, [(90, 90), (80, 80)], "cuda sm_90 with PTX for compute_90"),
        (80, [(80, 80), (80, 0)], "cuda sm_80"),
        (86, [(80, 0), (80, 80)], "cuda sm_80 with PTX for compute_80"),
    ],
)
def test_choice_of_code(
    fake: FakeDriver, once: Once, tmp_path: Path, sm: int, codes: list[tuple[int, int]], chosen: str
) -> None:
    fake.set_devices(1, sm=sm)
    programs.register_kernels(fake)
    with cudaexec.load(variants(once, tmp_path / "p", *codes)) as module:
        listed = module.stats()["methods"][0]["variants"]
        assert [v["variant"] for v in listed if v["chosen"]] == [chosen]
        np.testing.assert_array_equal(module(X), X * 2 + 0.5)


def test_no_code_for_this_gpu(fake: FakeDriver, once: Once, tmp_path: Path) -> None:
    fake.set_devices(1, sm=75)
    with pytest.raises(cudaexec.TargetError) as caught:
        cudaexec.load(variants(once, tmp_path / "p", (90, 0), (80, 80)))
    for part in ("'forward'", "sm_90", "compute_80", "does not run on sm_75", "cuda:0 is"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("device", "error", "parts"),
    [
        ("cuda:2", cudaexec.DeviceError, ["cuda:2", "2 GPUs"]),
        ("cuda:x", cudaexec.DeviceError, ["'cuda:x'", "cuda:<index>"]),
        ("cuda:-1", cudaexec.DeviceError, ["'cuda:-1'"]),
        ("cpu", cudaexec.TargetError, ["is not CPU code"]),
    ],
)
def test_devices_that_do_not_fit(
    gpus: FakeDriver,
    write: Callable[..., Path],
    device: str,
    error: type[Exception],
    parts: list[str],
) -> None:
    with pytest.raises(error) as caught:
        cudaexec.load(write("SCALE"), device=device)
    for part in ["program.pte", *parts]:
        assert part in str(caught.value)


def test_without_a_driver(fake: FakeDriver, once: Once, tmp_path: Path) -> None:
    """Methods for the CPU alone are what is left, and the others say why they are refused."""
    image = programs.code(once, "SCALE")
    both = [
        Method("gpu", "SCALE", [Code(image)]),
        Method("any", "SCALE", [Code(image), Code(image + b"\0", 0)]),
    ]
    mixed = programs.write(tmp_path / "mixed", both)
    alone = programs.write(tmp_path / "alone", both[:1])
    cuda.use_driver("/nowhere/libcuda.so.1")
    for device in (None, "cuda"):
        with pytest.raises(cudaexec.DeviceError, match="NVIDIA driver"):
            cudaexec.load(alone, device=device)
    with pytest.raises(cudaexec.DeviceError, match="NVIDIA driver"):
        cudaexec.load(mixed, device="cuda")
    # The fake's container refuses "cpu", so loading goes as far as making it.
    with pytest.raises(cudaexec.Error, match="not a device of this model"):
        cudaexec.load(mixed)


def test_another_number_of_multiprocessors_is_logged(
    fake: FakeDriver, write: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    fake.set_devices(1, sm_count=78)
    programs.register_kernels(fake)
    cudaexec.set_log_level("warning")
    try:
        cudaexec.load(write("SCALE")).close()
    finally:
        cudaexec.set_log_level("off")
    line = capfd.readouterr().err
    assert "132 multiprocessors" in line
    assert "78" in line
