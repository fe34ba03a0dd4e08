"""Compile flags, the cache, thread teams, the changed header, and the patches of torch."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from export_plan import plan  # noqa: E402

from cudaexec import ExportError  # noqa: E402
from cudaexec.export import inductor_patches, teams, torch_headers  # noqa: E402
from cudaexec.export.aoti_compile import read_constants, split_source  # noqa: E402
from cudaexec.export.build_cache import BuildCache, default_cache_dir  # noqa: E402
from cudaexec.export.toolchain import FlagSet, Toolchain, find_compiler  # noqa: E402

pytestmark = pytest.mark.torch

INDUCTOR = {
    "definitions": ["A", "TORCH_INDUCTOR_PRECOMPILE_HEADERS", "CPU_CAPABILITY_AVX2"],
    "cflags": ["O3", "DNDEBUG", "g1", "march=native", "Wall", "std=c++20", "fopenmp", "fPIC"],
    "include_dirs": ["/usr/include/python3.11", "/x/torch/include"],
}


def test_flags():
    flags = FlagSet.from_inductor("x86-64-v3", isa_flags=["-mavx2", "-mfma", "-mf16c"], **INDUCTOR)
    arguments = flags.arguments("-O3")
    assert "-march=x86-64-v3" in arguments
    assert "-fno-gnu-unique" in arguments
    assert "-fvisibility=hidden" in arguments
    assert "-std=c++20" in arguments
    assert "-DNDEBUG" in arguments
    assert not [a for a in arguments if a in ("-march=native", "-g1", "-Wall", "-lgomp")]
    assert "-DTORCH_INDUCTOR_PRECOMPILE_HEADERS" not in arguments
    assert "-isystem/x/torch/include" in arguments
    assert not [a for a in arguments if "python3.11" in a]
    assert "-DCPU_CAPABILITY_AVX2" not in flags.without_vectors().arguments("-O1")
    changed = flags.with_changed_headers(Path("/cache/0123"))
    with_both = changed.arguments("-O3")
    assert with_both.index("-isystem/cache/0123") < with_both.index("-isystem/x/torch/include")
    assert flags.identity("-O3") == changed.identity("-O3")
    assert (flags.changed_headers, changed.changed_headers) == ("", "0123")


def test_instructions_beyond_the_level_are_refused():
    with pytest.raises(ExportError, match="-mavx512vnni, which x86-64-v4 does not include"):
        FlagSet.from_inductor("x86-64-v4", isa_flags=["-mavx512f", "-mavx512vnni"], **INDUCTOR)


def test_objects_do_not_depend_on_their_directory(tmp_path):
    toolchain = Toolchain(find_compiler(None))
    flags = FlagSet("x86-64-v3", (), ("std=c++20",), ())
    images = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        source = folder / "code.cpp"
        source.write_text(
            "namespace { int f() { return __LINE__; } }\nconst char* p = __FILE__; int g() { return f(); }"
        )
        toolchain.compile(source, folder / "code.o", flags, "-O1")
        images.append((folder / "code.o").read_bytes())
    assert images[0] == images[1]
    assert str(tmp_path).encode() not in images[0]


def test_the_compilers_words_are_kept(tmp_path):
    source = tmp_path / "bad.cpp"
    source.write_text("int f( {")
    with pytest.raises(ExportError, match=r"(?s)status 1.*bad\.cpp:1"):
        Toolchain(find_compiler(None)).compile(
            source, tmp_path / "bad.o", FlagSet("x86-64-v3", (), (), ()), "-O1"
        )


def build_slowly(directory: str, log: str) -> None:
    cache = BuildCache(Path(directory), Path(directory) / "private")

    def build(target: Path) -> None:
        with Path(log).open("a") as file:
            file.write("built\n")
        time.sleep(0.2)
        target.write_text("content")

    path, _ = cache.get("part.o", "key", build)
    assert path.read_text() == "content"


def test_processes_build_an_entry_once(tmp_path):
    context = multiprocessing.get_context("fork")
    log = tmp_path / "log"
    log.touch()
    processes = [
        context.Process(target=build_slowly, args=(str(tmp_path / "cache"), str(log)))
        for _ in range(8)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 8
    assert log.read_text() == "built\n"


def test_a_failed_build_leaves_nothing(tmp_path):
    cache = BuildCache(tmp_path / "cache", tmp_path / "private")

    def fail(target: Path) -> None:
        target.write_text("half")
        raise ExportError("no")

    with pytest.raises(ExportError, match="no"):
        cache.get("part.o", "key", fail)
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file() and p.name != ".lock"]
    path, cached = cache.get("part.o", "key", lambda target: target.write_text("whole") and None)
    assert (path.read_text(), cached) == ("whole", False)
    assert cache.get("part.o", "key", fail) == (path, True)


def test_a_cache_that_cannot_be_written(tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    cache = BuildCache(blocked / "cache", tmp_path / "private")
    path, cached = cache.get("part.o", "key", lambda target: target.write_text("whole") and None)
    assert (path.read_text(), cached) == ("whole", False)
    assert path.is_relative_to(tmp_path / "private")


def test_cache_directory(monkeypatch):
    monkeypatch.setenv("CUDAEXEC_CACHE", "/a/b")
    assert default_cache_dir() == Path("/a/b")
    monkeypatch.delenv("CUDAEXEC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert default_cache_dir() == Path("/c/cudaexec")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache_dir() == Path.home() / ".cache" / "cudaexec"


SOURCE = """\
    #pragma omp parallel
    {
        // work: static_cast<int64_t>(9000L)
        // work: 100L
        loop();
    }
        #pragma omp parallel
        {
            // work: static_cast<int64_t>(64L*ks0)
        }
    #pragma omp parallel
    {
        other();
    }
"""


def test_regions_ask_for_what_their_work_needs():
    text = teams.limit_teams(SOURCE)
    assert "#pragma omp parallel num_threads(4)\n" in text
    assert "num_threads(cudaexec_team(static_cast<int64_t>(64L*ks0)))" in text
    assert text.count("#pragma omp parallel\n") == 1
    assert "work:" not in text
    assert text.index("static inline int cudaexec_team") < text.index("cudaexec_team(static_cast")
    assert "cudaexec_team" not in teams.limit_teams("int x;\n")


def test_short_loops_are_serial():
    kernels = plan(lambda x: x.softmax(-1) + 1, (torch.randn(2, 64),)).code.kernels
    assert "omp parallel" not in kernels
    assert "at::vec::Vectorized" in kernels


def test_long_loops_are_parallel():
    kernels = plan(lambda x: x.softmax(-1) + 1, (torch.randn(200, 64),)).code.kernels
    assert f"#pragma omp parallel num_threads({200 * 64 // teams.GRAIN})" in kernels


def test_dynamic_loops_decide_at_run_time():
    shapes = ({0: torch.export.Dim("n")},)
    kernels = plan(lambda x: x.relu() + 1, (torch.randn(4, 64),), None, shapes).code.kernels
    assert "num_threads(cudaexec_team(static_cast<int64_t>(64L*ks0)))" in kernels


def test_partial_results_fit_every_team():
    kernels = plan(lambda x: x.sum(), (torch.randn(100000),)).code.kernels
    assert "int max_threads = omp_get_max_threads();" in kernels
    assert "_arr[max_threads]" in kernels
    assert "for (int tid = 0; tid < max_threads; tid++)" in kernels


def test_the_changed_header():
    include = Path(torch.__file__).parent / "include"
    text = (include / torch_headers.HEADER).read_text()
    changed = torch_headers.without_regex(text)
    assert changed is not None
    assert "regex" not in changed
    assert "aoti_torch_device_type_cuda" in changed
    assert len(changed) > len(text) - 2000
    assert torch_headers.without_regex(text.replace("parse_device_str", "parse_it")) is None
    assert torch_headers.without_regex(text + "std::regex again;") is None


def test_the_container_takes_constants_in_host_memory():
    include = Path(torch.__file__).parent / "include"
    text = (include / torch_headers.CONTAINER_HEADER).read_text()
    changed = torch_headers.with_host_constants(text)
    if inductor_patches.torch_version() >= (2, 13):
        assert changed is None
        assert "constant_device_type" in text  # it compares with what the code expects
    else:
        assert "if (!user_managed && tensor_device_type != model_device_type) {" in changed
        assert len(changed) == len(text) + len("!user_managed && ")


def test_source_without_a_container_half_is_refused():
    with pytest.raises(ExportError, match="no container half"):
        split_source("forward", "int x;")


def test_constants_are_read_from_the_source():
    constants = read_constants(plan(torch.nn.Linear(3, 2), (torch.ones(1, 3),)).code.wrapper)
    assert [(c.name, c.fqn, c.shape, c.strides) for c in constants] == [
        ("weight", "weight", (2, 3), (3, 1)),
        ("bias", "bias", (2,), (1,)),
    ]


def test_scalar_code_is_refused(monkeypatch):
    from cudaexec.export import aoti_compile

    monkeypatch.setitem(aoti_compile.LEVELS, "x86-64-v3", (64, "AVX2"))
    with pytest.raises(ExportError, match="INVALID_VEC_ISA code for x86-64-v3"):
        plan(lambda x: x * 2, (torch.ones(3),))


@pytest.mark.parametrize(
    "patch",
    [
        patch
        for patch in inductor_patches.PATCHES
        if patch.versions[0] <= inductor_patches.torch_version() < patch.versions[1]
    ],
    ids=lambda patch: patch.symbol,
)
def test_each_patch_fits_this_torch_and_is_undone(patch):
    original = patch.get()
    assert original is not None
    assert patch.self_test(original) == ""
    assert patch.self_test(lambda other: None) != ""
    with inductor_patches.patched(gpu=patch.gpu):
        assert patch.get() is not original
    assert patch.get() is original


def test_a_patch_that_does_not_fit(monkeypatch):
    name = "valid_vec_isa_list"
    required = next(p for p in inductor_patches.PATCHES if p.key == name)
    optional = next(p for p in inductor_patches.PATCHES if p.optional)
    monkeypatch.setattr(required.owner, name, lambda machine: [])
    with pytest.raises(ExportError, match=rf"{required.symbol} is not as export expects: it takes"):
        inductor_patches.active_patches()
    monkeypatch.undo()
    monkeypatch.setattr(optional.owner, optional.key, lambda x: x)
    assert optional not in inductor_patches.active_patches()


@pytest.mark.parametrize("version", ["2.10.1", "2.16.0+cpu", "1.13"])
def test_torch_outside_the_range(version, monkeypatch):
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(ExportError, match=rf"torch {version[:4]}.*>= 2\.11 and < 2\.16"):
        inductor_patches.check_torch_version()


def test_without_torch_the_message_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import cudaexec\n"
        "try: cudaexec.export(None, path='m.pte')\n"
        "except cudaexec.ExportError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ},
    )  # fmt: skip
    assert "cudaexec[export]" in done.stdout
    assert done.stderr == ""


EXPORTER = """
import sys, torch, cudaexec
from cudaexec import ExportOptions
torch.manual_seed(0)
cudaexec.export(torch.nn.Linear(4, 3).eval(), (torch.zeros(2, 4),), path=sys.argv[1], target="cpu",
                options=ExportOptions(cpu_levels=("x86-64-v3",)))
"""


@pytest.mark.slow
def test_eight_exporters_share_an_empty_cache(tmp_path):
    environment = {**os.environ, "CUDAEXEC_CACHE": str(tmp_path / "cache")}
    paths = [tmp_path / f"m{index}.pte" for index in range(8)]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", EXPORTER, str(path)], env=environment, cwd=tmp_path,
            stderr=subprocess.PIPE, text=True,
        )
        for path in paths
    ]  # fmt: skip
    errors = [process.communicate()[1] for process in running]
    assert [process.returncode for process in running] == [0] * 8, errors
    assert len({path.read_bytes() for path in paths}) == 1
    assert len({path.with_suffix(".ptd").read_bytes() for path in paths}) == 1
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {"cache"} | {p.name for p in paths} | {p.with_suffix(".ptd").name for p in paths}
    assert not list((tmp_path / "cache").rglob(".new-*"))


def test_every_call_out_is_documented():
    from cudaexec.export.callouts import callouts
    from cudaexec.export.elf import provided_functions

    text = (Path(__file__).parents[2] / "docs" / "operators.md").read_text()
    names = {re.sub("^aoti_torch_(cpu|cuda)_", "", name) for name in callouts(provided_functions())}
    assert len(names) > 50
    assert not [name for name in names if f"`{name}`" not in text]
