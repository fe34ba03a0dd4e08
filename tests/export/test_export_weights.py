"""The weights set: one entry per storage, whatever the number of names, views and methods."""

from __future__ import annotations

import pytest
import torch
from export_plan import plan
from torch import nn

import cudaexec
from cudaexec import ExportError
from cudaexec.export.weights import WeightsTable, storage_bytes

pytestmark = pytest.mark.torch


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, i):
        return self.head(self.embed(i))


def test_tied_weights_are_one_entry_with_an_alias():
    table = WeightsTable()
    constants = plan(Tied(), (torch.tensor([1, 2]),)).constants(table)
    assert len(constants) == len(table.entries) == 1
    (fqn,) = constants
    other = {"embed.weight", "head.weight"} - {fqn}
    assert table.aliases == {other.pop(): fqn}


class Views(nn.Module):
    def __init__(self):
        super().__init__()
        base = torch.arange(40.0).view(10, 4)
        self.rows = nn.Parameter(base[:3])
        self.turned = nn.Parameter(base[3:].t())
        self.empty = nn.Parameter(torch.zeros(0, 3))
        self.also_empty = nn.Parameter(torch.zeros(0, 5))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return (
            x @ self.rows.t() * self.scale,
            x @ self.turned,
            self.empty.sum() + self.also_empty.sum(),
        )


def test_views_share_their_storage():
    table = WeightsTable()
    constants = plan(Views(), (torch.randn(2, 4),)).constants(table)
    rows, turned = constants["rows"], constants["turned"]
    assert rows["storage_key"] == turned["storage_key"]
    assert table.entries[rows["storage_key"]].nbytes == 160
    assert (rows["offset"], rows["strides"]) == (0, [4, 1])
    assert (turned["offset"], turned["shape"], turned["strides"]) == (12, [4, 7], [1, 4])
    assert constants["scale"]["shape"] == []
    empty = [constants[name] for name in ("empty", "also_empty") if name in constants]
    assert {table.entries[entry["storage_key"]].nbytes for entry in empty} <= {0}
    assert table.aliases == {}


def test_the_bytes_are_those_of_the_whole_storage():
    model = Views()
    assert bytes(storage_bytes(model.turned)) == torch.arange(40.0).numpy().tobytes()


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
    ],
)
def test_every_dtype(dtype):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", torch.tensor([1, 0, 1]).to(getattr(torch, dtype)))

        def forward(self, x):
            return torch.where(x > 0, self.b, self.b.flip(0))

    (entry,) = plan(Net(), (torch.randn(3),)).constants().values()
    assert entry["dtype"] == dtype


def test_small_constants_are_not_baked_in():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.ones(2))
            self.scale = nn.Parameter(torch.tensor(3.0))

        def forward(self, x):
            return x * self.scale + self.bias

    assert set(plan(Net(), (torch.randn(2),)).constants()) == {"bias", "scale"}


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))
        self.register_buffer("state", torch.zeros(3))

    def forward(self, x):
        self.state.add_(1)
        return x @ self.weight + self.state


class Reader(nn.Module):
    def __init__(self, inner: Shared):
        super().__init__()
        self.inner = inner

    def forward(self):
        return self.inner.state * 2


def test_methods_share_entries_by_name_and_by_storage():
    model = Shared()
    table = WeightsTable()
    first = plan(model, (torch.randn(1, 3),), name="a").constants(table)
    second = plan(model, (torch.randn(5, 3),), name="b").constants(table)
    third = plan(Reader(model), name="c").constants(table)
    assert len(table.entries) == 2
    assert first["state"]["storage_key"] == second["state"]["storage_key"]
    assert third["inner.state"]["storage_key"] == first["state"]["storage_key"]
    assert table.aliases["inner.state"] == "state"


def test_equal_copies_are_one_entry():
    torch.manual_seed(0)
    first = Shared()
    torch.manual_seed(0)
    second = Shared()
    table = WeightsTable()
    plan(first, (torch.randn(1, 3),), name="a").constants(table)
    plan(second, (torch.randn(1, 3),), name="b").constants(table)
    assert len(table.entries) == 2


def test_other_bytes_under_one_name_are_refused():
    table = WeightsTable()
    plan(Shared(), (torch.randn(1, 3),), name="a").constants(table)
    with pytest.raises(ExportError, match="'weight' is not the same in methods 'a' and 'b'"):
        plan(Shared(), (torch.randn(1, 3),), name="b").constants(table)


def test_constants_of_the_code_never_collide():
    table = WeightsTable()
    one = plan(lambda x: x + torch.tensor([1.0, 2.0]), (torch.ones(2),), name="a").constants(table)
    two = plan(lambda x: x + torch.tensor([3.0, 4.0]), (torch.ones(2),), name="b").constants(table)
    assert len(table.entries) == 2
    assert set(one).isdisjoint(two)


def test_a_quantised_or_wrapped_weight_is_refused():
    class Wrapped(torch.Tensor):
        pass

    table = WeightsTable()
    from cudaexec.export.aoti_compile import ConstantInfo

    info = ConstantInfo("w", "layer.weight", "cpu", (2,), (1,), 0)
    with pytest.raises(ExportError, match=r"'layer\.weight'.*class Wrapped"):
        table.add_constant("forward", info, torch.ones(2).as_subclass(Wrapped), owned=True)
    with pytest.raises(ExportError, match=r"'layer\.weight'.*complex64"):
        table.add_constant("forward", info, torch.ones(2, dtype=torch.complex64), owned=True)
    with pytest.raises(ExportError, match=r"sizes \[2\].*\[3\]"):
        table.add_constant("forward", info, torch.ones(3), owned=True)


def test_the_report_tells_tied_from_unused(tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(10, 4)
            self.head = nn.Linear(4, 10, bias=False)
            self.head.weight = self.embed.weight
            self.spare = nn.Linear(3, 3)

        def forward(self, i):
            return self.head(self.embed(i))

    report = cudaexec.export(Net(), (torch.tensor([1]),), path=tmp_path / "m.pte", target="cpu")
    (method,) = report.methods
    assert method.unused == ("spare.bias", "spare.weight")
    (constant,) = method.constants
    (other,) = {"embed.weight", "head.weight"} - {constant}
    assert method.tied == (f"{other} is {constant}",)
    assert f"tied: {other} is {constant}\n" in str(report)
    assert "1 constant\n" in str(report)
