"""Reads one tool call, as a format writes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from turnout.core.types.output_format import JSON, Body, JsonCall, NamedCall, PythonCall
from turnout.text.output.events import Event, ToolArguments, ToolBegin, ToolEnd
from turnout.text.output.reading.json_values import read_object, read_string, skip_value
from turnout.text.output.reading.source import Malformed, Reading, Source
from turnout.text.output.reading.surrogates import WholePairs
from turnout.text.output.reading.values import read_pairs, read_value
from turnout.text.output.reading.xml_reader import read_arguments, read_name
from turnout.text.output.tools import Tool

__all__ = ["CallReader"]

NAME = re.compile(r"[\w.:/-]*")


@dataclass
class CallReader:
    """Reads the body of a call; its events go to `emit`. A body that is malformed raises Malformed."""

    source: Source
    index: int
    emit: Callable[[Event], None]
    tools: Mapping[str, Tool]
    """The tools by their names: the schema says what a value without quotes is."""
    marked: bool = True
    """A marker shows that it is a call. Without one, only the name of a tool does."""
    begun: bool = field(default=False, init=False)
    """The call has a name, which a client may have been told."""
    _pairs: WholePairs = field(default_factory=WholePairs, init=False)

    def read(self, body: Body, close: str) -> Reading[None]:
        """Reads a body. close: the marker behind it."""
        if isinstance(body, JsonCall):
            yield from self._json(body)
        elif isinstance(body, NamedCall):
            yield from self._named(body)
        elif isinstance(body, PythonCall):
            yield from self._python(body)
        else:
            name = yield from read_name(self.source, body, close)
            self._begin(name)
            yield from read_arguments(self.source, body, self.tools.get(name), self._argue)
        self.emit(ToolEnd(self.index))

    def _json(self, body: JsonCall) -> Reading[None]:
        """Reads an object. Without a marker it begins a call where its arguments come, or where it ends with
        nothing but a name: an answer in JSON may have a tool's name, too."""
        source = self.source
        early: list[str] = []  # arguments that came before the name
        name = ""
        complete = others = False
        yield from source.expect("{")
        while True:
            yield from source.skip_white_space()
            key = yield from read_string(source)
            yield from source.skip_white_space()
            yield from source.expect(":")
            yield from source.skip_white_space()
            if key == body.name:
                name = self._known((yield from read_string(source)))
                if self.marked or early:
                    self._begin(name)
                    self._argue("".join(early))
            elif key == body.arguments:
                complete = True
                if name and not self.begun and (yield from source.starts_with(("{",))) is not None:
                    self._begin(name)
                yield from read_object(source, self._argue if self.begun else early.append)
            else:
                others = True
                yield from skip_value(source)
            yield from source.skip_white_space()
            if (yield from source.starts_with((",",))) is None:
                break
            source.take(1)
        yield from source.expect("}")
        if not self.begun:
            if others:
                raise Malformed
            self._begin(name)
        if not complete:
            self._argue("{}")

    def _named(self, body: NamedCall) -> Reading[None]:
        source = self.source
        if body.separators:
            pieces: list[str] = []
            # The longest first: one separator may begin with another.
            separators = sorted(body.separators, key=len, reverse=True)
            if (yield from source.until(separators, pieces.append)) is None:
                raise Malformed
            name = "".join(pieces).strip()
        else:
            name = yield from self._word()
        if body.number:
            name = re.sub(f"{re.escape(body.number)}[0-9]+$", "", name)
        self._begin(name)
        yield from source.skip_white_space()
        if body.notation == JSON:
            yield from read_object(source, self._argue)
        elif (yield from source.starts_with(("{",))) is None:
            raise Malformed
        else:
            yield from read_value(source, body.notation, self._argue)

    def _python(self, body: PythonCall) -> Reading[None]:
        name = yield from self._word()
        yield from self.source.expect("(")
        self._begin(name)
        yield from read_pairs(self.source, "=", ")", body.notation, self._argue)

    def _word(self) -> Reading[str]:
        """Takes a name that ends where something else begins. Raises Malformed where none is."""
        while True:
            found = NAME.match(self.source.text)
            assert found is not None
            if found.end() < len(self.source.text):
                if not found[0]:
                    raise Malformed
                return self.source.take(found.end())
            if not (yield from self.source.more()):
                raise Malformed

    def _known(self, name: str) -> str:
        """Returns the name. Raises Malformed where it begins no call, or a second one."""
        if self.begun or not name or not (self.marked or name in self.tools):
            raise Malformed
        return name

    def _begin(self, name: str) -> None:
        self._known(name)
        self.begun = True
        self.emit(ToolBegin(self.index, name))

    def _argue(self, text: str) -> None:
        if told := self._pairs.feed(text):
            self.emit(ToolArguments(self.index, told))
