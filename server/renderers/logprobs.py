"""Renders log-probabilities in the two forms of OpenAI's APIs, and a prompt's in vLLM's."""

from __future__ import annotations

from collections.abc import Sequence

from turnout.core.types.logprobs import TokenLogprobs
from turnout.server.generation.generation import ScoredPrompt
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

LOWEST = -9999.0
"""OpenAI's stand-in for minus infinity, which JSON cannot express."""


def completion_logprobs(names: TokenNames, shown: Sequence[ShownToken], start: int = 0) -> CompletionLogprobs:
    """Of tokens shown. `start`: where the choice's text begins, in characters."""
    entries = [token.logprobs for token in shown]
    return CompletionLogprobs(
        tokens=[names.name(entry.token) for entry in entries],
        token_logprobs=[max(entry.logprob, LOWEST) for entry in entries],
        top_logprobs=[_most_likely(names, entry, len(entry.top)) for entry in entries],
        text_offset=[start + token.offset for token in shown],
    )


def echo_logprobs(names: TokenNames, prompt: ScoredPrompt, count: int) -> CompletionLogprobs:
    """An echoed prompt's, with the `count` most likely tokens. Its first token has none."""
    return CompletionLogprobs(
        tokens=[names.name(token) for token in prompt.tokens],
        token_logprobs=[None, *(max(entry.logprob, LOWEST) for entry in prompt.scores)],
        top_logprobs=[None, *(_most_likely(names, entry, count) for entry in prompt.scores)],
        text_offset=_offsets(names.tokenizer, prompt.tokens),
    )


def joined(echo: CompletionLogprobs, text: CompletionLogprobs) -> CompletionLogprobs:
    """Those of an echo, and of the text that follows it."""
    return CompletionLogprobs(
        tokens=echo.tokens + text.tokens,
        token_logprobs=echo.token_logprobs + text.token_logprobs,
        top_logprobs=echo.top_logprobs + text.top_logprobs,
        text_offset=echo.text_offset + text.text_offset,
    )


def prompt_logprobs(tokenizer: Tokenizer, prompt: ScoredPrompt) -> PromptLogprobs:
    return [None, *(_ranked(tokenizer, entry) for entry in prompt.scores)]


def _ranked(tokenizer: Tokenizer, entry: TokenLogprobs) -> dict[str, RankedLogprob]:
    return {
        str(token): RankedLogprob(max(value, LOWEST), rank, tokenizer.token_text(token))
        for token, value, rank in entry.ranked()
    }


def _most_likely(names: TokenNames, entry: TokenLogprobs, count: int) -> dict[str, float]:
    """The `count` most likely tokens and the chosen one, so there may be one more than asked for."""
    return {
        names.name(token): max(value, LOWEST)
        for token, value in [*entry.top[:count], (entry.token, entry.logprob)]
    }


def _offsets(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[int]:
    """Where the text of each token begins, in characters."""
    text, offsets, end = detokenizer(tokenizer, skip_special_tokens=False), [], 0
    for token in tokens:
        offsets.append(end)
        end += len(text.feed(token))
    return offsets


def chat_logprobs(names: TokenNames, shown: Sequence[ShownToken]) -> ChatLogprobs:
    return ChatLogprobs([_chat_token(names, token) for token in shown])


def _chat_token(names: TokenNames, shown: ShownToken) -> ChatTokenLogprob:
    entry = shown.logprobs
    top = [
        TopLogprob(names.name(token), max(value, LOWEST), names.bytes(token)) for token, value in entry.top
    ]
    name, spelling = names.name(entry.token), names.bytes(entry.token)
    return ChatTokenLogprob(name, max(entry.logprob, LOWEST), spelling, top)
