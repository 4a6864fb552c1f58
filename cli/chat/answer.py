"""What a server streams for an answer: text, reasoning, and pieces of tool calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

__all__ = ["Answer", "Call", "Piece"]


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
    tool_calls: list[_CallPiece] | None = None

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


@dataclass
class Answer:
    """An answer as far as it has come."""

    text: str = ""
    _calls: dict[int, Call] = field(default_factory=dict)

    def add(self, piece: Piece) -> None:
        """Add a piece."""
        self.text += piece.content or ""
        for part in piece.tool_calls or ():
            call = self._calls.setdefault(part.index, Call(part.id or f"call_{part.index}"))
            if part.function is not None:
                call.name += part.function.name or ""
                call.arguments += part.function.arguments or ""

    @property
    def calls(self) -> list[Call]:
        return list(self._calls.values())

    def message(self, *, calls: bool) -> dict[str, Any]:
        """The answer as a message of the conversation, with its calls or without."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if calls and self._calls:
            message["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in self.calls
            ]
        return message
