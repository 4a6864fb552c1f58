"""What the events of a streamed answer say, as far as a measurement needs it."""

from __future__ import annotations

import msgspec

__all__ = ["Event", "PooledAnswer", "TokenUsage"]


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None

    @property
    def said(self) -> str:
        if self.delta is None:
            return self.text or ""
        return self.delta.content or self.delta.reasoning_content or ""


class TokenUsage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Event(msgspec.Struct):
    """The content of one ``data:`` line of completions or of chat."""

    choices: list[_Choice] = []
    usage: TokenUsage | None = None
    error: dict[str, object] | str | None = None

    @property
    def text(self) -> str:
        return self.choices[0].said if self.choices else ""

    @property
    def brings_tokens(self) -> bool:
        """True also where their text is not there yet; but the opening message of a chat has only a role."""
        if not self.choices:
            return False
        choice = self.choices[0]
        return bool(choice.said) or (choice.delta is None and choice.finish_reason is None)

    @property
    def ends(self) -> bool:
        return bool(self.choices) and self.choices[0].finish_reason is not None


class PooledAnswer(msgspec.Struct):
    """An answer with embeddings, or with a ranking."""

    data: msgspec.Raw = msgspec.Raw()
    results: msgspec.Raw = msgspec.Raw()
    usage: TokenUsage | None = None
