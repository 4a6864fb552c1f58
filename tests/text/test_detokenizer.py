"""Pieces put together are what decoding everything at once gives, and no piece is half a character."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import turnout.models
from turnout.text.detokenizer import detokenizer
from turnout.text.tokenizer import Tokenizer, load_tokenizer

EMBEDDED = Path(turnout.models.__file__).parent / "tiny" / "turnout-tiny"
REPLACEMENT = "\ufffd"
TEXT = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("ab 你好世界🚀👩‍👩‍👧é")))
RELAXED = settings(deadline=None, max_examples=300)


def pieces(
    tokenizer: Tokenizer, ids: list[int], *, skip: bool = True, prompt: list[int] | None = None
) -> list[str]:
    stream = detokenizer(tokenizer, skip_special_tokens=skip, prompt=prompt or [])
    return [*(stream.feed(id) for id in ids), stream.flush()]


@RELAXED
@given(text=TEXT)
def test_text_survives(bytewise: Tokenizer, spaced: Tokenizer, text: str) -> None:
    for tokenizer in (bytewise, spaced):
        ids = tokenizer.encode(text, add_special_tokens=False)
        got = pieces(tokenizer, ids)
        assert "".join(got) == tokenizer.decode(ids)
        assert REPLACEMENT in text or not any(REPLACEMENT in piece for piece in got)


@RELAXED
@given(data=st.data(), skip=st.booleans())
def test_any_tokens_decode_as_a_whole(bytewise: Tokenizer, data: st.DataObject, skip: bool) -> None:
    ids = data.draw(st.lists(st.integers(0, bytewise.vocab_size + 5)))
    assert "".join(pieces(bytewise, ids, skip=skip)) == bytewise.decode(ids, skip_special_tokens=skip)


@RELAXED
@given(data=st.data(), skip=st.booleans())
def test_any_tokens_that_spell_characters_decode_as_a_whole(
    spaced: Tokenizer, data: st.DataObject, skip: bool
) -> None:
    """Invalid bytes are left out: whether such a run is shown byte by byte depends on what follows it."""
    ids = data.draw(st.lists(st.integers(0, spaced.vocab_size + 5)))
    whole = spaced.decode(ids, skip_special_tokens=skip)
    got = "".join(pieces(spaced, ids, skip=skip))
    assert REPLACEMENT in whole or got == whole


@pytest.mark.skipif(not (EMBEDDED / "tokenizer.json").is_file(), reason="not trained yet")
def test_the_embedded_tokenizer() -> None:
    tokenizer = load_tokenizer(EMBEDDED)

    @RELAXED
    @given(text=TEXT, ids=st.lists(st.integers(0, tokenizer.vocab_size)))
    def check(text: str, ids: list[int]) -> None:
        for tokens in (tokenizer.encode(text), ids):
            assert "".join(pieces(tokenizer, tokens)) == tokenizer.decode(tokens)

    check()


def test_a_character_spread_over_tokens_comes_whole(bytewise: Tokenizer) -> None:
    ids = bytewise.encode("🦀")
    assert len(ids) == 3
    assert pieces(bytewise, ids) == ["", "", "🦀", ""]
    assert pieces(bytewise, ids[:2]) == ["", "", REPLACEMENT]


def test_a_character_spelt_in_bytes_comes_whole(spaced: Tokenizer) -> None:
    ids = spaced.encode("🦀🦀", add_special_tokens=False)
    assert [piece for piece in pieces(spaced, ids) if piece] == ["🦀", "🦀"]


def test_a_token_may_flush_bytes_before_its_own_text(bytewise: Tokenizer, spaced: Tokenizer) -> None:
    """They become U+FFFD in what it is the last token of, but are no part of its text."""
    crab, letter = bytewise.encode("🦀"), bytewise.encode("e")[-1]
    assert flushed(bytewise, [*crab, letter]) == [0] * 4
    assert flushed(bytewise, [*crab[:2], letter, letter]) == [0, 0, 1, 0]
    assert flushed(bytewise, [*crab[:2], *crab]) == [0, 0, 1, 0, 0]
    assert flushed(bytewise, [*crab[:2], 3, crab[2]]) == [0] * 4, "a token that is hidden has no text"
    crab = spaced.encode("🦀", add_special_tokens=False)[-4:]
    letter = spaced.backend.token_to_id("e")
    assert flushed(spaced, [*crab, letter]) == [0] * 5
    assert flushed(spaced, [*crab[:3], letter, letter]) == [0, 0, 0, 3, 0], "each of its bytes becomes one"


def flushed(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    stream, found = detokenizer(tokenizer), []
    for id in ids:
        found.append(stream.flushed_by(id))
        assert stream.feed(id).startswith(REPLACEMENT * found[-1])
    return found


def test_a_leading_space_is_kept_after_a_prompt(spaced: Tokenizer) -> None:
    prompt = spaced.encode("Hello")
    world = [spaced.backend.token_to_id("▁world")]
    assert "".join(pieces(spaced, world)) == "world"
    assert "".join(pieces(spaced, world, prompt=prompt)) == " world"


def test_special_tokens_are_hidden_or_shown(bytewise: Tokenizer) -> None:
    ids = [*bytewise.encode("a"), 3, *bytewise.encode("b")]
    assert "".join(pieces(bytewise, ids)) == "ab"
    assert "".join(pieces(bytewise, ids, skip=False)) == "a<|特殊|>b"


def test_cost_does_not_grow_with_the_text(bytewise: Tokenizer, spaced: Tokenizer) -> None:
    """Runs of invalid bytes too: nothing may be collected without end."""
    for tokenizer in (bytewise, spaced):
        byte = tokenizer.backend.token_to_id("<0xE4>") or tokenizer.backend.token_to_id("ä")
        for token in (byte, 2, tokenizer.encode("e")[-1]):
            stream = detokenizer(tokenizer)
            started = time.perf_counter()
            for _ in range(20_000):
                stream.feed(token)
            assert time.perf_counter() - started < 5
