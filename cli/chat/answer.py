"""What a server streams for an answer: text, reasoning, and pieces of tool calls."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import msgspec

__all__ = ["Answer", "Call", "Piece"]

WHOLE = ("stop", "tool_calls", "function_call")
"""Reasons for which an answer ends where the model ends it."""


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _CallPiece(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function | None = None


class Piece(msgspec.Struct):
    """A delta of a chat completion."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    """The same, under vLLM's newer name."""
    refusal: str | None = None
    """Why the model does not answer, in place of `content`."""
    tool_calls: list[_CallPiece] | None = None
    finish_reason: str | None = None
    """Why the answer ends, in its last piece: the choice has it beside the delta."""

    @property
    def thought(self) -> str:
        return self.reasoning_content or self.reasoning or ""


@dataclass
class Call:
    """A tool call."""

    id: str
    name: str = ""
    arguments: str = ""
    """A JSON object, unless it was cut short."""

    @property
    def complete(self) -> bool:
        """Whether the arguments are a JSON object."""
        try:
            return isinstance(json.loads(self.arguments), dict)
        except (ValueError, RecursionError):
            return False


@dataclass
class Answer:
    """An answer as far as it has come."""

    text: str = ""
    refusal: str = ""
    finish_reason: str | None = None
    _calls: dict[int, Call] = field(default_factory=dict)

    def add(self, piece: Piece) -> None:
        """Add a piece."""
        self.text += piece.content or ""
        self.refusal += piece.refusal or ""
        self.finish_reason = piece.finish_reason or self.finish_reason
        for part in piece.tool_calls or ():
            call = self._calls.setdefault(part.index, Call(part.id or f"call_{part.index}"))
            if part.function is not None:
                call.name += part.function.name or ""
                call.arguments += part.function.arguments or ""

    @property
    def calls(self) -> list[Call]:
        return list(self._calls.values())

    @property
    def cut(self) -> str | None:
        """Why the answer is not whole, as the server names it; None: it is, or the server gives no reason."""
        return None if self.finish_reason in WHOLE else self.finish_reason

    def message(self, *, calls: bool) -> dict[str, Any]:
        """The answer as a message of the conversation, with its calls or without.

        A call whose arguments were cut short has none there: servers refuse what is no JSON object.
        """
        message: dict[str, Any] = {"role": "assistant", "content": self._content()}
        if calls and self._calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments if call.complete else "{}"},
                }
                for call in self.calls
            ]
        return message

    def _content(self) -> str | list[dict[str, str]]:
        if not self.refusal:
            return self.text
        text = [{"type": "text", "text": self.text}] if self.text else []
        return [*text, {"type": "refusal", "refusal": self.refusal}]
