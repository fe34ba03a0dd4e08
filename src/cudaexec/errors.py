"""The exceptions and warnings of cudaexec.

Every message says what failed, where (method, input, parameter name, path and offset), what was
expected and found, and what to do. ``code`` is the number that ExecuTorch gives to the same kind
of error.
"""

from __future__ import annotations

__all__ = [
    "CaptureError",
    "ClosedError",
    "ContextFull",
    "CudaexecWarning",
    "DeviceError",
    "DtypeError",
    "Error",
    "ExportError",
    "FileError",
    "FormatError",
    "InputError",
    "MissingFileError",
    "NotSupported",
    "OutOfMemory",
    "SessionBusy",
    "ShapeError",
    "TargetError",
    "VersionError",
    "WeightsError",
]


class Error(Exception):
    """Base of all errors of cudaexec; itself raised for defects of cudaexec or of compiled code."""

    code: int = 0x01


class FormatError(Error):
    """A file is damaged or is not what it claims to be."""

    code = 0x23


class VersionError(Error):
    """A file needs another version of cudaexec; the message names both."""

    code = 0x30


class TargetError(Error):
    """No code in the program runs on this machine; the message lists what it was built for."""

    code = 0x30


class WeightsError(Error):
    """Weights are missing, damaged, or belong to another model."""

    code = 0x24


class InputError(Error, ValueError, TypeError):
    """A call got the wrong number, names or structure of inputs."""

    code = 0x12


class ShapeError(InputError):
    """An input has a wrong rank or size, or sizes that break a condition of the export."""


class DtypeError(InputError):
    """An input has another element type than the exported one. Nothing is ever cast."""

    code = 0x13


class DeviceError(InputError):
    """An input or a program is on a device that is wrong or not available."""


class OutOfMemory(Error, MemoryError):
    """An allocation failed or a memory limit was reached; the message has the sizes in bytes."""

    code = 0x21


class NotSupported(Error, NotImplementedError):
    """A valid request that this build, or this program, cannot serve."""

    code = 0x10


class CaptureError(Error):
    """An operation that cannot run while a CUDA graph is captured."""

    code = 0x02


class ContextFull(Error):
    """The KV cache has no room for more tokens; the cache is as it was before the call."""

    code = 0x25


class SessionBusy(Error):
    """A session or Binding is in use by a call that cannot be waited for.

    That is a call of another thread at the time of the fork that made this process, or a call of
    this very thread.
    """

    code = 0x02


class ClosedError(Error):
    """The module, method or session was closed."""

    code = 0x02


class ExportError(Error):
    """A model cannot be exported; the message names the operator or the reason."""

    code = 0x10


class FileError(Error, OSError):
    """The operating system refused a file operation; the message has the path and the reason.

    ``errno``, ``strerror`` and ``filename`` are those of the refusal if it is about one path.
    """

    code = 0x22

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[object, ...]:
        return _file_error, (type(self), *self.args), self._state()

    def _state(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in ("errno", "strerror", "filename")}

    def __setstate__(self, state: dict[str, object] | None) -> None:
        for name, value in (state or {}).items():
            setattr(self, name, value)


def _file_error(cls: type[FileError], *args: object) -> FileError:
    return cls(*args)


class MissingFileError(FileError, FileNotFoundError):
    """A file does not exist; ``errno`` is set, as in every FileError about one path."""


class CudaexecWarning(RuntimeWarning):
    """Something failed while resources were given back; results are not affected."""
