"""Cases, section 7: files, packaging, loading."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import cudaexec
from compare import assert_same
from pte_edit import edit_manifest
from timing import rounds

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """`.pte` of a small MLP, and of another one with other weights."""
    paths = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
        path = tmp_path_factory.mktemp("pair") / "m.pte"
        cudaexec.export(net, (torch.randn(2, 8),), path=path, target="cpu")
        paths.append(path)
    return paths[0], paths[1]


X = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)


def test_a52_missing_weights(pair: tuple[Path, Path], tmp_path: Path) -> None:
    alone = shutil.copy(pair[0], tmp_path / "alone.pte")
    with pytest.raises(cudaexec.WeightsError) as caught:
        cudaexec.load(alone)
    assert "alone.pte" in str(caught.value)
    assert "alone.ptd" in str(caught.value)


def test_a52_weights_of_another_model(pair: tuple[Path, Path], tmp_path: Path) -> None:
    for program, weights in (pair, pair[::-1]):
        with pytest.raises(cudaexec.WeightsError, match="weight|bias"):
            cudaexec.load(program, weights.with_suffix(".ptd"))
    other = tmp_path / "wide.pte"
    cudaexec.export(nn.Linear(8, 5), (torch.randn(2, 8),), path=other, target="cpu")
    with pytest.raises(cudaexec.WeightsError):
        cudaexec.load(pair[0], other.with_suffix(".ptd"))


def test_a53_weights_are_not_held_twice(tmp_path: Path) -> None:
    class Big(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.ones(1 << 17, 256))  # 128 MiB

        def forward(self, i: torch.Tensor) -> torch.Tensor:
            return self.table[i].sum(1)

    path = tmp_path / "big.pte"
    i = torch.tensor([1, 5])
    methods = {"a": (Big(), (i,), None, None)}
    cudaexec.export(None, methods=methods, path=path, target="cpu")
    code = (
        "import sys, numpy as np, cudaexec\n"
        "def rss(): return [int(l.split()[1]) for l in open('/proc/self/status') if l.startswith('RssAnon')][0]\n"
        "i = np.array([1, 5]); before = rss()\n"
        "m = cudaexec.load(sys.argv[1]); m.method('a')(i)\n"
        "print(rss() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 16 * 1024  # KiB of private memory; the weights are 131072


def test_a54_paths_do_not_depend_on_the_working_directory(
    pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    for suffix in (".pte", ".ptd"):
        shutil.copy(pair[0].with_suffix(suffix), folder / f"m{suffix}")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link.pte").symlink_to(folder / "m.pte")
    expected = cudaexec.load(folder / "m.pte")(X)
    monkeypatch.chdir(tmp_path)
    for path in ("a/m.pte", b"a/m.pte", Path("a/m.pte"), "./a/../a/m.pte"):
        module = cudaexec.load(path)
        monkeypatch.chdir(tmp_path / "elsewhere")
        np.testing.assert_array_equal(module(X), expected)
        monkeypatch.chdir(tmp_path)
    np.testing.assert_array_equal(cudaexec.load("elsewhere/link.pte")(X), expected)


def test_a55_any_path_name(pair: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "模型 é 'q' #1 \"%s\""
    folder.mkdir()
    path = folder / "m ß.pte"
    net = nn.Linear(8, 2).eval()
    cudaexec.export(net, (torch.randn(2, 8),), path=path, target="cpu")
    with torch.no_grad():
        assert_same(
            cudaexec.load(str(path))(torch.from_numpy(X)), net(torch.from_numpy(X)), 1e-5, 1e-5
        )
    path.with_suffix(".ptd").unlink()
    with pytest.raises(cudaexec.WeightsError, match="模型"):
        cudaexec.load(path)


def rewrite_manifest(path: Path, target: Path, old: str, new: str) -> None:
    """Replace text of the manifest by text of the same length."""

    def replace(manifest: bytes) -> bytes:
        assert len(old) == len(new) and old.encode() in manifest, old
        return manifest.replace(old.encode(), new.encode())

    edit_manifest(path, target, replace)
    shutil.copy(path.with_suffix(".ptd"), target.with_suffix(".ptd"))


def manifest_text(path: Path) -> str:
    data = path.read_bytes()
    start = data.index(b'{"format":') if b'{"format":' in data else data.index(b'{"format"')
    return data[start:].split(b"\0")[0].decode(errors="replace")


def test_a59_another_instruction_set(pair: tuple[Path, Path], tmp_path: Path) -> None:
    changed = tmp_path / "m.pte"
    rewrite_manifest(pair[0], changed, "x86-64-v", "x86-65-v")
    with pytest.raises(cudaexec.Error) as caught:
        cudaexec.load(changed)
    assert "x86-65-v" in str(caught.value)


def test_a60_a_newer_format(pair: tuple[Path, Path], tmp_path: Path) -> None:
    text = manifest_text(pair[0])
    old = '"version":1' if '"version":1' in text else '"version": 1'
    changed = tmp_path / "m.pte"
    rewrite_manifest(pair[0], changed, old, old.replace("1", "9"))
    with pytest.raises(cudaexec.VersionError) as caught:
        cudaexec.load(changed)
    assert "9" in str(caught.value) and "1" in str(caught.value)


def test_a63_parallel_exports_share_a_cache(tmp_path: Path) -> None:
    code = (
        "import sys, torch, cudaexec\n"
        "torch.manual_seed(0)\n"
        "cudaexec.export(torch.nn.Linear(4, 3).eval(), (torch.zeros(2, 4),), path=sys.argv[1], target='cpu')\n"
    )
    environment = dict(os.environ, CUDAEXEC_CACHE=str(tmp_path / "cache"))
    paths = [tmp_path / f"m{i}.pte" for i in range(4)]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(path)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for path in paths
    ]
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    x = np.ones((2, 4), np.float32)
    results = [cudaexec.load(path)(x) for path in paths]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_a63_read_only_cache(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o555)
    if os.geteuid() == 0:  # root writes anyway: a file in the way refuses it too
        cache.chmod(0o755)
        cache.rmdir()
        cache.write_text("not a directory")
    code = (
        "import sys, torch, cudaexec\n"
        "cudaexec.export(torch.nn.Linear(4, 3).eval(), (torch.zeros(2, 4),), path=sys.argv[1], target='cpu')\n"
    )
    environment = dict(os.environ, CUDAEXEC_CACHE=str(cache))
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m.pte")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert cudaexec.load(tmp_path / "m.pte")(np.zeros((2, 4), np.float32)).shape == (2, 3)


def test_a64_load_starts_no_process_and_is_quick(pair: tuple[Path, Path]) -> None:
    code = (
        "import sys, os, time, resource, json, numpy as np, cudaexec\n"
        "os.environ['PATH'] = ''\n"
        "x = np.zeros((2, 8), np.float32)\n"
        "start = time.perf_counter()\n"
        "m = cudaexec.load(sys.argv[1]); y = m(x)\n"
        "took = time.perf_counter() - start\n"
        "print(json.dumps([took, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss]))\n"
    )
    best = 1.0
    for _ in rounds():
        done = subprocess.run(
            [sys.executable, "-c", code, str(pair[0])], capture_output=True, text=True, check=True
        )
        took, children = json.loads(done.stdout)
        assert children == 0
        best = min(best, took)
        if best < 0.3:
            return
    raise AssertionError(f"load and first call take {best} s")


def test_a61_only_system_libraries_are_needed(pair: tuple[Path, Path]) -> None:
    """A program without OpenMP-using libraries loads with nothing but libc, libm, libstdc++ and ours."""
    code = (
        "import sys, numpy as np, cudaexec\n"
        "m = cudaexec.load(sys.argv[1]); m(np.zeros((2, 8), np.float32))\n"
        "print(''.join(l for l in open('/proc/self/maps') if '.so' in l))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(pair[0])], capture_output=True, text=True, check=True
    )
    for name in ("libgomp", "libtorch", "libc10", "libdnnl", "libcuda.so"):
        assert name not in done.stdout


def test_digests_name_the_damaged_weight(pair: tuple[Path, Path], tmp_path: Path) -> None:
    program = shutil.copy(pair[0], tmp_path / "m.pte")
    data = bytearray(pair[0].with_suffix(".ptd").read_bytes())
    data[-3] ^= 0x40
    (tmp_path / "m.ptd").write_bytes(data)
    with pytest.raises(cudaexec.WeightsError, match=r"weight|bias"):
        cudaexec.load(program)


def test_loading_a_file_costs_no_more_memory_than_stated(pair: tuple[Path, Path]) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(20):
        cudaexec.load(pair[0]).close()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
