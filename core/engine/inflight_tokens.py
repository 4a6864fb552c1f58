"""Tokens that were chosen on the device and are not known yet, while the next step is computed already."""

from __future__ import annotations

from dataclasses import dataclass, field

from turnout.core.engine.apply_decisions import Promised, keep
from turnout.core.interfaces.decoding import Decoding
from turnout.core.types.decision import Chosen, TokenLogprobs
from turnout.core.types.messages import Delta
from turnout.core.types.request import Request, Sequence

__all__ = ["Unread", "may_wait"]


@dataclass(frozen=True)
class Unread:
    """What one strategy chose in a step, and whose it is."""

    decoding: Decoding
    chosen: Chosen
    chosen_at: float
    """Seconds on the engine's clock."""
    owners: dict[Request, Promised] = field(default_factory=dict)
    """For each request places among what was chosen, and who goes on with that."""

    def told(
        self, request: Request, known: list[tuple[int, TokenLogprobs | None]]
    ) -> tuple[list[Delta], list[Sequence]]:
        """What a client may see of it, and the sequences that ended; nothing of those that are gone."""
        deltas, ended = [], []
        for place, sequence in self.owners[request]:
            if sequence not in request.live:
                continue
            delta = keep(sequence, *known[place])
            if delta.finish_reason:
                ended.append(sequence)
            if delta.finish_reason or delta.tokens:
                deltas.append(delta)
        return deltas, ended


def may_wait(request: Request) -> bool:
    """A step can be planned without knowing its next tokens: nothing is guessed of them, and all of its
    sequences end with them for want of room, or none."""
    live = request.live
    if len(live) == 1:
        return not live[0].draft
    return not any(sequence.draft for sequence in live) and len({sequence.room > 1 for sequence in live}) == 1
