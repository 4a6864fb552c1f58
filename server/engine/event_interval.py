"""Has tokens that soon follow one another go to the server together.

A small model makes tokens faster than anybody reads them. To send each token by itself, by a message to the
server and an event to the client, would cost about what computing the token did.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from turnout.core.clock import Clock
from turnout.core.types.messages import Delta, Event

__all__ = ["EventInterval"]

Choice = tuple[str, int]
"""A request's id, and the index of its choice."""


class EventInterval:
    """Holds what only goes on a choice, until so many seconds have passed since such tokens were sent last.

    ::

        steps of the engine   1   2   3   4   5   6   7   8 (the last)
        sent                  1       23      45      67  8
                              ├───────┼───────┼───────┤
    """

    def __init__(self, clock: Clock) -> None:
        self.seconds = 0.0
        """0: nothing is held."""
        self._clock = clock
        self._sent = 0.0
        self._held: dict[Choice, list[Delta]] = {}
        self._urgent: set[str] = set()

    def hold_nothing_of(self, request_id: str) -> None:
        """Have a request's tokens sent as they come, as long as there is work.

        For one that another engine had when it died: if this one dies, too, what the request survived until
        then tells whether it is the reason.
        """
        self._urgent.add(request_id)

    def passed(self, events: list[Event], *, busy: bool) -> list[Event]:
        """What of a step's events is to be sent now; `busy`: there is another step, after which more is."""
        if not self.seconds:
            return events
        held = self._held
        # Choices begin together: if the engine dies, either all of them go on elsewhere or all begin anew.
        urgent = self._urgent | _begun(events)
        passed: list[Event] = []
        for event in events:
            if not isinstance(event, Delta):
                passed.append(event)
            elif event.finish_reason is None and event.request_id not in urgent:
                held.setdefault((event.request_id, event.index), []).append(event)
            else:
                passed += self._after_held(event)
        if held and (not busy or self._clock() - self._sent >= self.seconds):
            passed += map(_joined, held.values())
            held.clear()
            self._sent = self._clock()
        if not busy:
            self._urgent.clear()
        return passed

    def _after_held(self, delta: Delta) -> Iterator[Delta]:
        """A delta that is not held, with what is held of its choice, or after it."""
        if not delta.error_kind:
            yield _joined([*self._held.pop((delta.request_id, delta.index), ()), delta])
            return
        for choice in [choice for choice in self._held if choice[0] == delta.request_id]:
            yield _joined(self._held.pop(choice))
        yield delta


def _begun(events: list[Event]) -> set[str]:
    """The requests whose first tokens are among events."""
    return {event.request_id for event in events if isinstance(event, Delta) and event.begun is not None}


def _joined(deltas: list[Delta]) -> Delta:
    """Deltas of a choice, as one."""
    last = deltas[-1]
    if len(deltas) == 1:
        return last
    tokens = [token for delta in deltas for token in delta.tokens]
    logprobs = None if last.logprobs is None else [each for delta in deltas for each in delta.logprobs or ()]
    return msgspec.structs.replace(last, tokens=tokens, logprobs=logprobs)
