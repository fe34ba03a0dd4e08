"""Where compiled parts that all models share are kept, safe for several exporters at once."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def default_cache_dir() -> Path:
    """Return `$CUDAEXEC_CACHE`, else `~/.cache/cudaexec` (or below `$XDG_CACHE_HOME`)."""
    named = os.environ.get("CUDAEXEC_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "cudaexec"


class BuildCache:
    """Files by the hash of everything they depend on.

    A file appears whole or not at all (written beside its name, then renamed). A lock per entry
    keeps several processes from building the same thing; a directory that cannot be written is
    only read, and what is missing is built into `fallback` instead.
    """

    def __init__(self, directory: Path, fallback: Path) -> None:
        """Args: directory: the shared cache. fallback: a private directory of this export."""
        self._directory = directory
        self._fallback = fallback

    def get(self, name: str | Path, key: str, build: Callable[[Path], None]) -> tuple[Path, bool]:
        """Return the file `name` of the entry `key`, built if it is not there.

        Args:
            name: file name, or a path below the entry; its suffix tells the kind.
            key: text that holds every input of the build; hashed.
            build: writes the file to the path it is given.

        Returns:
            The path and whether it was there already.
        """
        digest = hashlib.sha256(key.encode()).hexdigest()[:32]
        target = self._directory / digest / name
        if target.is_file():
            return target, True
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with (target.parent / ".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                found = target.is_file()
                if not found:
                    self._build(target, build)
        except OSError:  # read-only, full, or no locks there: build privately
            private = self._fallback / digest / name
            if private.is_file():
                return private, True
            private.parent.mkdir(parents=True, exist_ok=True)
            self._build(private, build)
            return private, False
        return target, found

    @staticmethod
    def _build(target: Path, build: Callable[[Path], None]) -> None:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".new-", suffix=target.suffix)
        os.close(handle)
        part = Path(name)
        try:
            build(part)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
