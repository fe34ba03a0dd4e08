"""The manifest's part on KV caches: read completely, and nothing in it is trusted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from format_files import constant, manifest, storage

from cudaexec import errors
from cudaexec._core import _format
from cudaexec.export import manifest as m

Edit = Callable[[dict[str, Any]], Any]
FLAT = {"id": 0, "batch": 2, "heads": 3, "head_dim": 64, "policy": "flat", "capacity": 4096}
RING = {**FLAT, "id": 5, "policy": "ring", "window": 512, "capacity": 575}


def with_cache() -> dict[str, Any]:
    value = manifest()
    value["kv_cache"] = {"version": 1, "dtype": "bfloat16", "layers": [dict(FLAT), dict(RING)]}
    value["methods"][0]["kv"] = {
        "layers": [5, 0],
        "width": "s0",
        "max_width": 64,
        "position_input": None,
        "position_states": ["counter"],
    }
    return value


def parse(value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = _format.parse_manifest(m.encode_manifest(value))
    return found


def test_everything_is_read() -> None:
    found = parse(with_cache())
    assert found["kv_cache"] == {
        "dtype": "bfloat16",
        "layers": [(0, 2, 3, 64, 0, 4096), (5, 2, 3, 64, 512, 575)],
    }
    assert found["methods"][0]["kv"] == {
        "width": [(1, 0)],
        "max_width": 64,
        "position_input": None,
        "position_states": ["counter"],
    }


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn"])
def test_dtypes(dtype: str) -> None:
    value = with_cache()
    value["kv_cache"]["dtype"] = dtype
    assert parse(value)["kv_cache"]["dtype"] == dtype


def test_no_cache() -> None:
    found = parse(manifest())
    assert found["kv_cache"] is None
    assert found["methods"][0]["kv"] is None
    value = with_cache()
    del value["methods"][0]["kv"]  # the other methods' business
    assert parse(value)["methods"][0]["kv"] is None


def layer(value: dict[str, Any], **change: Any) -> None:
    value["kv_cache"]["layers"][1].update(change)


def method(value: dict[str, Any], **change: Any) -> None:
    value["methods"][0]["kv"].update(change)


def missing(key: str) -> Edit:
    return lambda value: value["kv_cache"]["layers"][1].pop(key)


NEGATIVE: dict[str, tuple[Edit, str]] = {
    "newer": (lambda v: v["kv_cache"].update(version=2), r"kv_cache\.version: version 2"),
    "no version": (lambda v: v["kv_cache"].pop("version"), "'version' is missing"),
    "dtype": (lambda v: v["kv_cache"].update(dtype="int8"), "unknown KV dtype 'int8'"),
    "no layers": (lambda v: v["kv_cache"].update(layers=[]), "a cache without layers"),
    "twice": (lambda v: layer(v, id=0), r"layers\[1\]: layer 0 occurs twice"),
    "negative id": (lambda v: layer(v, id=-1), "id"),
    "no batch": (lambda v: layer(v, batch=0), "batch"),
    "no heads": (lambda v: layer(v, heads=0), "heads"),
    "huge head": (lambda v: layer(v, head_dim=1 << 40), "head_dim"),
    "no capacity": (lambda v: layer(v, capacity=0), "capacity"),
    "huge capacity": (lambda v: layer(v, capacity=1 << 31), "capacity"),
    "policy": (lambda v: layer(v, policy="paged"), "unknown policy 'paged'"),
    "no window": (missing("window"), "'window' is missing"),
    "zero window": (lambda v: layer(v, window=0), "window"),
    "window of all": (lambda v: layer(v, window=576), "window 576 does not fit capacity 575"),
    "huge": (
        lambda v: layer(v, heads=1 << 20, batch=1 << 20, head_dim=1024, capacity=(1 << 31) - 1),
        "address space",
    ),
    "alone": (lambda v: v.pop("kv_cache"), "the program describes none"),
    "other layers": (lambda v: method(v, layers=[0]), r"layers \[0\]; all of \[0, 5\]"),
    "layers twice": (lambda v: method(v, layers=[0, 0]), "expected"),
    "no width": (lambda v: v["methods"][0]["kv"].pop("width"), "'width' is missing"),
    "unknown width": (lambda v: method(v, width="s9"), "'s9'"),
    "no step": (lambda v: method(v, max_width=0), "max_width"),
    "wide steps": (
        lambda v: method(v, max_width=65),
        "steps of 65 tokens do not fit layer 5: a ring of 575 tokens with a window of 512",
    ),
    "no such input": (lambda v: method(v, position_input=3), "input 3 is no tensor of integers"),
    "a constant": (lambda v: method(v, position_input=1), "input 1 is no tensor of integers"),
    "floats": (lambda v: method(v, position_input=0), "input 0 is no tensor of integers"),
    "no such state": (lambda v: method(v, position_states=["no"]), "'no' is no int64 constant"),
    "float state": (lambda v: method(v, position_states=["fc.bias"]), "'fc.bias' is no int64"),
}


@pytest.mark.parametrize("name", NEGATIVE)
def test_refused(name: str) -> None:
    edit, message = NEGATIVE[name]
    value = with_cache()
    edit(value)
    with pytest.raises(errors.FormatError, match=message):
        parse(value)


def test_state_of_several_elements_counts_nothing() -> None:
    value = with_cache()
    value["methods"][0]["constants"][1] = constant("fc.bias", "int64", [2])
    assert value["methods"][0]["constants"][1]["storage_key"] == storage("fc.bias")
    method(value, position_states=["fc.bias"])
    with pytest.raises(errors.FormatError, match="no int64 constant of one element"):
        parse(value)
