"""SHA-256 and the tree hash against independent implementations, on every code path."""

from __future__ import annotations

import hashlib
import random
import threading

import pytest
import xxhash

from cudaexec._core import _format

PATHS = ["portable", "avx2", "avx512"]
CHUNK = 1 << 20
LARGE = [CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 12345]


def available(path: str) -> bool:
    return PATHS.index(path) <= PATHS.index(_format.best_hash_path())


def tree_hash(data: bytes) -> str:
    """The definition of docs/format.md over the `xxhash` package."""
    chunks = [data[i : i + CHUNK] for i in range(0, len(data), CHUNK)]
    joined = b"".join(xxhash.xxh3_128(chunk).digest() for chunk in chunks)
    return xxhash.xxh3_128(joined + len(data).to_bytes(8, "little")).hexdigest()


@pytest.mark.parametrize("portable", [False, True])
def test_sha256_of_every_small_length(portable: bool) -> None:
    data = random.Random(1).randbytes(2050)
    for n in range(2050):
        part = data[n % 7 : n]  # also starts that are not aligned
        assert _format.sha256(part, portable=portable) == hashlib.sha256(part).digest(), n


@pytest.mark.parametrize("portable", [False, True])
def test_sha256_of_large_data(portable: bool) -> None:
    data = random.Random(2).randbytes(LARGE[-1])
    for n in LARGE:
        assert _format.sha256(data[:n], portable=portable) == hashlib.sha256(data[:n]).digest()


@pytest.mark.parametrize("path", PATHS)
def test_xxh3_of_every_small_length_and_large_data(path: str) -> None:
    if not available(path):
        with pytest.raises(ValueError, match=path):
            _format.xxh3_128(b"", path)
        return
    data = random.Random(3).randbytes(LARGE[-1] + 1)
    for n in [*range(2050), *LARGE]:
        for start in (0, 1):
            part = memoryview(data)[start : start + n]
            assert _format.xxh3_128(part, path) == xxhash.xxh3_128(part).hexdigest(), (n, start)


def test_tree_hash_follows_its_definition() -> None:
    data = random.Random(4).randbytes(LARGE[-1])
    for n in [0, 1, 16, 4096, *LARGE]:
        for threads in (1, 2, 8):
            assert _format.tree_hash(data[:n], threads=threads) == tree_hash(data[:n]), n


def test_a_flipped_bit_anywhere_changes_the_tree_hash() -> None:
    data = bytearray(random.Random(5).randbytes(2 * CHUNK + 100))
    before = _format.tree_hash(data)
    for position in [0, CHUNK - 1, CHUNK, 2 * CHUNK + 99]:
        data[position] ^= 4
        assert _format.tree_hash(data) != before
        data[position] ^= 4
    assert _format.tree_hash(data) == before
    assert _format.tree_hash(data[:-1]) != before


def test_hashes_take_contiguous_buffers_only() -> None:
    assert _format.sha256(bytearray(b"abc")) == hashlib.sha256(b"abc").digest()
    with pytest.raises(BufferError):
        _format.tree_hash(memoryview(b"abcdef")[::2])
    with pytest.raises(TypeError):
        _format.sha256("abc")


def test_hashes_release_the_gil() -> None:
    data = bytes(64 << 20)
    stop = threading.Event()
    ticks: list[int] = []

    def count() -> None:
        while not stop.is_set():
            ticks.append(1)
            stop.wait(0.0005)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        before = len(ticks)
        _format.sha256(data, portable=True)
        assert len(ticks) - before > 10
    finally:
        stop.set()
        thread.join()
