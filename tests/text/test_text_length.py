"""A text far longer than the context is refused after a part of it has been tokenized."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.errors import RequestError
from turnout.text import text_length
from turnout.text.text_length import SLACK, check_length
from turnout.text.tokenizer import Tokenizer

PIECE = text_length.PIECE


def read_before_refusal(text: str, limit: int, count: int = 1) -> int | None:
    """Characters tokenized before the text was refused; None if it was not."""
    read: list[str] = []
    try:
        check_length(text, len(text), limit, lambda piece: read.append(piece) or count * len(piece))  # type: ignore[func-returns-value]
    except RequestError as error:
        assert error.param == "prompt"
        return len("".join(read))
    return None


def test_a_short_text_is_not_counted() -> None:
    assert read_before_refusal("a" * text_length.WHOLE, limit=1) is None


def test_a_long_text_is_counted_until_it_is_too_long() -> None:
    """30 MB took 8 GB and a minute, whatever the context length."""
    assert read_before_refusal("a" * 30_000_000, limit=10) == PIECE
    assert read_before_refusal("a " * 15_000_000, limit=3 * PIECE) < 5 * PIECE  # type: ignore[operator]


def test_what_cuts_may_add_refuses_nothing() -> None:
    text = "a" * (text_length.WHOLE + PIECE)
    cuts = -(-len(text) // PIECE) - 1
    assert read_before_refusal(text, limit=len(text) - cuts * SLACK) is None
    assert read_before_refusal(text, limit=len(text) - cuts * SLACK - 1) == len(text)


@given(st.text("ab 你\n", max_size=60))
def test_pieces_are_the_text_and_begin_with_a_space_between_words(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_length, "PIECE", 12)
        patch.setattr(text_length, "NEAR", 6)
        pieces = list(text_length._pieces(text))
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= 12 for piece in pieces)
    for before, after in pairwise(pieces):
        if not (after[0] == " " and not before[-1].isspace()):
            assert not text_length.GAP.search(before[-6:])


@pytest.mark.parametrize(
    "sample", ["def main(argv): return 0\n", "Hello world, ", "你好", "🚀 a1 ", "    x", "é"]
)
def test_cutting_changes_the_number_of_tokens_by_less_than_the_slack(
    bytewise: Tokenizer, spaced: Tokenizer, sample: str
) -> None:
    text = sample * 2000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_length, "PIECE", 1000)
        patch.setattr(text_length, "NEAR", 100)
        pieces = list(text_length._pieces(text))
    for tokenizer in (bytewise, spaced):
        parts = [len(tokenizer.encode(piece, add_special_tokens=False)) for piece in pieces]
        whole = len(tokenizer.encode(text, add_special_tokens=False))
        assert abs(sum(parts) - whole) < 8 * len(pieces) < SLACK * len(pieces)
