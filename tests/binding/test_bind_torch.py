"""torch tensors in and out, without cudaexec importing torch."""

from typing import Any

import numpy as np
import pytest
from echo_methods import LEAF, constant, echo, node, tensor

import cudaexec

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

DTYPES = [
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
]  # fmt: skip


def run(value: Any) -> Any:
    dtype = str(value.dtype).removeprefix("torch.")
    return echo([tensor("x", dtype, (2,) * value.ndim)])(value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: str) -> None:
    value = (torch.arange(6).reshape(2, 3) % 3).to(getattr(torch, dtype))
    got = run(value)
    assert type(got) is torch.Tensor
    assert got.dtype == value.dtype
    assert torch.equal(got, value)


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(12.0).reshape(3, 4).t(),
        torch.arange(12.0).reshape(3, 4)[1:, ::2],
        torch.arange(3.0).expand(5, 3),
        torch.tensor(2.5),
        torch.zeros(0, 3),
        torch.zeros(1, 2, 5, 5).to(memory_format=torch.channels_last),
        torch.arange(12.0)[5:],
    ],
)
def test_layouts(value: Any) -> None:
    got = run(value)
    assert got.shape == value.shape
    assert torch.equal(got, value)


def test_parameters_and_tensors_with_gradients_are_detached() -> None:
    for value in (torch.nn.Parameter(torch.ones(2)), torch.ones(2, requires_grad=True) * 2):
        got = run(value)
        assert type(got) is torch.Tensor
        assert not got.requires_grad
        assert torch.equal(got, value.detach())


def test_outputs_follow_any_torch_input() -> None:
    method = echo([tensor("x"), tensor("y"), tensor("z", "int64", ())])
    array = np.ones((2, 3), np.float32)
    got = method(array, torch.ones(2, 3), 4)
    assert [type(one) for one in got] == [torch.Tensor] * 3
    assert got[2].shape == ()
    got = method(array, memoryview(array), 4)
    assert [type(one) for one in got] == [np.ndarray] * 3


def test_a_negated_view_is_refused() -> None:
    value = torch.ones(3, dtype=torch.complex64).conj().imag
    assert value.is_neg()
    with pytest.raises(cudaexec.InputError, match=r"'x'.*resolve_neg"):
        run(value)
    assert torch.equal(run(value.resolve_neg()), value)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(2, 3).to_sparse(),
        lambda: torch.ones(2, 3).to_sparse_csr(),
        lambda: torch.ones(2, 3).to_mkldnn(),
        lambda: torch.ones(2, 3, device="meta"),
        lambda: torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8),
        lambda: torch._efficientzerotensor(2, 3),
        lambda: torch.ones(2, 3, dtype=torch.complex64),
        lambda: torch.ones(2, 3).to(torch.float8_e4m3fn),
    ],
)
def test_tensors_without_plain_memory_are_refused(make: Any) -> None:
    method = echo([tensor("x")])
    with pytest.raises(cudaexec.InputError, match="method 'forward': input 'x': expected float32"):
        method(make())
    assert method(torch.ones(2, 3)).sum() == 6


def test_tensors_under_a_transform_are_refused() -> None:
    method = echo([tensor("x", "float32", (3,))])
    with pytest.raises(cudaexec.InputError):
        torch.func.vmap(method)(torch.ones(2, 3))


def test_outputs_own_their_memory() -> None:
    method = echo([tensor("x", "float32", (4,))])
    x = torch.zeros(4)
    kept = [method(x.fill_(i)) for i in range(20)]
    del method
    assert all((one == i).all() for i, one in enumerate(kept))
    from cudaexec import _core

    before = _core._testing.live_counts()["storages"]
    del kept
    assert _core._testing.live_counts()["storages"] == before - 20


def test_our_tensors_become_torch_tensors_without_a_copy() -> None:
    ours = echo([tensor("x", "bfloat16", ())])(1.5)
    theirs = torch.from_dlpack(ours)
    assert theirs.dtype == torch.bfloat16
    assert theirs.item() == 1.5
    theirs.fill_(2.5)
    assert ours.item() == 2.5
    copied = torch.from_dlpack(ours, copy=True)
    copied.fill_(0)
    assert ours.item() == 2.5


def test_a_capsule_of_torch_is_taken_once() -> None:
    capsule = torch.utils.dlpack.to_dlpack(torch.ones(2, 3))
    method = echo([tensor("x")])
    assert method(capsule).tolist() == [[1.0] * 3] * 2
    with pytest.raises(ValueError, match="consumed before"):
        method(capsule)


def test_mixed_structures() -> None:
    spec = node("dict", [LEAF, LEAF, LEAF], ["a", "n", "b"])
    outputs = [
        {"kind": "tensor", "graph_output": 0, "dtype": "float32", "shape": [2, 3], "strides": [3, 1],
         "device": "cpu"},
        {"kind": "constant", "value": None},
        {"kind": "constant", "value": 3},
    ]  # fmt: skip
    got = echo([tensor("x"), constant("n", 1)], outputs, out_spec=spec)(torch.ones(2, 3), 1)
    assert list(got) == ["a", "n", "b"]
    assert torch.equal(got["a"], torch.ones(2, 3))
    assert got["n"] is None
    assert got["b"] == 3
