"""Types and bounds in the words of the tables, and docstrings as Markdown."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from turnout.core.sizes import parse_bytes
from turnout.scripts.reference.tables import listed, markdown, paragraph, table
from turnout.scripts.reference.values import described
from turnout.server.http.openapi.docstrings import field_docstrings
from turnout.server.protocol.base import GenerationRequest
from turnout.server.protocol.token_ids import TokenId


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (int, "integer"),
        (float | None, "number"),
        (Annotated[int, Field(gt=0)], "integer, from 1"),
        (Annotated[int, Field(ge=1, le=32)] | None, "integer, from 1 to 32"),
        (Annotated[int, Field(ge=-(2**63), lt=2**63)], "integer, 64 bits signed"),
        (Annotated[float, Field(gt=0, le=1)], "number, above 0, at most 1"),
        (Annotated[float, Field(gt=0, lt=1)], "number, above 0, below 1"),
        (Annotated[str, Field(min_length=1)], "string, not empty"),
        (Literal["a", "b", "c"], "`a`, `b` or `c`"),
        (bool | Literal["never"] | None, "boolean or `never`"),
        (list[TokenId], "list of token ids"),
        (tuple[str, ...], "list of strings"),
        (tuple[Annotated[str, Field(min_length=1)], ...], "list of strings, none of them empty"),
        (dict[str, Any], "object"),
    ],
)
def test_a_type_in_words(annotation: object, words: str) -> None:
    assert described(annotation) == words


def test_a_type_without_words_is_an_error() -> None:
    with pytest.raises(LookupError, match="no words for the type"):
        described(type(parse_bytes))


def test_docstrings_of_fields_are_found_where_they_are_inherited() -> None:
    docstrings = field_docstrings(GenerationRequest)
    assert "not empty" not in docstrings["cache_salt"] and docstrings["guided_regex"].startswith("vLLM's")


def test_a_docstring_becomes_a_line_of_markdown() -> None:
    assert markdown("One ``two``\nthree.\n\nFour.") == "One `two` three. Four."
    assert paragraph("One\ntwo.\n\nThree.") == "One two."


def test_a_table_is_a_table() -> None:
    assert table(("a", "b"), [("x|y", "")]) == "| a | b |\n|---|---|\n| x\\|y | |\n"
    with pytest.raises(ValueError, match="1 cells under 2 heads"):
        table(("a", "b"), [("x",)])


def test_a_list_of_words() -> None:
    assert (listed(["a"]), listed(["a", "b", "c"])) == ("a", "a, b or c")
