"""`python -m cudaexec`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import cudaexec

SAMPLES = Path(__file__).parents[1] / "data" / "et_samples"


def run(*arguments: str, code: int = 0) -> str:
    pytest.importorskip("typer")
    done = subprocess.run(
        [sys.executable, "-m", "cudaexec", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"COLUMNS": "200", "PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path)},
    )
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout


def test_version() -> None:
    assert run("version") == cudaexec.__version__ + "\n"


def test_inspect_programs_of_executorch() -> None:
    shown = run("inspect", str(SAMPLES / "c_multi.pte"))
    for words in ("method scale", "float32[2, 3]", "aten::mul.out", "= 'demo'"):
        assert words in shown
    shown = run("inspect", str(SAMPLES / "d_aoti_cpu.pte"))
    assert "d_aoti_cpu.ptd" in shown
    assert "delegate: " in shown


def test_inspect_as_json() -> None:
    found = json.loads(run("inspect", "--json", str(SAMPLES / "b_mlp_ext.pte")))
    assert found["producer"] is None
    assert sum(found["weights"]["entries"].values()) > 0
    assert found["weights"]["path"] == str(SAMPLES / "b_mlp_ext.ptd")
    assert [method["name"] for method in found["methods"]] == ["forward"]


def test_inspect_of_no_program(tmp_path: Path) -> None:
    assert run("inspect", str(tmp_path / "none.pte"), code=1).startswith("MissingFileError: ")
    damaged = tmp_path / "damaged [1].pte"
    damaged.write_bytes((SAMPLES / "c_multi.pte").read_bytes()[:100])
    shown = run("inspect", str(damaged), code=1)
    assert shown.startswith("FormatError: ")
    assert "damaged [1].pte" in shown


@pytest.mark.torch
def test_inspect_our_program(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    batch = torch.export.Dim("batch", min=2, max=16)
    path = tmp_path / "net.pte"
    cudaexec.export(
        net, (torch.zeros(4, 4),), path=path, dynamic_shapes=({0: batch},), target="cpu"
    )
    shown = run("inspect", str(path))
    for words in (
        "torch " + torch.__version__,
        "method forward",
        ", 4]",
        ", 2]",
        "2 to 16",
        "code: cpu x86-64-v3; calls out to",
        "    runs on cpu\n",
        "AotiCpuBackend",
        "4 weights",
        "2.weight",
        "float32[2, 8]",
    ):
        assert words in shown
    found = json.loads(run("inspect", str(path), "--json"))
    symbol = found["methods"][0]["inputs"][0]["shape"][0]
    assert found["methods"][0]["symbols"] == {symbol: [2, 16]}
    runs = [variant["runs_on"] for variant in found["methods"][0]["variants"]]
    assert sorted(runs) == [[], ["cpu"]]


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_the_command_line_says_what_it_needs(missing: str) -> None:
    code = (
        f"import sys; sys.modules['{missing}'] = None\n"
        "from cudaexec.__main__ import main; sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        f"cudaexec: the command line needs {missing}: pip install 'cudaexec[cli]'\n"
    )


def test_expressions_as_text() -> None:
    from cudaexec.cli.text import bytes_text, expression_text

    assert expression_text(3) == 3
    assert expression_text("s0") == "s0"
    assert expression_text(["s0", 1, "add", 2, "floordiv"]) == "(s0 + 1)//2"
    assert expression_text(["s0", "s1", 2, "mul", "sub"]) == "s0 - s1*2"
    assert expression_text(["s0", "s1", 2, "sub", "sub"]) == "s0 - (s1 - 2)"
    assert expression_text(["s0", 2, "max", "neg"]) == "-max(s0, 2)"
    assert expression_text(["s0", 2, "mod", 0, "eq", "not"]) == "not s0%2 == 0"
    assert [bytes_text(n) for n in (1, 1536, 3 << 20, 5 << 40)] == [
        "1 B", "1.5 KiB", "3.0 MiB", "5120.0 GiB",
    ]  # fmt: skip


def test_platforms_and_counts() -> None:
    from cudaexec.cli.text import counted, platform_text

    platform = {"os": "linux", "machine": "x86_64", "glibc": "2.34", "glibcxx": None}
    assert platform_text(platform) == "linux, x86_64, glibc 2.34 or newer"
    assert [counted(n, "weight") for n in (0, 1, 2)] == ["0 weights", "1 weight", "2 weights"]


@pytest.mark.torch
def test_inspect_tells_other_weights(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for name, sizes in (("one", (4, 8)), ("two", (4, 6))):
        model = torch.nn.Linear(*sizes)
        cudaexec.export(model, (torch.zeros(2, 4),), path=tmp_path / f"{name}.pte", target="cpu")
    one, two = tmp_path / "one.pte", tmp_path / "two.ptd"
    assert json.loads(run("inspect", "--json", str(one)))["problems"] == []
    shown = run("inspect", str(one), str(two), code=1)
    assert f"problem: weight: 96 bytes in {two}, the program expects 128" in shown
    one.with_suffix(".ptd").unlink()
    shown = run("inspect", str(one), code=1)
    assert "problem: no .ptd file: the program needs 2 weights" in shown
    cudaexec.export(
        torch.nn.Sequential(torch.nn.Linear(4, 8)), (torch.zeros(2, 4),), path=tmp_path / "three.pte",
        target="cpu",
    )  # fmt: skip
    shown = run("inspect", str(one), str(tmp_path / "three.ptd"), code=1)
    assert "problem: weight: not in " in shown
