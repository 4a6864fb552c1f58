"""Tells the calls of custom tools from those of functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from turnout.core.types.output_format import OutputFormat, Region
from turnout.text.output.custom_tools import InputReader
from turnout.text.output.events import Event, ToolArguments, ToolBegin, ToolInput
from turnout.text.output.reading.splitter import OutputSplitter
from turnout.text.output.tools import Tool

__all__ = ["CustomCallSplitter"]


class CustomCallSplitter(OutputSplitter):
    """An `OutputSplitter` whose calls of custom tools have their input in place of arguments."""

    def __init__(
        self,
        format: OutputFormat,
        tools: Sequence[Tool],
        within: Region | None = None,
        *,
        either: bool = False,
    ) -> None:
        """As of `OutputSplitter`."""
        super().__init__(format, tools, within, either=either)
        self._custom = frozenset(tool.name for tool in tools if tool.custom)
        self._input: InputReader | None = None
        """Reads the call that is open; None: it is a function's."""

    def _go_on(self) -> list[Event]:
        return [told for event in super()._go_on() for told in self._told(event)]

    def _told(self, event: Event) -> Iterator[Event]:
        if isinstance(event, ToolBegin):
            custom = event.name in self._custom
            self._input = InputReader() if custom else None
            yield ToolBegin(event.index, event.name, custom)
        elif isinstance(event, ToolArguments) and self._input is not None:
            if text := self._input.feed(event.text):
                yield ToolInput(event.index, text)
        else:
            yield event
