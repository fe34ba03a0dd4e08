"""The description of a program for a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cudaexec.cli.text import bytes_text, counted, name_of, platform_text, value_text

__all__ = ["render"]

LARGEST = 10


def render(found: dict[str, Any], *, list_weights: bool = False) -> None:
    """Print what `describe` found.

    Args:
        found: the description.
        list_weights: list every weight; else the largest ten.
    """
    console = Console(highlight=False, soft_wrap=True)
    program = found["program"]
    console.print(f"[bold]{escape(program['path'])}[/bold]  {bytes_text(program['nbytes'])}")
    if found["producer"]:
        parts = [f"{key} {value}" for key, value in found["producer"].items() if value]
        console.print(f"  made with: {escape(', '.join(parts))}")
    if found["platform"]:
        console.print(f"  runs on: {escape(platform_text(found['platform']))}")
    for method in found["methods"]:
        _method(console, method)
    if found["kv_cache"] is not None:
        _kv_cache(console, found["kv_cache"])
    if found["weights"] is not None:
        _weights(console, found, list_weights)
    for problem in found["problems"]:
        console.print(f"[bold]problem:[/bold] {escape(problem)}")


def _method(console: Console, method: dict[str, Any]) -> None:
    console.print(f"\n[bold]method {escape(method['name'])}[/bold]")
    if method["inputs"] or method["outputs"]:
        table = Table(box=None, show_header=False, padding=(0, 2))
        for index, spec in enumerate(method["inputs"]):
            table.add_row("input", escape(spec.get("name", str(index))), escape(value_text(spec)))
        for index, spec in enumerate(method["outputs"]):
            table.add_row("output", str(index), escape(value_text(spec)))
        console.print(table)
    for name, (low, high) in method["symbols"].items():
        console.print(f"  size {name}: {low} to {'any' if high is None else high}")
    for guard in method["guards"]:
        console.print(f"  condition: {escape(guard)}")
    for variant in method["variants"]:
        callouts = ", ".join(variant.get("callouts", [])) or "none"
        console.print(f"  code: {escape(variant['text'])}; calls out to: {escape(callouts)}")
        for device in variant["runs_on"]:
            console.print(f"    runs on {escape(device)}")
        for reason in variant["reasons"]:
            console.print(f"    not used on {escape(reason)}")
    mutated = [constant["fqn"] for constant in method["constants"] if constant["mutated"]]
    if mutated:
        console.print(f"  writes: {escape(', '.join(mutated))}")
    for delegate in method["delegates"]:
        console.print(f"  delegate: {escape(delegate['id'])}, {bytes_text(delegate['nbytes'])}")
    if method["operators"]:
        console.print(f"  ExecuTorch operators: {escape(', '.join(method['operators']))}")


def _kv_cache(console: Console, cache: dict[str, Any]) -> None:
    """Print one line per kind of layer."""
    console.print(f"\n[bold]KV cache[/bold]  {cache['dtype']}")
    kinds: dict[str, list[int]] = {}
    for layer in cache["layers"]:
        tokens = (
            f"window of {layer['window']}" if layer["policy"] == "ring" else f"{layer['capacity']}"
        )
        kind = f"{tokens} tokens, {layer['heads']} heads of {layer['head_dim']}"
        if layer["batch"] != 1:
            kind += f", batch {layer['batch']}"
        kinds.setdefault(kind, []).append(layer["id"])
    for kind, ids in kinds.items():
        console.print(f"  {counted(len(ids), 'layer')}: {kind}")


def _weights(console: Console, found: dict[str, Any], list_all: bool) -> None:
    weights = found["weights"]
    entries = weights["entries"]
    console.print(
        f"\n[bold]{escape(weights['path'])}[/bold]  {bytes_text(weights['nbytes'])}, "
        f"{counted(len(entries), 'weight')}"
    )
    shapes = {
        constant["fqn"]: f"{constant['dtype']}{constant['shape']}"
        for method in found["methods"]
        for constant in method["constants"]
    }
    ordered = sorted(entries, key=lambda key: (-entries[key], key))
    table = Table(box=None, show_header=False, padding=(0, 2))
    for key in ordered if list_all else ordered[:LARGEST]:
        name = name_of(key)
        table.add_row(escape(name), escape(shapes.get(name, "")), bytes_text(entries[key]))
    console.print(table)
    if not list_all and len(ordered) > LARGEST:
        console.print(f"  and {len(ordered) - LARGEST} more (--weights lists all)")
    for alias, target in found["aliases"].items():
        console.print(f"  {escape(alias)} is {escape(target)}")
