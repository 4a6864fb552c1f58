"""What an output consists of, as every API's renderer gets it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

import msgspec

__all__ = ["Event", "Reasoning", "Text", "ToolArguments", "ToolBegin", "ToolEnd", "ToolInput", "merged"]


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
    custom: bool = False
    """It is a custom tool: its input follows, not arguments."""


class ToolArguments(msgspec.Struct, frozen=True):
    """A piece of a call's arguments: all of them joined are a JSON object."""

    index: int
    text: str


class ToolInput(msgspec.Struct, frozen=True):
    """A piece of the text that a custom tool is called with."""

    index: int
    text: str


class ToolEnd(msgspec.Struct, frozen=True):
    """A tool call is complete."""

    index: int


Event = Text | Reasoning | ToolBegin | ToolArguments | ToolInput | ToolEnd


def merged(events: Iterable[Event]) -> list[Event]:
    """The same events with neighbours of one kind joined, so that it does not show how an output was cut."""
    return [event for kind, run in groupby(events, type) for event in _joined(kind, list(run))]


def _joined(kind: type[Event], run: list[Any]) -> list[Event]:
    if len(run) == 1 or kind in (ToolBegin, ToolEnd):
        return run
    return [msgspec.structs.replace(run[0], text="".join(event.text for event in run))]
