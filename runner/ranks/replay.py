"""Repeats rank 0's steps on a follower: the same transitions of KV memory, then the same chunks.

Nothing is decided here: no policy, no clock and no random number. What cannot be repeated raises Divergence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, NoReturn

import msgspec
from msgspec.structs import replace

from turnout.core.interfaces.compute import Runner
from turnout.core.interfaces.eviction import CachedBlock, EvictionPolicy
from turnout.core.interfaces.kv import KVCache, KVDigest, Span
from turnout.core.scheduling.guarded_eviction import GuardedEviction
from turnout.core.types.plan import Chunk, Plan
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams
from turnout.runner.ranks.frames import (
    Divergence,
    Entered,
    Frame,
    Transition,
    digest_of,
    digest_of_moves,
)

__all__ = ["FollowedEviction", "FollowedRequest", "Follower", "followed_eviction"]


class FollowedEviction(EvictionPolicy):
    """Evicts the blocks that rank 0 evicted."""

    def __init__(self) -> None:
        self.victims: list[int] = []
        """Of this frame, the next one last."""

    def add(self, block: CachedBlock) -> None:
        """Does nothing: rank 0's policy has chosen."""

    def remove(self, block: int) -> None:
        """Does nothing."""

    def pop(self) -> int:
        if not self.victims:
            raise Divergence("a block is to be evicted that rank 0 did not evict")
        return self.victims.pop()


def followed_eviction() -> tuple[GuardedEviction, FollowedEviction]:
    """Returns what a cache is given, which checks that it holds the block, and what a follower fills."""
    policy = FollowedEviction()
    return GuardedEviction(policy, strict=True), policy


class _Followed:
    """Stands for the strategy that decodes a request, on rank 0 alone."""

    streams: ClassVar[bool] = True

    def width(self, params: SamplingParams) -> int:
        return 1


class FollowedRequest(Request):
    """A request as caches read it: they find what they would find on rank 0."""

    __slots__ = ("_unscored",)

    def __init__(self, entered: Entered, tokens: list[int]) -> None:
        spec = RequestSpec(
            id=f"request {entered.request} of rank 0",
            prompt=tokens[: entered.prompt],
            params=SamplingParams(),
            seed=0,
            cache_salt=entered.salt,
        )
        super().__init__(spec, _Followed(), 0.0, entered.limit, frozenset(), entered.width)
        self._unscored = range(0)

    @property
    def unscored(self) -> range:
        return self._unscored

    def update(self, entered: Entered) -> None:
        self._unscored = range(*entered.unscored)
        self.timing.scheduled = 0.0 if entered.scheduled else None


class Follower:
    """Keeps a follower's books, and runs its part of each step."""

    def __init__(self, cache: KVCache, eviction: FollowedEviction, runner: Runner) -> None:
        """cache: empty, of the same size as rank 0's; eviction: what it asks; runner: over that cache."""
        self._cache, self._eviction, self._runner = cache, eviction, runner
        self._decode = msgspec.msgpack.Decoder(Frame).decode
        self._sequences: dict[int, TokenSequence] = {}
        self._requests: dict[int, tuple[FollowedRequest, set[int]]] = {}
        """Requests by number, with their sequences."""
        self._number_of: dict[int, int] = {}
        """The number of each sequence's request."""
        self.steps = 0

    def take(self, data: bytes) -> None:
        """Repeats the step of a frame. Raises Divergence, which says what differs, and in which frame."""
        frame = self._decode(data)
        try:
            plan = self.plan(frame)
        except Divergence as error:
            raise Divergence(f"frame {frame.number}: {error}") from error
        self._runner.run(plan)

    def plan(self, frame: Frame) -> Plan:
        """Brings the books to where rank 0's are, and returns the plan that rank 0 runs."""
        self.steps += 1
        if frame.number != self.steps:
            raise Divergence(f"expected frame {self.steps}: frames were lost")
        self._eviction.victims = frame.victims[::-1]
        if frame.ops:
            self._repeat(frame)
        moves = self._cache.drain()
        if self._eviction.victims:
            raise Divergence(f"rank 0 evicted {len(self._eviction.victims)} blocks more")
        if digest_of_moves(moves) != frame.moves:
            raise Divergence(f"its books ask for other moves of KV memory than rank 0's: {moves[:4]}…")
        if frame.digest is not None:
            _compare(frame.digest, digest_of(self._cache))
        return Plan(self._chunks(frame), moves)

    # -------------------------------------------------------------- transitions

    def _repeat(self, frame: Frame) -> None:
        sequences, cache = self._sequences, self._cache
        ops = iter(frame.ops)
        for op in ops:
            try:
                if op == Transition.COMMIT:
                    sequence, upto = sequences[next(ops)], next(ops)
                    sequence.computed = upto
                    cache.commit(sequence, upto)
                elif op == Transition.RESERVE:
                    self._reserve(ops)
                elif op == Transition.RELEASE:
                    self._release(ops)
                elif op == Transition.ENTER:
                    self._enter(frame.entered[next(ops)])
                elif op == Transition.FORK:
                    self._fork(sequences[next(ops)], next(ops), next(ops))
                else:
                    self._pin(frame, next(ops), pinned=op == Transition.PIN)
            except Divergence:
                raise
            except Exception as error:
                name = Transition(op).name.lower()
                raise Divergence(
                    f"{name} went well on rank 0, and here gave {type(error).__name__}: {error}"
                ) from error

    def _reserve(self, ops: Iterator[int]) -> None:
        spans = []
        for _ in range(next(ops)):
            sequence, start, upto = self._sequences[next(ops)], next(ops), next(ops)
            sequence.computed = next(ops)
            spans.append(Span(sequence, start, upto))
        if not self._cache.reserve(spans):
            raise Divergence(f"no room here for {sum(span.tokens for span in spans)} positions")
        for span in spans:
            span.sequence.held = True
            span.sequence.request.timing.scheduled = 0.0

    def _release(self, ops: Iterator[int]) -> None:
        swap_out, count = bool(next(ops)), next(ops)
        sequences = []
        for _ in range(count):
            sequence = self._sequences[next(ops)]
            sequence.computed = next(ops)
            sequences.append(sequence)
        self._cache.release(sequences, swap_out=swap_out)
        for sequence in sequences:
            sequence.computed, sequence.held = 0, False
            if not swap_out:
                self._forget(sequence.id)

    def _enter(self, entered: Entered) -> None:
        tokens = entered.tokens
        known = self._sequences.get(entered.sequence)
        if known is not None:  # it was swapped out
            known.tokens = tokens
            self._requests[entered.request][0].update(entered)
            return
        if entered.request not in self._requests:
            self._requests[entered.request] = FollowedRequest(entered, tokens), set()
        request = self._requests[entered.request][0]
        request.update(entered)
        sequence = TokenSequence(request, tokens, entered.index, id=entered.sequence)
        self._know(sequence, entered.request)

    def _fork(self, parent: TokenSequence, child: int, index: int) -> None:
        sequence = TokenSequence(
            parent.request, list(parent.tokens), index, computed=parent.computed, held=parent.held, id=child
        )
        self._cache.fork(parent, sequence)
        self._know(sequence, self._number_of[parent.id])

    def _know(self, sequence: TokenSequence, number: int) -> None:
        request, sequences = self._requests[number]
        sequences.add(sequence.id)
        self._sequences[sequence.id], self._number_of[sequence.id] = sequence, number
        request.live = tuple(self._sequences[each] for each in sorted(sequences))

    def _forget(self, sequence: int) -> None:
        del self._sequences[sequence]
        number = self._number_of.pop(sequence)
        sequences = self._requests[number][1]
        sequences.discard(sequence)
        if not sequences:
            del self._requests[number]

    def _pin(self, frame: Frame, index: int, *, pinned: bool) -> None:
        pin, prefixes = frame.pins[index], self._cache.prefixes
        assert prefixes is not None
        if pinned:
            prefixes.pin(pin.name, pin.tokens, pin.salt)
        else:
            prefixes.unpin(pin.name)

    # -------------------------------------------------------------- chunks

    def _chunks(self, frame: Frame) -> list[Chunk]:
        known, chunks = self._sequences, list[Chunk]()
        columns = frame.sequences, frame.starts, frame.tokens, frame.rows
        for number, start, tokens, rows in zip(*columns, strict=True):
            sequence = known.get(number) or _unknown(number)
            end = start + len(tokens)
            sequence.tokens[start:end] = tokens
            sequence.computed = end
            chunks.append(Chunk(sequence, start, tokens, rows))
        for at, start, stop in frame.scored:
            chunks[at] = replace(chunks[at], scored=range(start, stop))
        for at, start, stop in frame.pooled:
            chunks[at] = replace(chunks[at], pooled=range(start, stop))
        return chunks


def _unknown(number: int) -> NoReturn:
    raise Divergence(f"rank 0 computes sequence {number}, which holds nothing here")


def _compare(theirs: KVDigest, ours: KVDigest) -> None:
    differing = [
        f"{name} ({_told(theirs.parts, name)} on rank 0, {_told(ours.parts, name)} here)"
        for name in sorted({*theirs.parts, *ours.parts})
        if theirs.parts.get(name) != ours.parts.get(name)
    ]
    held = [
        each
        for each in sorted({*theirs.sequences, *ours.sequences})
        if theirs.sequences.get(each) != ours.sequences.get(each)
    ]
    if held:
        differing.append(f"what {len(held)} sequences hold, the first of them sequence {held[0]}")
    if differing:
        raise Divergence(f"its books are not those of rank 0; they differ in {', '.join(differing)}")


def _told(parts: Mapping[str, int], name: str) -> str:
    return f"{parts[name]:,}" if name in parts else "none"
