"""Shared fixtures: every model is exported once per run, whatever the number of test processes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

# Generated code then asserts sizes and strides of inputs and call-out results.
# It reads the variable once per library, so it is set before anything is loaded.
os.environ.setdefault("AOTI_RUNTIME_CHECK_INPUTS", "1")

import pytest

DATA = Path(__file__).parent / "data"
SAMPLES = DATA / "et_samples"


@pytest.fixture(scope="session")
def shared_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory common to all test processes of this run."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "shared"
    shared.mkdir(exist_ok=True)
    return shared


@pytest.fixture(scope="session")
def once(shared_dir: Path) -> Callable[[str, Callable[[Path], None]], Path]:
    """`once(name, make)` calls `make(directory)` in one process of the run; others wait for it."""

    def run(name: str, make: Callable[[Path], None]) -> Path:
        directory = shared_dir / name
        with (shared_dir / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (directory / ".done").exists():
                directory.mkdir(exist_ok=True)
                make(directory)
                (directory / ".done").touch()
        return directory

    return run


@pytest.fixture(scope="session")
def exported(once: Callable[[str, Callable[[Path], None]], Path]) -> Callable[[str], Path]:
    """`exported("mlp_small")` is the path of that row's `.pte`."""

    def get(name: str) -> Path:
        def make(directory: Path) -> None:
            import cudaexec
            import models

            built = next(c for c in models.CASES if c.name == name).build()
            cudaexec.export(
                built.model,
                built.args,
                built.kwargs,
                path=directory / "model.pte",
                dynamic_shapes=built.dynamic_shapes,
                target="cpu",
            )

        return once(name, make) / "model.pte"

    return get


def pytest_collection_finish() -> None:
    """Modules that are loaded by now stay: without them a full collection takes little time."""
    import gc

    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _nothing_stays_alive() -> Iterator[None]:
    """Containers and libraries that a test creates are gone when it ends."""
    import gc

    from cudaexec import _core

    testing = getattr(_core, "_testing", None)
    if testing is None:
        yield
        return
    gc.collect()
    before = testing.live_counts()
    yield
    gc.collect()
    after = testing.live_counts()
    for kind in ("containers", "shared_objects"):
        assert after[kind] <= before[kind], f"{kind} left alive by the test"
