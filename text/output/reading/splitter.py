"""Tells the parts of an output apart as it comes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from turnout.core.types.output_format import Calls, OutputFormat, Region
from turnout.text.output.events import Event, Reasoning, Text
from turnout.text.output.reading.call_reader import CallReader
from turnout.text.output.reading.source import WHITE_SPACE, Malformed, Reading, Source
from turnout.text.output.tools import Tool

__all__ = ["OutputSplitter"]


class OutputSplitter:
    """Turns the text of one choice into events: the same, once joined, however the text is cut."""

    def __init__(
        self,
        format: OutputFormat,
        tools: Iterable[Tool],
        within: Region | None = None,
        *,
        either: bool = False,
    ) -> None:
        """tools: those that the request offers; where there are none, a call is mere text.

        within: the region that the prompt ended in, such as the reasoning that a chat template has begun.
        either: an answer is text or calls, never both, as where its text has a form: markers in it are text.
        """
        self._format = format
        self._tools = {tool.name: tool for tool in tools}
        self._calls = format.calls if self._tools else None
        self._within = within
        self._either = either and format.outside == "text"
        self._source = Source()
        self._events: list[Event] = []
        self._space = ""
        self._call_from: int | None = None
        """Where what may be a call began, in characters, with the white space before it; None: in none."""
        self.answer: deque[tuple[int, int]] = deque()
        """Where the answer's text lies: from which character to before which. A reader may take them out."""
        self._count = 0
        self.reasons = False
        """What comes next is reasoning."""
        self.reasoned = 0
        """Characters of reasoning so far."""
        self._reading = self._message()
        next(self._reading, None)

    @property
    def calls(self) -> int:
        """Calls so far."""
        return self._count

    @property
    def calling(self) -> bool:
        """What comes next is part of a call."""
        return self._call_from is not None

    @property
    def decided(self) -> int:
        """Up to which character it is known what the output is."""
        return self._source.read - len(self._space) if self._call_from is None else self._call_from

    def feed(self, text: str) -> list[Event]:
        """Returns the events that `text` completes."""
        self._source.text += text
        return self._go_on()

    def finish(self) -> list[Event]:
        """Returns the last events."""
        self._source.ended = True
        return self._go_on()

    def _go_on(self) -> list[Event]:
        next(self._reading, None)
        events = self._events.copy()
        self._events.clear()
        return events

    # -------------------------------------------------------------- the message

    def _message(self) -> Reading[None]:
        source = self._source
        if self._within is not None:
            yield from self._region(self._within)
        elif self._format.outside == "text":
            yield from self._opening_region()
        if self._calls is not None and (self._either or not self._calls.marker):
            yield from self._calls_at_start(self._calls)
        regions = {} if self._format.outside == "text" else {each.open: each for each in self._format.regions}
        markers = list(regions)
        if self._calls is not None and self._calls.marker and not self._either:
            markers.append(self._calls.marker)
        show: Callable[[str], None] = self._say if self._format.outside == "text" else _ignore
        while (marker := (yield from source.until(markers, show))) is not None:
            if marker in regions:
                yield from self._region(regions[marker])
            else:
                assert self._calls is not None
                yield from self._call_list(self._calls, marker)
        if self._space and not self._count:
            self._add_text(self._space, 0)
        self._space = ""

    def _opening_region(self) -> Reading[None]:
        source = self._source
        opens = {each.open: each for each in self._format.regions}
        if not opens:
            return
        if (marker := (yield from source.comes_first(list(opens)))) is not None:
            source.take(len(marker))
            yield from self._region(opens[marker])

    def _region(self, region: Region) -> Reading[None]:
        if region.kind == "reasoning":
            yield from self._reasoning(region)
        else:
            yield from self._source.until([region.close], self._say if region.kind == "text" else _ignore)
        if region.kind != "text" and self._format.outside == "text":
            yield from self._source.skip_white_space()

    def _reasoning(self, region: Region) -> Reading[None]:
        thoughts = _Thoughts(self._events)

        def add(text: str) -> None:
            self.reasoned += len(text)
            thoughts.add(text)

        self.reasons = True
        yield from self._source.until([region.close], add)
        self.reasons = False

    # -------------------------------------------------------------- calls

    def _calls_at_start(self, calls: Calls) -> Reading[None]:
        words = (calls.marker,) if calls.marker else (calls.around[0], calls.lead or "{")
        if (found := (yield from self._source.comes_first(tuple(filter(None, words))))) is None:
            return
        before = self._source.take(len(found)) if found in (calls.marker, calls.around[0]) else ""
        yield from self._call_list(calls, before)

    def _call_list(self, calls: Calls, marker: str) -> Reading[None]:
        """Reads calls, from behind the marker of the first on. What is none after all is text."""
        self._source.remember()
        self._begin_call(marker)
        try:
            yield from self._calls_behind(calls, marker)
        finally:
            self._call_from = None

    def _begin_call(self, marker: str) -> None:
        self._call_from = self._source.position - len(marker) - len(self._space)

    def _calls_behind(self, calls: Calls, marker: str) -> Reading[None]:
        source = self._source
        if calls.lead:
            yield from source.skip_white_space()
            if not (yield from self._takes(calls.lead)):
                self._say(marker + source.forget())
                return
        while True:
            reader = CallReader(source, self._count, self._events.append, self._tools, bool(calls.marker))
            space, self._space = self._space, ""
            try:
                yield from source.skip_white_space()
                yield from reader.read(calls.body, calls.close)
                self._count += 1
            except Malformed:
                if reader.begun:
                    self._count += 1
                    if source.ended:
                        source.take(len(source.text))  # the beginning of an escape, or of a marker
                elif self._count and self._source.ended:
                    source.forget()  # the beginning of a further call, of which not even the name came
                else:
                    self._space = space
                    self._say(marker + source.forget())
                return
            source.forget()
            self._call_from = None
            if not (yield from self._another(calls)):
                return
            source.remember()
            marker = calls.open
            self._begin_call(marker)

    def _another(self, calls: Calls) -> Reading[bool]:
        """Takes what ends a call, and what begins the next; returns whether there is one."""
        yield from self._source.skip_white_space()
        if calls.close and (yield from self._takes(calls.close.strip())):
            yield from self._source.skip_white_space()
        if calls.after and (yield from self._takes(calls.after)):
            yield from self._source.skip_white_space()
            yield from self._end_of_calls(calls)
            return False
        if calls.between:
            if not (yield from self._takes(calls.between)):
                yield from self._end_of_calls(calls)
                return False
            yield from self._source.skip_white_space()
        if calls.open:
            return (yield from self._takes(calls.open))
        return bool(calls.between)

    def _end_of_calls(self, calls: Calls) -> Reading[None]:
        if calls.around[1] and (yield from self._takes(calls.around[1])):
            yield from self._source.skip_white_space()

    def _takes(self, word: str) -> Reading[bool]:
        """Takes a word, if it comes next; returns whether it did."""
        if (yield from self._source.starts_with((word,))) is None:
            return False
        self._source.take(len(word))
        return True

    # -------------------------------------------------------------- events

    def _say(self, text: str) -> None:
        """Emits text. White space at its end waits: before a call it is no part of the answer."""
        if self._calls is None:
            self._add_text(text, 0)
            return
        text = self._space + text
        said = text.rstrip(WHITE_SPACE)
        self._space = text[len(said) :]
        if said:
            self._add_text(said, len(self._space))

    def _add_text(self, text: str, behind: int) -> None:
        """Emits text that was taken, but for so many characters behind it, just now."""
        self._events.append(Text(text))
        end = self._source.position - behind
        start = end - len(text)
        if self.answer and self.answer[-1][1] == start:
            start, _ = self.answer.pop()
        self.answer.append((start, end))


class _Thoughts:
    """Reasoning without the white space around it."""

    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self._space: str | None = None
        """White space that is reasoning if more follows; None: nothing has come that is none."""

    def add(self, text: str) -> None:
        text = text.lstrip(WHITE_SPACE) if self._space is None else self._space + text
        said = text.rstrip(WHITE_SPACE)
        if said:
            self._events.append(Reasoning(said))
        if said or self._space is not None:
            self._space = text[len(said) :]


def _ignore(text: str) -> None:
    pass
