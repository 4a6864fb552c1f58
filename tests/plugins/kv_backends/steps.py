"""The engine's part, by hand: requests, and steps that compute so many tokens of a sequence."""

from __future__ import annotations

from itertools import count

from toy import ToyParallel

from turnout.core.interfaces.kv import KVCache, Span
from turnout.core.types.request import Request, RequestSpec, Sequence
from turnout.core.types.sampling_params import SamplingParams

_names = count()


def sequence(tokens, *, salt: str = "", n: int = 1, room: int = 40) -> Sequence:
    """The first sequence of a new request, with space for `room` more tokens."""
    tokens = list(tokens)
    spec = RequestSpec(
        id=f"r{next(_names)}", prompt=tokens, params=SamplingParams(n=n), seed=0, cache_salt=salt
    )
    return Request(spec, ToyParallel(), 0.0, len(tokens) + room, frozenset()).live[0]


def start(kv: KVCache, sequence: Sequence) -> int:
    """Where a step would begin: after what is computed, or what is found in memory."""
    return sequence.computed if sequence.held else kv.cached(sequence)


def spans(kv: KVCache, *sequences: Sequence) -> list[Span]:
    """All that is left of them."""
    return [Span(each, start(kv, each), len(each.tokens)) for each in sequences]


def compute(kv: KVCache, *sequences: Sequence, upto: int | None = None) -> None:
    """A step that computes them together, as far as said or to their ends."""
    wanted = [Span(each, start(kv, each), upto or len(each.tokens)) for each in sequences]
    assert kv.reserve(wanted)
    for each, _, end in wanted:
        each.request.timing.scheduled = 0.0
        each.held, each.computed = True, end
        kv.commit(each, end)


def fork(kv: KVCache, parent: Sequence, *tokens: int) -> Sequence:
    """A sibling that goes on with other tokens."""
    child = parent.fork()
    kv.fork(parent, child)
    child.tokens += tokens
    return child


def release(kv: KVCache, *sequences: Sequence, swap_out: bool = False) -> None:
    kv.release(iter(sequences), swap_out=swap_out)  # any iterable will do, one that can be read once, too
    for each in sequences:
        each.computed, each.held = 0, False


def swap_out(kv: KVCache, *sequences: Sequence) -> None:
    release(kv, *sequences, swap_out=True)
