"""Heap allocations and locks of a block of code, by the library that asks (preload/counting.cpp).

Only in processes that preload the counter: `environment()` gives their variables.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cuda_fake.fake import LIBRARIES

PATH = LIBRARIES / "libcudaexec_counting.so"
CORE = "libcudaexec_shims"
BINDING = "_core"
# Frames of these say nothing of who asked.
RUNTIMES = ("libcudaexec_counting", "libstdc++", "libc.so", "libc-", "ld-linux", "libgcc_s")
MOST_TEXT = 1 << 14


@dataclass
class Uses:
    """What one library did: stacks of its allocations, and of its locks by address."""

    allocations: list[str] = field(default_factory=list)
    locks: dict[int, str] = field(default_factory=dict)


def environment() -> dict[str, str]:
    return {**os.environ, "LD_PRELOAD": str(PATH)}


def uses(run: Callable[[], object], *libraries: str) -> list[Uses]:
    """What this thread does in `run()`: of each library, named by how its file name begins."""
    counter = ctypes.CDLL(None)
    counter.counting_start.restype = None
    counter.counting_stop.restype = ctypes.c_size_t
    counter.counting_describe.restype = ctypes.c_size_t
    text = ctypes.create_string_buffer(MOST_TEXT)
    mutex = ctypes.c_void_p()
    counter.counting_start()
    run()
    count = counter.counting_stop()
    found = {library: Uses() for library in libraries}
    for index in range(count):
        nbytes = counter.counting_describe(
            ctypes.c_size_t(index), ctypes.byref(mutex), text, ctypes.c_size_t(MOST_TEXT)
        )
        assert nbytes > 0, f"{count} uses are more than the counter keeps"
        frames = [Path(line).name for line in text.raw[:nbytes].decode().splitlines()]
        asking = [frame for frame in frames if not frame.startswith(RUNTIMES)]
        for library, of_library in found.items():
            if not asking or not asking[0].startswith(library):
                continue
            stack = "\n".join(asking[:12])
            if mutex.value:
                of_library.locks[mutex.value] = stack
            else:
                of_library.allocations.append(stack)
    return list(found.values())
