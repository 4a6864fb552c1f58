"""Records what happens to KV memory on rank 0, so that followers can repeat it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnout.core.interfaces.kv import BlockMap, KVCache, PrefixAnnouncer, PrefixPins, Span
from turnout.core.scheduling.guarded_eviction import GuardedEviction
from turnout.core.types.block_events import BlockEvent
from turnout.core.types.messages import KVSnapshot, PinnedPrefix
from turnout.core.types.plan import Move
from turnout.core.types.request import Request
from turnout.core.types.request import Sequence as TokenSequence
from turnout.runner.ranks.frames import Entered, Ops, Pin, Transition

__all__ = ["RecordedCache", "RecordedEviction", "Recording", "recorded"]

ENTER, RESERVE, COMMIT, FORK = (int(each) for each in list(Transition)[:4])
RELEASE, PIN, UNPIN = (int(each) for each in list(Transition)[4:])


class Recording:
    """What has happened since the last frame."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.ops: Ops = []
        self.entered: list[Entered] = []
        self.pins: list[Pin] = []
        self.victims: list[int] = []


class RecordedEviction(GuardedEviction):
    """Notes which blocks the policy evicts: followers evict the same ones, and ask no policy."""

    def __init__(self, like: GuardedEviction, recording: Recording) -> None:
        super().__init__(like.policy, strict=like.strict)
        self._recording = recording

    def pop(self) -> int:
        block = super().pop()
        self._recording.victims.append(block)
        return block


class RecordedCache:
    """Does what `cache` does, and notes each transition; implements KVCache.

    Queries, and reservations for which there is no room, change nothing, and so are not noted.
    """

    def __init__(self, cache: KVCache, recording: Recording) -> None:
        """cache: empty."""
        self._cache = cache
        self._recording = recording
        self._held: set[int] = set()
        """Sequences with memory, by id."""
        self._requests: dict[int, Request] = {}
        """The request of each sequence that followers know: of those, and of those that are swapped out."""
        self._numbers: dict[Request, int] = {}
        """The number by which followers know a request; kept while they know one of its sequences."""
        self._users: dict[Request, int] = {}
        """How many sequences of it they know."""
        self._next = 0
        self._pins = None if cache.prefixes is None else RecordedPins(cache.prefixes, recording)

    # -------------------------------------------------------------- queries

    @property
    def free(self) -> int:
        return self._cache.free

    @property
    def capacity(self) -> int:
        return self._cache.capacity

    @property
    def prefixes(self) -> PrefixPins | None:
        return self._pins

    def cached(self, sequence: TokenSequence) -> int:
        return self._cache.cached(sequence)

    def swappable(self, sequences: Sequence[TokenSequence]) -> int:
        return self._cache.swappable(sequences)

    def holds(self, length: int, sequences: int) -> bool:
        return self._cache.holds(length, sequences)

    def fits(self, spans: Sequence[Span]) -> bool:
        return self._cache.fits(spans)

    def snapshot(self) -> KVSnapshot:
        return self._cache.snapshot()

    @property
    def announces(self) -> bool:
        return isinstance(self._cache, PrefixAnnouncer) and self._cache.announces

    def announce(self) -> None:
        if isinstance(self._cache, PrefixAnnouncer):
            self._cache.announce()

    def announced(self) -> list[BlockEvent]:
        return self._cache.announced() if isinstance(self._cache, PrefixAnnouncer) else []

    # -------------------------------------------------------------- transitions

    def reserve(self, spans: Sequence[Span]) -> bool:
        if not self._cache.reserve(spans):
            return False
        ops = self._recording.ops
        for span in spans:
            if span.sequence.id not in self._held:
                self._enter(span.sequence)
        ops += (RESERVE, len(spans))
        for sequence, start, upto in spans:
            ops += (sequence.id, start, upto, sequence.computed)
        return True

    def commit(self, sequence: TokenSequence, upto: int) -> None:
        self._cache.commit(sequence, upto)
        self._recording.ops += (COMMIT, sequence.id, upto)

    def fork(self, parent: TokenSequence, child: TokenSequence) -> None:
        self._cache.fork(parent, child)
        self._know(child)
        self._recording.ops += (FORK, parent.id, child.id, child.index)

    def release(self, sequences: Iterable[TokenSequence], *, swap_out: bool = False) -> None:
        sequences = list(sequences)
        self._cache.release(sequences, swap_out=swap_out)
        known = [each for each in sequences if each.id in self._requests]
        if not known:
            return
        ops = self._recording.ops
        ops += (RELEASE, int(swap_out), len(known))
        for sequence in known:
            ops += (sequence.id, sequence.computed)
            self._held.discard(sequence.id)
            if not swap_out:
                self._forget(sequence)

    def drain(self) -> list[Move]:
        return self._cache.drain()

    # -------------------------------------------------------------- details

    def _enter(self, sequence: TokenSequence) -> None:
        """Tells followers of a sequence that gets its first memory, or its first since it was preempted."""
        recording, request = self._recording, sequence.request
        self._know(sequence)
        recording.ops += (ENTER, len(recording.entered))
        unscored = request.unscored
        recording.entered.append(
            Entered(
                sequence.id,
                sequence.index,
                sequence.tokens.copy(),
                self._numbers[request],
                len(request.prompt),
                request.spec.cache_salt,
                request.limit,
                request.width,
                request.timing.scheduled is not None,
                (unscored.start, unscored.stop),
            )
        )

    def _know(self, sequence: TokenSequence) -> None:
        request = sequence.request
        self._held.add(sequence.id)
        if sequence.id in self._requests:
            return
        self._requests[sequence.id] = request
        if request not in self._numbers:
            self._next += 1
            self._numbers[request] = self._next
        self._users[request] = self._users.get(request, 0) + 1

    def _forget(self, sequence: TokenSequence) -> None:
        request = self._requests.pop(sequence.id)
        self._users[request] -= 1
        if not self._users[request]:
            del self._users[request], self._numbers[request]


class RecordedBlocks(RecordedCache):
    """Of a cache that can tell whose its blocks are; implements BlockMap."""

    def __init__(self, cache: KVCache, blocks: BlockMap, recording: Recording) -> None:
        super().__init__(cache, recording)
        self._blocks = blocks

    @property
    def evicted(self) -> int:
        return self._blocks.evicted

    def holdings(self) -> Iterable[tuple[TokenSequence, Sequence[int]]]:
        return self._blocks.holdings()

    def pins(self) -> Iterable[tuple[str, Sequence[int]]]:
        return self._blocks.pins()


def recorded(cache: KVCache, recording: Recording) -> RecordedCache:
    """Returns what does all that `cache` does, and notes its transitions. cache: empty."""
    if isinstance(cache, BlockMap):
        return RecordedBlocks(cache, cache, recording)
    return RecordedCache(cache, recording)


class RecordedPins:
    """Does what `pins` does, and notes it; implements PrefixPins."""

    def __init__(self, pins: PrefixPins, recording: Recording) -> None:
        self._pins = pins
        self._recording = recording

    def pin(self, name: str, tokens: Sequence[int], salt: str) -> PinnedPrefix:
        pinned = self._pins.pin(name, tokens, salt)
        self._note(PIN, Pin(name, tokens, salt))
        return pinned

    def unpin(self, name: str) -> bool:
        found = self._pins.unpin(name)
        if found:
            self._note(UNPIN, Pin(name))
        return found

    def pinned(self) -> list[PinnedPrefix]:
        return self._pins.pinned()

    def _note(self, op: int, pin: Pin) -> None:
        self._recording.ops += (op, len(self._recording.pins))
        self._recording.pins.append(pin)
