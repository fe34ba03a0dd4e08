"""Opening files: paths, what is not a model, versions, and failures of the system."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from format_files import LEAF, manifest, program, ptd_bytes, pte_bytes

from cudaexec import errors
from cudaexec._core import _format, _testing
from cudaexec.export import manifest as m
from cudaexec.export.flatbuffer_builder import FlatbufferBuilder
from cudaexec.export.pte_writer import build_pte
from cudaexec.export.slots import PROGRAM_TABLES
from pte_edit import edit_manifest

OPEN: list[tuple[Callable[[Any], Any], bytes]] = [
    (_format.parse_pte, pte_bytes()),
    (_format.parse_ptd, ptd_bytes()),
]


@pytest.mark.parametrize(("parse", "data"), OPEN)
@pytest.mark.parametrize("name", ["plain", "sp ace", "模型 é", "'q' \"d\" %s #", "new\nline"])
def test_any_path(name: str, parse: Callable[[Any], Any], data: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    assert parse(path) == parse(str(path)) == parse(os.fsencode(path))
    path.write_bytes(data[:20])
    with pytest.raises(errors.FormatError) as caught:
        parse(path)
    assert str(path) in str(caught.value)
    assert "offset" in str(caught.value)


def test_a_path_that_is_no_utf8(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.pte"
    with pytest.raises(errors.FileError, match=r"\\xff\.pte"):
        _format.parse_pte(path)
    Path(os.fsdecode(path)).write_bytes(pte_bytes())
    assert _format.parse_pte(path)["header"]


@pytest.mark.parametrize(("parse", "data"), OPEN)
def test_what_is_no_file(parse: Callable[[Any], Any], data: bytes, tmp_path: Path) -> None:
    with pytest.raises(errors.FileError, match="nothing.*No such file"):
        parse(tmp_path / "nothing")
    with pytest.raises(errors.FileError, match="is a directory"):
        parse(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(errors.FileError, match="not a regular file"):
        parse(tmp_path / "pipe")
    with pytest.raises(errors.FileError, match="not a regular file"):
        parse("/dev/zero")
    with pytest.raises(errors.FileError, match="NUL byte"):
        parse(b"a\0b")
    (tmp_path / "empty").touch()
    with pytest.raises(errors.FormatError, match="empty"):
        parse(tmp_path / "empty")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "target").write_bytes(data)
    parse(tmp_path / "link")
    if os.geteuid() != 0:
        (tmp_path / "target").chmod(stat.S_IWUSR)
        with pytest.raises(errors.FileError, match="Permission denied"):
            parse(tmp_path / "target")


def test_the_other_kind_of_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(ptd_bytes())
    with pytest.raises(errors.FormatError, match=r"this is a \.ptd data file"):
        _format.parse_pte(path)
    path.write_bytes(pte_bytes())
    with pytest.raises(errors.FormatError, match=r"this is a \.pte program"):
        _format.parse_ptd(path)
    path.write_bytes(b"PK\3\4" * 100)
    with pytest.raises(errors.FormatError, match=r"no \.pte program"):
        _format.parse_pte(path)


@pytest.mark.parametrize(("parse", "data"), OPEN)
def test_every_system_call_may_fail(
    parse: Callable[[Any], Any], data: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    _testing.arm_fault(["file"], 1 << 40)
    parse(path)
    calls = _testing.disarm_fault()
    assert calls == 3  # open, stat, mmap
    for k in range(1, calls + 1):
        _testing.arm_fault(["file"], k)
        try:
            with pytest.raises(errors.FileError, match="injected"):
                parse(path)
        finally:
            _testing.disarm_fault()
        assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
        assert str(path) not in Path("/proc/self/maps").read_text()
        parse(path)


def test_a_closed_file_is_unmapped(tmp_path: Path) -> None:
    path = tmp_path / "x.pte"
    path.write_bytes(pte_bytes())
    for _ in range(50):
        _format.parse_pte(path)
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_a_newer_schema_version(tmp_path: Path) -> None:
    builder = FlatbufferBuilder(PROGRAM_TABLES)
    plan = builder.table("ExecutionPlan", name=builder.string("m"))
    root = builder.table("Program", version=3, execution_plan=builder.positions([plan]))
    path = tmp_path / "x.pte"
    path.write_bytes(builder.finish(root, b"ET12", b""))
    with pytest.raises(errors.VersionError, match="version 3"):
        _format.parse_pte(path)


def test_an_edited_manifest_needs_its_digest(tmp_path: Path) -> None:
    source, target = tmp_path / "a.pte", tmp_path / "b.pte"
    source.write_bytes(pte_bytes())
    edit_manifest(source, target, lambda text: text.replace(b'"sm":90', b'"sm":75'))
    found = _format.parse_pte(target)
    start, nbytes = found["named_data"]["cudaexec_manifest"]
    text = target.read_bytes()[start : start + nbytes]
    assert _format.parse_manifest(text)["methods"][0]["variants"][1][2] == 75
    plain = source.read_bytes().replace(b'"sm":90', b'"sm":75')
    target.write_bytes(plain)
    with pytest.raises(errors.FormatError, match="digest"):
        _format.parse_pte(target)


def test_one_of_the_two_keys_is_missing(tmp_path: Path) -> None:
    data, path = pte_bytes(), tmp_path / "x.pte"
    for key in (b"cudaexec_manifest", b"cudaexec_digest"):
        path.write_bytes(data.replace(key, key[:-1] + b"X"))
        with pytest.raises(errors.FormatError, match="but no"):
            _format.parse_pte(path)


def test_many_methods_and_a_large_manifest(tmp_path: Path) -> None:
    value = manifest()
    methods = [dict(value["methods"][0], name=f"m{i}") for i in range(50)]
    value["methods"] = methods
    tree: Any = LEAF
    for _ in range(25):
        tree = {"type": "list", "children": [tree]}
    for method in methods:
        method["out_spec"] = {"type": "list", "children": [LEAF, LEAF, LEAF, tree]}
    text = m.encode_manifest(value)
    image = build_pte([program(f"m{i}") for i in range(50)], {m.MANIFEST_KEY: text})
    path = tmp_path / "x.pte"
    path.write_bytes(image.to_bytes())
    assert [method["name"] for method in _format.parse_pte(path)["methods"]] == [
        f"m{i}" for i in range(50)
    ]
    assert len(_format.parse_manifest(text)["methods"]) == 50
