"""What the fleet's process does for one front: it serves the requests of the front's clients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import msgspec

from turnout.core.errors import TurnoutError
from turnout.core.types.logprobs import PackedLogprobs
from turnout.core.types.messages import Abort, Delta, Submit
from turnout.core.types.request import RequestSpec
from turnout.server.engine.streams.request_stream import RequestStream
from turnout.server.fleet.fleet import Fleet
from turnout.server.fleet.fronts.messages import (
    AskKey,
    FrontMessage,
    KeyAdmitted,
    KeyRefused,
    Leave,
    LeaveKey,
    Load,
    OwnerMessage,
    PromptLogprobs,
    SpendKey,
    ended,
)
from turnout.server.http.access.keys import Keys
from turnout.server.http.errors import ApiError
from turnout.server.http.load import ServerLoad

__all__ = ["FrontStream", "ServedFront"]

Tell = Callable[[OwnerMessage], None]


class FrontStream(RequestStream):
    """A request of a front: it notes what resuming would need, and passes on what comes.

    What clients have not read waits in the front, which bounds it.
    """

    def __init__(self, spec: RequestSpec, tell: Tell) -> None:
        super().__init__(spec)
        self._tell = tell

    def _put(self, item: Delta | Exception | None) -> None:
        if not isinstance(item, Delta):
            self._tell(ended(self.spec.id, item))
            return
        if isinstance(item.prompt_logprobs, PackedLogprobs):
            self._tell(PromptLogprobs.of(self.spec.id, item.prompt_logprobs))
            item = msgspec.structs.replace(item, prompt_logprobs=[])
        self._tell(item)

    def _note_unread(self, size: int) -> None:
        """Nothing waits here."""


class ServedFront:
    """The requests of one front, from its start to its end."""

    def __init__(self, fleet: Fleet, keys: Keys, load: ServerLoad, tell: Tell) -> None:
        self._fleet, self._keys, self._load, self._tell = fleet, keys, load, tell
        self._streams: dict[str, FrontStream] = {}
        self._of_keys: dict[int, ExitStack] = {}
        """What requests have of their keys."""
        self.answering = Load(0, 0)

    def hear(self, message: FrontMessage) -> None:
        """Do what the front asks. `Begin` and `Measured` are not for here."""
        if isinstance(message, Submit):
            self._begin(message.request)
        elif isinstance(message, Leave):
            self._leave(message.request_id)
        elif isinstance(message, Abort):
            self._fleet.abort(message.request_id, message.index)
        elif isinstance(message, Load):
            self._note(message)
        elif isinstance(message, AskKey):
            self._admit(message)
        elif isinstance(message, LeaveKey):
            if (held := self._of_keys.pop(message.id, None)) is not None:
                held.close()
        elif isinstance(message, SpendKey) and (key := self._keys.by_digest(message.digest)) is not None:
            key.usage.spend(message.tokens)

    def close(self) -> None:
        """End all that the front has asked for: it has ended itself."""
        for id in list(self._streams):
            self._leave(id)
        for held in self._of_keys.values():
            held.close()
        self._of_keys.clear()
        self._note(Load(0, 0))

    def _begin(self, spec: RequestSpec) -> None:
        # Its prompt was packed in a thread of the front, if at all; the router reads it here.
        stream = FrontStream(
            msgspec.structs.replace(spec, prompt=self._fleet.packed(spec.prompt)), self._tell
        )
        try:
            self._fleet.begin(stream)
        except TurnoutError as error:
            self._tell(ended(spec.id, error))
            return
        self._streams[spec.id] = stream

    def _leave(self, request_id: str) -> None:
        if (stream := self._streams.pop(request_id, None)) is not None:  # else it was refused
            self._fleet.leave(stream)

    def _note(self, now: Load) -> None:
        before, self.answering = self.answering, now
        self._load.change(now.requests - before.requests, now.waiting - before.waiting)

    def _admit(self, asked: AskKey) -> None:
        self._keys.refresh()
        held = ExitStack()
        try:
            if (key := self._keys.by_digest(asked.digest)) is None:
                raise ApiError(401, "this key is no longer valid", code="invalid_api_key")
            held.enter_context(key.usage.request())
        except ApiError as error:
            self._tell(KeyRefused.of(asked.id, error))
            return
        self._of_keys[asked.id] = held
        self._tell(KeyAdmitted(asked.id))
