"""docs/architecture.md lists every room, and its drawing is the layers that imports are held to."""

from __future__ import annotations

import re
import tomllib

from documents import ROOT, Document

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LISTED, DRAWN = Document(ROOT / "docs" / "architecture.md").blocks("")[:2]

FILES = {"config", "llm"}
"""Modules beside the rooms that the list and the drawing have, too."""


def layers() -> list[set[str]]:
    (contract,) = [one for one in PROJECT["tool"]["importlinter"]["contracts"] if one["type"] == "layers"]
    return [{name.split(".")[1] for name in re.split(r"\s*[|:]\s*", layer)} for layer in contract["layers"]]


def rooms() -> set[str]:
    packages = PROJECT["tool"]["setuptools"]["packages"]
    return {name.split(".")[1] for name in packages if "." in name}


def test_the_list_has_every_room():
    assert set(re.findall(r"^(\w+)(?:/|\.py)", LISTED, re.MULTILINE)) == rooms() | FILES


def test_the_drawing_is_the_layers():
    known = rooms() | FILES
    drawn = [set(re.findall(r"\w+", line.split("   an arrow")[0])) & known for line in DRAWN.splitlines()]
    assert [layer for layer in drawn if layer] == layers()
