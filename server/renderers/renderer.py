"""Renders a generation as an API's response: its body in one piece, or events as the text comes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import msgspec

from turnout.server.generation.generation import Generation
from turnout.server.http.errors import error_body
from turnout.server.http.json_slices import encoded_pieces
from turnout.text.choice_text import TextDelta
from turnout.text.output.events import Event, Text, merged

__all__ = ["Renderer", "event", "event_pieces", "named_event", "parts_of"]


class Renderer(ABC):
    """One response. Only renderers know an API's form: what is generated is the same for all of them."""

    media_type: ClassVar[str] = "text/event-stream"
    """What a stream of it is."""

    @abstractmethod
    def whole(self, choices: Sequence[TextDelta], generation: Generation) -> msgspec.Struct:
        """The body of a response in one piece; `choices` are those to return, each complete."""

    @abstractmethod
    def opening(self, choice: int, generation: Generation) -> Iterable[bytes]:
        """Events that come before any text of a choice, in pieces; may be empty."""

    @abstractmethod
    def delta(self, delta: TextDelta, generation: Generation) -> bytes:
        """The events of a text delta."""

    @abstractmethod
    def closing(self, generation: Generation) -> bytes:
        """Events that come after a generation that has ended well; may be empty."""

    async def keep(self, generation: Generation) -> None:
        """Stores what has been rendered, where the API stores responses.

        Called when the generation has ended, before the body is sent or the closing events are rendered.
        """
        return

    def error(self, error: Exception) -> bytes:
        """The event of an error, in place of what would have come."""
        return event(error_body(error))

    def end(self) -> bytes:
        """What comes last, after an error too."""
        return b"data: [DONE]\n\n"


def event(content: msgspec.Struct) -> bytes:
    """A server-sent event, its data as JSON."""
    return b"data: " + msgspec.json.encode(content) + b"\n\n"


def event_pieces(content: msgspec.Struct) -> Iterator[bytes]:
    """A server-sent event that may be large: it may have a prompt's log-probabilities."""
    yield b"data: "
    yield from encoded_pieces(content)
    yield b"\n\n"


def named_event(name: str, content: object) -> bytes:
    """A server-sent event with a name."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(content) + b"\n\n"


def parts_of(delta: TextDelta, generation: Generation) -> list[Event]:
    """The parts of the output that a delta completes; where they are not told apart, all of it is text."""
    if generation.splitter is None:
        return [Text(delta.text)] if delta.text else []
    return merged(delta.events)
