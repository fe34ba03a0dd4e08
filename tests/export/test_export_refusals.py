"""What cannot be exported is refused with the reason and the place."""

from __future__ import annotations

import pytest
import torch
from export_plan import Function, plan, traced
from torch import nn

import cudaexec
from cudaexec import ExportError, ExportOptions
from cudaexec.export.callouts import MissingOperator, operator_of, refuse

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("function", "example", "dtype"),
    [
        (lambda x: (x * x.conj()).real, torch.ones(3, dtype=torch.complex64), "complex64"),
        (lambda x: torch.fft.rfft(x).abs(), torch.ones(4), "complex64"),
        (lambda x: x.to(torch.float8_e4m3fn).float(), torch.ones(3), "float8_e4m3fn"),
        (lambda x: x.to(torch.uint16).int(), torch.ones(3), "uint16"),
    ],
)
def test_dtypes(function, example, dtype):
    with pytest.raises(ExportError, match=f"(?s)method 'forward'.*{dtype}.*Supported: bool"):
        traced(function, (example,))


def test_the_place_in_the_model_is_named():
    class Net(nn.Module):
        def forward(self, x):
            return x.to(torch.float8_e5m2).float()

    with pytest.raises(ExportError, match=r"test_export_refusals\.py.*in forward"):
        traced(Net(), (torch.ones(3),))


def test_operators_beside_a_dtype_are_named_too():
    class Net(nn.Module):
        def forward(self, x):
            pair = torch.view_as_real(torch.complex(x, x))
            small = x.to(torch.float8_e5m2).float()
            known = x.sort()[0], x.softmax(0), x.cumsum(0), torch.polygamma(1, x), x @ x
            return pair, small, torch.linalg.inv(x), torch.bincount(x.long().flatten()), known

    with pytest.raises(ExportError) as caught:
        traced(Net(), (torch.rand(3, 3),))
    lines = [line for line in str(caught.value).splitlines() if line.startswith("  ")]
    assert [line.partition(" (File")[0] for line in lines] == [
        "  aten.complex.default uses complex64",
        "  aten.to.dtype uses float8_e5m2",
        "  aten.view_as_real.default needs libtorch",
        "  aten.linalg_inv_ex.default needs libtorch",
        "  aten.bincount.default needs libtorch",
    ]
    assert all("test_export_refusals.py" in line for line in lines)


def test_sparse_tensors():
    with pytest.raises(ExportError):
        traced(lambda x: x.to_dense(), (torch.eye(3).to_sparse(),))


def test_state_that_is_no_buffer():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = torch.zeros(3)

        def forward(self, x):
            self.hidden = self.hidden + x
            return self.hidden

    with pytest.raises(ExportError, match=r"self\.hidden.*register_buffer"):
        traced(Net(), (torch.ones(3),))


def test_a_seed_in_forward():
    def f(x):
        torch.manual_seed(3)
        return x + torch.rand(3)

    before = torch.manual_seed, torch.random.manual_seed
    with pytest.raises(ExportError, match=r"manual_seed\(3\)"):
        traced(f, (torch.ones(3),))
    assert (torch.manual_seed, torch.random.manual_seed) == before


def test_an_argument_that_is_no_data():
    with pytest.raises(ExportError):
        traced(lambda x, y: x, (torch.ones(3), object()))


def test_operators_without_libtorch_all_at_once(tmp_path):
    class Net(nn.Module):
        def forward(self, x):
            drawn = torch.multinomial(x.softmax(0), 2)
            return drawn, torch.bincount(drawn), torch.unique(x)

    path = tmp_path / "m.pte"
    with pytest.raises(ExportError) as caught:
        cudaexec.export(Net(), (torch.rand(6),), path=path, target="cpu")
    message = str(caught.value)
    assert message.startswith("3 operator(s)")
    for name in ("aten.multinomial", "aten.bincount", "aten._unique2"):
        assert name in message
    assert "test_export_refusals.py" in message
    assert "docs/operators.md" in message
    assert not list(tmp_path.iterdir())


def test_a_call_out_that_the_runtime_lacks(tmp_path, monkeypatch):
    from cudaexec.export import pipeline

    available = pipeline.provided_functions() - {"aoti_torch_cpu_topk"}
    monkeypatch.setattr(pipeline, "provided_functions", lambda: available)
    with pytest.raises(ExportError, match=r"aten\.topk.*needs aoti_torch_cpu_topk"):
        cudaexec.export(
            Function(lambda x: x.topk(2)[0]),
            (torch.rand(6),),
            path=tmp_path / "m.pte",
            target="cpu",
        )


def test_many_missing_operators_are_listed_once():
    item = MissingOperator("forward", "aten.foo", "aoti_torch_cpu_foo", (" (File m.py, line 3)",))
    with pytest.raises(ExportError) as caught:
        refuse([item, item, MissingOperator("step", "aten.bar", "aoti_torch_cpu_bar")])
    message = str(caught.value)
    assert message.startswith("2 operator(s)")
    assert message.count("aten.foo") == 1
    assert "in method 'step'" in message
    refuse([])


def test_names_of_operators():
    wrapper = plan(lambda x: x.sort(1)[0], (torch.randn(2, 3),)).code.wrapper
    assert operator_of("aoti_torch_cpu_sort_stable", wrapper).startswith("aten.sort")
    assert operator_of("aoti_torch_cpu_foo", wrapper) == "aten.foo"
    assert operator_of("Sleef_expf8_u10", wrapper) == "the function Sleef_expf8_u10"


def test_errors_of_the_model_keep_their_words():
    def f(x):
        raise ValueError("no such mode")

    with pytest.raises(ExportError, match="method 'forward'.*ValueError: no such mode"):
        traced(f, (torch.ones(3),))


class Branch(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x


class Number(nn.Module):
    def forward(self, x):
        return x[: int(x.sum())]


@pytest.mark.parametrize(
    ("model", "line", "strict"),
    [
        (Branch(), "if x.sum() > 0:", False),
        (Branch(), "if x.sum() > 0:", True),
        (Number(), "return x[: int(x.sum())]", False),
    ],
)
def test_values_that_decide_what_is_computed(tmp_path, capfd, model, line, strict):
    with pytest.raises(ExportError) as caught:
        cudaexec.export(
            model,
            (torch.ones(3),),
            path=tmp_path / "m.pte",
            target="cpu",
            options=ExportOptions(strict=strict),
        )
    message = str(caught.value)
    assert message.startswith("method 'forward': a branch, a Python number or a size depends on")
    assert "test_export_refusals.py" in message
    assert f", in forward: {line})" in message
    assert "torch.cond" in message
    assert capfd.readouterr() == ("", "")


def test_examples_that_do_not_fit_the_model(tmp_path, capfd):
    class Net(nn.Module):
        def forward(self, x):
            return x @ x

    for model, place in ((Net(), r"test_export_refusals\.py.*x @ x"), (nn.Linear(4, 2), "linear")):
        with pytest.raises(ExportError, match=place) as caught:
            cudaexec.export(model, (torch.ones(3, 7),), path=tmp_path / "m.pte", target="cpu")
        assert "[3, 7]" in str(caught.value)
        assert "runs on these example arguments" in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_log_lines_of_other_threads_are_kept(monkeypatch):
    import logging
    import threading

    from cudaexec.export.trace import quiet_torch

    logger = logging.getLogger("torch._dynamo")
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    monkeypatch.setattr(logger, "handlers", [handler])
    with quiet_torch():
        thread = threading.Thread(target=logger.error, args=("of another thread",))
        thread.start()
        thread.join()
        logger.error("of this thread")
    logger.error("afterwards")
    monkeypatch.setenv("TORCH_LOGS", "+dynamo")
    with quiet_torch():
        logger.error("wanted")
    assert lines == ["of another thread", "afterwards", "wanted"]


def test_arguments_of_export(tmp_path):
    net = nn.Linear(2, 2)
    x = torch.ones(1, 2)
    path = tmp_path / "m.pte"
    with pytest.raises(TypeError, match=r"nn\.Module or an ExportedProgram, got function"):
        cudaexec.export(lambda x: x, (x,), path=path)
    with pytest.raises(TypeError, match="ExportOptions"):
        cudaexec.export(net, (x,), path=path, options={"progress": True})
    with pytest.raises(ValueError, match="model=None"):
        cudaexec.export(net, (x,), path=path, methods={"a": (net, (x,))})
    with pytest.raises(ValueError, match="at least one"):
        cudaexec.export(None, path=path, methods={})
    with pytest.raises(ValueError, match=r"methods\['a'\].*got 1 items"):
        cudaexec.export(None, path=path, methods={"a": (net,)})
    with pytest.raises(ExportError, match="expected 'cpu', 'cuda'"):
        cudaexec.export(net, (x,), path=path, target="gpu")
    with pytest.raises(ExportError, match="does not exist"):
        cudaexec.export(net, (x,), path=tmp_path / "none" / "m.pte")
    with pytest.raises(ExportError, match="is a directory"):
        cudaexec.export(net, (x,), path=tmp_path)
    with pytest.raises(ValueError, match="weights file"):
        cudaexec.export(net, (x,), path=tmp_path / "m.ptd")
    assert not list(tmp_path.iterdir())


def test_options_know_their_names():
    with pytest.raises(TypeError, match="cpu_level"):
        ExportOptions(cpu_level=("x86-64-v3",))
    for levels in ((), ("x86-64-v5",), ("x86-64-v3", "x86-64-v3")):
        with pytest.raises(ValueError, match="cpu_levels"):
            ExportOptions(cpu_levels=levels)
    with pytest.raises(TypeError, match="expected a tuple of names, got 'x86-64-v3'"):
        ExportOptions(cpu_levels="x86-64-v3")  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        ExportOptions().strict = True


def test_writing_shared_memory_is_refused_in_our_words(tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("whole", torch.zeros(4))
            self.register_buffer("part", self.whole[:2])

        def forward(self, x):
            self.whole.add_(x)
            return self.part * 1

    with pytest.raises(ExportError, match="whose memory another one shares") as caught:
        cudaexec.export(Net(), (torch.ones(4),), path=tmp_path / "m.pte", target="cpu")
    assert "github" not in str(caught.value)
    assert not list(tmp_path.iterdir())
