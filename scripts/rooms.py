"""The package drawn by its imports: each folder's rooms, the arrows between them, and circles.

A room is a folder. Files that lie loose in a folder are one room, called ``(files)``; those of the
package's root, such as ``llm.py``, are rooms of their own. An arrow from a room to another stands for all
imports between their files, imports for type checking included. A package's own ``__init__.py`` only re-
exports what its rooms hold, so it belongs to no room.

    python scripts/rooms.py              # every folder: rooms, arrows, files side by side
    python scripts/rooms.py server       # one folder: which room imports which, by how many imports
    python scripts/rooms.py --check      # exit 1 where a bound below does not hold
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

import click

ROOT = Path(__file__).parent.parent
PACKAGE = "turnout"
ASIDE = ("tests", "bench", "scripts", "docs", "examples")
"""Folders that are not the package: their imports are not drawn, their files are counted."""
FILES = "(files)"
MAX_FILES = 16
"""Python files that a folder may hold side by side, ``__init__.py`` not counted."""
POLICIES = ("core/interfaces", "plugins/schedulers", "plugins/logits_processors", "testing/suites")
"""Folders in which each file is a policy, or a kind's interface or suite: they may hold more."""
BOUNDS = {"core": (6, 12), "server": (12, 26), "plugins/kv_backends": (5, 6)}
"""Rooms and arrows that a folder may have."""
MAX_PLUGIN_ARROWS = 3
"""Arrows between the kinds of plugins."""

Arrow = tuple[str, str]


@dataclass(frozen=True)
class Folder:
    """What a folder of the package holds, as a drawing."""

    path: str
    rooms: frozenset[str]
    arrows: Mapping[Arrow, int]
    """From a room to another, and how many imports that stands for."""
    files: int
    """Python files side by side."""

    @property
    def circle(self) -> list[str]:
        """Rooms that import each other, directly or by way of others."""
        return sorted(room for room in self.rooms if room in _reached(room, self.arrows))


def _reached(room: str, arrows: Mapping[Arrow, int]) -> set[str]:
    found: set[str] = set()
    ahead = [room]
    while ahead:
        here = ahead.pop()
        new = {target for source, target in arrows if source == here} - found
        found |= new
        ahead += new
    return found


def tracked() -> list[str]:
    """Python files of the repository, as paths from its root."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split() if (ROOT / name).exists()]


@cache
def modules() -> dict[str, str]:
    """The package's files, by the name under which they are imported."""
    return {_module(file): file for file in tracked() if file.split("/")[0] not in ASIDE}


def _module(file: str) -> str:
    parts = [PACKAGE, *PurePosixPath(file).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports() -> list[Arrow]:
    """Every import of one file by another of the package."""
    return [(file, target) for file in modules().values() for target in _imported(file) if target != file]


def _imported(file: str) -> Iterator[str]:
    known = modules()
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.Import):
            yield from (known[alias.name] for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                yield known.get(f"{node.module}.{alias.name}", known[node.module])


def drawn(path: str) -> Folder:
    """A folder, given as a path from the repository's root; empty: the package itself."""
    inside = [file for file in modules().values() if _is_inside(file, path)]
    rooms = {room for file in inside if (room := _room(file, path)) is not None}
    arrows: Counter[Arrow] = Counter()
    for source, target in imports():
        if _is_inside(source, path) and _is_inside(target, path):
            here, there = _room(source, path), _room(target, path)
            if here is not None and there is not None and here != there:
                arrows[here, there] += 1
    files = sum(_room(file, path) == FILES for file in inside)
    return Folder(path, frozenset(rooms), arrows, files)


def _is_inside(file: str, path: str) -> bool:
    return not path or file.startswith(f"{path}/")


def _room(file: str, path: str) -> str | None:
    """None for the ``__init__.py`` of the folder itself."""
    below = PurePosixPath(file).relative_to(path or ".").parts
    if len(below) > 1:
        return below[0]
    if below[0] == "__init__.py":
        return None
    return FILES if path else below[0]


def folders() -> list[Folder]:
    """Every folder of the package that has rooms, from the outermost inwards."""
    paths = {str(parent) for file in modules().values() for parent in PurePosixPath(file).parents}
    return [drawn("" if path == "." else path) for path in [*sorted(paths - {"."}), "."]]


def crowded() -> list[tuple[str, int]]:
    """Folders of the repository with too many files side by side, tests and benchmarks included."""
    counted = Counter(
        str(PurePosixPath(file).parent) for file in tracked() if not file.endswith("__init__.py")
    )
    return [(path, count) for path, count in counted.items() if count > MAX_FILES and path not in POLICIES]


def complaints() -> list[str]:
    """A sentence for each bound that does not hold."""
    found = [f"{path} holds {count} files side by side, {MAX_FILES} at most" for path, count in crowded()]
    for folder in folders():
        name = folder.path or PACKAGE
        if folder.circle:
            found.append(f"{name}: {', '.join(folder.circle)} import each other in a circle")
        rooms, arrows = BOUNDS.get(folder.path, (sys.maxsize, sys.maxsize))
        if len(folder.rooms) > rooms or len(folder.arrows) > arrows:
            found.append(
                f"{name} has {len(folder.rooms)} rooms and {len(folder.arrows)} arrows, "
                f"{rooms} and {arrows} at most"
            )
    between = [arrow for arrow in drawn("plugins").arrows if FILES not in arrow]
    if len(between) > MAX_PLUGIN_ARROWS:
        found.append(f"plugins: {len(between)} arrows between its kinds, {MAX_PLUGIN_ARROWS} at most")
    return found


def _table(folders: Sequence[Folder]) -> Iterator[str]:
    yield f"{'':<36}{'rooms':>6}{'arrows':>8}{'files':>7}"
    for folder in folders:
        if len(folder.rooms) > 1:
            numbers = f"{len(folder.rooms):>6}{len(folder.arrows):>8}{folder.files:>7}"
            yield f"{folder.path or PACKAGE:<36}{numbers}  {' '.join(folder.circle)}".rstrip()


def _arrows(folder: Folder) -> Iterator[str]:
    for (source, target), count in sorted(folder.arrows.items()):
        yield f"{source} -> {target}  ({count})"


@click.command()
@click.argument("path", default="")
@click.option("--check", is_flag=True, help="Exit with 1 where a bound does not hold.")
def main(path: str, check: bool) -> None:
    """Print rooms and arrows of every folder, or the arrows inside PATH."""
    for line in _arrows(drawn(path.rstrip("/"))) if path else _table(folders()):
        click.echo(line)
    wrong = complaints() if check else []
    for line in wrong:
        click.echo(line, err=True)
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
