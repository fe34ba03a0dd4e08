"""numpy arrays in and out."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from echo_methods import echo, tensor

import cudaexec

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
BASE = np.arange(24).reshape(4, 6)


def run(array: Any, dtype: str | None = None, rank: int | None = None) -> Any:
    """The array after a way through a method that copies its input."""
    shape = (2,) * (np.ndim(array) if rank is None else rank)
    return echo([tensor("x", dtype or str(array.dtype), shape)])(array)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: str) -> None:
    array = (BASE % 3).astype(dtype)
    got = run(array)
    assert isinstance(got, np.ndarray)
    assert got.dtype == array.dtype
    np.testing.assert_array_equal(got, array)
    assert got.flags.writeable
    assert got.flags.aligned


def test_bfloat16() -> None:
    array = np.array([1.5, -2.25, np.inf], ml_dtypes.bfloat16)
    got = run(array, "bfloat16")
    assert isinstance(got, np.ndarray)
    assert got.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(got.astype(np.float32), array.astype(np.float32))


def test_bfloat16_without_ml_dtypes() -> None:
    code = (
        "import sys; sys.modules['ml_dtypes'] = None\n"
        "import numpy as np, cudaexec\n"
        "from echo_methods import *\n"
        "m = echo([tensor('x', 'bfloat16', ()), tensor('y', 'float32', (2,))])\n"
        "got, other = m(1.5, np.ones(2, np.float32))\n"
        "assert type(got) is cudaexec.Tensor and got.dtype == 'bfloat16' and got.item() == 1.5\n"
        "assert type(other) is np.ndarray\n"
        "try: got.numpy()\n"
        "except cudaexec.NotSupported as error: assert 'pip install ml_dtypes' in str(error)\n"
        "else: sys.exit('no error')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)


@pytest.mark.parametrize(
    "array",
    [
        BASE.T,
        BASE[::2],
        BASE[:, ::-1],
        BASE[::-1, ::-2],
        BASE[1:1],
        np.broadcast_to(BASE[0], (3, 6)),
        BASE[:, 3:4],
        BASE[None, :, None, ::3],
        np.asfortranarray(BASE),
        np.arange(3)[::-1][:1],
        np.array(5),
        np.zeros((0, 3), np.int64),
        np.zeros((3, 0, 2), np.int64),
    ],
)
def test_layouts(array: np.ndarray) -> None:
    got = run(array)
    assert got.shape == array.shape
    np.testing.assert_array_equal(got, array)


def test_elements_at_odd_distances_are_copied() -> None:
    packed = np.zeros(5, np.dtype([("flag", np.uint8), ("value", np.float32)]))
    packed["value"] = np.arange(5)
    np.testing.assert_array_equal(run(packed["value"]), np.arange(5, dtype=np.float32))


def test_misaligned_arrays() -> None:
    raw = np.zeros(4 * 5 + 1, np.uint8)
    array = raw[1:].view(np.float32)
    array[:] = np.arange(5)
    assert not array.flags.aligned
    np.testing.assert_array_equal(run(array), np.arange(5, dtype=np.float32))


def test_read_only_arrays_are_read(tmp_path: Any) -> None:
    frozen = BASE.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(run(frozen), BASE)
    path = tmp_path / "array.npy"
    np.save(path, BASE)
    np.testing.assert_array_equal(run(np.load(path, mmap_mode="r")), BASE)
    np.testing.assert_array_equal(run(np.frombuffer(b"\1\2\3", np.uint8)), [1, 2, 3])


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(2, ">f4"),
        np.zeros(2, np.uint16),
        np.zeros(2, np.uint32),
        np.zeros(2, np.uint64),
        np.zeros(2, np.complex64),
        np.zeros(2, np.longdouble),
        np.zeros(2, [("a", np.float32)]),
        np.array(["a", "b"]),
        np.array([b"a", b"b"]),
        np.array([1, None], object),
        np.zeros(2, "datetime64[s]"),
        np.zeros(2, ml_dtypes.float8_e4m3fn),
    ],
)
def test_other_dtypes_are_refused_by_name(array: np.ndarray) -> None:
    with pytest.raises(cudaexec.DtypeError, match="numpy array of dtype") as caught:
        run(array, "float32")
    assert str(array.dtype) in str(caught.value)


def test_the_message_for_byte_order_says_what_to_do() -> None:
    with pytest.raises(cudaexec.DtypeError, match="newbyteorder"):
        run(np.zeros(2, ">i8"), "int64")


def test_numpy_scalars() -> None:
    for value in (np.float32(1.5), np.int64(-3), np.bool_(True), np.float16(0.5)):
        got = echo([tensor("x", str(value.dtype), ())])(value)
        assert isinstance(got, np.ndarray)
        assert got.dtype == value.dtype
        assert got == value


def test_subclasses() -> None:
    class Mine(np.ndarray):
        pass

    got = run(BASE.view(Mine))
    assert type(got) is np.ndarray
    np.testing.assert_array_equal(got, BASE)
    with pytest.raises(cudaexec.InputError, match="MaskedArray"):
        run(np.ma.masked_array(BASE, BASE > 3))


def test_outputs_outlive_everything_and_do_not_alias() -> None:
    method = echo([tensor("x", "float32", (8,))])
    kept = [method(np.full(8, i, np.float32)) for i in range(50)]
    del method
    for i, array in enumerate(kept):
        assert (array == i).all()
        array += 1
    assert all((array == i + 1).all() for i, array in enumerate(kept))


def test_outputs_free_their_memory() -> None:
    from cudaexec import _core

    method = echo([tensor("x", "float32", (8,))])
    array = np.zeros(8, np.float32)
    method(array)
    before = _core._testing.live_counts()["storages"]
    kept = [method(array) for _ in range(10)]
    views = [one[2:] for one in kept]
    assert _core._testing.live_counts()["storages"] == before + 10
    del kept
    assert _core._testing.live_counts()["storages"] == before + 10
    del views
    assert _core._testing.live_counts()["storages"] == before


def test_large_outputs_are_freed_too() -> None:
    from cudaexec import _core

    before = _core._testing.live_counts()["storages"]
    array = np.zeros(1 << 20, np.float32)
    got = run(array)
    assert _core._testing.live_counts()["storages"] == before + 1
    del got
    assert _core._testing.live_counts()["storages"] == before
