"""Inputs, outputs and their structure in the manifest."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest
import torch
from export_plan import plan, traced
from torch import nn

from cudaexec import ExportError

pytestmark = pytest.mark.torch

Pair = namedtuple("Pair", ["first", "second"])


@dataclasses.dataclass
class Result:
    value: torch.Tensor
    extra: torch.Tensor | None = None
    count: int = 0


torch.export.register_dataclass(Result)


def kinds(lowered) -> list[str]:
    return [output["kind"] for output in lowered.outputs]


def test_names_follow_the_parameters():
    lowered = traced(
        lambda a, pair, *, state: a["x"] + pair.first + state["k"][1] + pair.second * 0,
        ({"x": torch.ones(3)}, Pair(torch.ones(3), torch.ones(3))),
        {"state": {"k": [torch.ones(3), torch.ones(3)]}},
    )
    assert [spec["name"] for spec in lowered.inputs] == [
        "a['x']",
        "pair.first",
        "pair.second",
        "state['k'][0]",
        "state['k'][1]",
    ]
    args, kwargs = lowered.in_spec["children"]
    assert args["children"][0] == {
        "type": "dict",
        "keys": [["s", "x"]],
        "children": [{"leaf": True}],
    }
    assert args["children"][1]["type"] == "namedtuple"
    assert args["children"][1]["keys"] == ["first", "second"]
    assert args["children"][1]["class"].endswith(":Pair")
    assert kwargs["keys"] == [["s", "state"]]


def test_variadic_arguments():
    lowered = traced(lambda *xs: xs[0] - xs[1], (torch.ones(2), torch.zeros(2)))
    assert [spec["name"] for spec in lowered.inputs] == ["xs_0", "xs_1"]


def test_keyword_order_is_the_callers():
    lowered = traced(lambda x, y: x - y, (), {"y": torch.ones(2), "x": torch.zeros(2)})
    assert [spec["name"] for spec in lowered.inputs] == ["y", "x"]
    assert lowered.in_spec["children"][1]["keys"] == [["s", "y"], ["s", "x"]]
    names = [node.name for node in lowered.graph_module.graph.nodes if node.op == "placeholder"]
    assert names == ["y", "x"]


def test_python_values_are_compiled_in():
    def f(x, scale, flag, mode="a", nothing=None, pi=1.0):
        return x * scale * pi if flag and mode == "b" else x

    lowered = traced(f, (torch.ones(3), 2, True, "b", None, float("inf")))
    assert [spec.get("value") for spec in lowered.inputs] == [
        *(None, 2, True, "b", None),
        {"float": "inf"},
    ]
    assert [spec["kind"] for spec in lowered.inputs] == ["tensor"] + ["constant"] * 5
    assert lowered.inputs[0]["graph_input"] == 0
    assert len(lowered.graph_inputs) == 1


def test_outputs_of_every_kind():
    def f(x):
        s = x.sin()
        return OrderedDict(
            same=(s, s),
            none=None,
            items=[1, 2.5, True, "text", x.shape[0]],
            pair=Pair(s.view(-1), x),
            by_number={3: s[0], True: s.t()},
        )

    lowered = traced(f, (torch.randn(3, 4),))
    assert lowered.out_spec["type"] == "ordereddict"
    assert kinds(lowered) == ["tensor"] * 2 + ["constant"] * 6 + ["tensor"] * 4
    assert [o["value"] for o in lowered.outputs if o["kind"] == "constant"] == [
        *(None, 1, 2.5, True, "text", 3),
    ]
    assert lowered.outputs[0]["graph_output"] == lowered.outputs[1]["graph_output"]
    assert len(lowered.graph_outputs) == 5
    by_number = lowered.out_spec["children"][4]
    assert by_number["keys"] == [["i", 3], ["b", True]]


def test_numbers_that_only_the_run_knows():
    p = plan(lambda x: (x.sum().item(), x.argmax().item(), (x.sum() > 0).item()), (torch.ones(4),))
    assert [(o["kind"], o["graph_output"]) for o in p.outputs] == [
        ("float", 0),
        ("int", 1),
        ("bool", 2),
    ]


def test_containers_of_every_kind():
    def f(x):
        counts = defaultdict(list)
        counts["k"] = [x + 1]
        return Result(x * 2), counts, deque([x - 1]), torch.topk(x, 2)

    lowered = traced(f, (torch.randn(4),))
    dataclass, counts, queue, topk = lowered.out_spec["children"]
    assert dataclass["type"] == "dataclass"
    assert dataclass["class"].endswith(":Result")
    # A field that is None is a leaf of its own: torch drops it.
    assert dict(zip(dataclass["keys"], kinds(lowered)[:3], strict=True)) == {
        "value": "tensor",
        "count": "constant",
        "extra": "constant",
    }
    assert counts["type"] == "defaultdict"
    assert queue["type"] == "list"
    assert topk == {"type": "tuple", "children": [{"leaf": True}, {"leaf": True}]}


def test_transformers_model_output():
    from transformers.modeling_outputs import BaseModelOutput

    lowered = traced(
        lambda x: BaseModelOutput(last_hidden_state=x + 1, hidden_states=(x, x * 2)),
        (torch.ones(2),),
    )
    assert lowered.out_spec["type"] == "custom"
    assert lowered.out_spec["keys"] == ["last_hidden_state", "hidden_states"]
    assert lowered.out_spec["class"] == "transformers.modeling_outputs:BaseModelOutput"


def test_a_result_that_is_no_data_is_refused():
    with pytest.raises(ExportError, match="forward"):
        traced(lambda x: (x, object()), (torch.ones(2),))


def test_a_key_that_is_no_scalar_is_refused():
    with pytest.raises(ExportError, match=r"key \('a', 1\).*Change the key"):
        traced(lambda x: {("a", 1): x + 1}, (torch.ones(2),))


def test_mutated_inputs_are_marked():
    def f(x, y, z):
        x.add_(1)
        z[0] = 5
        return x + y

    p = plan(f, (torch.ones(3), torch.ones(3), torch.ones(2)))
    assert p.mutations.inputs == {0, 2}


def test_mutated_buffers_are_found():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))
            self.register_buffer("fixed", torch.ones(3))
            self.register_buffer("scratch", torch.zeros(2), persistent=False)

        def forward(self, x):
            self.seen.add_(x)
            self.scratch[0] = x.sum()
            return x + self.fixed + self.scratch[0]

    p = plan(Net(), (torch.ones(3),))
    assert p.mutations.constants == {"seen", "scratch"}
    assert set(p.constants()) == {"seen", "fixed", "scratch"}


def test_a_method_without_results_or_inputs():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", torch.ones(3))

        def forward(self):
            self.cache.zero_()

    p = plan(Net())
    assert p.mutations.constants == {"cache"}
    assert p.inputs == []
    assert p.outputs == [{"kind": "constant", "value": None}]


def test_unused_inputs_stay():
    p = plan(lambda x, unused: x + 1, (torch.ones(3), torch.ones(2, 2)))
    assert [spec["graph_input"] for spec in p.inputs] == [0, 1]
    assert "AOTInductorModelBase(2," in p.code.wrapper


def test_strides_of_the_example():
    lowered = traced(lambda x: x + 1, (torch.randn(4, 3).t(),))
    assert lowered.inputs[0]["shape"] == [3, 4]
    assert lowered.inputs[0]["strides"] == [1, 3]
    assert lowered.outputs[0]["strides"] == [1, 3]


def test_exported_program_as_the_model():
    class Net(nn.Module):
        def forward(self, x, *, bias):
            return {"y": x + bias}

    with torch.no_grad():
        program = torch.export.export(Net(), (torch.ones(2),), {"bias": torch.ones(2)})
    lowered = traced(program)
    assert [spec["name"] for spec in lowered.inputs] == ["x", "bias"]
    assert lowered.out_spec["keys"] == [["s", "y"]]


def test_no_guards_function_reaches_the_compiler():
    lowered = traced(lambda x: x + 1, (torch.ones(3),))
    assert not [node for node in lowered.graph_module.graph.nodes if node.op == "call_module"]
    assert type(lowered.graph_module.graph._codegen) is torch.fx.graph.CodeGen


def test_parameters_left_at_their_default():
    def f(x, mask=None, scale=2.0, shape=(1, 2), *, mode="fast", other=None):
        return x * scale if other is None else x + other

    x = torch.ones(3)
    p = plan(f, (x,), {"other": x})
    assert p.lowered.omitted == [
        {"name": "mask", "position": 1, "value": None},
        {"name": "scale", "position": 2, "value": 2.0},
        {"name": "mode", "position": None, "value": "fast"},
    ]
