"""cudaexec.Tensor: properties, conversions, the buffer protocol, lifetime."""

import gc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from echo_methods import echo, tensor

import cudaexec

DTYPES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2,
    "float32": 4, "float64": 8,
}  # fmt: skip


def make(array: np.ndarray) -> Any:
    """The same values as a cudaexec.Tensor."""
    dtype = str(array.dtype)
    got = echo([tensor("x", dtype, (2,) * array.ndim)])(memoryview(array))
    assert type(got) is cudaexec.Tensor
    return got


def bfloat16(value: float) -> Any:
    return echo([tensor("x", "bfloat16", ())])(value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_properties_and_conversions(dtype: str) -> None:
    array = (np.arange(6).reshape(2, 3) % 2).astype(dtype)
    ours = make(array)
    assert ours.shape == (2, 3)
    assert ours.strides == (3, 1)
    assert ours.dtype == dtype
    assert ours.device == "cpu"
    assert ours.ndim == 2
    assert ours.nbytes == 6 * DTYPES[dtype]
    assert len(ours) == 2
    assert ours.to_host() is ours
    assert ours.tolist() == array.tolist()
    assert np.shares_memory(ours.numpy(), ours.numpy())
    for view in (ours.numpy(), np.asarray(ours), np.array(memoryview(ours)), np.from_dlpack(ours)):
        assert view.dtype == array.dtype
        np.testing.assert_array_equal(view, array)
    assert [type(x) for x in ours.tolist()[0]] == [type(x) for x in array.tolist()[0]]


def test_items() -> None:
    assert bfloat16(1.5).item() == 1.5
    assert float(bfloat16(2.5)) == 2.5
    assert int(make(np.array([7]))) == 7
    assert bool(make(np.array([[0.0]]))) is False
    with pytest.raises(cudaexec.InputError, match=r"float64\[2\]"):
        make(np.zeros(2)).item()
    with pytest.raises(ValueError, match="one element"):
        bool(make(np.zeros(2)))
    with pytest.raises(TypeError):
        len(bfloat16(1))


def test_repr() -> None:
    assert repr(bfloat16(1.5)) == "cudaexec.Tensor(bfloat16[], 1.5)"
    assert repr(make(np.arange(2))) == "cudaexec.Tensor(int64[2], [0, 1])"
    assert repr(make(np.zeros((30, 2)))) == "cudaexec.Tensor(float64[30, 2])"


def test_array_protocol() -> None:
    ours = make(np.arange(3.0))
    assert np.shares_memory(np.asarray(ours), ours.numpy())
    assert not np.shares_memory(np.array(ours), ours.numpy())
    assert np.asarray(ours, np.int32).tolist() == [0, 1, 2]
    assert np.asarray(ours, np.int32).dtype == np.int32
    with pytest.raises(ValueError, match="copy"):
        ours.__array__(np.float32, copy=False)
    assert np.shares_memory(ours.__array__(copy=False), ours.numpy())
    assert (ours.numpy() + np.ones(3)).tolist() == [1, 2, 3]


def test_bfloat16_has_no_buffer() -> None:
    ours = bfloat16(1.5)
    with pytest.raises(BufferError, match="bfloat16"):
        memoryview(ours)
    assert ours.numpy().dtype == ml_dtypes.bfloat16
    assert np.asarray(ours).astype(np.float32) == 1.5


def test_memoryview_is_writable_and_keeps_the_memory() -> None:
    ours = make(np.arange(6, dtype=np.int32).reshape(2, 3))
    view = memoryview(ours)
    assert (view.format, view.shape, view.strides, view.readonly) == ("i", (2, 3), (12, 4), False)
    view[1, 2] = 50
    array = ours.numpy()
    del ours
    gc.collect()
    assert view.tolist() == array.tolist() == [[0, 1, 2], [3, 4, 50]]
    assert bytes(view) == array.tobytes()


def test_empty_tensors() -> None:
    ours = make(np.zeros((0, 3), np.float32))
    assert ours.shape == (0, 3)
    assert ours.tolist() == []
    assert ours.numpy().shape == np.asarray(memoryview(ours)).shape == (0, 3)
    assert np.from_dlpack(ours).shape == (0, 3)


def test_a_tensor_is_an_input() -> None:
    ours = make(np.arange(3, dtype=np.float32))
    again = echo([tensor("x", "float32", (3,))])(ours)
    assert type(again) is cudaexec.Tensor
    assert again.tolist() == ours.tolist()
    with_numpy = echo([tensor("x", "float32", (3,)), tensor("y", "float32", (3,))])(
        ours, np.zeros(3, np.float32)
    )
    assert [type(one) for one in with_numpy] == [np.ndarray, np.ndarray]


def test_classes_cannot_be_made_or_extended_by_hand() -> None:
    for cls in (cudaexec.Tensor, cudaexec.Method, cudaexec.Module):
        with pytest.raises(TypeError):
            cls()
    for cls in (cudaexec.Tensor, cudaexec.Method):
        with pytest.raises(TypeError):
            type("Mine", (cls,), {})


def test_dropping_tensors_frees_their_memory() -> None:
    from cudaexec import _core

    before = _core._testing.live_counts()["storages"]
    kept = [make(np.zeros(1 << 19)) for _ in range(3)]
    assert _core._testing.live_counts()["storages"] == before + 3
    view = kept[0].numpy()
    del kept
    assert _core._testing.live_counts()["storages"] == before + 1
    del view
    assert _core._testing.live_counts()["storages"] == before
