"""What an output consists of, as every API's renderer gets it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

__all__ = ["Event", "Reasoning", "Text", "ToolArguments", "ToolBegin", "ToolEnd", "merged"]


class Text(msgspec.Struct, frozen=True):
    """A piece of the answer's text."""

    text: str


class Reasoning(msgspec.Struct, frozen=True):
    """A piece of the reasoning before the answer."""

    text: str


class ToolBegin(msgspec.Struct, frozen=True):
    """A tool call begins."""

    index: int
    """Which call of the choice it is, from 0."""
    name: str
    """The tool's name."""


class ToolArguments(msgspec.Struct, frozen=True):
    """A piece of a call's arguments: all of them joined are a JSON object."""

    index: int
    text: str


class ToolEnd(msgspec.Struct, frozen=True):
    """A tool call is complete."""

    index: int


Event = Text | Reasoning | ToolBegin | ToolArguments | ToolEnd


def merged(events: Iterable[Event]) -> list[Event]:
    """The same events with neighbours of one kind joined, so that it does not show how an output was cut."""
    joined: list[Event] = []
    for event in events:
        last = joined[-1] if joined else None
        if isinstance(event, Text | Reasoning) and type(last) is type(event):
            joined[-1] = type(event)(last.text + event.text)
        elif isinstance(event, ToolArguments) and isinstance(last, ToolArguments):
            joined[-1] = ToolArguments(event.index, last.text + event.text)
        else:
            joined.append(event)
    return joined
