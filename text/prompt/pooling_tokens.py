"""The tokens of texts and of pairs that are pooled, cut as transformers' tokenizers cut them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from turnout.core.errors import ContextExceeded, RequestError
from turnout.core.types.pooling import PairTemplate
from turnout.text.prompt.pair_template import pair_text
from turnout.text.tokenizer import Tokenizer

__all__ = ["TextTokens", "pair_tokens", "text_tokens"]

PARAM = "input"


class TextTokens(NamedTuple):
    """A prompt, and where in it the second text of a pair begins; 0: it has no token of the second type."""

    ids: list[int]
    second_text: int = 0


def text_tokens(
    tokenizer: Tokenizer, text: str, *, special: bool = True, limit: int, keep: int | None = None
) -> TextTokens:
    """Returns the tokens of one text.

    special: whether the tokenizer's special tokens surround it; limit: the most tokens. keep: None: a longer
    text raises ContextExceeded; else it is cut to so many tokens, special ones among them.
    """
    before, after = _layout(tokenizer).one if special else ((), ())
    around = len(before) + len(after)
    if keep is None:
        ids = _ids(tokenizer, text, limit)
        _check(len(ids) + around, limit, "text")
    else:
        ids = _first(tokenizer, text, max(0, min(keep, limit) - around))
    return TextTokens([*before, *ids, *after])


def pair_tokens(
    tokenizer: Tokenizer,
    first: str,
    second: str,
    *,
    limit: int,
    keep: int | None = None,
    most_of_second: int | None = None,
    template: PairTemplate | None = None,
    instruction: str = "",
) -> TextTokens:
    """Returns the tokens of two texts that are read together. Arguments and errors as of `text_tokens`.

    most_of_second: tokens to which the second text is cut beforehand. Then the longer one is cut first, then
    both. template: what makes one text of them; then the end of the second is cut. instruction: what a
    template tells the model; without a template it is put in front of the first text.
    """
    if template is not None:
        if most_of_second is not None:
            second = _shortened(tokenizer, second, most_of_second)
        joined, ending = pair_text(template, first, second, instruction)
        return _templated(tokenizer, joined, ending, limit, keep)
    first = instruction + first
    before, between, after, typed = _layout(tokenizer).two
    special = len(before) + len(between) + len(after)
    if keep is None:
        one, other = (_ids(tokenizer, text, limit) for text in (first, second))
        other = other[:most_of_second]
        _check(len(one) + len(other) + special, limit, "pair")
    else:
        one, other = _cut_pair(tokenizer, first, second, max(0, min(keep, limit) - special), most_of_second)
    ids = [*before, *one, *between, *other, *after]
    return TextTokens(ids, len(before) + len(one) + len(between) if typed else 0)


def _cut_pair(
    tokenizer: Tokenizer, first: str, second: str, most: int, most_of_second: int | None
) -> tuple[list[int], list[int]]:
    """Returns the tokens of two texts, `most` together."""
    one = _first(tokenizer, first, most + 1)
    other = _first(tokenizer, second, most + 1 if most_of_second is None else min(most + 1, most_of_second))
    if most % 2 and len(one) == len(other) == most + 1:  # the longer one, by its whole length, has one more
        one, other = (_ids(tokenizer, text, None) for text in (first, second))
        other = other[:most_of_second]
    lengths = _cut(len(one), len(other), most)
    return one[: lengths[0]], other[: lengths[1]]


def _shortened(tokenizer: Tokenizer, text: str, most: int) -> str:
    ids = _first(tokenizer, text, most + 1)
    return text if len(ids) <= most else tokenizer.decode(ids[:most], skip_special_tokens=False)


def _templated(tokenizer: Tokenizer, text: str, after: str, limit: int, keep: int | None) -> TextTokens:
    """Returns the tokens of a text and of what must follow it, however much of it is cut."""
    if keep is None:
        ids = _ids(tokenizer, text + after, limit)
        _check(len(ids), limit, "pair")
        return TextTokens(ids)
    most = min(keep, limit)
    ids = _first(tokenizer, text + after, most + 1)
    if len(ids) <= most:
        return TextTokens(ids)
    end = _ids(tokenizer, after, None)[-most:]
    return TextTokens([*ids[: most - len(end)], *end])


def _cut(first: int, second: int, most: int) -> tuple[int, int]:
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


def _first(tokenizer: Tokenizer, text: str, count: int) -> list[int]:
    try:
        return tokenizer.first_ids(text, count)
    except RequestError as error:
        raise RequestError(str(error), PARAM) from None


def _ids(tokenizer: Tokenizer, text: str, limit: int | None) -> list[int]:
    try:
        return tokenizer.encode(text, add_special_tokens=False, limit=limit)
    except ContextExceeded as error:
        raise ContextExceeded(str(error), PARAM) from None
    except RequestError as error:
        raise RequestError(str(error), PARAM) from None


def _check(length: int, limit: int, what: str) -> None:
    if length > limit:
        raise ContextExceeded(
            f"the {what} has {length:,} tokens, but at most {limit:,} are read; shorten it", PARAM
        )
