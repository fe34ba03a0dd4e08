"""Whole exports of small models: files, atomicity, the model unchanged, the report, the code."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

import cudaexec
from cudaexec import ExportError, ExportOptions, _core

pytestmark = pytest.mark.torch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 3)
        self.drop = nn.Dropout(0.5)
        self.unused = nn.Parameter(torch.ones(5))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        return self.drop(self.line(x).softmax(-1)) + self.calls


@pytest.fixture(scope="module")
def exported(once):
    """One export that most tests here look at: (directory, report as text)."""

    def make(directory: Path) -> None:
        torch.manual_seed(0)
        net = Net().eval()
        net.line.weight.grad = torch.ones_like(net.line.weight)
        before = copy.deepcopy(net.state_dict())
        report = cudaexec.export(net, (torch.randn(2, 4),), path=directory / "m.pte", target="cpu")
        assert not net.training
        assert all(torch.equal(a, before[name]) for name, a in net.state_dict().items())
        assert torch.equal(net.line.weight.grad, torch.ones_like(net.line.weight))
        assert not any(
            isinstance(value, torch._subclasses.FakeTensor) for value in vars(net).values()
        )
        (directory / "report.txt").write_text(str(report))
        (callouts,) = {variant.callouts for variant in report.methods[0].variants}
        assert callouts == ("aoti_torch_cpu_addmm_out",)
        assert report.methods[0].mutated == ("calls",)
        assert report.methods[0].unused == ("unused",)
        assert report.pte_nbytes == (directory / "m.pte").stat().st_size
        assert report.ptd_nbytes == (directory / "m.ptd").stat().st_size
        assert report.weights_nbytes == 4 * (12 + 3 + 1)
        assert [stage.name for stage in report.stages] == [
            *("trace", "generate", "compile", "check", "weights", "write"),
        ]

    return once("export_files", make)


def manifest_of(path: Path) -> dict:
    data = path.read_bytes()
    text = data[data.index(b'{"format":"cudaexec"') :].decode("utf-8", "ignore")
    return json.JSONDecoder().raw_decode(text)[0]


def libraries(path: Path, directory: Path) -> dict[str, Path]:
    """The code of each variant, as files."""
    manifest = manifest_of(path)
    parsed = _core._format.parse_pte(str(path))
    assert parsed
    data = path.read_bytes()
    found = {}
    for variant in manifest["methods"][0]["variants"]:
        size = manifest["code"][variant["code"]]["nbytes"]
        for match in re.finditer(b"\x7fELF", data):
            image = data[match.start() : match.start() + size]
            from hashlib import sha256

            if f"{sha256(image).hexdigest()}_so_blob" == variant["code"]:
                found[variant["isa"]] = directory / f"{variant['isa']}.so"
                found[variant["isa"]].write_bytes(image)
    return found


def test_two_files_and_nothing_else(exported):
    assert sorted(p.name for p in exported.iterdir() if p.suffix in (".pte", ".ptd")) == [
        *("m.ptd", "m.pte"),
    ]
    assert not [p for p in exported.iterdir() if p.suffix in (".part", ".old")]


def test_report_is_readable(exported):
    text = (exported / "report.txt").read_text()
    for part in ("m.pte", "m.ptd", "x86-64-v4", "call-outs: addmm_out", "compile", "torch 2."):
        assert part in text
    assert "1 of them written" in text
    assert "unused tensors, left out: unused" in text


def test_manifest(exported):
    manifest = manifest_of(exported / "m.pte")
    assert manifest["producer"]["torch"] == torch.__version__
    assert manifest["platform"]["os"] == "linux"
    assert re.fullmatch(r"\d+\.\d+", manifest["platform"]["glibc"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", manifest["platform"]["glibcxx"])
    (method,) = manifest["methods"]
    assert [variant["isa"] for variant in method["variants"]] == ["x86-64-v4", "x86-64-v3"]
    assert "avx512f" in method["variants"][0]["cpu_flags"]
    assert not [flag for flag in method["variants"][1]["cpu_flags"] if flag.startswith("avx512")]
    mutated = {constant["fqn"]: constant["mutated"] for constant in method["constants"]}
    assert mutated == {"line.weight": False, "line.bias": False, "calls": True}


def test_linked_libraries(exported, tmp_path):
    found = libraries(exported / "m.pte", tmp_path)
    assert set(found) == {"x86-64-v3", "x86-64-v4"}
    for level, path in found.items():
        facts = _core.inspect_elf(path.read_bytes(), level)
        assert facts["needed"][0] == "libcudaexec_shims.so.1"
        assert not [name for name in facts["needed"] if "gomp" in name or "torch" in name]
        assert facts["unique"] == []
        assert facts["missing"] == []
        assert facts["isa"] == level
        dynamic = subprocess.run(
            ["readelf", "-dW", path], capture_output=True, text=True, check=True
        ).stdout
        assert "RPATH" not in dynamic
        assert "RUNPATH" not in dynamic
        symbols = subprocess.run(
            ["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True
        ).stdout
        names = [line.split()[-1] for line in symbols.splitlines()]
        assert len(names) > 20
        assert all(name.startswith("AOTInductor") for name in names)
        sections = subprocess.run(
            ["readelf", "-SW", path], capture_output=True, text=True, check=True
        ).stdout
        assert ".debug_info" not in sections
        assert ".symtab" not in sections
        image = path.read_bytes()
        for place in (str(Path(torch.__file__).parent), str(Path.home()), "/tmp/"):
            assert place.encode() not in image


def test_instructions_match_the_level(exported, tmp_path):
    found = libraries(exported / "m.pte", tmp_path)
    code = {
        level: subprocess.run(
            ["objdump", "-d", "--no-show-raw-insn", path],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for level, path in found.items()
    }
    assert not re.search(r"%zmm|%[xyz]mm(1[6-9]|2\d|3[01])|%k[1-7]", code["x86-64-v3"])
    assert re.search(r"%ymm", code["x86-64-v3"])
    assert re.search(r"%zmm", code["x86-64-v4"])
    assert not re.search(r"vpdpbusd|vdpbf16ps|tdpb|vcvtne", code["x86-64-v4"])


def test_executorch_names(exported):
    parsed = _core._format.parse_pte(str(exported / "m.pte"))
    assert "AotiCpuBackend" in str(parsed)


def test_without_weights_there_is_one_file(tmp_path):
    class Plain(nn.Module):
        def forward(self, x):
            return x * 2 + 1

    report = cudaexec.export(
        Plain(), (torch.randn(4),), path=str(tmp_path / "p.pte"), target=["cpu"],
        options=ExportOptions(cpu_levels=("x86-64-v3",)),
    )  # fmt: skip
    assert report.ptd is None
    assert [p.name for p in tmp_path.iterdir()] == ["p.pte"]


STAGES = {
    "trace": "cudaexec.export.pipeline.lower",
    "generate": "cudaexec.export.pipeline.generate",
    "compile": "cudaexec.export.toolchain.Toolchain.compile",
    "link": "cudaexec.export.toolchain.Toolchain.link",
    "check": "cudaexec.export.pipeline.inspect",
    "weights": "cudaexec.export.weights.blob_digest",
    "layout": "cudaexec.export.write.build_pte",
    "first rename": "pathlib.Path.replace",
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_failure_leaves_the_old_files(stage, tmp_path, monkeypatch):
    path, data = tmp_path / "m.pte", tmp_path / "m.ptd"
    path.write_bytes(b"old program")
    data.write_bytes(b"old weights")

    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(STAGES[stage], fail)
    with pytest.raises((ExportError, OSError), match="No space left"):
        cudaexec.export(
            nn.Linear(2, 2), (torch.ones(1, 2),), path=path, target="cpu",
            options=ExportOptions(cpu_levels=("x86-64-v3",)),
        )  # fmt: skip
    assert path.read_bytes() == b"old program"
    assert data.read_bytes() == b"old weights"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.ptd", "m.pte"]


@pytest.mark.parametrize("existing", [True, False])
def test_both_files_appear_or_neither(existing, tmp_path, monkeypatch):
    from cudaexec.export.segments import ContainerImage
    from cudaexec.export.write import _replace_all

    first, second = tmp_path / "m.ptd", tmp_path / "m.pte"
    if existing:
        first.write_bytes(b"old")
    images = [(first, ContainerImage(b"weights", 0, ())), (second, ContainerImage(b"code", 0, ()))]
    replace = Path.replace

    def fail_second(self, target):
        if Path(target) == second:
            raise OSError(13, "Permission denied", str(target))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fail_second)
    with pytest.raises(OSError, match="denied"):
        _replace_all(images)
    assert [p.name for p in tmp_path.iterdir()] == (["m.ptd"] if existing else [])
    if existing:
        assert first.read_bytes() == b"old"
    monkeypatch.undo()
    _replace_all(images)
    assert first.read_bytes() == b"weights"
    assert second.read_bytes() == b"code"
    assert len(list(tmp_path.iterdir())) == 2


def test_nothing_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ExportError):
        cudaexec.export(
            nn.Linear(2, 2), (torch.ones(1, 2),), path="m.pte", target="cpu",
            options=ExportOptions(compiler="/bin/false"),
        )  # fmt: skip
    from export_plan import plan

    plan(nn.Linear(2, 2), (torch.ones(1, 2),))
    assert not list(tmp_path.iterdir())


def test_a_missing_compiler_is_named(tmp_path):
    with pytest.raises(ExportError, match=r"'no-such-g\+\+' is not on PATH.*ExportOptions"):
        cudaexec.export(
            nn.Linear(2, 2), (torch.ones(1, 2),), path=tmp_path / "m.pte", target="cpu",
            options=ExportOptions(compiler="no-such-g++"),
        )  # fmt: skip
