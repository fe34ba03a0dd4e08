"""The exception classes, and how errors of the core reach them."""

import errno
import os
import pickle
import re
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from echo_methods import echo, tensor

import cudaexec
from cudaexec import GraphOptions, KvCacheSpec, _core, errors

BASES = {
    "FormatError": (),
    "VersionError": (),
    "TargetError": (),
    "WeightsError": (),
    "InputError": (ValueError, TypeError),
    "ShapeError": (cudaexec.InputError, ValueError, TypeError),
    "DtypeError": (cudaexec.InputError,),
    "DeviceError": (cudaexec.InputError,),
    "OutOfMemory": (MemoryError,),
    "NotSupported": (NotImplementedError,),
    "CaptureError": (),
    "ContextFull": (),
    "SessionBusy": (),
    "ClosedError": (),
    "ExportError": (),
    "FileError": (OSError,),
}
# Classes that the core does not name: a file that is missing, and failures of destructors.
EXTRA = {"MissingFileError", "CudaexecWarning"}


PAIR = [("keys", "values")]


def test_every_class_is_listed_and_derives_from_error() -> None:
    assert set(errors.__all__) == {*BASES, *EXTRA, "Error"}
    for name, bases in BASES.items():
        cls = getattr(cudaexec, name)
        assert issubclass(cls, cudaexec.Error)
        assert all(issubclass(cls, base) for base in bases)


def test_codes_are_those_of_the_core() -> None:
    codes = _core._error_codes()
    assert set(codes) == set(errors.__all__) - EXTRA
    for name, code in codes.items():
        assert getattr(errors, name).code == code


@pytest.mark.parametrize("name", errors.__all__)
def test_instances_keep_their_message(name: str) -> None:
    error = getattr(errors, name)("what, where, expected, found")
    assert str(error) == "what, where, expected, found"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)


def test_an_error_of_the_core_has_its_class_and_code() -> None:
    method = echo([tensor("x")])
    with pytest.raises(cudaexec.InputError, match="'forward'") as caught:
        method()
    assert caught.value.code == 0x12


def test_messages_with_bytes_that_are_no_text_survive() -> None:
    with pytest.raises(cudaexec.Error) as caught:
        cudaexec.load(b"/nonexistent/\xff\xfe.pte")
    assert "\\xff\\xfe" in str(caught.value) or "\udcff\udcfe" in str(caught.value)


def test_load_of_a_missing_file_names_the_path() -> None:
    with pytest.raises(cudaexec.FileError, match=r"/nonexistent/model\.pte") as caught:
        cudaexec.load("/nonexistent/model.pte")
    assert isinstance(caught.value, FileNotFoundError)
    assert type(caught.value) is cudaexec.MissingFileError
    assert (caught.value.errno, caught.value.code) == (errno.ENOENT, 0x22)


def test_other_refusals_of_files_have_their_number(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, number, text in (
        (tmp_path / "file" / "model.pte", errno.ENOTDIR, "Not a directory"),
        (tmp_path, errno.EISDIR, "is a directory"),
        (Path(), errno.EISDIR, "is a directory"),
        (Path("/dev/null"), errno.EINVAL, "not a regular file"),
        (tmp_path / ("x" * 300), errno.ENAMETOOLONG, "name too long"),
    ):
        with pytest.raises(cudaexec.FileError, match=text) as caught:
            cudaexec.load(path)
        assert type(caught.value) is cudaexec.FileError
        assert (caught.value.errno, caught.value.filename) == (number, str(path))
        assert caught.value.strerror == os.strerror(number)
        assert str(caught.value).startswith(f"{path}: ")
        again = pickle.loads(pickle.dumps(caught.value))
        assert (again.errno, again.filename, str(again)) == (number, str(path), str(caught.value))


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "model.pte"
    path.touch(mode=0)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)  # root may read every file
    try:
        with pytest.raises(cudaexec.FileError, match="Permission denied") as caught:
            cudaexec.load(path)
    finally:
        if root:
            os.seteuid(0)
    assert (caught.value.errno, caught.value.filename) == (errno.EACCES, str(path))


def _bound_classes(module: types.ModuleType) -> list[type]:
    found = []
    for value in vars(module).values():
        if isinstance(value, types.ModuleType) and value.__name__.startswith(module.__name__):
            found += _bound_classes(value)
        elif isinstance(value, type) and type(value).__name__ == "pybind11_type":
            found.append(value)
    return found


def test_no_object_without_anything_behind_it() -> None:
    made_by_the_core = [
        cls
        for cls in _bound_classes(_core)
        if isinstance(cls.__dict__["__init__"], types.WrapperDescriptorType)
    ]
    assert {_core.Module, _core.Method, _core.Tensor} <= set(made_by_the_core)
    for cls in made_by_the_core:
        for make in (cls.__new__, object.__new__, cls.__mro__[1].__new__):
            with pytest.raises(TypeError):
                make(cls)
        with pytest.raises(TypeError):
            cls()
    with pytest.raises(TypeError, match=r"Module objects are made by cudaexec only"):
        cudaexec.Module()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cudaexec.load(3), "load: pte: expected the path of a file .*, got int"),
        (lambda: cudaexec.load("a.pte", 3), "load: ptd: expected the path .*, got int"),
        (lambda: cudaexec.load("a.pte", device=0), "load: device: expected None or a str .* int"),
        (
            lambda: cudaexec.load("a.pte", options={"threads": 1}),
            "load: options: expected cudaexec.LoadOptions, got dict",
        ),
        (lambda: cudaexec.LoadOptions(threads="2"), "LoadOptions.threads: .* an int, got str"),
        (lambda: cudaexec.LoadOptions(threads=True), "LoadOptions.threads: .* an int, got bool"),
        (lambda: cudaexec.LoadOptions(memory_limit=1e6), "memory_limit: .* an int, got float"),
        (lambda: cudaexec.LoadOptions(verify="no"), "LoadOptions.verify: expected a bool, got str"),
        (lambda: cudaexec.LoadOptions(isa=3), "LoadOptions.isa: expected None or a str, got int"),
        (lambda: cudaexec.set_log_level(3), "set_log_level: level: expected a str, got int"),
        (lambda: GraphOptions(warmup=2.5), "GraphOptions.warmup: expected an int, got float"),
        (lambda: GraphOptions(warmup=True), "GraphOptions.warmup: expected an int, got bool"),
        (lambda: GraphOptions(max_graphs="8"), "max_graphs: expected an int, got str"),
        (lambda: GraphOptions(strict="yes"), "GraphOptions.strict: expected a bool, got str"),
        (lambda: GraphOptions(methods="forward"), "methods: .* set of method names, got 'forward'"),
        (lambda: GraphOptions(methods=[1]), r"methods: .* set of method names, got \[1\]"),
        (lambda: GraphOptions(methods=3), "methods: .* set of method names, got 3"),
        (lambda: KvCacheSpec(buffers=PAIR, position=3), "KvCacheSpec.position: .* got int"),
        (lambda: KvCacheSpec(buffers=PAIR, layers=[]), "KvCacheSpec.layers: .* got list"),
    ],
)
def test_wrong_kinds_of_arguments_are_type_errors_in_our_words(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(TypeError, match=message) as caught:
        call()
    assert "incompatible function arguments" not in str(caught.value)


def test_options_take_any_int_and_any_set() -> None:
    options = GraphOptions(warmup=np.int64(2), max_graphs=np.int32(9), methods=iter(["a", "a"]))
    assert options == GraphOptions(warmup=2, max_graphs=9, methods=frozenset({"a"}))
    assert type(options.warmup) is int


@pytest.mark.parametrize("buffers", [3, None, "ab", ["ab"], [1, 2], [(1, 2)], [("a", "b", "c")]])
def test_pairs_of_buffers(buffers: Any) -> None:
    with pytest.raises(
        ValueError, match=r"KvCacheSpec.buffers: expected one \(keys, values\) pair"
    ):
        KvCacheSpec(buffers=buffers)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda method, _: method.bind(), r"Method\.bind: expected \(inputs: .*\), got \(\)"),
        (
            lambda method, _: method.bind(1, outputs=2, more=3),
            r"got \(int, outputs=int, more=int\)",
        ),
        (lambda _, output: output.tolist(1), r"Tensor\.tolist: expected \(\), got \(int\)"),
        (
            lambda _, output: output.__dlpack__(max_version=1),
            r"__dlpack__: .*max_version: tuple\[int, int\] \| None.*, got \(max_version=int\)",
        ),
        (lambda _, output: type(output).item(), r"Tensor\.item: expected \(\), got \(\)"),
        (lambda _, output: type(output).item(3), r"Tensor\.item: expected \(\), got \(\)"),
    ],
)
def test_wrong_numbers_of_arguments(call: Callable[[Any, Any], object], message: str) -> None:
    method = echo([tensor("x")])
    output = method(memoryview(np.zeros(3, np.float32)))
    with pytest.raises(TypeError, match=message) as caught:
        call(method, output)
    assert "incompatible" not in str(caught.value)


def test_log_level() -> None:
    assert cudaexec.log_level() == "off"
    cudaexec.set_log_level("error")
    assert cudaexec.log_level() == "error"
    cudaexec.set_log_level("off")
    with pytest.raises(cudaexec.InputError, match="loud"):
        cudaexec.set_log_level("loud")


def test_the_documented_table_is_right() -> None:
    text = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    rows = re.findall(r"\| `(\w+)` \|\s*([^|]*?)\s*\| (0x[0-9a-f]+) (?=\|)", text)
    assert {name for name, _, _ in rows} == set(BASES)
    for name, bases, code in rows:
        cls = getattr(cudaexec, name)
        assert cls.code == int(code, 16)
        for base in re.findall(r"`(\w+)`", bases):
            assert base in {parent.__name__ for parent in cls.__mro__[1:]}
