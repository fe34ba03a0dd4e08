"""Closing a library leaves nothing of it in the process, however often, on whatever thread it ran."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from libraries import (
    HERE,
    build,
    floats,
    mappings,
    needs_compiler,
    process_state,
    sample_library,
    testing,
    unpack,
)
from test_container import (
    BAD_DTYPE,
    REGEX,
    REGION_CHECK,
    SCALE,
    SERIAL_CHECK,
    THROW,
    WEIGHT,
    container,
    mode,
)

import cudaexec

CYCLES = 500


def cycle_sample() -> None:
    code, weights = sample_library()
    model = testing.Container(testing.open_library(code, "sample"))
    model.bind_blob(weights)
    model.run([("float32", [1, 8], bytes(32))])


def flat(cycle: object, cycles: int = CYCLES) -> None:
    """Mappings, descriptors and threads equal and memory within 1 MiB from cycle 20 on."""
    for _ in range(20):
        cycle()
    gc.collect()
    before = process_state()
    for _ in range(cycles - 20):
        cycle()
    gc.collect()
    after = process_state()
    assert not mappings()
    assert after["rss"] <= before.pop("rss") + (1 << 20)
    del after["rss"]
    assert after == before


def test_sample_cycles_are_flat() -> None:
    flat(cycle_sample)


@needs_compiler
def test_parallel_cycles_are_flat(fake_model: bytes) -> None:
    """With workers of the pool running code of libraries that are gone the next moment."""
    testing.override_allowed_threads(3)
    values = [1.0] * 5000

    def cycle() -> None:
        model = container(fake_model)
        assert unpack(model.run([floats(*values), mode(REGION_CHECK)], 3)[0])[:2] == [3.0, 3.0]

    try:
        flat(cycle, 200)
    finally:
        testing.override_allowed_threads(0)


@needs_compiler
def test_failures_are_flat(fake_model: bytes) -> None:
    def cycle() -> None:
        model = container(fake_model)
        for bad in (THROW, REGION_CHECK):
            with pytest.raises(cudaexec.Error):
                model.run([floats(-1.0), mode(bad)])

    flat(cycle, 200)


@needs_compiler
class TestUnloading:
    """What keeps libraries mapped elsewhere: unique symbols, and destructors of thread_local objects."""

    def test_unique_symbols(self, old_model: bytes) -> None:
        model = container(old_model)
        assert unpack(model.run([floats(1.0), mode(REGEX)])[0]) == [1.0]
        assert mappings()
        del model
        assert not mappings()

    def test_objects_of_threads_that_go_on(self, fake_model: bytes) -> None:
        model = container(fake_model)
        model_of_thread = [model]
        ran = threading.Event()
        stop = threading.Event()

        def work() -> None:
            with pytest.raises(cudaexec.Error):
                model_of_thread[0].run([floats(1.0), mode(THROW)])  # makes this thread's last error
            model_of_thread.clear()
            gc.collect()
            ran.set()
            stop.wait(60)

        thread = threading.Thread(target=work)
        thread.start()
        assert ran.wait(60)
        del model
        gc.collect()
        closed = not mappings()
        stop.set()
        thread.join()
        assert closed

    def test_destructors_run_once_at_the_end_of_their_thread_or_of_the_library(
        self, tmp_path: Path
    ) -> None:
        source = """
            struct Noted { int* count; ~Noted() { if (count) ++*count; } };
            static thread_local Noted noted;
            extern "C" void note(int* count) { noted.count = count; }
        """
        image = build(source, tmp_path / "noted.so")
        library = testing.open_library(image)
        note = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.symbol("note"))
        ended = ctypes.c_int(0)
        thread = threading.Thread(target=note, args=(ctypes.addressof(ended),))
        thread.start()
        thread.join()
        deadline = time.monotonic() + 30
        while ended.value == 0 and time.monotonic() < deadline:  # join() returns a little earlier
            time.sleep(0.001)
        assert ended.value == 1
        running = ctypes.c_int(0)
        note(ctypes.addressof(running))
        assert running.value == 0
        del note, library
        gc.collect()
        assert (ended.value, running.value) == (1, 1)
        assert not mappings()

    def test_two_of_the_same_are_two(self, fake_model: bytes) -> None:
        first = testing.open_library(fake_model)
        second = testing.open_library(fake_model)
        assert first.path != second.path
        name = "AOTInductorModelContainerCreateWithDevice"
        assert first.symbol(name) != second.symbol(name)

    def test_many_open_at_once(self, fake_model: bytes) -> None:
        """Also with descriptor numbers used again: each name is new."""
        models = [container(fake_model) for _ in range(20)]
        for model in models[::2]:
            assert unpack(model.run([floats(1.0), mode(WEIGHT)])[0]) == [3.0]
        models[5:15] = []
        models += [container(fake_model) for _ in range(10)]
        assert [unpack(m.run([floats(1.0), mode(SCALE)])[0]) for m in models] == [[3.0]] * 20


@needs_compiler
def test_code_that_carries_its_own_c_runtime(tmp_path: Path) -> None:
    """Some compilers link libstdc++ statically and export it; such code keeps to its own copy."""
    flags = ("-fopenmp", "-static-libstdc++", "-static-libgcc", "-DWITH_LAST_ERROR")
    image = build(HERE / "fake_model.cpp", tmp_path / "static.so", *flags)
    assert "libstdc++.so.6" not in cudaexec._core.inspect_elf(image)["needed"]
    model = container(image)
    assert unpack(model.run([floats(1.0), mode(REGEX)])[0]) == [1.0]
    with pytest.raises(cudaexec.errors.NotSupported, match="dtype code 99"):
        model.run([floats(1.0), mode(BAD_DTYPE)])
    with pytest.raises(cudaexec.errors.InputError, match="a check of the program failed"):
        model.run([floats(-1.0), mode(SERIAL_CHECK)])
    assert unpack(model.run([floats(1.0), mode(SCALE)])[0]) == [3.0]
    del model
    gc.collect()
    assert not mappings()


@needs_compiler
def test_the_open_image_cannot_be_written(fake_model: bytes) -> None:
    library = testing.open_library(fake_model)
    with pytest.raises(OSError, match="Operation not permitted"):
        os.pwrite(os.open(library.path, os.O_RDWR), b"x", 0)


WITHOUT_MEMFD = """
import ctypes, json, os, struct, sys
sys.path.insert(0, {here!r})
libc = ctypes.CDLL(None, use_errno=True)

def refuse(number):
    \"\"\"A seccomp filter: this system call fails with EPERM.\"\"\"
    def op(code, jt, jf, k):
        return struct.pack("<HBBI", code, jt, jf, k)
    program = op(0x20, 0, 0, 0) + op(0x15, 0, 1, number) + op(6, 0, 0, 0x50001) + op(6, 0, 0, 0x7FFF0000)
    code = ctypes.create_string_buffer(program)
    fprog = struct.pack("<HxxxxxxQ", 4, ctypes.addressof(code))
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, ctypes.c_char_p(fprog)) == 0, ctypes.get_errno()  # PR_SET_SECCOMP

from test_container import *
import pathlib
image = pathlib.Path(sys.argv[1]).read_bytes()
refuse(319)  # memfd_create
library = testing.open_library(image)
path = library.path
model = testing.Container(library)
model.bind({{"fc_weight": floats(3.0)}})
result = unpack(model.run([floats(1.0), mode(SCALE)])[0])
left = os.path.exists(os.path.dirname(path))
del model, library
print(json.dumps([path, left, result, open("/proc/self/maps").read().count("cudaexec-")]))
"""


@needs_compiler
@pytest.mark.parametrize("usable", [True, False])
def test_a_private_file_where_there_is_no_anonymous_memory(
    fake_model: bytes, tmp_path: Path, usable: bool
) -> None:
    """It is gone once the library is open. A directory that cannot be used is passed over."""
    (tmp_path / "image").write_bytes(fake_model)
    directory = tmp_path / "temporary"
    if usable:
        directory.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MEMFD.format(here=str(HERE)), str(tmp_path / "image")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": str(directory)},
    )
    assert done.stderr == ""
    path, left, result, mapped = json.loads(done.stdout)
    assert path.startswith(str(directory) if usable else "/")
    assert "/cudaexec-" in path
    assert (left, result, mapped) == (False, [3.0], 0)
