"""Lockstep: requests that go on alike, each by one token of its only sequence.

Nearly all requests do in nearly every step. What the engine does about a token otherwise takes a dozen calls
for each of them; here it takes two loops over all, with the same outcome. Whatever is not alike (choices that
fork, drafts, log-probabilities, a strategy of a third party, whose answers are checked more thoroughly) goes
the general way: `apply_decisions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnout.core.engine.apply_decisions import resolve_placeholder
from turnout.core.engine.decision_checks import goes_on
from turnout.core.engine.inflight_tokens import InFlightTokens
from turnout.core.engine.request_table import RequestTable
from turnout.core.interfaces.decoding import Decoding
from turnout.core.scheduling.scheduler import Scheduler
from turnout.core.types.decision import Chosen
from turnout.core.types.messages import Delta
from turnout.core.types.request import Request

__all__ = ["Lockstep", "LockstepTokens", "are_alike"]


@dataclass(frozen=True)
class LockstepTokens:
    """The tokens that one strategy chose in a step for requests that go on alike."""

    decoding: Decoding
    chosen: Chosen
    chosen_at: float
    """Seconds on the engine's clock."""
    requests: list[Request]
    """In the order of the tokens."""

    def apart(self) -> InFlightTokens:
        """The same tokens, to be resolved request by request."""
        owners = {r: [(row, s) for s in r.live] for row, r in enumerate(self.requests)}
        return InFlightTokens(self.decoding, self.chosen, self.chosen_at, owners)


def are_alike(requests: Sequence[Request], chosen: Chosen) -> bool:
    """Whether each of `requests` goes on by the token that was chosen for its only sequence."""
    if chosen.details is not None or len(chosen.parents) != len(requests):
        return False
    for request, parent in zip(requests, chosen.parents, strict=True):
        if request.fault is not None or parent.draft or not goes_on(request, parent):
            return False
    return True


class Lockstep:
    """Continues requests that are alike, and makes their deltas once the tokens are known."""

    def __init__(self, scheduler: Scheduler, table: RequestTable) -> None:
        self._scheduler = scheduler
        self._table = table

    def append_placeholders(self, of: LockstepTokens, first: int = 0) -> None:
        """Continues each request by a placeholder; -1 - `first` stands for the first one's token."""
        scheduler, kv, unit = self._scheduler, self._scheduler.kv, self._scheduler.growth_unit
        requests, now, caught_up = of.requests, of.chosen_at, scheduler.caught_up
        observe, placeholder = scheduler.observe, -1 - first
        for request in requests:
            sequence = request.live[0]
            tokens, computed = sequence.tokens, sequence.computed
            tokens.append(placeholder)
            placeholder -= 1
            if computed % unit == 0 or request.forks or sequence in caught_up:
                kv.commit(sequence, computed)
            request.output_tokens += 1
            request.decisions_left -= 1
            if request.timing.first_token is None:
                request.timing.first_token = now
            observe(request, 1, now)
            if len(tokens) >= request.limit:
                scheduler.queues.finish(request)
        self._table.output_tokens += len(requests)

    def resolve(self, of: LockstepTokens, tokens: Sequence[int], now: float) -> list[Delta]:
        """Puts `tokens` in the place of the placeholders; returns the deltas of requests not gone since."""
        deltas, chosen_at = list[Delta](), of.chosen_at
        for request, token in zip(of.requests, tokens, strict=True):
            if request.status == "gone":
                continue
            if request.timing.first_token == chosen_at:
                request.timing.first_token = now
            sequence = request.live[0]
            ids = sequence.tokens
            if token in request.stop_ids or len(ids) >= request.limit or request.first_delta_due:
                delta = resolve_placeholder(sequence, token, None)
                ended = [sequence] if delta.finish_reason else []
                deltas += self._table.deliver(request, [delta], ended, now)
            else:
                ids[-1] = token
                spec, cached = request.spec, request.cached_tokens
                deltas.append(
                    Delta(request_id=spec.id, index=sequence.index, tokens=[token], cached_tokens=cached)
                )
        return deltas
