"""The fake cuBLASLt (tests/cuda_fake/cublas), from Python."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from cuda_fake.fake import LIBRARIES

ALLOC_FAILED, INVALID_VALUE, EXECUTION_FAILED, NOT_SUPPORTED = 3, 7, 13, 15


class FakeCublas:
    """Control of the fake."""

    def __init__(self) -> None:
        self.path = str(LIBRARIES / "libcudaexec_fakecublas.so")
        self.lib = ctypes.CDLL(self.path)
        self.lib.fakecublas_live.restype = ctypes.c_int64
        self.lib.fakecublas_seen.restype = ctypes.c_int64
        self.lib.fakecublas_free.argtypes = [ctypes.c_void_p]

    def reset(self) -> None:
        self.lib.fakecublas_reset()

    def set(
        self,
        *,
        workspace: int = 0,
        refuse_bias: bool = False,
        refuse_all: bool = False,
        refuse_half: bool = False,
    ) -> None:
        """What algorithms need and which products have none."""
        self.lib.fakecublas_set(
            ctypes.c_size_t(workspace), int(refuse_bias), 2 * refuse_half or int(refuse_all)
        )

    @contextmanager
    def failing(self, k: int, status: int, name: str | None = None) -> Iterator[list[int]]:
        """The k-th call fails, of `name` or of anything; the list then holds the calls seen."""
        entry = None if name is None else name.encode()
        self.lib.fakecublas_fail(entry, ctypes.c_int64(k), status)
        seen: list[int] = []
        try:
            yield seen
        finally:
            seen.append(int(self.lib.fakecublas_seen()))
            self.lib.fakecublas_fail(None, ctypes.c_int64(0), 0)

    def _text(self, name: str) -> list[str]:
        function = getattr(self.lib, f"fakecublas_{name}")
        function.restype = ctypes.c_void_p
        address = function()
        text = ctypes.string_at(address).decode()
        self.lib.fakecublas_free(address)
        return [line for line in text.split("\n") if line]

    def calls(self) -> list[str]:
        """Products so far, as text."""
        return self._text("calls")

    def misuse(self) -> list[str]:
        return self._text("misuse")

    def live(self) -> int:
        """Handles and descriptors that are alive."""
        return int(self.lib.fakecublas_live())
