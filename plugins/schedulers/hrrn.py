"""Highest response ratio next."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.types.request import RequestView
from turnout.core.types.views import View
from turnout.plugins.schedulers.ranking import keep_known, non_negative

__all__ = ["Hrrn"]


class Hrrn(SchedulingPolicy):
    """Admits the request with the highest ``(wait + est) / est`` first; no request overtakes it.

    Brinch Hansen, "An analysis of response ratio scheduling", 1971: short requests go first, but waiting
    counts in proportion to length, so that all are slowed down alike. Running requests are served first, and
    none is preempted for a waiting one.

    ``wait`` is the time since arrival; ``est``, the time that the request will take, is its predicted output
    plus `prompt_cost` for each prompt token, divided by the engine's speed. The speed, in output tokens a
    second, cancels when ratios are compared, so it is not needed. The length is
    predicted when the request comes to wait. Ties go to preempted requests, then to the earliest arrival.

    A request that overtakes another has waited at least ``its own est / the other's est`` as long. That is
    no bound in seconds: while more short requests arrive than can be served, a long one may wait for ever.
    """

    head_of_line = True
    runners_first = True

    def __init__(
        self,
        prompt_cost: Annotated[float, Field(description="Cost of a prompt token, in output tokens.")] = 0.1,
    ) -> None:
        self._prompt_cost = non_negative("prompt_cost", prompt_cost)
        self._jobs: dict[RequestView, tuple[float, float]] = {}
        """For each waiting request, its arrival and its est in output tokens."""

    def order(self, view: View) -> list[RequestView]:
        predict, prompt_cost, now = view.predict, self._prompt_cost, view.now

        def job(request: RequestView) -> tuple[float, float]:
            return request.arrival, max(1.0, predict(request) + prompt_cost * request.prompt_tokens)

        self._jobs = jobs = keep_known(self._jobs, view.waiting, job)
        ratio = {request: (now - arrival) / est for request, (arrival, est) in jobs.items()}
        return [*view.running, *sorted(view.waiting, key=ratio.__getitem__, reverse=True)]
