"""README.zh-CN.md is README.md in Chinese: the same headings, code, tables and links, in the same order."""

from __future__ import annotations

import re

import pytest
from documents import README, README_ZH, Document, code, rows

LANGUAGES = {"README.md", "README.zh-CN.md"}
"""Each page links to the other."""


def levels(document: Document) -> list[int]:
    return [len(marks) for marks in re.findall(r"^(#+) ", document.prose, re.MULTILINE)]


def links(document: Document) -> list[str]:
    """Also those to other sites, and pictures."""
    return re.findall(r"\]\(([^()\s]+)\)", document.prose)


def flags_and_names(document: Document) -> list[list[str]]:
    """What is in backticks, row by row: it is the same in any language."""
    return [sorted(code(" ".join(row))) for row in rows(document.prose)]


def bold(document: Document) -> int:
    return len(re.findall(r"\*\*.+?\*\*", document.prose, re.DOTALL))


def test_headings_have_the_same_levels_in_the_same_order() -> None:
    assert levels(README_ZH) == levels(README)


@pytest.mark.parametrize("language", ["", "python"])
def test_code_is_the_same(language: str) -> None:
    assert README.blocks(language)
    assert README_ZH.blocks(language) == README.blocks(language)


def test_links_are_the_same_in_the_same_order() -> None:
    english, chinese = links(README), links(README_ZH)
    assert LANGUAGES & set(english) == {"README.zh-CN.md"}
    assert LANGUAGES & set(chinese) == {"README.md"}
    assert [link for link in chinese if link not in LANGUAGES] == [
        link for link in english if link not in LANGUAGES
    ]


def test_tables_name_the_same_things() -> None:
    assert flags_and_names(README_ZH) == flags_and_names(README)


def test_the_same_reasons_are_given() -> None:
    assert bold(README_ZH) == bold(README)


def test_it_is_in_chinese() -> None:
    assert len(re.findall(r"[\u4e00-\u9fff]", README_ZH.prose)) > 500


def test_the_readme_stays_short() -> None:
    assert len(README.text.split()) <= 900
