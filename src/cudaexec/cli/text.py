"""Sizes and byte counts as people write them."""

from __future__ import annotations

from typing import Any

__all__ = ["bytes_text", "counted", "expression_text", "platform_text", "value_text"]

# Operators of the manifest: how they are written, and how tightly they bind.
BINARY = {
    "or": (" or ", 1), "and": (" and ", 2), "eq": (" == ", 4), "ne": (" != ", 4),
    "lt": (" < ", 4), "le": (" <= ", 4), "gt": (" > ", 4), "ge": (" >= ", 4),
    "add": (" + ", 5), "sub": (" - ", 5), "mul": ("*", 6), "floordiv": ("//", 6),
    "mod": ("%", 6), "pow": ("**", 8),
}  # fmt: skip
UNARY = {"neg": ("-", 7), "not": ("not ", 3)}
ATOM = 9


def expression_text(expression: Any) -> int | str:
    """Return an integer as it is, and a symbol or a postfix expression as text."""
    if not isinstance(expression, list):
        return int(expression) if isinstance(expression, int) else str(expression)
    stack: list[tuple[str, int]] = []

    def operand(needs: int) -> str:
        text, binds = stack.pop()
        return f"({text})" if binds < needs else text

    for item in expression:
        if item in BINARY:
            sign, binds = BINARY[item]
            right = operand(binds + 1)
            stack.append((operand(binds) + sign + right, binds))
        elif item in UNARY:
            sign, binds = UNARY[item]
            stack.append((sign + operand(binds), binds))
        elif item in ("min", "max"):
            right = operand(0)
            stack.append((f"{item}({operand(0)}, {right})", ATOM))
        else:
            stack.append((str(item), ATOM))
    return stack[-1][0]


def value_text(spec: dict[str, Any]) -> str:
    """Describe an input or output: ``float32[s0, 64]``, ``= True``, ``int``."""
    if spec["kind"] == "tensor":
        return f"{spec['dtype']}[{', '.join(str(size) for size in spec['shape'])}]"
    if "value" not in spec:
        return str(spec["kind"])
    value = spec["value"]
    return f"= {value}" if spec["kind"] == "expression" else f"= {value!r}"


def platform_text(platform: dict[str, Any]) -> str:
    """Describe where code runs: ``linux, x86_64, glibc 2.34 or newer``."""
    newer = ("glibc", "glibcxx")  # the lowest versions that have what the code calls
    parts = [str(value) for key, value in platform.items() if value and key not in newer]
    parts += [f"{key} {platform[key]} or newer" for key in newer if platform.get(key)]
    return ", ".join(parts)


def counted(count: int, noun: str) -> str:
    """Return ``1 weight`` or ``2 weights``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def name_of(key: str) -> str:
    """Return the part of a storage key that names a weight."""
    return key.split(":", 2)[-1]


def bytes_text(nbytes: int) -> str:
    """Return a byte count with a binary unit: ``1.5 MiB``."""
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{nbytes} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError
