"""The tables that the code writes are what the code says, and the documents stay short."""

from __future__ import annotations

import pytest
from documents import DOCS, Document

from turnout.scripts import docs_words, write_boards, write_reference
from turnout.scripts.reference import blocks
from turnout.server.protocol.chat import ChatRequest
from turnout.server.protocol.completions import CompletionRequest

WORDS = 42_000
"""At most so many are written by hand in docs/."""


@pytest.mark.parametrize("document", [each for each in DOCS if blocks.names(each.text)], ids=str)
def test_the_tables_of_a_page_are_what_the_code_says(document: Document) -> None:
    """`python scripts/write_reference.py` writes them."""
    assert document.text == blocks.written(document.text, write_reference.BLOCKS)


def test_every_table_that_can_be_written_stands_in_one_page() -> None:
    standing = [name for document in DOCS for name in blocks.names(document.text)]
    assert sorted(standing) == sorted(write_reference.BLOCKS)


def test_marks_are_whole() -> None:
    """A mark with a slip in it would leave its table as it is, out of date and unseen."""
    for document in DOCS:
        marks = document.text.count("write_reference.py: "), document.text.count("<!-- end -->")
        assert marks == (len(blocks.names(document.text)),) * 2, document


def test_no_parameter_that_is_taken_is_told_to_be_refused_everywhere() -> None:
    """`tools` and others that chat takes stood among the refused parameters of OpenAI."""
    *refused, alone = write_reference.BLOCKS["refused parameters"]().splitlines()
    taken = [f"`{name}`" for name in {**CompletionRequest.model_fields, **ChatRequest.model_fields}]
    assert not [name for name in taken if any(name in line for line in refused)]
    assert "`tools`" in alone and "`echo`" in alone


MARK = "<!-- written by scripts/write_reference.py: {} -->\n"
PAGE = f"one two\n\n{MARK.format('table')}\nold words\n\n<!-- end -->\n\nthree\n"


def test_a_block_is_written_anew_and_all_else_kept() -> None:
    now = blocks.written(PAGE, {"table": lambda: "new\n"})
    assert now == PAGE.replace("old words", "new")
    assert blocks.written(now, {"table": lambda: "new\n"}) == now


def test_a_block_that_nothing_writes_is_an_error() -> None:
    with pytest.raises(LookupError, match="'table'; known: chair"):
        blocks.written(PAGE, {"chair": lambda: ""})


def test_words_are_counted_without_what_the_code_writes() -> None:
    assert docs_words.words(blocks.by_hand(PAGE)) == 3


def test_the_documents_stay_short() -> None:
    """`python scripts/docs_words.py` lists the pages. A fact that the code can say moves into the code."""
    assert docs_words.written_by_hand() <= WORDS


def test_dashboards_are_up_to_date() -> None:
    """``python scripts/write_boards.py`` brings them up to date."""
    found = {path: path.read_text(encoding="utf-8") for path in write_boards.FOLDER.glob("*.json")}
    wanted = write_boards.contents()
    assert sorted(path.name for path in found) == sorted(path.name for path in wanted)
    stale = [path.name for path in wanted if found[path] != wanted[path]]
    assert not stale, f"{', '.join(stale)}: run python scripts/write_boards.py"
