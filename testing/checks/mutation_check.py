"""A scheduling policy that is looked at while it answers: it may read all, and change nothing."""

from __future__ import annotations

from turnout.core.interfaces.scheduling import Entry, SchedulingPolicy
from turnout.core.types.views import RequestView, View, request_of

__all__ = ["MutationCheckedPolicy"]

State = list[tuple[object, ...]]


class MutationCheckedPolicy(SchedulingPolicy):
    """Passes every question on, and fails where the answer's making changed a request."""

    def __init__(self, policy: SchedulingPolicy) -> None:
        self.policy = policy
        self.head_of_line = policy.head_of_line  # type: ignore[misc]
        self.orders = 0

    def order(self, view: View) -> list[Entry]:
        everybody = (*view.running, *view.waiting)
        before, memory = _state(everybody), view.kv
        answer = list(self.policy.order(view))
        self._unchanged("order", before, everybody)
        assert view.kv == memory
        self.orders += 1
        return answer

    def victim(self, request: RequestView, running: tuple[RequestView, ...]) -> RequestView | None:
        everybody = (request, *running)
        before = _state(everybody)
        victim = self.policy.victim(request, running)
        self._unchanged("victim", before, everybody)
        return victim

    def observe(self, request: RequestView, tokens: int, now: float) -> None:
        before = _state((request,))
        self.policy.observe(request, tokens, now)
        self._unchanged("observe", before, (request,))

    def _unchanged(self, method: str, before: State, everybody: tuple[RequestView, ...]) -> None:
        for was, now in zip(before, _state(everybody), strict=True):
            assert was == now, f"{method} of {type(self.policy).__name__} changed a request: {was} to {now}"


def _state(requests: tuple[RequestView, ...]) -> State:
    """All of a request that the mechanism goes by."""
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
