"""Log-probabilities in the two forms that OpenAI's endpoints have."""

from __future__ import annotations

from collections.abc import Sequence

from turnout.server.protocol.responses import (
    ChatLogprobs,
    ChatTokenLogprob,
    CompletionLogprobs,
    TopLogprob,
)
from turnout.text.choice import ShownToken
from turnout.text.tokenizer import Tokenizer

__all__ = ["chat_logprobs", "completion_logprobs"]

LOWEST = -9999.0
"""OpenAI's stand-in for minus infinity, which JSON has no word for."""


def completion_logprobs(tokenizer: Tokenizer, shown: Sequence[ShownToken]) -> CompletionLogprobs:
    entries = [token.logprobs for token in shown]
    return CompletionLogprobs(
        tokens=[_name(tokenizer, entry.token) for entry in entries],
        token_logprobs=[max(entry.logprob, LOWEST) for entry in entries],
        # The chosen token is always among them, so that there may be one more than asked for.
        top_logprobs=[
            {
                _name(tokenizer, token): max(value, LOWEST)
                for token, value in [*entry.top, (entry.token, entry.logprob)]
            }
            for entry in entries
        ],
        text_offset=[token.offset for token in shown],
    )


def chat_logprobs(tokenizer: Tokenizer, shown: Sequence[ShownToken]) -> ChatLogprobs:
    return ChatLogprobs([_chat_token(tokenizer, token) for token in shown])


def _chat_token(tokenizer: Tokenizer, shown: ShownToken) -> ChatTokenLogprob:
    entry = shown.logprobs
    top = [
        TopLogprob(_name(tokenizer, token), max(value, LOWEST), _bytes(tokenizer, token))
        for token, value in entry.top
    ]
    name, spelling = _name(tokenizer, entry.token), _bytes(tokenizer, entry.token)
    return ChatTokenLogprob(name, max(entry.logprob, LOWEST), spelling, top)


def _name(tokenizer: Tokenizer, token: int) -> str:
    """Its text, or ``bytes:\\xe4\\xbd`` for part of a character: every such token has a name of its own."""
    spelling = tokenizer.token_bytes(token) or b""
    try:
        return spelling.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelling)


def _bytes(tokenizer: Tokenizer, token: int) -> list[int] | None:
    spelling = tokenizer.token_bytes(token)
    return None if spelling is None else list(spelling)
