"""Hands the prompts of a request to the engine in portions, so that other requests come between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from turnout.core.clock import monotonic
from turnout.core.engine.client import EngineClient
from turnout.core.errors import Overloaded
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec

__all__ = ["Portions"]

RETRY_SECONDS = 0.05


class Portions:
    """Submits prompts, so many at a time; the others wait here, behind no other client's request."""

    def __init__(self, client: EngineClient, most: int) -> None:
        self._client = client
        self._places = asyncio.Semaphore(most)
        self._begun = False
        """The engine has begun to answer one of the prompts."""

    async def submit(self, request: RequestSpec) -> AsyncGenerator[Delta, None]:
        """As `EngineClient.submit`. What was begun is not refused for how many others wait."""
        arrival = monotonic()
        async with self._places:
            while True:
                waited = _waited(request, monotonic() - arrival)
                try:
                    async with aclosing(self._client.submit(waited)) as deltas:
                        async for delta in deltas:
                            self._begun = True
                            yield delta
                    return
                except Overloaded:
                    if not self._begun:
                        raise
                await asyncio.sleep(RETRY_SECONDS)


def _waited(request: RequestSpec, seconds: float) -> RequestSpec:
    """The request after it waited here: it arrives later, and its deadlines stay where they were."""
    if request.deadline is None and request.ttft_deadline is None:
        return request
    return msgspec.structs.replace(
        request,
        deadline=None if request.deadline is None else request.deadline - seconds,
        ttft_deadline=None if request.ttft_deadline is None else request.ttft_deadline - seconds,
    )
