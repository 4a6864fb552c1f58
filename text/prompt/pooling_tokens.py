"""The tokens of texts and of pairs that are pooled, cut as transformers' tokenizers cut them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

from turnout.core.errors import ContextExceeded, RequestError
from turnout.core.types.pooling import PairTemplate
from turnout.text.prompt.pair_template import pair_text
from turnout.text.prompt.truncation import FIELD
from turnout.text.tokenizer import Side, Tokenizer

__all__ = [
    "TEXTS",
    "Cut",
    "TextTokens",
    "advising",
    "kept_tokens",
    "named_text",
    "pair_tokens",
    "shortened",
    "text_tokens",
]

PARAM = "input"
TEXTS = ("prompt", PARAM)
"""What errors about a text call the field that has it."""
SUBJECT = re.compile(r"(?:^|(?<=, but ))(?:the|a) (?:prompt|text|pair)\b")
"""What an error about a text calls it."""


class TextTokens(NamedTuple):
    """A prompt, and where in it the second text of a pair begins; 0: it has no token of the second type."""

    ids: list[int]
    second_text: int = 0


@contextmanager
def named_text(name: str) -> Iterator[None]:
    """Makes errors about a text, raised in the block, name it, such as ``text 3``."""
    try:
        yield
    except RequestError as error:
        if error.param in TEXTS:
            named, count = SUBJECT.subn(lambda _: name, str(error), count=1)
            error.args = (named if count else f"{name}: {error}",)
        raise


@contextmanager
def advising(field: str) -> Iterator[None]:
    """Makes errors about a text that is too long, raised in the block, name the `field` that has it cut."""
    try:
        yield
    except ContextExceeded as error:
        error.args = (f"{error} or set {field}",)
        raise


def kept_tokens(count: int | None, limit: int) -> int | None:
    """Returns how many tokens are kept of each text; None: a longer text is refused.

    count: as ``truncate_prompt_tokens`` has it, -1: as many as the model takes; limit: the most that it
    takes. Raises RequestError for a count that is neither.
    """
    if count is not None and (type(count) is not int or count < -1 or count == 0):
        raise RequestError(f"{FIELD} is {count!r}; -1, or a number of tokens above 0, is expected", FIELD)
    return count if count is None or 0 < count <= limit else limit


class Cut(NamedTuple):
    """How texts that are too long are cut."""

    keep: int
    """Tokens that are kept of a text or of a pair, special ones among them."""
    side: Side
    """Where the others are."""
    most_of_second: int | None = None
    """Tokens to which a pair's second text is cut beforehand."""


def shortened(ids: list[int], count: int | None, side: Side) -> list[int]:
    """Returns `count` of the tokens, or all where there are fewer or it is None; side: where the others
    are."""
    if count is None or len(ids) <= count:
        return ids
    return ids[:count] if side == "right" else ids[len(ids) - count :]


def text_tokens(
    tokenizer: Tokenizer, text: str, *, special: bool = True, limit: int, cut: Cut | None = None
) -> TextTokens:
    """Returns the tokens of one text.

    special: whether the tokenizer's special tokens surround it; limit: the most tokens. cut: None: a longer
    text raises ContextExceeded. Raises RequestError where it keeps no token of any text.
    """
    before, after = _layout(tokenizer).one if special else ((), ())
    around = len(before) + len(after)
    if cut is None:
        ids = _ids(tokenizer, text, limit)
        _check(len(ids) + around, limit, "text")
    else:
        ids = _part(tokenizer, text, _room(cut, limit, around), cut.side)
    return TextTokens([*before, *ids, *after])


def pair_tokens(
    tokenizer: Tokenizer,
    first: str,
    second: str,
    *,
    limit: int,
    cut: Cut | None = None,
    template: PairTemplate | None = None,
    instruction: str = "",
) -> TextTokens:
    """Returns the tokens of two texts that are read together. Arguments and errors as of `text_tokens`.

    The longer text is cut first, then both. template: what makes one text of them; then the end of the second
    is cut, and RequestError raised where the start should be. instruction: what a template tells the model;
    without a template it is put in front of the first text.
    """
    if template is not None:
        if cut is not None and cut.most_of_second is not None:
            second = _decoded(tokenizer, second, cut.most_of_second, cut.side)
        joined, ending = pair_text(template, first, second, instruction)
        return _templated(tokenizer, joined, ending, limit, cut)
    first = instruction + first
    before, between, after, typed = _layout(tokenizer).two
    special = len(before) + len(between) + len(after)
    if cut is None:
        one, other = (_ids(tokenizer, text, limit) for text in (first, second))
        _check(len(one) + len(other) + special, limit, "pair")
    else:
        one, other = _cut_pair(tokenizer, first, second, _room(cut, limit, special), cut)
    ids = [*before, *one, *between, *other, *after]
    return TextTokens(ids, len(before) + len(one) + len(between) if typed else 0)


def _cut_pair(
    tokenizer: Tokenizer, first: str, second: str, most: int, cut: Cut
) -> tuple[list[int], list[int]]:
    """Returns the tokens of two texts, `most` together."""
    side, most_of_second = cut.side, cut.most_of_second
    one = _part(tokenizer, first, most + 1, side)
    most_of_other = most + 1 if most_of_second is None else min(most + 1, most_of_second)
    other = _part(tokenizer, second, most_of_other, side)
    if most % 2 and len(one) == len(other) == most + 1:  # the longer one, by its whole length, has one more
        one, other = (_ids(tokenizer, text, None) for text in (first, second))
        other = shortened(other, most_of_second, side)
    lengths = _lengths(len(one), len(other), most)
    return shortened(one, lengths[0], side), shortened(other, lengths[1], side)


def _decoded(tokenizer: Tokenizer, text: str, most: int, side: Side) -> str:
    """Returns a text, or what `most` of its tokens are."""
    ids = _part(tokenizer, text, most + 1, side)
    if len(ids) <= most:
        return text
    return tokenizer.decode(shortened(ids, most, side), skip_special_tokens=False)


def _templated(tokenizer: Tokenizer, text: str, after: str, limit: int, cut: Cut | None) -> TextTokens:
    """Returns the tokens of a text and of what must follow it, however much of it is cut."""
    if cut is None:
        ids = _ids(tokenizer, text + after, limit)
        _check(len(ids), limit, "pair")
        return TextTokens(ids)
    most = min(cut.keep, limit)
    ids = _part(tokenizer, text + after, most + 1, "right")
    if len(ids) <= most:
        return TextTokens(ids)
    if cut.side == "left":
        raise RequestError(
            f"the pair has more than {most:,} tokens, and truncation_side is left, but what this model's "
            "template writes can be cut at its end alone; shorten the texts",
            PARAM,
        )
    end = _ids(tokenizer, after, None)
    return TextTokens([*ids[: _room(cut, limit, len(end))], *end])


def _lengths(first: int, second: int, most: int) -> tuple[int, int]:
    """Returns how much is left of texts of so many tokens: ``longest_first`` of tokenizers."""
    if first + second <= most:
        return first, second
    short, long = min(first, second), max(first, second)
    long = short if short > most else max(short, most - short)
    if short + long > most:
        short = most // 2
        long = short + most % 2
    return (long, short) if first > second else (short, long)


class _Pair(NamedTuple):
    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    typed: bool
    """Whether the second text has a type of its own."""


class _Layout(NamedTuple):
    """The special tokens of a tokenizer, around one text and around two."""

    one: tuple[tuple[int, ...], tuple[int, ...]]
    two: _Pair


@lru_cache(maxsize=64)
def _layout(tokenizer: Tokenizer) -> _Layout:
    """Reads it off short texts, which have a token each at least."""
    backend = tokenizer.backend
    alone, pair = backend.encode("a"), backend.encode("a", "b")
    places = [at for at, text in enumerate(alone.sequence_ids) if text == 0]
    one = tuple(alone.ids[: places[0]]), tuple(alone.ids[places[-1] + 1 :])
    end = tokenizer.eos_token_id
    if tokenizer.ends_texts and end is not None and end not in one[1]:  # e5-mistral: not in tokenizer.json
        one = one[0], (*one[1], end)
    firsts, seconds = ([at for at, text in enumerate(pair.sequence_ids) if text == n] for n in (0, 1))
    two = _Pair(
        tuple(pair.ids[: firsts[0]]),
        tuple(pair.ids[firsts[-1] + 1 : seconds[0]]),
        tuple(pair.ids[seconds[-1] + 1 :]),
        tokenizer.types_tokens and pair.type_ids[seconds[0]] == 1,
    )
    return _Layout(one, two)


def _room(cut: Cut, limit: int, special: int) -> int:
    """Returns how many of the tokens that are kept the texts may have."""
    if cut.keep <= special:
        raise RequestError(
            f"{FIELD} is {cut.keep:,}, but {special} tokens are around the text; at least {special + 1} is "
            "expected",
            FIELD,
        )
    return max(0, min(cut.keep, limit) - special)


def _part(tokenizer: Tokenizer, text: str, count: int, side: Side) -> list[int]:
    """Returns the tokens of a text, `count` at most."""
    if side == "left":
        return shortened(_ids(tokenizer, text, None), count, side)
    with _about_input():
        return tokenizer.first_ids(text, count)


def _ids(tokenizer: Tokenizer, text: str, limit: int | None) -> list[int]:
    with _about_input():
        return tokenizer.encode(text, add_special_tokens=False, limit=limit)


@contextmanager
def _about_input() -> Iterator[None]:
    """Has errors of the tokenizer, which call a text `prompt`, name the field that has it here."""
    try:
        yield
    except RequestError as error:
        error.param = PARAM
        raise


def _check(length: int, limit: int, what: str) -> None:
    if length > limit:
        raise ContextExceeded(
            f"the {what} has {length:,} tokens, but at most {limit:,} are read; shorten it", PARAM
        )
