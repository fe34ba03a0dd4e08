"""The command line: ``python -m cudaexec``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line; returns the exit status.

    It needs typer and rich, which the library itself does without.
    """
    try:
        from cudaexec.cli import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        print(
            f"cudaexec: the command line needs {error.name}: pip install 'cudaexec[cli]'",
            file=sys.stderr,
        )
        return 2
    app(prog_name="cudaexec")
    return 0


if __name__ == "__main__":
    sys.exit(main())
