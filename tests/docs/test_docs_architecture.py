"""docs/architecture.md is a true map: its rooms, its layers, and where to go to change something."""

from __future__ import annotations

import ast
import re
import tomllib

import pytest
from documents import ROOT, Document, rows

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MAP = Document(ROOT / "docs" / "architecture.md")
LISTED, DRAWN = MAP.blocks("")[:2]
FILES = {"config", "llm"}
"""Modules beside the rooms that the list and the drawing have, too."""
CHANGES = rows(MAP.section("To change X, open Y"))
PATHS = MAP.section("Three paths to read").split("\n**")[1:]
MOST_FILES = {"A KV allocation": 5, "`--scheduler fcfs`": 6, "A streamed token": 6}
"""How many files a reader opens at most to follow each path."""


def layers() -> list[set[str]]:
    (contract,) = [
        one for one in PROJECT["tool"]["importlinter"]["contracts"] if one["name"].startswith("Rooms: ")
    ]
    return [{name.split(".")[1] for name in re.split(r"\s*[|:]\s*", layer)} for layer in contract["layers"]]


def rooms() -> set[str]:
    packages = PROJECT["tool"]["setuptools"]["packages"]
    return {name.split(".")[1] for name in packages if "." in name}


def defined(file: str) -> set[str]:
    """Names that a Python file defines, methods as ``Class.method``; else every word of the file."""
    text = (ROOT / file).read_text()
    if not file.endswith(".py"):
        return set(re.findall(r"\w+", text))
    tree = ast.parse(text)
    found = _named(tree.body)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found |= {node.name, *(f"{node.name}.{name}" for name in _named(node.body))}
    return found


def _named(body: list[ast.stmt]) -> set[str]:
    """Functions and assigned names of a module or a class."""
    found: set[str] = set()
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Assign(targets=targets):
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_the_list_has_every_room():
    assert set(re.findall(r"^(\w+)(?:/|\.py)", LISTED, re.MULTILINE)) == rooms() | FILES


def test_the_drawing_is_the_layers():
    known = rooms() | FILES
    drawn = [set(re.findall(r"\w+", line.split("   an arrow")[0])) & known for line in DRAWN.splitlines()]
    assert [layer for layer in drawn if layer] == layers()


def test_the_table_of_changes_is_long_enough_to_be_of_use():
    assert len(CHANGES) >= 25


@pytest.mark.parametrize("change", CHANGES, ids=lambda row: row[0])
def test_what_a_change_opens_is_there(change):
    _, opened, symbol = change
    file, name = opened.strip("`"), symbol.strip("`")
    assert (ROOT / file).is_file(), f"there is no {file}"
    assert name in defined(file), f"{file} does not define {name}"


def test_the_paths_to_read_are_short():
    found = {path.partition("**")[0]: len(re.findall(r"^\d\. ", path, re.MULTILINE)) for path in PATHS}
    assert found.keys() == MOST_FILES.keys()
    assert all(0 < found[name] <= most for name, most in MOST_FILES.items()), found


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.partition("**")[0])
def test_what_a_path_opens_is_there(path):
    steps = re.findall(r"^\d\. `([^`]+)` `([^`]+)`: \w", path, re.MULTILINE)
    assert len(steps) == len(re.findall(r"^\d\. ", path, re.MULTILINE))
    for file, name in steps:
        assert (ROOT / file).is_file(), f"there is no {file}"
        assert name in defined(file), f"{file} does not define {name}"


def test_every_file_that_the_page_names_is_there():
    named = set(re.findall(r"`((?:[a-z_0-9]+/)+[a-z_0-9]+\.[a-z]+)`", MAP.text))
    assert len(named) > 30
    assert not {file for file in named if not (ROOT / file).exists()}
