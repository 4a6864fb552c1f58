"""Reads one tool call, as a format writes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from turnout.core.types.output_format import JsonCall, NamedCall
from turnout.text.output.events import Event, ToolArguments, ToolBegin, ToolEnd
from turnout.text.output.json_values import read_object, read_string, skip_value
from turnout.text.output.source import Malformed, Reading, Source

__all__ = ["CallReader"]


@dataclass
class CallReader:
    """Reads the body of a call; its events go to `emit`. A body that is malformed raises Malformed."""

    source: Source
    index: int
    emit: Callable[[Event], None]
    begun: bool = field(default=False, init=False)
    """The call has a name, which a client may have been told."""

    def read(self, body: JsonCall | NamedCall) -> Reading[None]:
        """Reads a body."""
        if isinstance(body, JsonCall):
            yield from self._json(body)
        else:
            yield from self._named(body)
        self.emit(ToolEnd(self.index))

    def _json(self, body: JsonCall) -> Reading[None]:
        source = self.source
        early: list[str] = []  # arguments that came before the name
        complete = False
        yield from source.expect("{")
        while True:
            yield from source.skip_white_space()
            key = yield from read_string(source)
            yield from source.skip_white_space()
            yield from source.expect(":")
            yield from source.skip_white_space()
            if key == body.name:
                self._begin((yield from read_string(source)))
                if early:
                    self._argue("".join(early))
            elif key == body.arguments:
                complete = True
                yield from read_object(source, self._argue if self.begun else early.append)
            else:
                yield from skip_value(source)
            yield from source.skip_white_space()
            if (yield from source.starts_with((",",))) is None:
                break
            source.take(1)
        yield from source.expect("}")
        if not self.begun:
            raise Malformed
        if not complete:
            self._argue("{}")

    def _named(self, body: NamedCall) -> Reading[None]:
        source = self.source
        name: list[str] = []
        # The longest first: one separator may begin with another.
        separators = sorted(body.separators, key=len, reverse=True)
        if (yield from source.until(separators, name.append)) is None:
            raise Malformed
        self._begin("".join(name).strip())
        yield from source.skip_white_space()
        yield from read_object(source, self._argue)

    def _begin(self, name: str) -> None:
        if self.begun or not name:
            raise Malformed
        self.begun = True
        self.emit(ToolBegin(self.index, name))

    def _argue(self, text: str) -> None:
        self.emit(ToolArguments(self.index, text))
