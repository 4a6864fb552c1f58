"""In-flight tokens: chosen on the device, not copied to the host yet, while the next step is computed."""

from __future__ import annotations

from dataclasses import dataclass, field

from turnout.core.engine.apply_decisions import RowOwners, resolve_placeholder
from turnout.core.engine.decoding_dispatch import Read
from turnout.core.interfaces.decoding import Decoding
from turnout.core.types.decision import Chosen
from turnout.core.types.messages import Delta
from turnout.core.types.request import Request, Sequence

__all__ = ["InFlightTokens", "may_defer"]


@dataclass(frozen=True)
class InFlightTokens:
    """The tokens that one strategy chose in a step, and the sequences they belong to."""

    decoding: Decoding
    chosen: Chosen
    chosen_at: float
    """Seconds on the engine's clock."""
    owners: dict[Request, RowOwners] = field(default_factory=dict)
    """For each request, the rows of its tokens and the sequences that continue with them."""

    def deltas(self, request: Request, known: Read) -> tuple[list[Delta], list[Sequence]] | str:
        """Replaces the placeholders of a request; returns its deltas and the sequences that ended.

        known: the token and its details for each row. Sequences that ended in the meantime are skipped. If
        a token cannot be used, returns the message that stands in its place.
        """
        deltas, ended = [], []
        for row, sequence in self.owners[request]:
            if sequence not in request.live:
                continue
            if isinstance(found := known[row], str):
                return found
            delta = resolve_placeholder(sequence, *found)
            if delta.finish_reason:
                ended.append(sequence)
            if delta.finish_reason or delta.tokens:
                deltas.append(delta)
        return deltas, ended


def may_defer(request: Request) -> bool:
    """Whether the next step can be planned before the request's next tokens are known.

    It can if no sequence has a draft, and either all or none of them reach their limit with that token.
    """
    live = request.live
    if len(live) == 1:
        return not live[0].draft
    return not any(sequence.draft for sequence in live) and len({sequence.room > 1 for sequence in live}) == 1
