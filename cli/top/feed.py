"""Reads `GET /admin/live`, and connects again when the connection is lost."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import AsyncGenerator, Mapping

import aiohttp

from turnout.cli.terminal.printable import printable
from turnout.core.errors import TurnoutError, describe_error
from turnout.core.types.live.event import LiveEvent
from turnout.lab.load.address import connector, http_url
from turnout.lab.load.bounded_read import read_beginning
from turnout.lab.load.event_reader import EventReader, error_text

__all__ = ["Feed", "Lost", "TopError"]

PATH = "/admin/live"
AGAIN_SECONDS = 1.0
CONNECT_SECONDS, SILENT_SECONDS = 10.0, 60.0
"""The most that a connection may take, and that a server may say nothing: it may be gone without a word."""
MOST_REASON = 200
"""Characters: a server's nonsense may be repeated in it."""


class TopError(TurnoutError):
    """The server refuses, or is none of Turnout's, or has never been reached."""


class Lost(str):
    """Why the connection was lost; another is being tried."""


class Feed:
    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url, self._headers = url, headers
        self._reached = False

    async def events(self) -> AsyncGenerator[LiveEvent | Lost, None]:
        """Yields events without end. Raises TopError where trying again is of no use."""
        while True:
            try:
                async for event in self._connection():
                    self._reached = True
                    yield event
                reason = "the server has closed the connection"
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                reason = textwrap.shorten(describe_error(error), MOST_REASON)
                if not self._reached:
                    raise TopError(f"no answer from {self._url}: {reason}") from None
            except ValueError as error:
                reason = textwrap.shorten(printable(str(error)), MOST_REASON)
                raise TopError(f"{self._url} sends what is no event of Turnout's: {reason}") from None
            yield Lost(reason)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _connection(self) -> AsyncGenerator[LiveEvent, None]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENT_SECONDS)
        async with (
            aiohttp.ClientSession(
                connector=connector(self._url), timeout=timeout, headers=self._headers
            ) as session,
            session.get(http_url(self._url) + PATH) as response,
        ):
            await self._check(response)
            reader = EventReader(LiveEvent)
            async for part in response.content.iter_any():
                for event in reader.feed(part):
                    yield event

    async def _check(self, response: aiohttp.ClientResponse) -> None:
        if response.ok and response.content_type == "text/event-stream":
            return
        said = textwrap.shorten(printable(error_text(await read_beginning(response))), MOST_REASON)
        if response.status in (401, 403):
            hint = "give the admin key with --api-key or in TURNOUT_ADMIN_KEY"
            raise TopError(f"{self._url} refuses ({response.status}): {said}; {hint}")
        if response.status >= 500:  # it may be starting, or a proxy waits for it
            raise aiohttp.ClientError(f"status {response.status}: {said}")
        raise TopError(f"{self._url} has no {PATH} (status {response.status}): is it a server of Turnout's?")
