"""Reads tokens that came together one after the other, where it matters what each of them is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from turnout.core.types.messages import Delta
from turnout.text.choice_text import TextDelta
from turnout.text.output.events import merged

__all__ = ["joined", "one_by_one"]


def one_by_one(delta: Delta) -> Iterator[Delta]:
    """A delta for each token; the last has all that the delta tells besides."""
    scores = delta.logprobs
    last = len(delta.tokens) - 1
    for number in range(last):
        yield Delta(
            request_id=delta.request_id,
            index=delta.index,
            tokens=[delta.tokens[number]],
            logprobs=None if scores is None else scores[number : number + 1],
        )
    if last > 0:
        delta = msgspec.structs.replace(
            delta, tokens=delta.tokens[last:], logprobs=None if scores is None else scores[last:]
        )
    yield delta


def joined(added: Sequence[TextDelta]) -> TextDelta:
    """What several deltas add to a choice, as one."""
    if len(added) == 1:
        return added[0]
    return msgspec.structs.replace(
        added[-1],
        text="".join(each.text for each in added),
        tokens=[token for each in added for token in each.tokens],
        shown=[token for each in added for token in each.shown],
        answered=[token for each in added for token in each.answered],
        reasoning_tokens=sum(each.reasoning_tokens for each in added),
        events=merged([event for each in added for event in each.events]),
    )
