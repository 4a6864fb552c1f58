"""Renders a generation as an API's response: its body in one piece, or events as the text comes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from turnout.server.generation.generation import Generation
from turnout.server.http.errors import error_body
from turnout.server.http.json_slices import encode_in_slices
from turnout.text.choice_text import TextDelta

__all__ = ["Renderer", "event"]


class Renderer(ABC):
    """One response. Only renderers know an API's form: what is generated is the same for all of them."""

    @abstractmethod
    def whole(self, choices: Sequence[TextDelta], generation: Generation) -> msgspec.Struct:
        """The body of a response in one piece; `choices` are those to return, each complete."""

    @abstractmethod
    def opening(self, choice: int, generation: Generation) -> bytes:
        """Events that come before any text of a choice; may be empty."""

    @abstractmethod
    def delta(self, delta: TextDelta, generation: Generation) -> bytes:
        """The events of a text delta."""

    @abstractmethod
    def closing(self, generation: Generation) -> bytes:
        """Events that come after a generation that has ended well; may be empty."""

    def error(self, error: Exception) -> bytes:
        """The event of an error, in place of what would have come."""
        return event(error_body(error))

    def end(self) -> bytes:
        """What comes last, after an error too."""
        return b"data: [DONE]\n\n"


def event(content: msgspec.Struct) -> bytes:
    """A server-sent event, its data as JSON. It may be large: it may have a prompt's log-probabilities."""
    return b"data: " + encode_in_slices(content) + b"\n\n"
