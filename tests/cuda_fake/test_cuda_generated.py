"""What generated code calls: the CUDA runtime's names and the driver's, as our library defines them."""

from __future__ import annotations

import ctypes
import threading

import pytest

import cudaexec
from cuda_fake import fake as fakes
from cuda_fake.fake import TEST_IMAGE, FakeDriver, Launch, read
from cudaexec._core import _testing

cuda = _testing.cuda
SHIMS = ctypes.CDLL(str(fakes.LIBRARIES / "libcudaexec_shims.so.1"))
SHIMS.cudaGetErrorString.restype = ctypes.c_char_p
H2D, D2H, D2D, DEFAULT = 1, 2, 3, 4
KERNELS = 5  # images, each with the kernels a test registered
IMAGES = [ctypes.create_string_buffer(b"FAKECUDA %d" % i) for i in range(KERNELS)]


def generated(name: str, *arguments: object) -> int:
    """Calls a name as generated code does; ints are passed as 64 bits."""
    passed = [ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments]
    return int(getattr(SHIMS, name)(*passed))


def made(name: str, *arguments: object) -> int:
    """As above for a call that puts a handle where its first parameter points."""
    out = ctypes.c_uint64()
    assert generated(name, ctypes.byref(out), *arguments) == 0
    return out.value


def image(index: int = 0) -> int:
    return ctypes.addressof(IMAGES[index])


def load(index: int = 0) -> int:
    return made("cuModuleLoadData", image(index))


@pytest.fixture
def registry() -> object:
    return cuda.ModuleRegistry()


# ---- modules -------------------------------------------------------------------------------------


def test_containers_share_modules_and_the_last_one_unloads(fake: FakeDriver) -> None:
    registry = cuda.ModuleRegistry()
    trackers = [cuda.ModuleTracker(registry) for _ in range(3)]
    modules = []
    for tracker in trackers:
        cuda.generated_call(0, tracker, lambda: modules.append((load(0), load(1))))
    assert len(set(modules)) == 1
    assert len(fake.calls("cuModuleLoadData")) == 2
    assert registry.module_count == 2
    assert cuda.live_modules() == 2
    del trackers[0], trackers[0], tracker
    assert fake.live()["modules"] == 2
    trackers.clear()
    assert registry.module_count == 0
    assert cuda.live_modules() == 0
    assert "modules" not in fake.live()


def test_code_that_unloads_its_modules_itself(fake: FakeDriver) -> None:
    """Newer generated code does, older does not; both end the same."""
    registry = cuda.ModuleRegistry()
    first, second = cuda.ModuleTracker(registry), cuda.ModuleTracker(registry)
    module = []
    cuda.generated_call(0, first, lambda: module.append(load()))
    cuda.generated_call(0, second, lambda: module.append(load()))

    def unload() -> None:
        assert generated("cuModuleUnload", module[0]) == 0

    cuda.generated_call(0, first, unload)
    assert fake.calls("cuModuleUnload") == []  # the second one still uses it
    cuda.generated_call(0, second, unload)
    assert len(fake.calls("cuModuleUnload")) == 1
    del first, second
    assert len(fake.calls("cuModuleUnload")) == 1


def test_libraries_do_not_share(fake: FakeDriver) -> None:
    """Another library may be at the address of one that was closed."""
    trackers = [cuda.ModuleTracker(cuda.ModuleRegistry()) for _ in range(2)]
    modules: list[int] = []
    for tracker in trackers:
        cuda.generated_call(0, tracker, lambda: modules.append(load()))
    assert modules[0] != modules[1]
    del tracker
    trackers.clear()


def test_devices_do_not_share(fake: FakeDriver) -> None:
    fake.set_devices(2)
    registry = cuda.ModuleRegistry()
    tracker = cuda.ModuleTracker(registry)
    for index in (0, 1, 0):
        cuda.generated_call(index, tracker, load)
    assert len(fake.calls("cuModuleLoadData")) == 2
    del tracker  # unloads each in its own context: the fake checks
    assert "modules" not in fake.live()


def test_modules_outside_of_a_call_are_passed_on(fake: FakeDriver) -> None:
    def use() -> None:
        module = load()
        assert generated("cuModuleUnload", module) == 0

    cuda.guarded(0, use)
    assert len(fake.calls("cuModuleUnload")) == 1


def test_first_runs_of_two_threads_load_once(fake: FakeDriver) -> None:
    registry = cuda.ModuleRegistry()
    trackers = [cuda.ModuleTracker(registry) for _ in range(4)]
    gate = threading.Barrier(4)

    def run(tracker: object) -> None:
        gate.wait(10)
        cuda.generated_call(0, tracker, lambda: [load(i) for i in range(KERNELS)])

    threads = [threading.Thread(target=run, args=(tracker,)) for tracker in trackers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fake.calls("cuModuleLoadData")) == KERNELS
    trackers.clear()
    threads.clear()


def test_every_failing_call_of_loading_leaves_nothing(fake: FakeDriver) -> None:
    fake.register_kernel("k", [8])

    def use(registry: object) -> None:
        def body() -> None:
            for i in range(3):
                module = ctypes.c_uint64()
                if generated("cuModuleLoadData", ctypes.byref(module), image(i)) != 0:
                    return  # generated code stops at the first failure
                function = ctypes.c_uint64()
                if generated("cuModuleGetFunction", ctypes.byref(function), module, b"k") != 0:
                    return

        tracker = cuda.ModuleTracker(registry)
        cuda.generated_call(0, tracker, body)

    cuda.context(0)
    for k in range(1, 100):
        registry = cuda.ModuleRegistry()
        with fake.failing(None, k, fakes.OUT_OF_MEMORY) as hits:
            failed = False
            try:
                use(registry)
            except cudaexec.OutOfMemory:
                failed = True
        reports, _ = _testing.cleanup_reports()
        if hits == [0]:
            assert not failed
            break
        assert failed or reports, k
        assert registry.module_count == 0
        assert cuda.live_modules() == 0
        assert fake.live().get("modules", 0) <= len(reports), k
        use(registry)
        assert registry.module_count == 0
        if reports:  # what could not be unloaded stays
            cuda.use_driver(fake.path)
            fake.reset()
            fake.register_kernel("k", [8])
            cuda.context(0)
    else:
        pytest.fail("never ran to its end")
    assert k > 5


# ---- errors of generated code --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "result", "kind"),
    [
        ("cuModuleLoadData", fakes.NO_BINARY_FOR_GPU, cudaexec.TargetError),
        ("cuModuleLoadData", fakes.OUT_OF_MEMORY, cudaexec.OutOfMemory),
        ("cuLaunchKernel", fakes.CAPTURE_INVALIDATED, cudaexec.CaptureError),
        ("cuLaunchKernel", fakes.ILLEGAL_ADDRESS, cudaexec.DeviceError),
        ("cuModuleGetFunction", 500, cudaexec.Error),
    ],
)
def test_the_first_failure_is_the_error(
    fake: FakeDriver, entry: str, result: int, kind: type[Exception]
) -> None:
    fake.register_kernel("k", [])
    tracker = cuda.ModuleTracker(cuda.ModuleRegistry())

    def body() -> None:
        module, function = ctypes.c_uint64(), ctypes.c_uint64()
        codes = [
            generated("cuModuleLoadData", ctypes.byref(module), image()),
            generated("cuModuleGetFunction", ctypes.byref(function), module, b"k"),
            launch(function.value, 0, []),
        ]
        assert result in codes

    fake.fail(entry, 1, result)
    with pytest.raises(kind, match=rf"\({result}\).*{entry} at generated code"):
        cuda.generated_call(0, tracker, body)
    fake.clear_faults()
    fake.take_misuse()  # the body went on with null handles
    cuda.generated_call(0, tracker, body_without_failure)


def body_without_failure() -> None:
    function = made("cuModuleGetFunction", load(), b"k")
    assert launch(function, 0, []) == 0


def launch(function: int, stream: int, arguments: list[ctypes._SimpleCData]) -> int:
    pointers = (ctypes.c_void_p * max(1, len(arguments)))(
        *[ctypes.addressof(argument) for argument in arguments]
    )
    sizes = [ctypes.c_uint(n) for n in (2, 1, 1, 32, 1, 1, 0)]
    return int(
        SHIMS.cuLaunchKernel(
            ctypes.c_uint64(function), *sizes, ctypes.c_uint64(stream), pointers, None
        )
    )


def test_a_failed_allocation_names_its_size(fake: FakeDriver) -> None:
    fake.set_devices(nbytes=1000)
    tracker = cuda.ModuleTracker(cuda.ModuleRegistry())
    data = ctypes.c_uint64()

    def body() -> None:
        assert generated("cudaMalloc", ctypes.byref(data), 5000) == fakes.OUT_OF_MEMORY

    with pytest.raises(cudaexec.OutOfMemory, match="cannot allocate 5000 bytes.*cudaMalloc"):
        cuda.generated_call(0, tracker, body)


def test_asking_whether_an_event_was_reached_is_no_failure(fake: FakeDriver) -> None:
    tracker = cuda.ModuleTracker(cuda.ModuleRegistry())

    def body() -> None:
        stream = made("cudaStreamCreateWithFlags", 1)
        event = made("cudaEventCreate")
        assert generated("cudaEventRecord", event, stream) == 0
        assert generated("cudaEventQuery", event) == 600
        assert generated("cudaEventSynchronize", event) == 0
        assert generated("cudaEventQuery", event) == 0
        assert generated("cudaEventDestroy", event) == 0
        assert generated("cudaStreamDestroy", stream) == 0

    cuda.generated_call(0, tracker, body)


def test_a_call_restores_the_device_that_generated_code_changed(fake: FakeDriver) -> None:
    fake.set_devices(3)
    outer = cuda.context(2)
    fake.call("cuCtxSetCurrent", outer)
    tracker = cuda.ModuleTracker(cuda.ModuleRegistry())
    device = ctypes.c_int(-1)

    def body() -> None:
        assert generated("cudaGetDevice", ctypes.byref(device)) == 0
        assert device.value == 1
        assert generated("cudaSetDevice", 0) == 0
        assert generated("cudaGetDevice", ctypes.byref(device)) == 0
        assert device.value == 0

    cuda.generated_call(1, tracker, body)
    assert fake.make("cuCtxGetCurrent") == outer
    fake.call("cuCtxSetCurrent", 0)


# ---- the runtime's names -------------------------------------------------------------------------


def test_launch_reaches_the_kernel(fake: FakeDriver) -> None:
    seen: list[tuple[int, float, tuple[int, ...]]] = []

    def body(launched: Launch) -> None:
        pointer = launched.argument(0, ctypes.c_uint64)
        scale = launched.argument(1, ctypes.c_float)
        seen.append((pointer.value, scale.value, (*launched.grid, *launched.block)))

    fake.register_kernel("scale", [8, 4], body)

    def run() -> None:
        function = made("cuModuleGetFunction", load(), b"scale")
        assert generated("cuFuncSetAttribute", function, 8, 100_000) == 0
        assert launch(function, 0, [ctypes.c_uint64(4711), ctypes.c_float(2.5)]) == 0

    tracker = cuda.ModuleTracker(cuda.ModuleRegistry())
    cuda.generated_call(0, tracker, run)
    assert seen == []
    cuda.synchronize(0, 0)
    assert seen == [(4711, 2.5, (2, 1, 1, 32, 1, 1))]


def test_memory_and_copies(fake: FakeDriver) -> None:
    source = ctypes.create_string_buffer(b"abcdefgh", 8)
    target = ctypes.create_string_buffer(8)

    def body() -> None:
        first, second = made("cudaMalloc", 8), made("cudaMalloc", 8)
        assert generated("cudaMemcpy", first, source, 8, H2D) == 0
        assert generated("cudaMemcpy", second, first, 8, D2D) == 0
        assert generated("cudaMemcpy", target, second, 8, D2H) == 0
        assert target.raw == source.raw
        stream = made("cudaStreamCreateWithFlags", 1)
        source.raw = b"ABCDEFGH"
        assert generated("cudaMemcpyAsync", first, source, 8, H2D, stream) == 0
        assert generated("cudaMemcpyAsync", second, first, 8, D2D, stream) == 0
        assert generated("cudaMemcpyAsync", target, second, 8, DEFAULT, stream) == 0
        assert generated("cudaStreamSynchronize", stream) == 0
        assert target.raw == source.raw
        assert generated("cudaMemcpy", first, second, 0, D2D) == 0
        assert generated("cudaStreamDestroy", stream) == 0
        assert generated("cudaFree", first) == 0
        assert generated("cudaFree", second) == 0
        assert generated("cudaFree", 0) == 0
        empty = ctypes.c_uint64(7)
        assert generated("cudaMalloc", ctypes.byref(empty), 0) == 0
        assert empty.value == 0

    cuda.guarded(0, body)


class PointerAttributes(ctypes.Structure):
    """cudaPointerAttributes of CUDA 12; CUDA 13 appends eight longs."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("device", ctypes.c_int),
        ("device_pointer", ctypes.c_void_p),
        ("host_pointer", ctypes.c_void_p),
        ("guard", ctypes.c_uint64),
    ]


def test_pointer_attributes(fake: FakeDriver) -> None:
    fake.set_devices(2)
    pool, pinned = cuda.Allocator("pool", 1), cuda.Allocator("pinned")
    data, locked = pool.allocate(64), pinned.allocate(64)
    plain = ctypes.create_string_buffer(8)

    def ask(address: int) -> tuple[int, int, int | None, int | None]:
        found = PointerAttributes(guard=0x1234)
        assert generated("cudaPointerGetAttributes", ctypes.byref(found), address) == 0
        assert found.guard == 0x1234  # the layout of CUDA 12 is not exceeded
        return found.type, found.device, found.device_pointer, found.host_pointer

    assert ask(data) == (2, 1, data, None)
    assert ask(locked) == (1, 0, locked, locked)
    address = ctypes.addressof(plain)
    assert ask(address) == (0, -2, None, address)
    pool.deallocate(data, 64)
    pinned.deallocate(locked, 64)


def test_the_last_error_is_kept_per_thread_and_cleared(fake: FakeDriver) -> None:
    out = ctypes.c_uint64()

    def fail() -> None:
        with fake.failing("cuMemAlloc", 1, fakes.OUT_OF_MEMORY):
            assert generated("cudaMalloc", ctypes.byref(out), 8) == 2

    cuda.guarded(0, fail)
    other: list[int] = []
    thread = threading.Thread(target=lambda: other.append(generated("cudaGetLastError")))
    thread.start()
    thread.join()
    assert other == [0]
    assert generated("cudaGetLastError") == 2
    assert generated("cudaGetLastError") == 0


def test_error_texts(fake: FakeDriver) -> None:
    cuda.device_count()
    text = ctypes.c_char_p()
    assert SHIMS.cuGetErrorString(2, ctypes.byref(text)) == 0
    assert text.value is not None
    assert SHIMS.cudaGetErrorString(2) == text.value
    assert SHIMS.cudaGetErrorString(54321) == b"unrecognized error code"


def test_a_thread_without_a_context_gets_device_0(fake: FakeDriver) -> None:
    device = ctypes.c_int(-1)
    found: list[int] = []

    def run() -> None:
        assert generated("cudaGetDevice", ctypes.byref(device)) == 0
        found.append(device.value)
        data = made("cudaMalloc", 16)
        assert generated("cudaFree", data) == 0

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [0]


def test_names_without_a_driver_return_errors(fake: FakeDriver) -> None:
    cuda.use_driver("/nowhere/libcuda.so.1")
    out = ctypes.c_uint64()
    assert generated("cudaMalloc", ctypes.byref(out), 8) == 3
    assert generated("cudaSetDevice", 0) == 3
    assert generated("cuModuleLoadData", ctypes.byref(out), image()) == 3
    assert SHIMS.cudaGetErrorString(3) == b"unrecognized error code"
    generated("cudaGetLastError")


def test_a_bad_device_is_an_error_number(fake: FakeDriver) -> None:
    assert generated("cudaSetDevice", 7) == 101
    assert generated("cudaGetLastError") == 101


# ---- our own code --------------------------------------------------------------------------------


def test_image_of_the_test(fake: FakeDriver) -> None:
    """Test images have the kernels that were registered, and no others."""
    fake.register_kernel("known", [8])
    cuda.device_count()

    def body() -> None:
        module = fake.make("cuModuleLoadData", TEST_IMAGE)
        fake.make("cuModuleGetFunction", module, b"known")
        with pytest.raises(fakes.CudaFailure) as info:
            fake.make("cuModuleGetFunction", module, b"unknown")
        assert info.value.result == 500
        fake.call("cuModuleUnload", module)

    cuda.guarded(0, body)
    assert read(ctypes.addressof(TEST_IMAGE), 8) == b"FAKECUDA"
