"""No document points at something that is not there, its tables are whole, and its Python is Python."""

from __future__ import annotations

import re
from itertools import groupby

import pytest
from documents import ALL, Document


@pytest.mark.parametrize("document", ALL, ids=str)
def test_links_lead_somewhere(document: Document) -> None:
    broken = [link for link in document.links if not leads_somewhere(document, link)]
    assert not broken, f"{document} has links to nothing: {broken}"


def leads_somewhere(document: Document, link: str) -> bool:
    path, _, fragment = link.partition("#")
    target = Document((document.path.parent / path).resolve()) if path else document
    return target.path.exists() and (not fragment or fragment in target.anchors)


def test_this_test_can_fail() -> None:
    readme = ALL[0]
    assert readme.links
    assert leads_somewhere(readme, "docs/reference/http-api.md#streaming")
    assert not leads_somewhere(readme, "docs/reference/http-api.md#nothing")
    assert not leads_somewhere(readme, "docs/nothing.md")


@pytest.mark.parametrize("document", ALL, ids=str)
def test_python_is_python(document: Document) -> None:
    for number, block in enumerate(document.blocks("python"), 1):
        compile(block, f"{document}, block {number}", "exec")


@pytest.mark.parametrize("document", ALL, ids=str)
def test_tables_are_whole(document: Document) -> None:
    """A blank line in a table ends it, and shows its other rows as text."""
    lines = document.prose.splitlines()
    for is_table, part in groupby(lines, key=lambda line: line.startswith("|")):
        if is_table:
            head, under, *rows = part
            assert re.fullmatch(r"[| :-]+", under), f"{document} has rows without a header, from {head!r} on"
            assert {cells(row) for row in (under, *rows)} == {cells(head)}, f"{document}, table {head!r}"


def cells(row: str) -> int:
    return len(re.findall(r"(?<!\\)\|", row))
