"""The fake GPU driver (driver/fake.h), from Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cudaexec import _core

LIBRARIES = Path(_core.__file__).parent / "lib"
PATH = LIBRARIES / "libcudaexec_fakecuda.so"
# The same under the driver's own name, for child processes that open generated libraries.
DRIVER_DIRECTORY = LIBRARIES / "fakecuda"

INVALID_VALUE = 1
OUT_OF_MEMORY = 2
NO_DEVICE = 100
NO_BINARY_FOR_GPU = 209
INVALID_HANDLE = 400
ILLEGAL_ADDRESS = 700
NOT_SUPPORTED = 801
CAPTURE_UNSUPPORTED = 900
CAPTURE_INVALIDATED = 901

CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED = range(3)

TEST_IMAGE = ctypes.create_string_buffer(b"FAKECUDA test image")


class Launch(ctypes.Structure):
    """What a kernel of a test gets (FakeLaunch)."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_nbytes", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("sizes", ctypes.POINTER(ctypes.c_size_t)),
    ]

    def argument(self, index: int, kind: type) -> object:
        """Argument `index` as a ctypes value."""
        assert self.sizes[index] == ctypes.sizeof(kind)
        return kind.from_address(self.arguments[index])


CALLBACK = ctypes.CFUNCTYPE(None, ctypes.POINTER(Launch))


class CudaFailure(Exception):
    """A driver call made by a test returned an error."""

    def __init__(self, name: str, result: int) -> None:
        super().__init__(f"{name} returned {result}")
        self.result = result


class FakeDriver:
    """Control of the fake, and its entries for tests that call the driver themselves."""

    def __init__(self) -> None:
        assert PATH.exists(), f"{PATH} is missing: build with CUDAEXEC_TEST_SUPPORT=ON"
        self.path = str(PATH)
        self.lib = ctypes.CDLL(self.path)
        for name in ("calls", "misuse", "live"):
            getattr(self.lib, f"fakecuda_{name}").restype = ctypes.c_void_p
        self.lib.fakecuda_free.argtypes = [ctypes.c_void_p]
        self.lib.fakecuda_used.restype = ctypes.c_uint64
        self.lib.fakecuda_alloc_managed.restype = ctypes.c_void_p
        self.lib.fakecuda_clear_faults.restype = ctypes.c_int64
        self.lib.fakecuda_launches.restype = ctypes.c_int64
        self._kept: list[object] = []

    def _text(self, name: str) -> str:
        address = getattr(self.lib, f"fakecuda_{name}")()
        text = ctypes.string_at(address).decode()
        self.lib.fakecuda_free(address)
        return text

    def reset(self) -> None:
        """Forgets everything; one GPU of sm_90 with 8 GiB is left."""
        self.lib.fakecuda_reset()
        self._kept.clear()

    def set_devices(
        self, count: int = 1, *, sm: int = 90, sm_count: int = 132, nbytes: int = 8 << 30
    ) -> None:
        """Before the first use of the driver."""
        self.lib.fakecuda_set_devices(count, sm, sm_count, ctypes.c_uint64(nbytes))

    def set_support(self, device: int, *, virtual_memory: bool = True, pools: bool = True) -> None:
        self.lib.fakecuda_set_support(device, int(virtual_memory), int(pools))

    def set_driver(self, version: int = 13000, init_result: int = 0) -> None:
        self.lib.fakecuda_set_driver(version, init_result)

    def set_eager(self, eager: bool) -> None:
        """Work is done when it is put on a stream, not when something waits for it."""
        self.lib.fakecuda_set_eager(int(eager))

    def set_log(self, on: bool) -> None:
        self.lib.fakecuda_set_log(int(on))

    def fail(self, name: str | None, k: int, result: int, *, repeat: bool = False) -> None:
        """The k-th call (from 1) of `name`, or of anything, fails with `result`."""
        entry = None if name is None else name.encode()
        self.lib.fakecuda_fail(entry, ctypes.c_int64(k), result, int(repeat))

    def clear_faults(self) -> int:
        """Disarms; the number of calls that failed because of a fault."""
        return int(self.lib.fakecuda_clear_faults())

    @contextmanager
    def failing(self, name: str | None, k: int, result: int) -> Iterator[list[int]]:
        """`fail()` for a block; the list holds the number of calls that failed, afterwards."""
        self.fail(name, k, result)
        hits: list[int] = []
        try:
            yield hits
        finally:
            hits.append(self.clear_faults())

    def calls(self, *names: str) -> list[str]:
        """Calls so far, oldest first; of these entries only, if any are named."""
        lines = [line for line in self._text("calls").split("\n") if line]
        return [line for line in lines if not names or line.split("(")[0] in names]

    def clear_calls(self) -> None:
        self.lib.fakecuda_clear_calls()

    def misuse(self) -> list[str]:
        return [line for line in self._text("misuse").split("\n") if line]

    def take_misuse(self) -> list[str]:
        found = self.misuse()
        self.lib.fakecuda_clear_misuse()
        return found

    def live(self) -> dict[str, int]:
        """What is alive, by kind; kinds with nothing left out."""
        pairs = (item.split("=") for item in self._text("live").split())
        return {kind: int(count) for kind, count in pairs if int(count) != 0}

    def used(self, device: int = 0) -> int:
        return int(self.lib.fakecuda_used(device))

    def context_depth(self) -> int:
        return int(self.lib.fakecuda_context_depth())

    def run_all(self) -> None:
        """Does all work that waits on a stream."""
        self.lib.fakecuda_run_all()

    def register_kernel(
        self, name: str, sizes: list[int], body: Callable[[Launch], None] | None = None
    ) -> None:
        """A kernel of test images, or what a kernel of a real image does."""
        callback = ctypes.cast(None, CALLBACK)
        if body is not None:
            callback = CALLBACK(lambda launch: body(launch.contents))
        self._kept.append(callback)
        self.lib.fakecuda_register_kernel(
            name.encode(), (ctypes.c_uint64 * len(sizes))(*sizes), len(sizes), callback
        )

    def launches(self, name: str) -> int:
        return int(self.lib.fakecuda_launches(name.encode()))

    def call(self, name: str, *arguments: object) -> None:
        """Calls a driver entry; ints are passed as 64 bits. Raises CudaFailure."""
        passed = [ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments]
        result = getattr(self.lib, name)(*passed)
        if result != 0:
            raise CudaFailure(name, result)

    def make(self, name: str, *arguments: object) -> int:
        """Calls an entry whose first parameter is where it puts a handle; gives the handle."""
        out = ctypes.c_uint64()
        self.call(name, ctypes.byref(out), *arguments)
        return out.value


def kernels() -> ctypes.CDLL:
    """Our kernels, compiled for the CPU."""
    library = ctypes.CDLL(str(LIBRARIES / "libcudaexec_emulated_kernels.so"))
    library.emulation_take_traps.restype = ctypes.c_int64
    return library


def emulate_kernels() -> None:
    """Makes the fake driver run our kernels on the CPU; again after a reset."""
    assert kernels().emulation_register() > 0


def read(address: int, nbytes: int) -> bytes:
    """Bytes of fake device memory as they are now, whatever work waits."""
    return ctypes.string_at(address, nbytes)
