"""Libraries are read before they are opened: what they need is named, damage never crashes."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from libraries import SHIMS, build, needs_compiler, sample_library, testing

import cudaexec
from cudaexec import _core

PT_GNU_STACK = 0x6474E551
EMPTY = 'extern "C" int f() { return 1; }'


def segments(image: bytes) -> list[tuple[int, int, int, int, int, int, int, int]]:
    (offset,) = struct.unpack_from("<Q", image, 32)
    (count,) = struct.unpack_from("<H", image, 56)
    return [struct.unpack_from("<IIQQQQQQ", image, offset + 56 * i) for i in range(count)]


def test_a_library_of_executorch_is_read() -> None:
    image, _ = sample_library()
    facts = _core.inspect_elf(image)
    assert facts["needed"] == [
        "libstdc++.so.6",
        "libm.so.6",
        "libgcc_s.so.1",
        "libc.so.6",
        "ld-linux-x86-64.so.2",
    ]
    assert facts["missing"] == facts["unique"] == facts["unknown_needed"] == []
    assert "aoti_torch_empty_strided" in facts["undefined"]
    assert "__gmon_start__" not in facts["undefined"]  # weak
    assert (facts["isa"], facts["min_glibc"], facts["min_glibcxx"]) == ("", "2.34", "3.4.30")


@needs_compiler
def test_exports_of_our_library() -> None:
    names = set(_core.exported_symbols(str(Path(cudaexec.__file__).parent / "lib" / SHIMS)))
    assert {"aoti_torch_empty_strided", "GOMP_parallel", "cudaexec_shims_abi_version"} <= names
    # What the C++ runtime defines stays its own: other libraries in the process use it.
    assert not {"_ZSt4cerr", "__cxa_thread_atexit", "__cxa_thread_atexit_impl"} & names
    assert "aoti_torch_proxy_executor_call_function" not in names


@needs_compiler
def test_missing_functions_are_named(tmp_path: Path) -> None:
    source = """
        extern "C" { int aoti_torch_not_there(); int GOMP_taskwait_never(); int of_nobody(); }
        extern "C" int f() { return aoti_torch_not_there() + GOMP_taskwait_never() + of_nobody(); }
    """
    image = build(source, tmp_path / "missing.so")
    expected = {"aoti_torch_not_there", "GOMP_taskwait_never", "of_nobody"}
    assert set(_core.inspect_elf(image)["missing"]) == expected
    with pytest.raises(cudaexec.errors.TargetError) as caught:
        testing.open_library(image, "my model")
    for word in (*expected, "my model", "3 functions"):
        assert word in str(caught.value)


@needs_compiler
def test_names_of_libtorch_do_not_count(tmp_path: Path) -> None:
    """An aoti_torch_* name is ours or missing, even where another open library has it."""
    provider = build('extern "C" int aoti_torch_elsewhere() { return 1; }', tmp_path / "libelse.so")
    assert provider
    source = 'extern "C" int aoti_torch_elsewhere(); extern "C" int f() { return aoti_torch_elsewhere(); }'
    image = build(source, tmp_path / "user.so", f"-L{tmp_path}", "-Wl,--no-as-needed", "-lelse")
    facts = _core.inspect_elf(image)
    assert facts["missing"] == ["aoti_torch_elsewhere"]
    assert facts["unknown_needed"] == ["libelse.so"]


@needs_compiler
def test_unknown_libraries_are_refused(tmp_path: Path) -> None:
    build(EMPTY, tmp_path / "libother.so")
    image = build("", tmp_path / "user.so", f"-L{tmp_path}", "-Wl,--no-as-needed", "-lother")
    with pytest.raises(cudaexec.errors.TargetError, match=r"needs the libraries \[libother.so\]"):
        testing.open_library(image)


@needs_compiler
def test_unique_symbols_are_listed(fake_model: bytes, old_model: bytes) -> None:
    assert _core.inspect_elf(fake_model)["unique"] == []
    assert len(_core.inspect_elf(old_model)["unique"]) > 0


@needs_compiler
@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_marked_level(tmp_path: Path, level: str) -> None:
    image = build(EMPTY, tmp_path / "marked.so", f"-Wl,-z,{level}")
    assert _core.inspect_elf(image)["isa"] == level


@needs_compiler
def test_a_higher_level_is_refused_before_opening(tmp_path: Path) -> None:
    image = build(EMPTY, tmp_path / "marked.so", "-Wl,-z,x86-64-v3")
    mark = struct.pack("<II", 0xC0008002, 4)  # type and length of the note's record
    at = image.index(mark) + 8
    image = image[:at] + struct.pack("<I", 1 << 6) + image[at + 4 :]
    assert _core.inspect_elf(image)["isa"] == "x86-64-v7"
    with pytest.raises(cudaexec.errors.TargetError, match=r"compiled for x86-64-v7, this CPU runs"):
        testing.open_library(image)


@needs_compiler
def test_a_newer_c_library_is_named(tmp_path: Path) -> None:
    source = "#include <cstdlib>\n" + 'extern "C" void* f() { return malloc(1); }'
    image = build(source, tmp_path / "newer.so")
    old = b"GLIBC_2.2.5\0"
    assert old in image
    image = image.replace(old, b"GLIBC_2.999\0")
    assert _core.inspect_elf(image)["min_glibc"] == "2.999"
    with pytest.raises(
        cudaexec.errors.TargetError, match=r"needs glibc 2.999, this machine has 2\."
    ):
        testing.open_library(image)


def test_other_files_are_refused() -> None:
    image, _ = sample_library()
    for damaged, word in [
        (b"", "not an ELF file"),
        (b"\x7fELF-FAKE-SO" + bytes(1000), "expected an ELF64 x86-64 shared object"),
        (image[:4] + b"\x01" + image[5:], "class 1"),
        (image[:16] + b"\x02" + image[17:], "type 2"),
        (image[:18] + b"\xb7" + image[19:], "machine 183"),
    ]:
        for reader in (_core.inspect_elf, testing.open_library):
            with pytest.raises(cudaexec.errors.FormatError, match=word):
                reader(damaged, "x")


def read(image: bytes) -> bool:
    try:
        _core.inspect_elf(image, "damaged")
    except cudaexec.errors.FormatError as error:
        assert "damaged" in str(error)
        return False
    return True


def test_truncated_images_never_crash() -> None:
    image, _ = sample_library()
    loaded = max(
        offset + size for kind, _, offset, _, _, size, _, _ in segments(image) if kind == 1
    )
    for length in [*range(0, 1500), *range(1500, len(image), 97)]:
        assert read(image[:length]) == (length >= loaded), length


def test_flipped_bytes_never_crash() -> None:
    image = bytearray(sample_library()[0])
    header_and_tables = 0x5160  # the first segment: headers, symbols, names, versions, relocations
    random.seed(7)
    places = [*range(0x2D0), *random.sample(range(0x2D0, header_and_tables), 1500)]
    places += [0x28D00 + i for i in range(0x200)]  # the dynamic table
    refused = 0
    for at in places:
        for value in (image[at] ^ (1 << random.randrange(8)), 0xFF):
            original, image[at] = image[at], value
            refused += not read(bytes(image))
            image[at] = original
    assert refused > 100


@pytest.mark.parametrize("value", [0, 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1])
def test_crafted_words_never_crash(value: int) -> None:
    image = bytearray(sample_library()[0])
    words = [*range(0, 0x2A8, 4), *range(0x2D0, 0x438, 4), *range(0x2DA8, 0x2F58, 4)]
    words += range(0x28D00, 0x28D00 + 0x1D0, 4)
    for at in words:
        for layout in ("<I", "<Q"):
            patched = bytearray(image)
            struct.pack_into(
                layout, patched, at, value & (0xFFFFFFFF if layout == "<I" else 2**64 - 1)
            )
            read(bytes(patched))


def dynamic(image: bytes) -> list[tuple[int, int]]:
    start, size = next((o, s) for kind, _, o, _, _, s, _, _ in segments(image) if kind == 2)
    return [struct.unpack_from("<QQ", image, start + 16 * i) for i in range(size // 16)]


@needs_compiler
class TestPreparing:
    """The image that is opened names our shims first, whatever it was linked with."""

    def owners(self, image: bytes) -> set[str]:
        library = testing.open_library(image)
        return {owner for name, owner in library.bound_symbol_owners() if name.startswith("aoti_")}

    def linked(self, tmp_path: Path, *flags: str, shims: bool = False) -> bytes:
        source = 'extern "C" int aoti_torch_dtype_int8(); extern "C" int f() { return aoti_torch_dtype_int8(); }'
        return build(
            source, tmp_path / "user.so", "-Wl,--unresolved-symbols=ignore-all", *flags, shims=shims
        )

    def test_absent(self, tmp_path: Path) -> None:
        image = self.linked(tmp_path)
        assert SHIMS not in _core.inspect_elf(image)["needed"]
        (owner,) = self.owners(image)
        assert owner.endswith(SHIMS)

    def test_not_first(self, tmp_path: Path) -> None:
        image = self.linked(tmp_path, "-Wl,--no-as-needed", "-lm", shims=True)
        (owner,) = self.owners(image)
        assert owner.endswith(SHIMS)

    def test_no_padding_but_a_build_id(self, tmp_path: Path) -> None:
        """Without page padding between segments the name goes into the build id's note."""
        image = self.linked(tmp_path, "-Wl,-z,noseparate-code", "-Wl,--build-id=sha1")
        (owner,) = self.owners(image)
        assert owner.endswith(SHIMS)

    def test_no_spare_entry(self, tmp_path: Path) -> None:
        image = self.full(tmp_path)
        with pytest.raises(cudaexec.errors.TargetError, match=r"patchelf --add-needed libcudaexec"):
            testing.open_library(image, "full")

    def full(self, tmp_path: Path) -> bytes:
        """The spare entries of the dynamic table are taken by harmless ones (DT_DEBUG)."""
        image = bytearray(self.linked(tmp_path))
        start, size = next((o, s) for kind, _, o, _, _, s, _, _ in segments(image) if kind == 2)
        used = next(i for i, (tag, _) in enumerate(dynamic(image)) if tag == 0)
        for i in range(used, size // 16 - 1):
            struct.pack_into("<QQ", image, start + 16 * i, 21, 0)
        return bytes(image)

    def test_no_executable_stack(self, tmp_path: Path) -> None:
        image = self.linked(tmp_path, "-Wl,-z,execstack")
        assert any(kind == PT_GNU_STACK and flags & 1 for kind, flags, *_ in segments(image))
        library = testing.open_library(image)
        opened = Path(library.path).read_bytes()
        assert not any(kind == PT_GNU_STACK and flags & 1 for kind, flags, *_ in segments(opened))
        stacks = [
            line for line in Path("/proc/self/maps").read_text().splitlines() if "[stack]" in line
        ]
        assert stacks and "rwxp" not in stacks[0]
