"""Commands of ``python -m cudaexec``; needs typer and rich."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import rich
import typer

from cudaexec._core import __version__
from cudaexec.cli.describe import describe
from cudaexec.cli.render import render
from cudaexec.errors import Error

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Tools for programs (.pte) and weights (.ptd)."
)


@app.callback()
def _commands() -> None:
    """Tools for programs (.pte) and weights (.ptd)."""


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


@app.command()
def inspect(
    pte: Annotated[Path, typer.Argument(help="The program.")],
    ptd: Annotated[
        Path | None, typer.Argument(help="The weights; by default the .ptd file beside it, if any.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    weights: Annotated[bool, typer.Option("--weights", help="List every weight.")] = False,
) -> None:
    """Show what a program holds: methods, inputs, outputs, code, weights, who made it.

    Nothing of the program runs. Programs of other ExecuTorch backends are shown too. The exit
    status is 1 if a file is damaged or the weights are not the program's, as far as names and sizes
    tell.
    """
    try:
        found = describe(pte, ptd)
    except Error as error:
        rich.print(f"[red]{type(error).__name__}[/red]: ", end="")
        print(error)
        raise typer.Exit(1) from None
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        render(found, list_weights=weights)
    if found["problems"]:
        raise typer.Exit(1)
