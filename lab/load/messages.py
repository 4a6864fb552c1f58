"""What a streamed answer's events say, as far as a measurement needs it."""

from __future__ import annotations

import msgspec

__all__ = ["Event", "EventReader"]


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None

    @property
    def said(self) -> str:
        if self.delta is None:
            return self.text or ""
        return self.delta.content or self.delta.reasoning_content or ""


class Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Event(msgspec.Struct):
    """One ``data:`` line of completions or of chat."""

    choices: list[_Choice] = []
    usage: Usage | None = None
    error: dict[str, object] | str | None = None

    @property
    def text(self) -> str:
        return self.choices[0].said if self.choices else ""

    @property
    def brings_tokens(self) -> bool:
        """Also where their text is not there yet; but chat's opening message has only a role."""
        if not self.choices:
            return False
        choice = self.choices[0]
        return bool(choice.said) or (choice.delta is None and choice.finish_reason is None)

    @property
    def ends(self) -> bool:
        return bool(self.choices) and self.choices[0].finish_reason is not None


class EventReader:
    """Cuts a byte stream into events."""

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(Event).decode
        self._rest = b""
        self.done = False
        """The stream said that it is complete."""

    def feed(self, data: bytes) -> list[Event]:
        """Raises ValueError for what is no event."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        events = []
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            content = line[5:].strip()
            if content == b"[DONE]":
                self.done = True
            else:
                events.append(self._decoded(content))
        return events

    def _decoded(self, content: bytes) -> Event:
        try:
            return self._decode(content)
        except msgspec.DecodeError as error:
            raise ValueError(f"this is no completion: {content[:200]!r} ({error})") from None
