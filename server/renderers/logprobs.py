"""Renders log-probabilities in the two forms of OpenAI's APIs, and a prompt's in vLLM's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from turnout.core.types.logprobs import TokenLogprobs
from turnout.server.generation.generation import ScoredPrompt
from turnout.server.http.json_slices import Chained, Lazily
from turnout.server.protocol.responses import (
    ChatLogprobs,
    ChatTokenLogprob,
    CompletionLogprobs,
    PromptLogprobs,
    RankedLogprob,
    TopLogprob,
)
from turnout.server.renderers.token_names import TokenNames
from turnout.text.choice_text import ShownToken
from turnout.text.detokenizer import detokenizer
from turnout.text.tokenizer import Tokenizer

__all__ = ["chat_logprobs", "completion_logprobs", "echo_logprobs", "joined", "prompt_logprobs"]

Item = TypeVar("Item")

LOWEST = -9999.0
"""OpenAI's stand-in for minus infinity, which JSON cannot express."""


def completion_logprobs(names: TokenNames, shown: Sequence[ShownToken], start: int = 0) -> CompletionLogprobs:
    """Of tokens shown. `start`: where the choice's text begins, in characters."""
    return CompletionLogprobs(
        tokens=_each(shown, lambda token: names.name(token.logprobs.token)),
        token_logprobs=_each(shown, lambda token: max(token.logprobs.logprob, LOWEST)),
        top_logprobs=_each(shown, lambda token: _most_likely(names, token.logprobs)),
        text_offset=_each(shown, lambda token: start + token.offset),
    )


def echo_logprobs(names: TokenNames, prompt: ScoredPrompt, echo: str, count: int) -> CompletionLogprobs:
    """Of a prompt whose text `echo` is, with the `count` most likely tokens. Its first token has none."""
    return CompletionLogprobs(
        tokens=Lazily(prompt.tokens, names.name),
        token_logprobs=Chained([None], Lazily(prompt.scores, lambda entry: max(entry.logprob, LOWEST))),
        top_logprobs=Chained([None], Lazily(prompt.scores, lambda entry: _most_likely(names, entry, count))),
        text_offset=_offsets(names.tokenizer, prompt.tokens, echo),
    )


def joined(echo: CompletionLogprobs, text: CompletionLogprobs) -> CompletionLogprobs:
    """Those of an echo, and of the text that follows it."""
    return CompletionLogprobs(
        tokens=Chained(echo.tokens, text.tokens),
        token_logprobs=Chained(echo.token_logprobs, text.token_logprobs),
        top_logprobs=Chained(echo.top_logprobs, text.top_logprobs),
        text_offset=Chained(echo.text_offset, text.text_offset),
    )


def prompt_logprobs(tokenizer: Tokenizer, prompt: ScoredPrompt) -> PromptLogprobs:
    return Chained([None], Lazily(prompt.scores, lambda entry: _ranked(tokenizer, entry)))


def _each(shown: Sequence[ShownToken], make: Callable[[ShownToken], Item]) -> Sequence[Item]:
    """Rendered tokens; those that were gathered, perhaps very many, are rendered as they are read."""
    return [make(token) for token in shown] if isinstance(shown, list | tuple) else Lazily(shown, make)


def _ranked(tokenizer: Tokenizer, entry: TokenLogprobs) -> dict[str, RankedLogprob]:
    return {
        str(token): RankedLogprob(max(value, LOWEST), rank, tokenizer.token_text(token))
        for token, value, rank in entry.ranked()
    }


def _most_likely(names: TokenNames, entry: TokenLogprobs, count: int | None = None) -> dict[str, float]:
    """The `count` most likely tokens and the chosen one, so there may be one more than asked for."""
    return {
        names.name(token): max(value, LOWEST)
        for token, value in [*entry.top[:count], (entry.token, entry.logprob)]
    }


def _offsets(tokenizer: Tokenizer, tokens: Sequence[int], echo: str) -> list[int]:
    """Where the text of each token begins in an echo, in characters.

    They are found from its end on: a prompt that was cut has its last tokens, and is echoed whole. Special
    tokens that an echo does not spell take no room.
    """
    offsets, begin = [], len(echo)
    for token, piece in zip(reversed(tokens), reversed(_pieces(tokenizer, tokens)), strict=True):
        if token not in tokenizer.special_ids or echo.endswith(piece, 0, begin):
            begin = max(0, begin - len(piece))
        offsets.append(begin)
    return offsets[::-1]


def _pieces(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[str]:
    """The text of each token, a character that is spread over several with the last. Joined, that of all."""
    text, pieces = detokenizer(tokenizer, skip_special_tokens=False), [""]
    for token in tokens:
        flushed = text.flushed_by(token)
        added = text.feed(token)
        pieces[-1] += added[:flushed]
        pieces.append(added[flushed:])
    pieces[-1] += text.flush()
    return pieces[1:]


def chat_logprobs(names: TokenNames, shown: Sequence[ShownToken]) -> ChatLogprobs:
    return ChatLogprobs(_each(shown, lambda token: _chat_token(names, token)))


def _chat_token(names: TokenNames, shown: ShownToken) -> ChatTokenLogprob:
    entry = shown.logprobs
    top = [
        TopLogprob(names.name(token), max(value, LOWEST), names.bytes(token)) for token, value in entry.top
    ]
    name, spelling = names.name(entry.token), names.bytes(entry.token)
    return ChatTokenLogprob(name, max(entry.logprob, LOWEST), spelling, top)
