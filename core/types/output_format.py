"""Output formats: how a model family writes reasoning and tool calls into its outputs.

A format is data. From the same data come the splitter, which tells the parts of an output apart as it comes,
and the grammar, by which a model can write no call that is not valid.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Body", "Calls", "JsonCall", "NamedCall", "OutputFormat", "Region"]


class Region(msgspec.Struct, frozen=True):
    """A part of an output between two markers."""

    kind: Literal["reasoning", "text", "skip"]
    """What the part is; one that is to be skipped is shown to no client."""
    open: str
    """The marker that begins it."""
    close: str
    """The marker that ends it; the end of the output does, too."""


class JsonCall(msgspec.Struct, frozen=True, tag=True):
    """A call as a JSON object: ``{"name": "f", "arguments": {…}}``."""

    name: str = "name"
    """The key of the tool's name."""
    arguments: str = "arguments"
    """The key of the arguments."""


class NamedCall(msgspec.Struct, frozen=True, tag=True):
    """A call as the tool's name, a separator, and the arguments as a JSON object."""

    separators: tuple[str, ...]
    """What may stand between name and arguments. The grammar has the model write the first."""


Body = JsonCall | NamedCall
"""How a call is written between the markers around it."""


class Calls(msgspec.Struct, frozen=True):
    """How tool calls are written: ``before lead open BODY close between open BODY close after``.

    White space may stand before each part but the first.
    """

    body: Body
    """What stands between ``open`` and ``close``."""
    open: str = ""
    """Begins a call. A message that begins with a call needs no marker: both `before` and this may be empty,
    where the body is a `JsonCall`."""
    close: str = ""
    """Ends a call."""
    before: str = ""
    """Comes once, before the first call."""
    lead: str = ""
    """Comes after `before`: what opens a list of calls that has no `open`."""
    between: str = ""
    """Comes between calls."""
    after: str = ""
    """Comes once, after the last call."""

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
