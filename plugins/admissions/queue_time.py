"""Refuses requests that would wait too long."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from turnout.core.interfaces.admission import AdmissionPolicy, Load, Refusal
from turnout.core.interfaces.figures import Figures
from turnout.core.types.request import RequestView

__all__ = ["QueueTime"]

MOST_RETRY_SECONDS = 600.0


class QueueTime(AdmissionPolicy):
    """Refuses a request that would wait for more than `seconds` until it begins, or beyond its own deadline.

    It expects that the requests ahead of it begin at the rate at which waiting requests have begun of late.
    While none waits, or nothing has been measured, it refuses none. ``Retry-After`` is what the expected wait
    exceeds the limit by. A scheduler that lets a request overtake serves it sooner than expected here.
    """

    def __init__(
        self,
        seconds: Annotated[
            float, Field(gt=0, allow_inf_nan=False, description="Longest wait until a request begins.")
        ] = 10.0,
    ) -> None:
        self.seconds = seconds
        self._refused = 0
        self._expected = 0.0

    def admit(self, request: RequestView, load: Load) -> Refusal | None:
        wait = self._expected = expected_wait(load)
        most = min(self.seconds, _time_left(request, load.now))
        if not wait or wait <= most:
            return None
        self._refused += 1
        after = min(max(1.0, wait - max(0.0, most)), MOST_RETRY_SECONDS)
        limit = f"at most {self.seconds:g} s" if most == self.seconds else "its deadline is sooner"
        return Refusal(
            f"{load.waiting} requests wait, and this one would wait about {wait:.0f} s ({limit}); try again "
            f"in {after:.0f} s",
            after,
        )

    def figures(self) -> Figures:
        return Figures(counters={"refused": self._refused}, gauges={"expected_wait_seconds": self._expected})


def expected_wait(load: Load) -> float:
    """Returns the seconds until a request that arrives now would begin."""
    return 0.0 if not load.waiting or load.rate is None else (load.waiting + 1) / load.rate


def _time_left(request: RequestView, now: float) -> float:
    dues = [due for due in (request.deadline, request.ttft_deadline) if due is not None]
    return min(dues, default=float("inf")) - now
