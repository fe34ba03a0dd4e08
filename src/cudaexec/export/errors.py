"""The error that export raises, and where in the model it points."""

from __future__ import annotations

from typing import Any

from cudaexec.errors import ExportError

__all__ = ["ExportError", "first_line", "source_line"]


def source_line(node: Any) -> str:
    """Return ` (file:line, in function)` of the model source behind an FX node, or nothing."""
    trace = getattr(node, "meta", {}).get("stack_trace") or ""
    places = [line.strip() for line in trace.splitlines() if line.strip().startswith("File ")]
    if not places:
        return ""
    return f" ({places[-1]})"


def first_line(error: BaseException, limit: int = 600) -> str:
    """Return the readable head of a third-party error: up to the first blank line."""
    text = str(error).strip() or type(error).__name__
    return text.split("\n\n")[0].strip()[:limit]
