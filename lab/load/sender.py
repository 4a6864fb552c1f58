"""Sends one request to a server, and records what comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

import aiohttp
import msgspec

from turnout.core.interfaces.trial import SESSION_HEADER
from turnout.lab.jobs.job import Job
from turnout.lab.load.address import connector, http_url
from turnout.lab.load.bounded_read import read_beginning
from turnout.lab.load.event_reader import MOST_CHARACTERS, EventReader, error_message, error_text
from turnout.lab.load.messages import Event, PooledAnswer, TokenUsage
from turnout.lab.load.target import Target
from turnout.lab.results.record import Record

__all__ = ["Sender", "StreamedAnswer"]

MOST_TOKENS = 2**24
"""Of an answer. Each gets a time, so that a server which miscounts could fill the memory."""


@dataclass
class StreamedAnswer:
    """An answer, as its messages come."""

    times: list[float] = field(default_factory=list)
    """Of messages that brought tokens."""
    pieces: list[str] = field(default_factory=list)
    ended: float | None = None
    """When a message without text gave the reason why it ends: there may have been a token without text."""
    usage: TokenUsage | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def take(self, event: Event, now: float) -> None:
        """Raises ValueError for an error that the server reports."""
        if event.error is not None:
            raise ValueError(f"the server stopped with an error: {error_message(event.error)}")
        if event.brings_tokens:
            self.times.append(now)
            self.pieces.append(event.text)
        elif event.ends:
            self.ended = now
        if event.usage is not None:
            if not 0 <= event.usage.completion_tokens <= MOST_TOKENS:
                raise ValueError(f"the server counts {event.usage.completion_tokens:,} tokens of one answer")
            self.usage = event.usage

    def take_pooled(self, body: bytes) -> None:
        """Raises ValueError for what is no answer."""
        try:
            found = msgspec.json.decode(body, type=PooledAnswer)
        except msgspec.DecodeError as error:
            raise ValueError(f"the answer is none with embeddings or a ranking: {error}") from None
        self.pieces, self.usage = [bytes(found.data or found.results).decode()], found.usage

    def token_times(self) -> list[float]:
        """The time of each token that the server counted, spread evenly where a message brought several."""
        tokens = self.usage.completion_tokens if self.usage else len(self.times)
        times = self.times
        if self.ended is not None and tokens > len(times):
            times = [*times, self.ended]
        if tokens == len(times) or not times:
            return times
        between = (len(times) - 1) / max(1, tokens - 1)
        return [times[round(token * between)] for token in range(tokens)]


class Sender:
    """Sends to one server, on connections that it keeps. Use as an asynchronous context manager.

    `clock` is that of records: seconds after the run's beginning.
    """

    def __init__(self, target: Target, clock: Callable[[], float], timeout: float | None = None) -> None:
        self._target = target
        self._url = http_url(target.url) + target.path
        self._clock = clock
        self._timeout = aiohttp.ClientTimeout(total=timeout)

    async def __aenter__(self) -> Sender:
        self._http = aiohttp.ClientSession(
            headers=self._target.headers,
            connector=connector(self._target.url),
            timeout=self._timeout,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def send(self, job: Job, index: int, due: float, body: bytes) -> tuple[Record, StreamedAnswer]:
        """Whatever goes wrong is told in the record."""
        record, answer = Record(job, index, due, sent=self._clock()), StreamedAnswer()
        try:
            await self._exchange(body, answer, {SESSION_HEADER: job.session} if job.session else {})
        except TimeoutError:
            limit = self._timeout.total
            record.error = f"no answer within {limit:g} s" if limit else "the connection timed out"
        except (aiohttp.ClientError, ValueError, OSError) as error:
            record.error = str(error)[:MOST_CHARACTERS] or type(error).__name__
        record.finished = self._clock()
        _fill(record, answer, pools=self._target.pools)
        return record, answer

    async def _exchange(self, body: bytes, answer: StreamedAnswer, headers: dict[str, str]) -> None:
        reader, clock = EventReader(Event), self._clock
        async with self._http.post(self._url, data=body, headers=headers) as response:
            if response.status != 200:
                raise ValueError(f"{response.status}: {error_text(await read_beginning(response))}")
            if self._target.pools:
                answer.take_pooled(await response.read())
                return
            async for data in response.content.iter_any():
                now = clock()
                for event in reader.feed(data):
                    answer.take(event, now)
        if not reader.done:
            raise ValueError("the answer broke off")


def _fill(record: Record, answer: StreamedAnswer, *, pools: bool) -> None:
    record.token_times = answer.token_times()
    record.output_tokens = len(record.token_times)
    if answer.usage is not None:
        record.prompt_tokens = answer.usage.prompt_tokens
    record.digest = blake2b(answer.text.encode(), digest_size=8).hexdigest()
    if not record.error and not record.token_times and not pools:
        record.error = "the answer has no tokens"
