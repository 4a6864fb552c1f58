"""The KV memory interface: the host half, which counts in integers, and the plugin that adds the tensors.

Nothing here imports torch; tensors appear in annotations alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from turnout.core.interfaces.figures import Figures

if TYPE_CHECKING:
    from turnout.core.interfaces.attention import AttentionBackend
    from turnout.core.interfaces.compute import ComputeContext
    from turnout.core.interfaces.eviction import EvictionPolicy
    from turnout.core.types.block_events import BlockEvent
    from turnout.core.types.layer_attention import AttentionFeature
    from turnout.core.types.messages import KVSnapshot, PinnedPrefix
    from turnout.core.types.model_spec import ModelSpec
    from turnout.core.types.plan import Move
    from turnout.core.types.request import Sequence as TokenSequence

__all__ = [
    "BlockMap",
    "KVBackend",
    "KVCache",
    "KVDigest",
    "KVDigests",
    "PoolSize",
    "PrefixAnnouncer",
    "PrefixPins",
    "Span",
]


class Span(NamedTuple):
    """Positions of a sequence that a step computes: its KV memory must reach to `upto`."""

    sequence: TokenSequence
    """The sequence that writes."""
    start: int
    """The first position to be written; those before it are computed, attached or cached already."""
    upto: int
    """The position after the last one to be written."""

    @property
    def tokens(self) -> int:
        """How many positions are to be written."""
        return self.upto - self.start


@dataclass(frozen=True)
class PoolSize:
    """What a KV backend may use, in token positions."""

    tokens: int
    """Positions of the pool, on the device."""
    swap: int = 0
    """Positions in host memory, for requests that are swapped out; 0: none is ever swapped out."""
    step: int | None = None
    """The most positions that a sequence computes in a step; None: not known. What it needs at a time depends
    on that where layers have windows."""


class KVCache(Protocol):
    """The host half of a KV backend: which sequence holds which memory, in integers.

    A query changes nothing. A transition happens as a whole or not at all.
    """

    @property
    def free(self) -> int:
        """Query: token positions that could be reserved now."""
        ...

    @property
    def capacity(self) -> int:
        """Query: token positions in the whole pool."""
        ...

    def cached(self, sequence: TokenSequence) -> int:
        """Query: how many leading tokens of a sequence that holds nothing would need no compute.

        These were computed for another sequence, or were swapped out to host memory. At least one token must
        be left to compute.
        """
        ...

    def swappable(self, sequences: Sequence[TokenSequence]) -> int:
        """Query: positions that `release` would copy to host memory with `swap_out`.

        0: there is no room for them, or nothing to copy.
        """
        ...

    def holds(self, length: int, sequences: int) -> bool:
        """Query: whether an empty pool could hold that many sequences of that many tokens, sharing nothing.

        Called at start-up and for each new request, which is refused if not: a request that runs alone must
        always get what it needs.
        """
        ...

    def fits(self, spans: Sequence[Span]) -> bool:
        """Query: whether `reserve` would succeed."""
        ...

    def reserve(self, spans: Sequence[Span]) -> bool:
        """Takes memory up to `span.upto` for all of `spans`, or changes nothing and returns False.

        Called with all spans of a request at once, and again after each preemption that makes room for it. A
        sequence that holds nothing attaches to the prefix that `cached` reported, as far as `span.start`,
        which is lower where cached tokens are to be scored; the part of it that was swapped out is swapped
        in. Memory shared with another sequence is copied before it is written to. The copies are queued as
        `Move`s, for `drain`.
        """
        ...

    def commit(self, sequence: TokenSequence, upto: int) -> None:
        """Called after a step: positions below `upto` are final, and may be shared from now on. Frees
        nothing.
        """
        ...

    def fork(self, parent: TokenSequence, child: TokenSequence) -> None:
        """Lets `child` share all that `parent` holds; committed positions are final for both.

        Must not fail, so it takes no memory.
        """
        ...

    def release(self, sequences: Iterable[TokenSequence], *, swap_out: bool = False) -> None:
        """Frees what `sequences` hold, in the pool and in host memory; a sequence may hold nothing.

        `swap_out`, at a preemption: first copies what is computed of them to host memory: all of it, or
        nothing if there is no room.
        """
        ...

    def drain(self) -> list[Move]:
        """Returns the moves queued since the last call, to be carried out in this order before the step.

        A move's `way` is ``"copy"`` inside the pool, ``"swap_out"`` from the pool to host memory, or
        ``"swap_in"`` back.
        """
        ...

    def snapshot(self) -> KVSnapshot:
        """Query: the state of the pool, for metrics; cheap enough to be called every second."""
        ...

    @property
    def prefixes(self) -> PrefixPins | None:
        """Where prefixes can be pinned; None if this backend cannot pin any."""
        ...


@runtime_checkable
class PrefixAnnouncer(Protocol):
    """What a `KVCache` has besides if it can tell which prefixes it keeps, for routers."""

    @property
    def announces(self) -> bool:
        """Whether it keeps prefixes that it can tell of."""
        ...

    def announce(self) -> None:
        """Begins to note what may be attached to, and what no longer; called again for another listener.

        `AllBlocksCleared` comes first, then what is in memory, as far as the cache knows its tokens.
        """
        ...

    def announced(self) -> list[BlockEvent]:
        """Returns what was noted since the last call, in order."""
        ...


@runtime_checkable
class BlockMap(Protocol):
    """What a `KVCache` has besides if it can tell whose its blocks are, for watchers of the engine.

    Blocks are numbered from the pool's start, as `KVSnapshot.states` has them.
    """

    @property
    def evicted(self) -> int:
        """Query: positions of cached memory evicted so far; asked for in each step."""
        ...

    def holdings(self) -> Iterable[tuple[TokenSequence, Sequence[int]]]:
        """Query: the blocks of each sequence that holds memory; shared ones are named for each."""
        ...

    def pins(self) -> Iterable[tuple[str, Sequence[int]]]:
        """Query: the blocks in memory of each pinned prefix, by its name."""
        ...


class KVDigest(NamedTuple):
    """Numbers that are equal where the books of two caches are."""

    parts: Mapping[str, int]
    """By what they are of, as ``free blocks``: an error names the parts that differ."""
    sequences: Mapping[int, int]
    """Of what each sequence holds, by its id."""


@runtime_checkable
class KVDigests(Protocol):
    """What a `KVCache` has besides if ranks that keep the same books can compare them.

    With ``--tensor-parallel-size`` each rank keeps a cache of its own, and repeats the transitions of rank 0:
    equal transitions must leave equal books, whatever the process. What a cache does not tell is not
    compared; all are compared by `free`.
    """

    def digests(self) -> KVDigest:
        """Query: digests of its books, asked for every few dozen steps."""
        ...


class PrefixPins(Protocol):
    """Pinned prefixes: their cached memory is evicted last, when a running request needs it.

    A prefix is pinned by its tokens, computed or not: it is kept once any request has computed it.
    """

    def pin(self, name: str, tokens: Sequence[int], salt: str) -> PinnedPrefix:
        """Pins a prefix, in place of the one of the same name: it is evicted last, computed yet or not.

        A running request still gets the memory when no other is left. Raises ConfigError, with the sums, if
        the pool is too small for the prefix, or the prefix too short to be kept.
        """
        ...

    def unpin(self, name: str) -> bool:
        """Unpins a prefix; returns False if none has that name."""
        ...

    def pinned(self) -> list[PinnedPrefix]:
        """Query: all pinned prefixes, by name."""
        ...


class KVBackend(ABC):
    """A KV backend: builds a host half and a device half that match, and knows what they cost."""

    def bytes_per_token(self, spec: ModelSpec, itemsize: int) -> int:
        """Returns the bytes that a token position takes over all layers, by which the pool's size is
        computed.

        By default keys and values in the model's dtype, `itemsize` bytes each.
        """
        return sum(rule.kv_numbers for rule in spec.layer_attention()) * itemsize

    def for_model(self, spec: ModelSpec) -> KVBackend:
        """Returns the backend for a model: what is asked of it then, it answers for that model.

        By default itself. Called once for each model, before anything else.
        """
        return self

    def positions(self, length: int, step: int | None = None) -> int:
        """Returns the positions of the pool that a sequence of `length` tokens takes at most.

        step: the most of them that are computed at a time, if that is known. By default whole units; fewer
        where layers with a window keep only what their windows see.
        """
        return -(-length // self.unit) * self.unit

    unit: int = 1
    """Token positions that it allocates at a time: the size of its blocks, if it has blocks."""
    grows_at: int | None = None
    """Declares at which lengths a request of one sequence that grows by a token a step takes memory or
    commits what can be shared: at multiples of this many positions; 0: at none. None: unknown. Elsewhere
    `reserve` and `commit` are not called for it, and a simulation skips the steps (fast forward)."""
    evicts: bool = False
    """True: it keeps memory that no sequence holds, and asks an `EvictionPolicy` what to evict first. False:
    `--kv-eviction` is refused."""
    attention_features: frozenset[AttentionFeature] = frozenset()
    """Which rules of `LayerAttention` its attention follows, by the names that `ModelSpec.attention_features`
    gives. A model that asks for another is refused by name."""
    approximation: str = ""
    """How it approximates keys and values, as in ``"int8"`` or ``"window=1020"``. Comparisons expect equal
    answers of backends with equal values only. Empty: attention reads exactly what was written."""

    @abstractmethod
    def cache(self, size: PoolSize, eviction: EvictionPolicy) -> KVCache:
        """Returns the host half, for a pool of at most `size.tokens` positions.

        Host memory for preempted requests has at most `size.swap` positions.
        """

    @abstractmethod
    def attention(self, spec: ModelSpec, cache: KVCache, context: ComputeContext) -> AttentionBackend:
        """Returns the device half, which reads the tables of `cache`.

        `context` has the `device` and `dtype` of keys and values, and `kernels`, the fused kernels of that
        device, or None; ``turnout.kernels.cpu_kernels(context.kernels)`` returns those of a CPU.
        """

    def figures(self, cache: KVCache) -> Figures:
        """Returns counters and gauges of `cache` for `GET /metrics`, asked for a few times a second. None by
        default.
        """
        return Figures()
