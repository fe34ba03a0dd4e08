"""The delegate payload: what is written is read, and each rule refuses its violation."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from cudaexec import errors
from cudaexec._core import _format
from cudaexec.export.payload import PayloadConstant, PayloadVariant, encode_payload

WEIGHT = PayloadConstant("a.w é", "cuda_fqn_weight:cuda:a.w é", 4096, "bfloat16", "cuda", 3, (4, 8), (16, 1))  # fmt: skip


def text(value: str) -> bytes:
    return struct.pack("<I", len(value.encode())) + value.encode()


def variant(sm: int, ptx: int, flags: int, key: str) -> bytes:
    return struct.pack("<III", sm, ptx, flags) + text(key)


def fqn0(
    *variants: bytes, constants: bytes = struct.pack("<I", 0), count: int | None = None
) -> bytes:
    number = len(variants) if count is None else count
    return b"ETCUDAFQN0" + struct.pack("<I", number) + b"".join(variants) + constants


def constants(*entries: bytes, count: int | None = None) -> bytes:
    return struct.pack("<I", len(entries) if count is None else count) + b"".join(entries)


def entry(
    fqn: str = "w",
    key: str = "k",
    nbytes: int = 64,
    dtype: int = 6,
    device: int = 0,
    offset: int = 0,
    sizes: tuple[int, ...] = (4, 4),
    strides: tuple[int, ...] = (4, 1),
    rank: int | None = None,
) -> bytes:
    head = struct.pack(
        "<QiiqI", nbytes, dtype, device, offset, len(sizes) if rank is None else rank
    )
    return text(fqn) + text(key) + head + struct.pack(f"<{len(sizes) * 2}q", *sizes, *strides)


CPU = variant(0, 0, 0, "so")


def test_round_trip() -> None:
    variants = [
        PayloadVariant("k80", 80),
        PayloadVariant("k90", 90),
        PayloadVariant("ptx", 90, 80, fallback_only=True),
    ]
    scalar = replace(WEIGHT, fqn="s", sizes=(), strides=(), dtype="bool", device="cpu", offset=0)
    empty = replace(WEIGHT, fqn="e", sizes=(0, 8), strides=(8, 1), storage_nbytes=0)
    found = _format.decode_payload(encode_payload(variants, [WEIGHT, scalar, empty]), "")
    assert found["layout"] == "fqn0"
    assert found["variants"] == [
        (80, 0, False, "k80"),
        (90, 0, False, "k90"),
        (90, 80, True, "ptx"),
    ]
    assert found["constants"] == [
        ("a.w é", "cuda_fqn_weight:cuda:a.w é", 4096, 15, 1, 3, [4, 8], [16, 1]),
        ("s", "cuda_fqn_weight:cuda:a.w é", 4096, 11, 0, 0, [], []),
        ("e", "cuda_fqn_weight:cuda:a.w é", 0, 15, 1, 3, [0, 8], [8, 1]),
    ]
    assert found["weights_key"] == ""


def test_the_older_layouts() -> None:
    fqn3 = b"ETCUDAFQN3" + text("so") + constants(entry())
    found = _format.decode_payload(fqn3, "")
    assert found["layout"] == "fqn3"
    assert found["variants"] == [(0, 0, False, "so")]
    assert found["constants"] == [("w", "k", 64, 6, 0, 0, [4, 4], [4, 1])]
    found = _format.decode_payload(b"a_so_blob\nb_weights_blob", "forward")
    assert (found["layout"], found["weights_key"]) == ("keys", "b_weights_blob")
    assert found["variants"] == [(0, 0, False, "a_so_blob")]
    found = _format.decode_payload(b"", "forward")
    assert (found["layout"], found["weights_key"]) == ("empty", "forward_weights_blob")
    assert found["variants"] == [(0, 0, False, "forward_so_blob")]


ACCEPTED = {
    "one untargeted variant": fqn0(CPU),
    "one variant with its own PTX": fqn0(variant(90, 90, 0, "a")),
    "a fallback alone": fqn0(variant(90, 80, 1, "a")),
    "a variant and a fallback of one architecture": fqn0(
        variant(90, 0, 0, "a"), variant(90, 90, 1, "b")
    ),
    "256 variants": fqn0(*(variant(i, 0, 0, "a") for i in range(1, 257))),
    "rank 64": fqn0(CPU, constants=constants(entry(sizes=(1,) * 64, strides=(1,) * 64))),
    "stride 0": fqn0(CPU, constants=constants(entry(nbytes=4, sizes=(9,), strides=(0,)))),
    "exactly filled": fqn0(CPU, constants=constants(entry(offset=1, nbytes=68))),
}

REFUSED = {
    "no newline": (b"one_key", "unknown layout"),
    "no second key": (b"one_key\n", "unknown layout"),
    "three keys": (b"a\nb\nc", "unknown layout"),
    "keys not UTF-8": (b"a\xff\nb", "unknown layout"),
    "another magic": (b"ETCUDAFQN9" + bytes(8), "ETCUDAFQN9"),
    "no variants": (fqn0(), "0 code variants"),
    "257 variants": (fqn0(*(variant(i, 0, 0, "a") for i in range(1, 258))), "257 code variants"),
    "2^31 variants": (fqn0(count=2**31), "code variants"),
    "unknown flag": (fqn0(variant(90, 0, 2, "a")), "flags 2"),
    "empty key": (fqn0(variant(90, 0, 0, "")), "is empty"),
    "PTX above the architecture": (fqn0(variant(80, 90, 0, "a")), "above"),
    "untargeted with PTX": (fqn0(variant(0, 80, 0, "a")), "above"),
    "untargeted among others": (fqn0(CPU, variant(90, 0, 0, "a")), "untargeted"),
    "two fallbacks": (fqn0(variant(90, 90, 1, "a"), variant(80, 80, 1, "b")), "fallback"),
    "fallback without PTX": (fqn0(variant(90, 0, 1, "a")), "no PTX"),
    "PTX beside a fallback": (fqn0(variant(90, 90, 0, "a"), variant(80, 80, 1, "b")), "has PTX"),
    "PTX beside a regular": (fqn0(variant(90, 90, 0, "a"), variant(80, 0, 0, "b")), "has PTX"),
    "an architecture twice": (fqn0(variant(90, 0, 0, "a"), variant(90, 0, 0, "b")), "two variants"),
    "bytes at the end": (fqn0(CPU) + b"\0", "follow its end"),
    "FQN3 with bytes at the end": (
        b"ETCUDAFQN3" + text("so") + constants(entry()) + b"x",
        "follow its end",
    ),
    "too many constants": (fqn0(CPU, constants=constants(count=2**20 + 1)), "1048577 constants"),
    "2^32-1 constants": (fqn0(CPU, constants=constants(count=2**32 - 1)), "constants"),
    "more constants than there are": (fqn0(CPU, constants=constants(entry(), count=2)), "ends"),
    "the same constant twice": (fqn0(CPU, constants=constants(entry(), entry())), "twice"),
    "no name": (fqn0(CPU, constants=constants(entry(fqn=""))), "empty"),
    "no storage key": (fqn0(CPU, constants=constants(entry(key=""))), "empty"),
    "name not UTF-8": (
        fqn0(CPU, constants=struct.pack("<I", 1) + struct.pack("<I", 1) + b"\xff"),
        "UTF-8",
    ),
    "name of 2^32-1 bytes": (
        fqn0(CPU, constants=struct.pack("<I", 1) + b"\xff\xff\xff\xff"),
        "4294967295 bytes",
    ),
    "unknown dtype": (fqn0(CPU, constants=constants(entry(dtype=9))), "dtype 9"),
    "negative dtype": (fqn0(CPU, constants=constants(entry(dtype=-1))), "dtype -1"),
    "unknown device": (fqn0(CPU, constants=constants(entry(device=2))), "device 2"),
    "rank 65": (fqn0(CPU, constants=constants(entry(rank=65))), "rank 65"),
    "negative size": (fqn0(CPU, constants=constants(entry(sizes=(-1, 4)))), "sizes"),
    "negative stride": (fqn0(CPU, constants=constants(entry(strides=(-4, 1)))), "strides"),
    "negative offset": (fqn0(CPU, constants=constants(entry(offset=-1))), "offset -1"),
    "one element too far": (fqn0(CPU, constants=constants(entry(offset=1))), "storage of 64"),
    "sizes that overflow": (
        fqn0(CPU, constants=constants(entry(sizes=(2**62, 2**62), strides=(2**62, 1)))),
        "storage",
    ),
    "offset that overflows": (fqn0(CPU, constants=constants(entry(offset=2**63 - 1))), "storage"),
    "bytes that overflow": (
        fqn0(CPU, constants=constants(entry(nbytes=2**64 - 1, dtype=7, offset=2**62, sizes=(), strides=()))),
        "storage",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    _format.decode_payload(ACCEPTED[name], "forward")


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    data, message = REFUSED[name]
    with pytest.raises(
        errors.FormatError, match="payload, offset [0-9]+: delegate payload"
    ) as caught:
        _format.decode_payload(data, "forward")
    assert message in str(caught.value)


def test_an_empty_payload_needs_the_method_name() -> None:
    with pytest.raises(errors.FormatError, match="method_name"):
        _format.decode_payload(b"", "")


def test_every_truncation_and_many_flips() -> None:
    variants = [PayloadVariant("k90", 90), PayloadVariant("ptx", 80, 80, fallback_only=True)]
    data = encode_payload(variants, [WEIGHT, replace(WEIGHT, fqn="b")])
    for n in range(1, len(data)):
        with pytest.raises(errors.FormatError):
            _format.decode_payload(data[:n], "forward")
    random_bits = random.Random(6)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1 << random_bits.randrange(8)
        try:
            _format.decode_payload(bytes(changed), "forward")
        except errors.FormatError:
            continue


CONSTANT = PayloadConstant("w", "k", 64, "float32", "cpu", 0, (4, 4), (4, 1))


@pytest.mark.parametrize(
    ("encode", "message"),
    [
        (lambda: encode_payload([], []), "0 code variants"),
        (lambda: encode_payload([PayloadVariant("")], []), "without a code key"),
        (lambda: encode_payload([PayloadVariant("a"), PayloadVariant("b", 90)], []), "untargeted"),
        (lambda: encode_payload([PayloadVariant("a", 80, 90)], []), "above"),
        (lambda: encode_payload([PayloadVariant("a", 90), PayloadVariant("b", 90)], []), "two"),
        (lambda: encode_payload([PayloadVariant("a", 90, 0, fallback_only=True)], []), "needs PTX"),
        (
            lambda: encode_payload([PayloadVariant("a", 90, 90), PayloadVariant("b", 80)], []),
            "fallback",
        ),
        (
            lambda: encode_payload([PayloadVariant("a")], [replace(CONSTANT, strides=(1,))]),
            "strides",
        ),
        (lambda: encode_payload([PayloadVariant("a")], [replace(CONSTANT, offset=-1)]), "negative"),
    ],
)
def test_the_writer_refuses_what_the_reader_would(
    encode: Callable[[], bytes], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        encode()
