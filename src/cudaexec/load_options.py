"""Options of `cudaexec.load`: frozen, and unknown names raise."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LoadOptions"]


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How a program is loaded.

    Attributes:
        threads: CPU threads that one call may use; None for all CPUs that the process may use.
        verify: compare the digests of code and weights with the files' own record. Without it,
            damaged weights are not noticed.
        memory_limit: bytes of working memory (outputs, intermediates, input copies) that the
            module may hold; None for no limit. Beyond it, calls raise OutOfMemory.
        isa: force a CPU code variant, such as ``"x86-64-v3"``; None for the best that the machine
            runs.
    """

    threads: int | None = None
    verify: bool = True
    memory_limit: int | None = None
    isa: str | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: a number of threads or a memory limit below one.
        """
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"LoadOptions.threads: expected None or 1 or more, got {self.threads}")
        if self.memory_limit is not None and self.memory_limit < 1:
            raise ValueError(
                f"LoadOptions.memory_limit: expected None or bytes > 0, got {self.memory_limit}"
            )
