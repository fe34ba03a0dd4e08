"""Encodes the delegate payload (`ETCUDAFQN0`, docs/format.md)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cudaexec.export.slots import DEVICE_TYPES, SCALAR_TYPES

PAYLOAD_MAGIC: Final = b"ETCUDAFQN0"
MAX_VARIANTS: Final = 256
MAX_CONSTANTS: Final = 1 << 20
MAX_RANK: Final = 64


@dataclass(frozen=True)
class PayloadVariant:
    """One code blob: `target_sm` 90 for sm_90, 0 where it is not tied to a GPU architecture."""

    so_key: str
    target_sm: int = 0
    ptx_compute: int = 0
    fallback_only: bool = False


@dataclass(frozen=True)
class PayloadConstant:
    """One constant of the method; sizes, strides and offset count elements."""

    fqn: str
    storage_key: str
    storage_nbytes: int
    dtype: str
    device: str
    offset: int
    sizes: Sequence[int]
    strides: Sequence[int]


def encode_payload(
    variants: Sequence[PayloadVariant], constants: Sequence[PayloadConstant]
) -> bytes:
    """Return the payload bytes. Raises ValueError for an invalid count, rank or variant set."""
    _check_variants(variants)
    if len(constants) > MAX_CONSTANTS:
        raise ValueError(f"{len(constants)} constants; a payload holds at most {MAX_CONSTANTS}")
    parts = [PAYLOAD_MAGIC, struct.pack("<I", len(variants))]
    for variant in variants:
        flags = 1 if variant.fallback_only else 0
        parts.append(struct.pack("<III", variant.target_sm, variant.ptx_compute, flags))
        parts.append(_string(variant.so_key))
    parts.append(struct.pack("<I", len(constants)))
    parts.extend(_constant(constant) for constant in constants)
    return b"".join(parts)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<I", len(data)) + data


def _constant(constant: PayloadConstant) -> bytes:
    rank = len(constant.sizes)
    if rank > MAX_RANK or rank != len(constant.strides):
        raise ValueError(
            f"constant {constant.fqn!r}: {rank} sizes and {len(constant.strides)} strides; "
            f"equal numbers up to {MAX_RANK} expected"
        )
    if min((constant.offset, *constant.sizes, *constant.strides)) < 0:
        raise ValueError(f"constant {constant.fqn!r}: negative offset, size or stride")
    return b"".join(
        (
            _string(constant.fqn),
            _string(constant.storage_key),
            struct.pack(
                "<QiiqI",
                constant.storage_nbytes,
                SCALAR_TYPES[constant.dtype],
                DEVICE_TYPES[constant.device],
                constant.offset,
                rank,
            ),
            struct.pack(f"<{2 * rank}q", *constant.sizes, *constant.strides),
        )
    )


def _check_variants(variants: Sequence[PayloadVariant]) -> None:
    if not 1 <= len(variants) <= MAX_VARIANTS:
        raise ValueError(f"{len(variants)} code variants; 1 to {MAX_VARIANTS} expected")
    fallbacks = [variant for variant in variants if variant.fallback_only]
    regular = [variant.target_sm for variant in variants if not variant.fallback_only]
    if len(fallbacks) > 1:
        raise ValueError("more than one fallback variant")
    if len(set(regular)) != len(regular):
        raise ValueError(f"two variants for one architecture: sm {sorted(regular)}")
    for variant in variants:
        where = f"variant {variant.so_key!r}"
        if not variant.so_key:
            raise ValueError("a variant without a code key")
        if variant.target_sm == 0 and (len(variants) > 1 or variant.ptx_compute):
            raise ValueError(f"{where}: untargeted code must be the only variant, without PTX")
        if variant.ptx_compute > variant.target_sm:
            raise ValueError(f"{where}: ptx {variant.ptx_compute} above sm {variant.target_sm}")
        if variant.fallback_only and not variant.ptx_compute:
            raise ValueError(f"{where}: a fallback needs PTX")
        if len(variants) > 1 and not variant.fallback_only and variant.ptx_compute:
            raise ValueError(f"{where}: PTX belongs in the fallback variant")
