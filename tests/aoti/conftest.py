from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from libraries import HERE, build

Once = Callable[[str, Callable[[Path], None]], Path]


def compiled(once: Once, name: str, source: Path, *flags: str) -> bytes:
    directory = once(name, lambda directory: void(build(source, directory / "code.so", *flags)))
    return (directory / "code.so").read_bytes()


def void(_: object) -> None:
    return None


@pytest.fixture(scope="session")
def fake_model(once: Once) -> bytes:
    """A container by hand, with one constant and GetLastError (torch 2.13 and later)."""
    flags = ("-fopenmp", "-fno-gnu-unique", "-DWITH_LAST_ERROR", "-DWITH_CONSTANT")
    return compiled(once, "aoti_fake", HERE / "fake_model.cpp", *flags)


@pytest.fixture(scope="session")
def old_model(once: Once) -> bytes:
    """As torch 2.11 and older compilers make it: errors on stderr alone, unique symbols."""
    return compiled(once, "aoti_old", HERE / "fake_model.cpp", "-fopenmp", "-fgnu-unique")


@pytest.fixture(scope="session")
def parallel(once: Once) -> bytes:
    """Parallel regions of every kind."""
    return compiled(once, "aoti_parallel", HERE / "parallel.cpp", "-fopenmp")
