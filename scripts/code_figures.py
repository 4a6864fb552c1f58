"""The code in figures: how long functions and files are, how much is typed, how much tests it.

A line of code holds code: no docstring, no blank line, no comment.
"""

from __future__ import annotations

import ast
import io
import subprocess
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import click

ROOT = Path(__file__).parent.parent
TESTS = ("tests",)
ASIDE = ("tests", "bench", "scripts", "docs", "examples")
"""Folders that are not the package."""
SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class File:
    path: Path
    lines: frozenset[int]
    """Numbers of those that hold code."""
    functions: list[tuple[str, int, bool]]
    """Name, lines, whether every argument and the result are typed."""


def read(path: Path) -> File:
    text = path.read_text()
    tree = ast.parse(text)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {n for t in tokens if t.type not in SILENT for n in range(t.start[0], t.end[0] + 1)}
    lines -= {n for node in ast.walk(tree) for n in _prose(node)}
    functions = [
        (
            f"{path.relative_to(ROOT)}:{node.name}",
            len(lines & set(range(node.lineno, (node.end_lineno or 0) + 1))),
            _typed(node),
        )
        for node in ast.walk(tree)
        if isinstance(node, Function)
    ]
    return File(path, frozenset(lines), functions)


def _prose(node: ast.AST) -> range:
    """Lines of a string that stands alone: a docstring, or the description of a field."""
    match node:
        case ast.Expr(ast.Constant(str())):
            return range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return range(0)


def _typed(function: Function) -> bool:
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    needed = [one for one in named if one is not None and one.arg not in ("self", "cls")]
    return function.returns is not None and all(one.annotation is not None for one in needed)


def tracked() -> Iterator[Path]:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    yield from (ROOT / name for name in listed.stdout.split())


def room(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else "(root)"


def spread(values: Sequence[int]) -> str:
    """Median, 90th percentile, largest."""
    if len(values) < 2:
        return f"{values[0]}" if values else "-"
    return f"{median(values):.0f} / {quantiles(values, n=10)[-1]:.0f} / {max(values)}"


def row(name: str, files: Sequence[File]) -> str:
    lines = [len(file.lines) for file in files]
    functions = [size for file in files for _, size, _ in file.functions]
    typed = [whole for file in files for _, _, whole in file.functions]
    share = f"{sum(typed) / len(typed):.0%}" if typed else "-"
    return f"{name:<12}{len(files):>6}{sum(lines):>8}{spread(lines):>18}{spread(functions):>16}{share:>8}"


@click.command()
@click.option("--longest", default=8, show_default=True, help="How many of the longest functions to name.")
def main(longest: int) -> None:
    """Print lines of code, by room: files' and functions' median, 90th percentile and largest."""
    files = [read(path) for path in tracked()]
    rooms: dict[str, list[File]] = {}
    for file in files:
        rooms.setdefault(room(file.path), []).append(file)
    package = [file for name, mine in rooms.items() if name not in ASIDE for file in mine]
    tests = [file for name in TESTS for file in rooms.get(name, [])]
    click.echo(f"{'':<12}{'files':>6}{'lines':>8}{'of a file':>18}{'of a function':>16}{'typed':>8}")
    for name in sorted(rooms, key=lambda name: (name in ASIDE, name)):
        click.echo(row(name, rooms[name]))
    click.echo(row("package", package))
    lines, tested = (sum(len(file.lines) for file in some) for some in (package, tests))
    click.echo(f"\nlines of tests for a line of the package: {tested / lines:.2f}")
    click.echo("longest functions of the package:")
    functions = sorted((one for file in package for one in file.functions), key=lambda one: -one[1])
    for name, size, _ in functions[:longest]:
        click.echo(f"{size:>6} {name}")


if __name__ == "__main__":
    main()
