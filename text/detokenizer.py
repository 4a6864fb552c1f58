"""Turns tokens into text as they come, whole characters at a time.

The pieces joined are what decoding all tokens at once gives. The cost of a token does not grow with their
number.
"""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Sequence

from turnout.text.token_bytes import TokenBytes
from turnout.text.tokenizer import Tokenizer

__all__ = ["Detokenizer", "detokenizer"]

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
CHARACTER_TOKENS = 4
"""A character has at most four bytes, so it is spread over at most four tokens."""
PROMPT_TOKENS = 5
"""How many of the prompt's last tokens to decode with the first token."""


def detokenizer(
    tokenizer: Tokenizer,
    *,
    skip_special_tokens: bool = True,
    prompt: Sequence[int] = (),
    shown: frozenset[int] = frozenset(),
) -> Detokenizer:
    """The detokenizer for a tokenizer. `prompt` decides for some whether the output begins with a space.

    shown: special tokens that are not skipped.
    """
    hidden = tokenizer.special_ids - shown if skip_special_tokens else frozenset[int]()
    if tokenizer.bytes_of is not None:
        return _Bytewise(tokenizer.bytes_of, hidden)
    return _Windowed(tokenizer, hidden, prompt)


class Detokenizer(ABC):
    """Incremental decoding of one sequence."""

    @abstractmethod
    def feed(self, token: int) -> str:
        """The text that is complete with `token`; may be empty."""

    @abstractmethod
    def flushed_by(self, token: int) -> int:
        """Characters that feeding `token` would give before its own text.

        They are U+FFFD: what is held back and the token does not complete.
        """

    @abstractmethod
    def flush(self) -> str:
        """The text left at the end; an incomplete character becomes U+FFFD."""

    @property
    @abstractmethod
    def holding(self) -> bool:
        """Part of a character is held back."""


class _Bytewise(Detokenizer):
    """For byte-level vocabularies, where a token stands for the same bytes whatever its neighbours are."""

    def __init__(self, bytes_of: TokenBytes, hidden: frozenset[int]) -> None:
        self._bytes_of = bytes_of
        self._hidden = hidden
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token: int) -> str:
        return "" if token in self._hidden else self._decoder.decode(self._bytes_of(token))

    def flushed_by(self, token: int) -> int:
        held, _ = self._decoder.getstate()
        if not held or token in self._hidden:
            return 0
        # The token's text begins with the character that has its first byte, perhaps the one that is held.
        return len((held + self._bytes_of(token)[:1]).decode(errors="replace")) - 1

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)

    @property
    def holding(self) -> bool:
        return bool(self._decoder.getstate()[0])


class _Windowed(Detokenizer):
    """For all other vocabularies: decodes a window that begins one piece back, so that neighbours are in it.

    `tokenizers.decoders.DecodeStream` does not serve: among invalid bytes it raises "Invalid prefix
    encountered" where an unknown token follows them, and it decodes a run of them anew for each byte, in
    quadratic time. For byte-level vocabularies it takes more than twice as long as `_Bytewise`.

    ::

        tokens  ... emitted ... [ last piece | pending ]
                                  window ............
    """

    def __init__(self, tokenizer: Tokenizer, hidden: frozenset[int], prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._hidden = hidden
        self._last = [token for token in prompt[-PROMPT_TOKENS:] if token not in hidden]
        self._pending: list[int] = []

    def feed(self, token: int) -> str:
        if self._has_no_text(token):
            return ""
        self._pending.append(token)
        before, after = self._decode(self._last), self._decode(self._last + self._pending)
        if _is_incomplete(after, self._pending):
            return ""
        # A token without text, such as a leading space that is dropped, is a neighbour of the next one too.
        self._last = self._pending if len(after) > len(before) else self._last + self._pending
        self._pending = []
        return after[len(before) :]

    def flushed_by(self, token: int) -> int:
        if not self._pending or self._has_no_text(token):
            return 0
        held = self._decode(self._last + self._pending)
        pending = [*self._pending, token]
        after = self._decode(self._last + pending)
        if _is_incomplete(after, pending) or not after.startswith(held):
            return 0
        return len(held) - len(self._decode(self._last))

    def flush(self) -> str:
        before, after = self._decode(self._last), self._decode(self._last + self._pending)
        self._last, self._pending = self._last + self._pending, []
        return after[len(before) :]

    @property
    def holding(self) -> bool:
        return bool(self._pending)

    def _has_no_text(self, token: int) -> bool:
        return token in self._hidden or self._tokenizer.backend.id_to_token(token) is None

    def _decode(self, tokens: list[int]) -> str:
        return self._tokenizer.decode(tokens, skip_special_tokens=False)


def _is_incomplete(text: str, pending: list[int]) -> bool:
    """Whether what pending tokens add at the end of a text may be part of a character."""
    return text.endswith(REPLACEMENT) and len(pending) < CHARACTER_TOKENS
