"""Shares the engine's places between requests of many prompts, so that other requests come between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from types import TracebackType

import msgspec

from turnout.core.clock import monotonic
from turnout.core.engine.client import EngineClient
from turnout.core.errors import Overloaded
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec

__all__ = ["Portion", "Portions", "waited"]

RETRY_SECONDS = 0.05


class Portions:
    """So many choices that the engine has at once of all requests of many prompts, an equal part of each."""

    def __init__(self, client: EngineClient, most: Callable[[], int]) -> None:
        self.client, self.most = client, most
        self.requests = 0
        """Those of many prompts that are being served."""
        self.taken = 0
        """Choices that the engine has of them."""


class Portion:
    """The part of one request, from when its block is entered until it is left.

    It has a prompt at least: so many requests of many prompts may exceed the sum.
    """

    def __init__(self, portions: Portions, choices: int) -> None:
        """choices: of each prompt."""
        self._portions, self._choices = portions, choices
        self._taken = 0
        """Choices that the engine has of this request."""
        self._arrival = monotonic()
        self._begun = False
        """The engine has begun to answer one of the prompts."""

    def __enter__(self) -> None:
        self._portions.requests += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._portions.requests -= 1
        self._take(-self._taken)

    def take(self) -> bool:
        """Take the place of a prompt, if there is one; returns whether there was."""
        shared, most = self._portions, self._portions.most()
        others = shared.taken + self._choices > most
        if self._taken and (others or self._taken + self._choices > most // shared.requests):
            return False
        self._take(self._choices)
        return True

    def give_back(self) -> None:
        """Leave the place of a prompt to another."""
        self._take(-self._choices)

    def _take(self, choices: int) -> None:
        self._taken += choices
        self._portions.taken += choices

    async def submit(self, request: RequestSpec) -> AsyncGenerator[Delta, None]:
        """As `EngineClient.submit`. What was begun is not refused for how many others wait."""
        while True:
            late = waited(request, monotonic() - self._arrival)
            try:
                async with aclosing(self._portions.client.submit(late)) as deltas:
                    async for delta in deltas:
                        self._begun = True
                        yield delta
                return
            except Overloaded:
                if not self._begun:
                    raise
            await asyncio.sleep(RETRY_SECONDS)


def waited(request: RequestSpec, seconds: float) -> RequestSpec:
    """The request after it waited here: it arrives later, and its deadlines stay where they were."""
    if request.deadline is None and request.ttft_deadline is None:
        return request
    return msgspec.structs.replace(
        request,
        deadline=None if request.deadline is None else request.deadline - seconds,
        ttft_deadline=None if request.ttft_deadline is None else request.ttft_deadline - seconds,
    )
