"""What a key has used of its limits: requests in flight, and requests and tokens a minute."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from turnout.core.clock import Clock, monotonic
from turnout.server.http.errors import ApiError

__all__ = ["KeyUsage"]


class _Bucket:
    """Holds what a minute allows at most, and fills again over a minute."""

    def __init__(self, per_minute: int, now: float) -> None:
        self.per_minute = per_minute
        self._level, self._at = float(per_minute), now

    def resize(self, per_minute: int, now: float) -> None:
        """Change what a minute allows. What was taken stays taken, as far as the new minute allows it."""
        self._fill(now)
        taken = self.per_minute - self._level
        self.per_minute, self._level = per_minute, max(per_minute - taken, min(0.0, self._level))

    def take(self, amount: float, now: float) -> None:
        """It may take more than there is, and then first has to be refilled."""
        self._fill(now)
        self._level -= amount

    def wait(self, amount: float, now: float) -> float:
        """Seconds until `amount` is there."""
        self._fill(now)
        return max(0.0, (amount - self._level) * 60 / self.per_minute)

    def _fill(self, now: float) -> None:
        self._level = min(self.per_minute, self._level + (now - self._at) * self.per_minute / 60)
        self._at = now


class _Reached(NamedTuple):
    """A limit that is reached."""

    limit: str
    seconds: float
    """Until a request may begin."""


class KeyUsage:
    """A key's limits, each None for none, and what is left of them.

    Tokens are counted when a request has ended, so a key may exceed its tokens once by what it has in flight,
    and then waits the longer.
    """

    def __init__(
        self,
        *,
        in_flight: int | None = None,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        clock: Clock = monotonic,
    ) -> None:
        self._clock = clock
        self._requests: _Bucket | None = None
        self._tokens: _Bucket | None = None
        self.in_flight = 0
        self.admitted = self.refused = self.spent = 0
        """Requests and tokens so far."""
        self._counted = 0
        """Requests that the tokens are of."""
        self.limit(in_flight, requests_per_minute, tokens_per_minute)

    def limit(
        self, in_flight: int | None, requests_per_minute: int | None, tokens_per_minute: int | None
    ) -> None:
        """Set the limits; what was used of one is not forgotten."""
        self._most_in_flight = in_flight
        self._requests = self._bucket(self._requests, requests_per_minute)
        self._tokens = self._bucket(self._tokens, tokens_per_minute)

    def _bucket(self, before: _Bucket | None, per_minute: int | None) -> _Bucket | None:
        if per_minute is None:
            return None
        if before is None:
            return _Bucket(per_minute, self._clock())
        if before.per_minute != per_minute:
            before.resize(per_minute, self._clock())
        return before

    async def admission(self) -> AbstractContextManager[None]:
        """As `request`, wherever the requests are counted. Raises ApiError 429, here or when entered."""
        return self.request()

    @contextmanager
    def request(self) -> Iterator[None]:
        """A request, for as long as it takes. Raises ApiError 429 where a limit is reached."""
        if (reached := self._reached()) is not None:
            raise self._exceeded(reached)
        if self._requests is not None:
            self._requests.take(1, self._clock())
        self.admitted += 1
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    @property
    def has_room(self) -> bool:
        """Whether a request that can wait may begin.

        No limit is reached, nor will one be by the tokens of the requests in flight, if each has as many as
        requests had so far on average. Without a request so far, one is in flight at most.
        """
        if self._reached() is not None:
            return False
        if self._tokens is None or not self.in_flight:
            return True
        if not self._counted:
            return False
        expected = self.in_flight * self.spent / self._counted
        return not self._tokens.wait(1 + expected, self._clock())

    def spend(self, tokens: int) -> None:
        """Count the tokens of a request's prompts and outputs."""
        self.spent += tokens
        self._counted += 1
        if self._tokens is not None:
            self._tokens.take(tokens, self._clock())

    def _reached(self) -> _Reached | None:
        """The limit that lets no request begin now; None: there is none."""
        now = self._clock()
        if self._most_in_flight is not None and self.in_flight >= self._most_in_flight:
            return _Reached(f"{self._most_in_flight} requests at once", 1)
        if self._tokens is not None and (wait := self._tokens.wait(1, now)):
            return _Reached(f"{self._tokens.per_minute:,} tokens a minute", wait)
        if self._requests is not None and (wait := self._requests.wait(1, now)):
            return _Reached(f"{self._requests.per_minute:,} requests a minute", wait)
        return None

    def _exceeded(self, reached: _Reached) -> ApiError:
        self.refused += 1
        retry = math.ceil(reached.seconds)
        message = f"this API key may have {reached.limit}; retry in {retry} s"
        return ApiError(429, message, code="rate_limit_exceeded", headers={"Retry-After": str(retry)})
