"""Write src/cudaexec/_core.pyi from the signatures that the extension carries.

    python tools/make_stub.py           writes the file
    python tools/make_stub.py --check   fails if the file is not what it would write

Submodules whose names begin with an underscore are for the package and its tests; they are typed
as Any. Needs ruff, which lays the file out.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "src" / "cudaexec" / "_core.pyi"

HEADER = '''"""Types of the compiled core; written by tools/make_stub.py."""

import collections.abc
import typing

import numpy

import cudaexec.specs
'''

# A signature line of pybind11: "name(self: ..., x: int = 3) -> None".
SIGNATURE = re.compile(r"^(?P<name>\w*)\((?P<parameters>.*)\) -> (?P<result>.+)$")
INTEGER = "typing.SupportsInt | typing.SupportsIndex"


def clean(text: str) -> str:
    """Turn a piece of a pybind11 signature into what a stub holds."""
    text = text.replace(INTEGER, "int").replace("cudaexec._core.", "")
    text = text.replace("types.CapsuleType", "typing.Any")
    text = re.sub(r"(self|arg0): [\w.]+", "self", text)
    text = re.sub(r"\bobject\b", "typing.Any", text)
    text = re.sub(r"\bdict\b(?!\[)", "dict[str, typing.Any]", text)
    return re.sub(r"(?<=\*)(args|kwargs)\b(?!:)", r"\1: typing.Any", text)


def docstring(text: str, indent: str) -> str:
    """Quote a docstring, with long lines wrapped."""
    width = 98 - len(indent)
    lines = [
        piece for line in text.strip().split("\n") for piece in textwrap.wrap(line, width) or [""]
    ]
    if len(lines) == 1:
        return f'{indent}"""{lines[0]}"""\n'
    body = "".join(f"{indent}{line}".rstrip() + "\n" for line in lines[1:])
    return f'{indent}"""{lines[0]}\n{body}{indent}"""\n'


def function(name: str, value: Any, indent: str, *, decorator: str = "") -> str:
    """A function with its signature and docstring; C functions take and return anything."""
    lines = (value.__doc__ or "").split("\n")
    found = SIGNATURE.match(lines[0])
    if found:
        signature = f"({clean(found['parameters'])}) -> {clean(found['result'])}"
        doc = "\n".join(lines[1:])
    else:
        signature = "(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any"
        doc = "Run the method." if name == "__call__" else value.__doc__ or ""
    head = f"{indent}{decorator}def {name}{signature}:"
    if not doc.strip():
        return f"{head} ...\n"
    return f"{head}\n{docstring(doc, indent + '    ')}"


def read_only(name: str, value: property, indent: str) -> str:
    """A property: pybind11 puts the getter's signature last in its docstring."""
    lines = (value.fget.__doc__ or "").strip().split("\n") if value.fget else [""]
    found = next(match for line in lines if (match := SIGNATURE.match(line)))
    doc = (value.__doc__ or "").split("(arg0:")[0].split("(self:")[0]
    text = f"{indent}@property\n{indent}def {name}(self) -> {clean(found['result'])}:"
    return f"{text}\n{docstring(doc, indent + '    ')}" if doc.strip() else f"{text} ...\n"


def class_body(cls: type) -> str:
    """Members of a class, in alphabetical order."""
    parts = [docstring(cls.__doc__ or "", "    ")]
    for name, value in sorted(vars(cls).items()):
        if isinstance(value, property):
            parts.append(read_only(name, value, "    "))
        elif isinstance(value, staticmethod):
            parts.append(function(name, value.__func__, "    ", decorator="@staticmethod\n    "))
        elif type(value).__name__ == "PyCapsule":
            parts.append(f"    {name}: typing.ClassVar[typing.Any]\n")
        elif name == "__init__" or name in ("__doc__", "__module__", "__new__"):
            continue
        elif callable(value) and not name.startswith("_pybind11"):
            parts.append(function(name, value, "    "))
    return "\n".join(parts)


def stub(module: types.ModuleType) -> str:
    """Return the text of the stub file."""
    parts = [HEADER]
    for name, value in sorted(vars(module).items()):
        if isinstance(value, types.ModuleType):
            parts.append(f"{name}: typing.Any\n")
        elif isinstance(value, str) and name == "__version__":
            parts.append(f"{name}: str\n")
        elif inspect.isclass(value):
            parts.append(f"@typing.final\nclass {name}:\n{class_body(value)}")
        elif callable(value) and not name.startswith("__"):
            parts.append(function(name, value, ""))
    return subprocess.run(
        [sys.executable, "-m", "ruff", "format", "-q", "--stdin-filename", str(TARGET), "-"],
        input="\n".join(parts),
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def main(arguments: list[str]) -> int:
    """Write or check the file; returns the exit status."""
    from cudaexec import _core

    text = stub(_core)
    if arguments == ["--check"]:
        if TARGET.read_text() == text:
            return 0
        print(f"{TARGET} is out of date: run python tools/make_stub.py", file=sys.stderr)
        return 1
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
