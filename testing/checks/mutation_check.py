"""Checks that a scheduling policy changes no request while it answers."""

from __future__ import annotations

from turnout.core.interfaces.scheduling import Entry, SchedulingPolicy
from turnout.core.types.request import RequestView, request_of
from turnout.core.types.views import View

__all__ = ["MutationCheckedPolicy"]

State = list[tuple[object, ...]]


class MutationCheckedPolicy(SchedulingPolicy):
    """Passes every call on to `policy`, and fails if the call changed a request or the view."""

    def __init__(self, policy: SchedulingPolicy) -> None:
        self.policy = policy
        self.head_of_line = policy.head_of_line  # type: ignore[misc]
        self.orders = 0

    def order(self, view: View) -> list[Entry]:
        requests = (*view.running, *view.waiting)
        before, memory = _state(requests), view.kv
        answer = list(self.policy.order(view))
        self._unchanged("order", before, requests)
        assert view.kv == memory, f"{self._named('order')} changed view.kv; views are to be read only"
        self.orders += 1
        return answer

    def victim(self, request: RequestView, running: tuple[RequestView, ...]) -> RequestView | None:
        requests = (request, *running)
        before = _state(requests)
        victim = self.policy.victim(request, running)
        self._unchanged("victim", before, requests)
        return victim

    def observe(self, request: RequestView, tokens: int, now: float) -> None:
        before = _state((request,))
        self.policy.observe(request, tokens, now)
        self._unchanged("observe", before, (request,))

    def _unchanged(self, method: str, before: State, requests: tuple[RequestView, ...]) -> None:
        for was, now in zip(before, _state(requests), strict=True):
            assert was == now, (
                f"{self._named(method)} changed a request from {was} to {now}; views are to be read only"
            )

    def _named(self, method: str) -> str:
        return f"`{method}` of {type(self.policy).__name__}"


def _state(requests: tuple[RequestView, ...]) -> State:
    """Everything about the requests that the mechanism relies on."""
    return [
        (
            request.id,
            request.status,
            request.output_tokens,
            list(request.prompt),
            tuple((s.id, s.computed, s.held, list(s.tokens), list(s.draft)) for s in request.live),
            (request.timing.arrival, request.timing.scheduled, list(request.timing.preempted)),
        )
        for request in map(request_of, requests)
    ]
