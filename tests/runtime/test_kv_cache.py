"""Pages and steps of a KV cache on the CPU, without a program."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import cudaexec
from cudaexec._core import _testing

KIB = 1 << 10
MIB = 1 << 20
# (id, batch, heads, head_dim, window, capacity): 1 KiB a token in bf16, 64 tokens a page of 64 KiB
FLAT = (0, 1, 4, 64, 0, 1000)
RING = (1, 1, 4, 64, 100, 163)
TOKEN = 4 * 64 * 2


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    before = mappings()
    yield
    _testing.disarm_fault()
    gc.collect()
    assert mappings() == before
    assert _testing.cleanup_reports() == ([], 0)


def mappings() -> int:
    return Path("/proc/self/maps").read_text().count("cudaexec-kv")


def make(*layers: Any, dtype: str = "bfloat16") -> Any:
    return _testing.KvCache(list(layers or [FLAT]), dtype)


def advance(cache: Any, width: int, value: int, layer: int = 0) -> None:
    """A step that fills the rows of its tokens with `value`."""
    first = cache.position
    cache.prepare(width)
    for token in range(first, first + width):
        write(cache, token, value, layer)
    cache.commit()


def write(cache: Any, token: int, value: int, layer: int = 0) -> None:
    for values in (False, True):
        ctypes.memset(cache.address(layer, values, 0, 0, token), value, TOKEN)


def read(cache: Any, token: int, layer: int = 0) -> int:
    """The byte that the token's row is full of."""
    found = set()
    for values in (False, True):
        found |= set(ctypes.string_at(cache.address(layer, values, 0, 0, token), TOKEN))
    assert len(found) == 1
    return int(found.pop())


# ---- layout ------------------------------------------------------------------------------------


def test_pages_of_a_real_model() -> None:
    """16 layers of 8 heads of 64 in bf16: 64 tokens fill 2 MiB exactly."""
    layers = [(i, 1, 8, 64, 0, 131072) for i in range(16)]
    (group,) = _testing.plan_kv(layers, "bfloat16", 2 * MIB)
    assert group["block"] == 64
    assert group["page_nbytes"] == 2 * MIB
    assert group["slots"] == 131072
    assert group["token_nbytes"] == 32 * KIB


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 8, 12, 40])
@pytest.mark.parametrize("count", [1, 2, 7, 26, 80])
@pytest.mark.parametrize("granularity", [64 * KIB, 2 * MIB])
@pytest.mark.parametrize("dtype", ["float32", "float8_e4m3fn"])
def test_pages_waste_little(heads: int, count: int, granularity: int, dtype: str) -> None:
    layers = [(i, 1, heads, 128, 0, 100_000) for i in range(count)]
    (group,) = _testing.plan_kv(layers, dtype, granularity)
    used = group["block"] * group["token_nbytes"]
    assert group["page_nbytes"] % granularity == 0
    assert group["page_nbytes"] * 0.874 <= used <= group["page_nbytes"]
    assert 100_000 <= group["slots"] < 100_000 + group["block"]
    assert group["block"] >= 32


def test_groups() -> None:
    layers = [
        (0, 1, 2, 8, 0, 500),
        (1, 1, 2, 8, 10, 40),
        (2, 1, 4, 8, 0, 400),
        (3, 1, 2, 8, 30, 40),
        (4, 1, 2, 8, 10, 41),
    ]
    groups = _testing.plan_kv(layers, "float32", 64 * KIB)
    assert [group["layers"] for group in groups] == [[0, 2], [1, 3], [4]]
    assert [group["ring"] for group in groups] == [False, True, True]
    assert [group["slots"] % group["block"] for group in groups] == [0, 0, 0]
    assert groups[0]["token_nbytes"] == 2 * 8 * 4 * (2 + 4)


def test_tokens_do_not_overlap() -> None:
    layers = [(0, 2, 3, 8, 0, 70), (1, 2, 3, 8, 0, 70), (2, 2, 1, 8, 20, 40)]
    cache = make(*layers, dtype="float16")
    cache.prepare(40)
    rows = []
    for layer, batch, heads, dim, _, _ in layers:
        for item in range(batch):
            for head in range(heads):
                for values in (False, True):
                    for token in range(40):
                        rows.append((cache.address(layer, values, item, head, token), dim * 2))
    rows.sort()
    assert all(a + size <= b for (a, size), (b, _) in pairwise(rows))


# ---- growth ------------------------------------------------------------------------------------


def test_memory_follows_the_tokens() -> None:
    cache = make()
    (group,) = cache.groups
    page, block = group["page_nbytes"], group["block"]
    assert page == 64 * KIB and block == 64
    assert cache.usage[1:] == (0, 0)
    assert cache.usage[0] >= 16 * page
    advance(cache, 1, 1)
    assert cache.usage[1:] == (page, KIB)
    advance(cache, block - 1, 2)
    assert cache.usage[1:] == (page, page)
    advance(cache, 1, 3)
    assert cache.usage[1:] == (2 * page, page + KIB)
    assert [read(cache, token) for token in (0, 1, block - 1, block)] == [1, 2, 2, 3]


def test_many_sessions_map_what_they_use() -> None:
    """64 sessions of 100 tokens of a cache for 131,072."""
    first = _testing.KvCache([(i, 1, 2, 64, 0, 131072) for i in range(2)], "bfloat16")
    caches = [first] + [first.session() for _ in range(63)]
    (group,) = first.groups
    for cache in caches:
        cache.prepare(100)
        cache.commit()
    rounded = -(-100 // group["block"]) * group["page_nbytes"]
    assert sum(cache.usage[1] for cache in caches) == 64 * rounded


def test_full() -> None:
    cache = make()
    advance(cache, 998, 1)
    with pytest.raises(cudaexec.ContextFull, match=r"holds 998 tokens, this call adds 3, and 1000"):
        cache.prepare(3)
    assert cache.position == 998
    advance(cache, 2, 2)
    with pytest.raises(cudaexec.ContextFull, match="holds 1000 tokens, this call adds 1"):
        cache.prepare(1)
    assert [read(cache, token) for token in (0, 997, 998, 999)] == [1, 1, 2, 2]
    cache.reset()
    with pytest.raises(cudaexec.ContextFull, match="holds 0 tokens, this call adds 1001"):
        cache.prepare(1001)
    advance(cache, 1000, 3)


def test_a_step_that_is_not_committed_did_not_happen() -> None:
    cache = make()
    advance(cache, 10, 1)
    cache.prepare(100)
    assert cache.position == 10
    advance(cache, 5, 2)
    assert cache.position == 15
    assert [read(cache, token) for token in (9, 10, 14)] == [1, 2, 2]


# ---- rewind, reset -----------------------------------------------------------------------------


def test_rewind() -> None:
    cache = make()
    advance(cache, 200, 1)
    for wrong in (-1, 201):
        with pytest.raises(cudaexec.InputError, match=rf"rewind\({wrong}\).*holds 200 tokens"):
            cache.rewind(wrong)
    cache.rewind(150)
    assert cache.position == 150
    advance(cache, 1, 2)
    assert [read(cache, token) for token in (149, 150, 151)] == [1, 2, 1]
    cache.rewind(0)
    assert cache.position == 0
    assert cache.usage[1] == 4 * 64 * KIB


def test_rewind_of_a_ring_needs_its_window() -> None:
    cache = make((0, *RING[1:]))
    (group,) = cache.groups
    slots = group["slots"]
    assert 163 <= slots <= 192
    for _ in range(9):
        advance(cache, 60, 1)
    oldest = 540 - slots
    with pytest.raises(
        cudaexec.InputError, match=rf"window of 100 .* rewind to at least {oldest + 99}"
    ):
        cache.rewind(oldest + 98)
    assert cache.position == 540
    cache.rewind(oldest + 99)
    # Going on does not bring back what was overwritten.
    advance(cache, 1, 2)
    with pytest.raises(cudaexec.InputError, match="rewind to at least"):
        cache.rewind(oldest + 98)
    cache.rewind(0)
    advance(cache, 50, 3)
    cache.rewind(10)


def test_a_ring_can_always_undo_the_widest_step() -> None:
    """Capacity is window + widest - 1: the step that failed overwrote nothing that is needed."""
    window, widest = 100, 64
    cache = make((0, 1, 4, 64, window, window + widest - 1))
    for width in (40, 64, 64, 1, 64, 64, 17, 64):
        advance(cache, width, 1)
        here = cache.position
        cache.prepare(widest)
        cache.rewind(here)


# ---- fork --------------------------------------------------------------------------------------


def test_fork_shares_until_one_writes() -> None:
    parent = make()
    advance(parent, 100, 1)
    child = parent.fork()
    assert child.position == 100
    assert child.usage[1:] == parent.usage[1:]
    assert read_page_bytes(child, 99) == 1
    advance(child, 1, 2)  # copies the half-full page
    advance(parent, 2, 3)  # now its own
    assert [read(child, token) for token in (0, 99, 100)] == [1, 1, 2]
    assert [read(parent, token) for token in (0, 99, 100, 101)] == [1, 1, 3, 3]
    child.rewind(10)
    advance(child, 1, 4)
    assert [read(child, token) for token in (9, 10, 11)] == [1, 4, 1]
    assert [read(parent, token) for token in (9, 10, 11)] == [1, 1, 1]
    del parent
    gc.collect()
    assert [read(child, token) for token in (0, 10)] == [1, 4]


def read_page_bytes(cache: Any, token: int) -> int:
    """The token's byte, without a step that would copy the page."""
    fork = cache.fork()
    fork.rewind(token + 1)
    return read(fork, token)


def test_forks_of_forks() -> None:
    caches = [make(FLAT, RING)]
    advance(caches[0], 90, 0x10)
    for n in range(1, 6):
        caches.append(caches[-1].fork())
        caches[-1].rewind(90 - n)
        advance(caches[-1], 3, 0x10 + n)
    for n, cache in enumerate(caches):
        assert cache.position == (90 if n == 0 else 93 - n)
        # Tokens written by the newest ancestor (or itself) that reached them.
        for token in range(80, cache.position):
            writers = [m for m in range(1, n + 1) if 91 - m + 0 <= token + 1 <= 93 - m]
            expected = 0x10 + (max(writers) if writers else 0)
            assert read(cache, token) == expected, (n, token)
    del caches[0]
    gc.collect()
    assert read(caches[0], 0) == 0x10


def test_reset_of_a_fork_leaves_the_other() -> None:
    parent = make()
    advance(parent, 100, 1)
    child = parent.fork()
    child.reset()
    advance(child, 100, 2)
    assert [read(parent, token) for token in (0, 99)] == [1, 1]
    parent.reset()
    advance(parent, 30, 3)
    assert [read(child, token) for token in (0, 99)] == [2, 2]


# ---- faults ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", [["allocate"], ["file"], ["allocate", "file"]])
@pytest.mark.parametrize("layers", [(FLAT,), (RING,), (FLAT, RING)], ids=["flat", "ring", "both"])
def test_each_failure_leaves_the_cache(layers: tuple[Any, ...], sites: list[str]) -> None:
    """Every allocation and mapping of a fork and of steps fails once; the next try is right."""
    where = layers[0][0]
    parent = make(*layers)
    for _ in range(3):
        advance(parent, 50, 1, where)
    k = 0
    failed = True
    while failed:
        k += 1
        failed = False
        _testing.arm_fault(sites, k)
        try:
            child = parent.fork()
            child.prepare(60)
        except (cudaexec.OutOfMemory, cudaexec.Error):
            failed = True
        _testing.disarm_fault()
        if failed:
            child = parent.fork()
        tries = 0
        for value in (2, 3):  # both write: pages are copied, then grow
            for cache in (child, parent.fork()):
                tries += 1
                first = cache.position
                assert first == 150 + (60 if value == 3 and cache is child else 0)
                _testing.arm_fault(sites, k)
                try:
                    cache.prepare(60)
                except cudaexec.Error:
                    failed = True
                    assert cache.position == first
                _testing.disarm_fault()
                cache.prepare(60)
                assert read(cache, 149, where) == 1
                for token in range(first, first + 60):
                    write(cache, token, value, where)
                cache.commit()
                assert read(cache, first + 59, where) == value
        assert tries == 4
        assert parent.position == 150
        assert read(parent.fork(), 149, where) == 1
    assert k > 1


def test_no_address_space() -> None:
    with pytest.raises(cudaexec.OutOfMemory, match="address space"):
        make((0, 1, 1024, 1024, 0, (1 << 31) - 1), dtype="float32").session()


# ---- a forked process --------------------------------------------------------------------------


def in_child(check: Any) -> None:
    """Runs `check` in a forked child; its failure is the test's."""
    child = os.fork()
    if child == 0:
        try:
            check()
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_forked_child_leaves_the_parents_cache_alone() -> None:
    cache = make()
    advance(cache, 100, 1)

    def check() -> None:
        nonlocal cache
        try:
            cache.prepare(1)
        except cudaexec.NotSupported as error:
            assert "forked" in str(error)
        else:
            raise AssertionError
        other = cache.session()
        advance(other, 100, 5)
        assert read(other, 99) == 5
        cache.reset()
        advance(cache, 100, 6)
        assert read(cache, 99) == 6
        del cache
        gc.collect()

    in_child(check)
    advance(cache, 1, 2)
    assert [read(cache, token) for token in (0, 99, 100)] == [1, 1, 2]
