"""Dynamic sizes: ranges, guards, and refusals where the trace or the compiler would lose them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from export_plan import evaluate, plan, traced
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

import cudaexec
from cudaexec import ExportError
from cudaexec.export.narrowing import NeedsSizesAboveOneError

pytestmark = pytest.mark.torch

BATCH = Dim("batch", min=1, max=64)


OLD_TORCH = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)


def holds(p, **sizes: int) -> bool:
    return all(evaluate(guard["expr"], sizes) for guard in p.guards)


def test_a_range_is_kept():
    p = plan(lambda x: x.softmax(0), (torch.randn(6, 3),), None, ({0: Dim("n", min=2, max=64)},))
    assert p.symbols == [{"name": "n", "min": 2, "max": 64, "input": 0, "dim": 0}]
    assert p.inputs[0]["shape"] == ["n", 3]
    assert p.outputs[0]["shape"] == ["n", 3]


def test_no_upper_bound():
    p = plan(lambda x: x * 2, (torch.randn(6),), None, ({0: Dim("n")},))
    assert p.symbols == [{"name": "n", "min": 1, "max": None, "input": 0, "dim": 0}]


def test_sizes_have_the_names_of_their_dims():
    def f(a, b, c, d):
        return a[:, 0], b + 1, c * 2, d * 3

    # An operator's name, a name like those of unnamed sizes, and no name at all.
    dims = ({0: Dim("max"), 1: Dim("length")}, {0: Dim("s0")}, {0: Dim.AUTO}, {0: Dim("length")})
    p = plan(f, tuple(torch.randn(n, n + 1) for n in (4, 6, 7, 5)), None, dims)
    assert [spec["name"] for spec in p.symbols] == ["s1", "length", "s0", "s2"]
    assert p.outputs[0]["shape"] == ["s1"]


@pytest.mark.parametrize("spec", [BATCH, Dim.AUTO, Dim.DYNAMIC])
@pytest.mark.parametrize("size", [0, 1])
def test_an_example_of_size_0_or_1_is_refused(spec, size):
    with pytest.raises(ExportError, match=r"'x': dimension 0 .*size 2 or more") as caught:
        traced(lambda x: x * 2, (torch.randn(size, 3),), None, ({0: spec},))
    assert f"size {size}," in str(caught.value)


def test_a_bool_argument_changes_nothing():
    p = plan(lambda x, flag: x.repeat([2]), (torch.randn(20), True), None, ({0: Dim("n")}, None))
    assert p.inputs[0]["shape"] == ["n"]
    assert evaluate(p.outputs[0]["shape"][0], {"n": 40}) == 80


def test_tied_sizes_have_one_symbol():
    n = Dim("n", min=2, max=32)
    p = plan(lambda a, b: a @ b, (torch.randn(5, 7), torch.randn(7, 5)), None, ({0: n}, {1: n}))
    assert len(p.symbols) == 1
    assert p.inputs[0]["shape"] == ["n", 7]
    assert p.inputs[1]["shape"] == [7, "n"]


def test_a_multiple_of_a_size():
    n = Dim("n", min=2, max=32)
    p = plan(lambda x: x.view(-1, 2).sum(1), (torch.randn(8),), None, ({0: 2 * n},))
    assert p.inputs[0]["shape"] == ["s0"]
    assert (p.symbols[0]["min"], p.symbols[0]["max"]) == (4, 64)
    assert p.guards[0]["text"] == "s0 % 2 == 0"
    assert holds(p, s0=10)
    assert not holds(p, s0=11)
    assert evaluate(p.outputs[0]["shape"][0], {"s0": 10}) == 5


def test_a_multiple_beside_the_size_itself():
    n = Dim("n", min=2, max=32)
    p = plan(
        lambda x, y: x + y.view(2, -1)[0],
        (torch.randn(4), torch.randn(8)),
        None,
        ({0: n}, {0: 2 * n}),
    )
    assert len(p.symbols) == 1
    assert evaluate(p.inputs[1]["shape"][0], {"n": 5}) == 10


@pytest.mark.skipif(OLD_TORCH, reason="Inductor of 2.11 cannot lower this slice: ExportError")
def test_guards_of_the_trace():
    p = plan(
        lambda x, y: x[: y.shape[0] - 1] + y[1:],
        (torch.randn(8), torch.randn(5)),
        None,
        ({0: Dim.AUTO}, {0: Dim.AUTO}),
    )
    assert holds(p, s0=8, s1=5)
    assert holds(p, s0=4, s1=5)
    assert not holds(p, s0=3, s1=5)


def test_sizes_as_results():
    p = plan(
        lambda x: (x * 2, x.shape[0], x.shape[0] // 2 + 1),
        (torch.randn(6),),
        None,
        ({0: Dim("n")},),
    )
    assert [output["kind"] for output in p.outputs] == ["tensor", "expression", "expression"]
    assert evaluate(p.outputs[2]["value"], {"n": 9}) == 5


def test_sizes_that_depend_on_data_are_null():
    p = plan(lambda x: (x[x > 0], torch.nonzero(x)), (torch.randn(6, 2),))
    assert p.outputs[0]["shape"] == [None]
    assert p.outputs[1]["shape"] == [None, 2]


def test_a_dynamic_number_is_refused():
    with pytest.raises(ExportError, match="input 'k': a dynamic Python number"):
        traced(lambda x, k: x * k, (torch.ones(3), 3), None, (None, Dim.DYNAMIC))


@pytest.mark.parametrize(
    ("function", "spec"),
    [
        (lambda x: x.reshape(4, 5), Dim.AUTO),
        (lambda x: x * int(x.shape[0]), Dim("n")),
        (lambda x: x if x.shape[0] == 20 else x * 2, Dim("n", min=2, max=64)),
    ],
)
def test_a_size_that_the_trace_fixed_is_refused(function, spec):
    with pytest.raises(ExportError, match="20|constant"):
        traced(function, (torch.randn(20),), None, ({0: spec},))


def test_a_size_that_the_compiler_fixed_is_refused():
    with pytest.raises(ExportError, match=r"narrowed .*height == 10.*excludes") as caught:
        plan(
            lambda x: F.adaptive_avg_pool2d(x, 3),
            (torch.randn(4, 3, 10, 10),),
            None,
            ({0: BATCH, 2: Dim("height", min=4, max=500)},),
        )
    assert "Declare a range" in str(caught.value)


def test_a_convolution_does_not_narrow_the_batch():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()).eval()
    p = plan(net, (torch.randn(4, 3, 9, 9),), None, ({0: BATCH},))
    assert (p.symbols[0]["min"], p.symbols[0]["max"]) == (1, 64)
    ranges = p.lowered.shape_env.var_to_range
    assert [(int(r.lower), int(r.upper)) for r in ranges.values()] == [(1, 64)]


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)),
        nn.LayerNorm(16),
        lambda x: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[:, 0],
        lambda x: x.mean(0, keepdim=True) + x,
    ],
)
def test_size_1_is_part_of_the_range(model):
    p = plan(model, (torch.randn(4, 6, 16),), None, ({0: BATCH},))
    assert p.lowered.oblivious
    assert p.symbols[0]["min"] == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.squeeze(0) * 2,  # another rank at size 1
        lambda x: x if x.shape[0] == 1 else x * 2,  # a branch on it
    ],
)
def test_size_1_is_refused_where_eager_mode_does_something_else(function):
    p = plan(function, (torch.randn(4, 3),), None, ({0: BATCH},))
    assert p.symbols[0]["min"] == 2
    assert not p.lowered.oblivious


def test_a_range_that_cannot_hold_one_is_traced_once(monkeypatch):
    from cudaexec.export import lower as module

    monkeypatch.setattr(module, "trace_small", lambda *a, **k: pytest.fail("not needed"))
    traced(lambda x: x * 2, (torch.randn(4),), None, ({0: Dim("n", min=2)},))


def test_code_generation_that_excludes_size_1_is_noticed(monkeypatch):
    import sympy

    from cudaexec.export.narrowing import GuardWatch

    lowered = traced(lambda x: x * 2, (torch.randn(4),), None, ({0: BATCH},))
    watch = GuardWatch(lowered.shape_env)
    (symbol,) = lowered.symbols.ranges

    class Guard:
        expr = sympy.Ne(symbol, 1)

    lowered.shape_env.guards.append(Guard())
    with pytest.raises(NeedsSizesAboveOneError):
        watch.check(lowered.symbols, oblivious=True)
    with pytest.raises(ExportError, match="batch != 1"):
        watch.check(lowered.symbols, oblivious=False)


def test_nested_and_keyword_shapes():
    p = plan(
        lambda pair, *, state: pair[0] + state["k"] + pair[1],
        ((torch.randn(4, 2), torch.randn(2)),),
        {"state": {"k": torch.randn(4, 2)}},
        {"pair": ({0: BATCH}, None), "state": {"k": {0: BATCH}}},
    )
    assert [spec["shape"] for spec in p.inputs] == [["batch", 2], [2], ["batch", 2]]


def test_exported_program_keeps_its_ranges():
    class Net(nn.Module):
        def forward(self, x):
            return x * 2

    shapes = ({0: Dim("n", min=3, max=9)},)
    with torch.no_grad():
        program = torch.export.export(Net(), (torch.randn(4, 2),), dynamic_shapes=shapes)
    p = plan(program)
    assert (p.symbols[0]["min"], p.symbols[0]["max"]) == (3, 9)


def test_guards_of_a_saved_program(tmp_path):
    class Net(nn.Module):
        def forward(self, pair, *rest, scale):
            x, y = pair
            return (x[: y.shape[0] - 1] + y[1:]) * scale["k"] + rest[0].view(-1, 2)[0].sum()

    n = Dim.AUTO
    with torch.no_grad():
        program = torch.export.export(
            Net(),
            ((torch.randn(8), torch.randn(5)), torch.randn(6)),
            {"scale": {"k": torch.randn(1)}},
            dynamic_shapes={"pair": ({0: n}, {0: n}), "rest": ({0: n},), "scale": {"k": None}},
        )
    torch.export.save(program, tmp_path / "net.pt2")
    for model in (program, torch.export.load(tmp_path / "net.pt2")):
        p = plan(model)
        assert holds(p, s0=8, s1=5, s2=6)
        assert not holds(p, s0=3, s1=5, s2=6)
        assert not holds(p, s0=8, s1=5, s2=7)


@pytest.mark.parametrize(
    ("text", "holds_for", "fails_for"),
    [
        ("L['x'].size()[0] % 2 == 0", 4, 5),
        ("4 <= L['x'].size()[0] and L['x'].size()[0] <= 8", 8, 9),
        ("4 <= L['x'].size()[0] <= 8", 4, 3),
        ("not (L['x'].size()[0] == 5 or -L['x'].size()[0] > -4)", 4, 5),
        ("max(L['x'].size()[0], 7) // 2 != 3", 8, 7),
        ("L['x'].stride()[0] * L['x'].size()[0] < 30", 9, 10),
    ],
)
def test_guards_as_text(text, holds_for, fails_for):
    from cudaexec.export.guards_code import add_guards_of

    class Program:
        _guards_code = [text, "L['x'].size()[1] == 3"]

    lowered = traced(lambda x: x * 2, (torch.randn(4, 3),), None, ({0: Dim("n")},))
    table = lowered.symbols
    add_guards_of(table, Program(), {"x": lowered.graph_inputs[0]})
    (guard,) = table.guards
    assert guard["text"] == text
    assert evaluate(guard["expr"], {"n": holds_for})
    assert not evaluate(guard["expr"], {"n": fails_for})
    Program._guards_code = ["L['y'].size()[0] == 2"]
    with pytest.raises(ExportError, match=r"L\['y'\].*cannot be recorded"):
        add_guards_of(table, Program(), {"x": lowered.graph_inputs[0]})


def test_a_callers_program_is_unchanged():
    from cudaexec.export import pipeline

    class Net(nn.Module):
        def forward(self, x):
            return x.view(-1, 2).sum(1)

    with torch.no_grad():
        program = torch.export.export(Net(), (torch.randn(8),), dynamic_shapes=({0: Dim.AUTO},))
    env = pipeline.shape_env_of(program)
    before = (list(env.guards), dict(env.var_to_range), str(program.graph))
    with pipeline._programs_unchanged([pipeline.MethodRequest("forward", program)]):
        assert plan(program).guards
        env.guards.append(None)
        env.var_to_range.clear()
    assert (list(env.guards), dict(env.var_to_range), str(program.graph)) == before


def _fixed(x):
    return x.reshape(3, 4) + 1


def _narrowed(x):
    assert x.shape[0] < 10
    return x + 1


def _same(x, y):
    return x + y


@pytest.mark.parametrize(
    ("function", "names", "expected"),
    [
        (_fixed, ["batch"], r"'x': dimension 0 \('batch'\) became the constant 3.*batch = 3"),
        (_narrowed, ["batch"], r"\('batch'\) has to meet 2 <= batch and batch <= 9.*max=9"),
        (
            _same,
            ["a", "b"],
            r"'y': dimension 0 \('b'\) has to be the same as input 'x': dim.*b = a",
        ),
    ],
)
def test_sizes_that_the_model_does_not_allow(function, names, expected):
    examples = tuple(torch.randn(3, 4) for _ in names)
    with pytest.raises(ExportError, match=expected) as caught:
        traced(function, examples, None, tuple({0: Dim(name)} for name in names))
    message = str(caught.value)
    assert message.startswith("method 'forward': the model does not work for all the sizes")
    assert "TORCH_LOGS" not in message
    assert "L[" not in message


def test_examples_that_break_the_declaration():
    shapes = ({0: BATCH}, {1: BATCH})
    with pytest.raises(ExportError, match=r"y\.shape\[1\] = 4 is not equal to x\.shape\[0\] = 3"):
        traced(_same, (torch.randn(3, 4), torch.randn(3, 4)), None, shapes)


def test_a_dimension_that_the_example_does_not_have():
    with pytest.raises(ExportError, match=r"'x': dimension 2 \('batch'\).*has 2 dimensions"):
        traced(lambda x: x * 2, (torch.randn(3, 4),), None, ({2: BATCH},))


class Squeeze(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.squeeze(0)


def test_the_report_says_why_a_size_of_one_is_refused(tmp_path: Path) -> None:
    sizes = ({0: Dim("b", min=1, max=8)},)
    x = torch.randn(3, 4)
    path = tmp_path / "model.pte"
    for model, reason in (
        (Squeeze(), "b = x.shape[0] in [2, 8] (not 1: the model does something else there)"),
        (nn.Linear(4, 2), "b = input.shape[0] in [1, 8]"),
        (
            torch.export.export(nn.Linear(4, 2), (x,), dynamic_shapes=sizes),
            "s0 = input.shape[0] in [2, 8] (not 1: torch.export assumed more; export the module itself)",
        ),
    ):
        if isinstance(model, nn.Module):
            report = cudaexec.export(model, (x,), path=path, dynamic_shapes=sizes, target="cpu")
        else:
            report = cudaexec.export(model, path=path, target="cpu")
        assert report.methods[0].dynamic == (reason,)
        if "[2, 8]" in reason:
            with pytest.raises(cudaexec.ShapeError, match="the export's report says why"):
                cudaexec.load(path)(x[:1])
        else:
            assert cudaexec.load(path)(x[:1]).shape == (1, 2)


def test_the_report_names_parts_in_training_mode(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
    x = torch.randn(3, 4)
    options = {"path": tmp_path / "model.pte", "target": "cpu"}
    report = cudaexec.export(model, (x,), **options)
    assert report.notes == (
        "method 'forward': BatchNorm1d, Dropout in training mode; call model.eval() before the "
        "export unless that is meant",
    )
    assert report.notes[0] in str(report)
    assert cudaexec.export(model.eval(), (x,), **options).notes == ()
