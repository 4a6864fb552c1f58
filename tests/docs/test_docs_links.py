"""No document points at something that is not there, and all Python in them is Python."""

from __future__ import annotations

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
