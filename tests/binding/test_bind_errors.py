"""The exception classes, and how errors of the core reach them."""

import errno
import pickle
import re
from pathlib import Path

import pytest
from echo_methods import echo, tensor

import cudaexec
from cudaexec import _core, errors

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
    with pytest.raises(cudaexec.FileError, match="Not a directory") as caught:
        cudaexec.load(tmp_path / "file" / "model.pte")
    assert not isinstance(caught.value, FileNotFoundError)
    assert caught.value.errno == errno.ENOTDIR


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
