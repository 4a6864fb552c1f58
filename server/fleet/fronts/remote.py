"""What a front has in the place of a fleet, and of the server's keys: both are in another process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count

from turnout.core.engine.client import TakesAtOnce
from turnout.core.errors import EngineError
from turnout.core.types.logprobs import PackedLogprobs
from turnout.core.types.messages import Abort, Delta, Ready, Stats, Submit
from turnout.core.types.request import RequestSpec
from turnout.server.engine.streams.request_stream import RequestStream
from turnout.server.engine.streams.unread import Unread
from turnout.server.fleet.fleet import arrived
from turnout.server.fleet.fronts.messages import (
    AskKey,
    Describe,
    Ended,
    FrontMessage,
    KeyAdmitted,
    KeyRefused,
    Leave,
    LeaveKey,
    OwnerMessage,
    PromptLogprobs,
    SpendKey,
    error_of,
)
from turnout.server.http.access.key_usage import KeyUsage

__all__ = ["RemoteFleet", "RemoteKeys"]

Say = Callable[[FrontMessage], None]


class _Stream(RequestStream):
    """The request of a client: what came of it and was not sent yet."""

    def take_prompt_scores(self, packed: list[bytes]) -> None:
        """Take all of a prompt's log-probabilities, which are passed on with the first delta."""
        self._prompt_scores = PackedLogprobs.of_parts(packed)


class RemoteFleet:
    """Has what handlers ask of a `Fleet` that generate: all others are answered where the fleet is."""

    failure: str | None = None
    restarting = False
    described = True
    stats: Stats | None = None

    def __init__(self, say: Say) -> None:
        self._say = say
        self._told: Describe | None = None
        self._streams: dict[str, _Stream] = {}
        self._unread = Unread(self._give_up_slowest)

    @property
    def ready(self) -> Ready:
        assert self._told is not None, "the fleet has not been described yet"
        return self._told.ready

    @property
    def replicas(self) -> range:
        """As many as there are: their number is all that handlers ask."""
        return range(0 if self._told is None else self._told.replicas)

    @property
    def idle(self) -> bool:
        return not self._streams

    def packed(self, prompt: list[int]) -> list[int]:
        """The prompt: it is packed where the router is."""
        return prompt

    async def submit(
        self, request: RequestSpec, at_once: TakesAtOnce | None = None
    ) -> AsyncGenerator[Delta, None]:
        """As `EngineClient.submit` says."""
        stream = _Stream(arrived(request), self._unread, at_once)
        self._streams[request.id] = stream
        self._say(Submit(stream.spec))
        try:
            while (delta := await stream.next()) is not None:
                yield delta
        finally:
            del self._streams[request.id]
            self._say(Leave(request.id))
            stream.forget_unread()

    def abort(self, request_id: str, index: int | None = None) -> None:
        """As `EngineClient.abort` says."""
        if (stream := self._streams.get(request_id)) is not None:
            stream.abort(index)
            self._say(Abort(request_id, index))

    def hear(self, message: OwnerMessage) -> None:
        """Take what the fleet's process says of requests, and of itself."""
        if isinstance(message, Describe):
            self._told = message
        elif isinstance(message, Delta | Ended | PromptLogprobs):
            if (stream := self._streams.get(message.request_id)) is None:
                return  # its client has left
            if isinstance(message, Delta):
                stream.deliver(message)
            elif isinstance(message, PromptLogprobs):
                stream.take_prompt_scores(message.packed)
            else:  # where nothing is lacking but the timing, this is no error
                stream.fail(error_of(message) or EngineError("the request was ended"))

    def _give_up_slowest(self) -> None:
        """As the fleet does: end the request whose client has left most unread."""
        stream = max(self._streams.values(), key=lambda stream: stream.unread)
        stream.give_up()
        self._say(Abort(stream.spec.id))


class RemoteKeys:
    """Asks the fleet's process, which counts for all fronts what each key has used."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._numbers = count()
        self._asked: dict[int, asyncio.Future[None]] = {}

    def usage(self, digest: bytes) -> KeyUsage:
        """What one key has used."""
        return _RemoteUsage(self, digest)

    def hear(self, message: KeyAdmitted | KeyRefused) -> None:
        """Take an answer."""
        asked = self._asked.pop(message.id, None)
        if asked is None or asked.done():
            return
        if isinstance(message, KeyRefused):
            asked.set_exception(message.error)
        else:
            asked.set_result(None)

    async def ask(self, digest: bytes) -> int:
        """Have a key take on a request; returns the request's number. Raises ApiError."""
        number = next(self._numbers)
        asked = self._asked[number] = asyncio.get_running_loop().create_future()
        self._say(AskKey(number, digest))
        try:
            await asked
        except asyncio.CancelledError:
            self.leave(number)
            raise
        return number

    def leave(self, number: int) -> None:
        """Note that a request of a key has ended."""
        self._asked.pop(number, None)
        self._say(LeaveKey(number))

    def spend(self, digest: bytes, tokens: int) -> None:
        """Count tokens for a key."""
        self._say(SpendKey(digest, tokens))


class _RemoteUsage(KeyUsage):
    def __init__(self, keys: RemoteKeys, digest: bytes) -> None:
        super().__init__()
        self._keys = keys
        self._ask = partial(keys.ask, digest)
        self._spend = partial(keys.spend, digest)

    async def admission(self) -> AbstractContextManager[None]:
        return self._held(await self._ask())

    @contextmanager
    def _held(self, number: int) -> Iterator[None]:
        try:
            yield
        finally:
            self._keys.leave(number)

    def spend(self, tokens: int) -> None:
        self._spend(tokens)
