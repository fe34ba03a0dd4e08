"""Nothing in this folder makes containers or libraries, so nobody has to look for them after each test."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _nothing_stays_alive() -> Iterator[None]:
    yield
