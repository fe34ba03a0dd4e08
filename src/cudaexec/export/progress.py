"""Stages of an export: their times, and a live display on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cudaexec.export.report import StageTime


class Stages:
    """Times stages; shows the running one with `rich` if asked to, on stderr."""

    def __init__(self, show: bool | None) -> None:
        """Args: show: True, False, or None for "if stderr is a terminal"."""
        self.times: list[StageTime] = []
        self._console = _console() if (sys.stderr.isatty() if show is None else show) else None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a block as one stage; repeated names add up."""
        begin = time.perf_counter()
        try:
            if self._console is None:
                yield
            else:
                with self._console.status(name):
                    yield
        finally:
            seconds = time.perf_counter() - begin
            self._add(name, seconds)
        if self._console is not None:
            self._console.print(f"[green]done[/green] {name} [dim]{seconds:.2f} s[/dim]")

    def _add(self, name: str, seconds: float) -> None:
        for index, known in enumerate(self.times):
            if known.name == name:
                self.times[index] = StageTime(name, known.seconds + seconds)
                return
        self.times.append(StageTime(name, seconds))


def _console() -> Any:
    from rich.console import Console

    return Console(stderr=True)
