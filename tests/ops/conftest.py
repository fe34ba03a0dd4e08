"""Every test leaves nothing behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from cudaexec import _core


@pytest.fixture(scope="session", autouse=True)
def _cheap_collections() -> None:
    """Keeps the collections between tests from visiting all of torch each time.

    The test modules have imported it by now, where it is there.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_tensor_stays_alive(_cheap_collections: None) -> Iterator[None]:
    before = _core._testing.live_counts()
    yield
    after = _core._testing.live_counts()
    for kind in ("storages", "handles"):
        assert after[kind] == before[kind], f"{kind} left alive by the test"
