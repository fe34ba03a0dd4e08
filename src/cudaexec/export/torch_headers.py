"""Changed copies of two torch headers, in front of torch's own on the include path.

The container's base class reads the string "cpu" or "cuda:0" with std::regex, which is the larger
part of every generated library (130 of 210 KB), more than half of the time to compile one (1.8 of
3.1 s), and crashes where two libstdc++ meet in a process. The copy reads it by hand.

Until torch 2.12 the container refuses to bind a constant in host memory in a program for a GPU,
which it needs to refuse only where it would copy the constant itself; the copy does so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cudaexec.export.build_cache import BuildCache

HEADER = Path("torch/csrc/inductor/aoti_runtime/model_base.h")
CONTAINER_HEADER = Path("torch/csrc/inductor/aoti_runtime/model_container.h")

_REGEX_INCLUDE = "#include <regex>\n"
_FUNCTION = re.compile(
    r"(inline void parse_device_str\(\s*const std::string& device_str,\s*int32_t& device_type,"
    r"\s*int32_t& device_idx\) \{\n)(.*?)(\n\}\n)",
    re.DOTALL,
)

_BODY = """\
  const std::string kind = device_str.substr(0, device_str.find(':'));
  if (kind == "cpu") {
    device_type = aoti_torch_device_type_cpu();
  } else if (kind == "cuda") {
    device_type = aoti_torch_device_type_cuda();
  } else {
    AOTI_RUNTIME_CHECK(false, "Invalid device: " + device_str);
  }
  device_idx = -1;
  if (kind.size() < device_str.size()) {
    const std::string digits = device_str.substr(kind.size() + 1);
    AOTI_RUNTIME_CHECK(
        !digits.empty() && digits.size() < 10 &&
            digits.find_first_not_of("0123456789") == std::string::npos,
        "Invalid device: " + device_str);
    device_idx = static_cast<int32_t>(std::stol(digits));
  }"""


def without_regex(text: str) -> str | None:
    """Return the header without std::regex, or None if it is not the header that is known."""
    found = _FUNCTION.findall(text)
    if len(found) != 1 or text.count(_REGEX_INCLUDE) != 1:
        return None
    if any(f'"{device}"' not in found[0][1] for device in ("cpu", "cuda")):
        return None
    changed = _FUNCTION.sub(lambda match: match[1] + _BODY + match[3], text)
    changed = changed.replace(_REGEX_INCLUDE, "#include <functional>\n#include <string>\n")
    return None if "std::regex" in changed or "std::smatch" in changed else changed


_DEVICE_CHECK = "      if (tensor_device_type != model_device_type) {\n"


def with_host_constants(text: str) -> str | None:
    """Return the container's header without the check, or None where it has none of that form."""
    if text.count(_DEVICE_CHECK) != 1 or "bool user_managed = false) {" not in text:
        return None
    return text.replace(_DEVICE_CHECK, _DEVICE_CHECK.replace("(tensor", "(!user_managed && tensor"))


_CHANGES: tuple[tuple[Path, Callable[[str], str | None]], ...] = (
    (HEADER, without_regex),
    (CONTAINER_HEADER, with_host_constants),
)


def overlay(cache: BuildCache, include_dirs: list[str]) -> Path | None:
    """Return a directory with the changed headers, named by what is in them; None without any."""
    for directory in include_dirs:
        if not (Path(directory) / HEADER).is_file():
            continue
        changed: dict[Path, str] = {}
        for header, change in _CHANGES:
            text = change((Path(directory) / header).read_text(encoding="utf-8"))
            if text is not None:
                changed[header] = text
        if not changed:
            return None
        key = "\n".join(("headers", *changed.values()))
        paths = [cache.get(name, key, partial(_write, text))[0] for name, text in changed.items()]
        return paths[0].parents[len(HEADER.parts) - 1]
    return None


def _write(text: str, target: Path) -> None:
    target.write_text(text, encoding="utf-8")
