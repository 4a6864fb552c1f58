"""Output formats: how a model family writes reasoning and tool calls into its outputs.

A format is data. From the same data come the splitter, which tells the parts of an output apart as it comes,
and the grammar, by which a model can write no call that is not valid.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "JSON",
    "PYTHON",
    "Body",
    "Calls",
    "JsonCall",
    "NamedCall",
    "Notation",
    "OutputFormat",
    "PythonCall",
    "Region",
    "XmlCall",
]


class Region(msgspec.Struct, frozen=True):
    """A part of an output between two markers."""

    kind: Literal["reasoning", "text", "skip"]
    """What the part is; one that is to be skipped is shown to no client."""
    open: str
    """The marker that begins it."""
    close: str
    """The marker that ends it; the end of the output does, too."""


class Notation(msgspec.Struct, frozen=True):
    """How values are written that are not quite JSON. Numbers, lists and objects are as in JSON."""

    quote: str = ""
    """Stands before and behind a string, in which nothing is escaped. Empty: strings are as in JSON."""
    bare_keys: bool = False
    """An object's keys stand without quotes."""
    true: str = "true"
    """How the model writes what JSON calls true."""
    false: str = "false"
    """How it writes false."""
    null: str = "null"
    """How it writes null."""


JSON = Notation()
PYTHON = Notation(true="True", false="False", null="None")


class JsonCall(msgspec.Struct, frozen=True, tag=True):
    """A call as a JSON object: ``{"name": "f", "arguments": {…}}``."""

    name: str = "name"
    """The key of the tool's name."""
    arguments: str = "arguments"
    """The key of the arguments."""


class NamedCall(msgspec.Struct, frozen=True, tag=True):
    """A call as the tool's name, a separator, and the arguments as an object."""

    separators: tuple[str, ...] = ()
    """What may stand between name and arguments. The grammar has the model write the first. Without any, the
    arguments' brace ends the name."""
    number: str = ""
    """What stands between the name and the call's number in the message, if calls are numbered."""
    notation: Notation = JSON
    """How the arguments are written."""


class PythonCall(msgspec.Struct, frozen=True, tag=True):
    """A call as Python has it: ``f(a=1, b="x")``."""

    notation: Notation = PYTHON
    """How the arguments are written."""


class XmlCall(msgspec.Struct, frozen=True, tag=True):
    """A call as the tool's name, and tags around each argument's key and value.

    Strings stand as they are, whatever their schema calls a string; other values are JSON.
    """

    key: tuple[str, str]
    """What stands before and behind an argument's key."""
    value: tuple[str, str]
    """What stands before and behind its value; before it may be nothing."""
    before: str = ""
    """What stands before the tool's name."""
    after: str = ""
    """What stands behind it."""
    end: str = ""
    """What ends the arguments."""
    lines: bool = False
    """A value has lines of its own: one line break before it and one behind it are no part of it."""


Body = JsonCall | NamedCall | PythonCall | XmlCall
"""How a call is written between the markers around it."""


class Calls(msgspec.Struct, frozen=True):
    """How tool calls are written: ``before lead open BODY close between open BODY close after``.

    White space may stand before each part but the first.
    """

    body: Body
    """What stands between ``open`` and ``close``."""
    open: str = ""
    """Begins a call. A message that begins with a call needs no marker: both `before` and this may be empty,
    where `lead` or the body, a `JsonCall`, shows that it is one, with the name of a tool that is offered."""
    close: str = ""
    """Ends a call."""
    before: str = ""
    """Comes once, before the first call."""
    lead: str = ""
    """Comes after `before`: what opens a list of calls, or the first of them."""
    between: str = ""
    """Comes between calls."""
    after: str = ""
    """Comes once, after the last call."""
    around: tuple[str, str] = ("", "")
    """Special tokens that may stand around calls which have no marker."""

    @property
    def marker(self) -> str:
        """What tells the first call from text; empty: the message begins with a call, or has none."""
        return self.before if self.lead else self.before + self.open


class OutputFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How a family of models writes its outputs."""

    found_by: tuple[str, ...]
    """Texts that a chat template holds, all of them, if its model writes this format."""
    calls: Calls | None = None
    """How tools are called; None: they are not."""
    regions: tuple[Region, ...] = ()
    """The parts that markers tell apart. In a format whose `outside` is text, one begins an output or does
    not occur: later, its marker is text."""
    outside: Literal["text", "skip"] = "text"
    """What is between the regions and calls: the answer's text, or headers that no client sees."""
    between: str = ""
    """What stands between regions where `outside` is to be skipped."""
