"""Rules of the source tree that a machine can check: sizes, layers, includes."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CPP = ROOT / "cpp"
LAYERS = ["base", "device", "memory", "tensor", "ops", "format", "aoti", "runtime", "python"]
SIBLINGS = {("format", "aoti"), ("aoti", "format")}
MAX_LINES = 600
TORCH_OR_PYTHON_HEADER = re.compile(r'#include\s+[<"](torch/|ATen/|c10/)')
PYTHON_HEADER = re.compile(r'#include\s+[<"](pybind11/|Python\.h)')


def tracked(*patterns: str) -> list[Path]:
    """Files of the tree that are not ignored, or all that match where there is no git."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split("\n")
        return [ROOT / name for name in listed if name and (ROOT / name).is_file()]
    except (OSError, subprocess.CalledProcessError):
        return [path for pattern in patterns for path in ROOT.glob(f"**/{pattern}")]


def cpp_files() -> list[Path]:
    return [path for path in tracked("*.h", "*.cpp") if path.is_relative_to(CPP)]


def layer_of(path: Path) -> str:
    return path.relative_to(CPP).parts[0]


def test_there_are_sources_to_check() -> None:
    assert len(cpp_files()) > 20


def test_files_have_one_job_and_stay_short() -> None:
    too_long = {}
    for path in tracked("*.h", "*.cpp", "*.cu", "*.cuh", "*.py"):
        lines = len(path.read_text().splitlines())
        if lines > MAX_LINES:
            too_long[str(path.relative_to(ROOT))] = lines
    assert not too_long


def test_layers_point_one_way() -> None:
    wrong = []
    for path in cpp_files():
        own = layer_of(path)
        if own not in LAYERS:
            continue
        for include in re.findall(r'#include\s+"([^"]+)"', path.read_text()):
            other = include.split("/")[0]
            if other not in LAYERS:
                continue
            if LAYERS.index(other) > LAYERS.index(own) or (own, other) in SIBLINGS:
                wrong.append(f"{path.relative_to(ROOT)} includes {include}")
    assert not wrong


def test_no_torch_header_anywhere_and_python_only_in_its_layer() -> None:
    wrong = []
    for path in cpp_files():
        text = path.read_text()
        if TORCH_OR_PYTHON_HEADER.search(text):
            wrong.append(f"{path}: torch header")
        if layer_of(path) != "python" and PYTHON_HEADER.search(text):
            wrong.append(f"{path}: Python header")
    assert not wrong


def test_cpp_holds_no_device_code() -> None:
    assert not [p for p in tracked("*.cu", "*.cuh") if p.is_relative_to(CPP)]


@pytest.mark.parametrize("name", ["CudaBackend", "AotiCpuBackend"])
def test_delegate_ids_exist_once_in_each_language(name: str) -> None:
    cpp = [p for p in cpp_files() if f'"{name}"' in p.read_text()]
    assert len(cpp) <= 1, cpp


def test_version_is_one_number() -> None:
    import cudaexec

    declared = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    assert declared is not None
    assert cudaexec.__version__ == declared.group(1)


def test_locks_are_free_in_a_forked_child() -> None:
    """A std::mutex that another thread holds during a fork stays locked in the child."""
    wrong = [
        str(path.relative_to(ROOT))
        for path in cpp_files()
        if path.stem != "fork_mutex"
        and re.search(r"std::(\w+_)?mutex\b|std::call_once", path.read_text())
    ]
    assert wrong == []


def test_no_factory_registers_its_object_without_the_gil() -> None:
    """A call_guard on py::init(factory) still holds when pybind11 notes the new object in its table."""
    wrong = []
    for path in (CPP / "python").glob("*.cpp"):
        text = path.read_text()
        for match in re.finditer(r"\.def\(\s*py::init\(", text):
            end, depth = match.start() + len(".def("), 1
            while depth:
                depth += {"(": 1, ")": -1}.get(text[end], 0)
                end += 1
            if re.search(r"no_gil|call_guard", text[match.start() : end]):
                wrong.append(f"{path.name}: {text[match.start() : end]}")
    assert not wrong
