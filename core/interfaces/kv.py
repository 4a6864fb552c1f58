"""The KV memory interface: who holds which positions, in integers; and the plugin that pairs it with tensors.

Nothing here imports torch; tensors appear in annotations alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from turnout.core.interfaces.attention import AttentionBackend
    from turnout.core.interfaces.compute import ComputeContext
    from turnout.core.interfaces.eviction import EvictionPolicy
    from turnout.core.types.messages import KVSnapshot, PinnedPrefix
    from turnout.core.types.model_spec import ModelSpec
    from turnout.core.types.plan import Move
    from turnout.core.types.request import Sequence as TokenSequence

__all__ = ["KVBackend", "KVCache", "PoolSize", "PrefixPins", "Span"]


class Span(NamedTuple):
    """Positions of a sequence that a step computes: its KV memory must reach to `upto`."""

    sequence: TokenSequence
    """Who is going to write."""
    start: int
    """What is computed, attached or cached already; the first position to be written."""
    upto: int
    """The position behind the last to be written."""

    @property
    def tokens(self) -> int:
        """How many those are."""
        return self.upto - self.start


@dataclass(frozen=True)
class PoolSize:
    """What a KV backend may use, in token positions."""

    tokens: int
    """In the pool, on the device."""
    swap: int = 0
    """In host memory, for requests that are swapped out; 0: none ever is."""


class KVCache(Protocol):
    """Host half of a KV backend: who holds which memory, in integers.

    A query changes nothing; a transition is all or nothing.
    """

    @property
    def free(self) -> int:
        """Token positions that could be reserved now."""
        ...

    @property
    def capacity(self) -> int:
        """Token positions in the whole pool."""
        ...

    def cached(self, sequence: TokenSequence) -> int:
        """How many leading tokens of a sequence that holds nothing would need no compute.

        Because others computed them, or because they were swapped out to host memory.
        """
        ...

    def swappable(self, sequences: Sequence[TokenSequence]) -> int:
        """Positions that `release` would copy to host memory to keep them; 0: there is no room there."""
        ...

    def holds(self, length: int, sequences: int) -> bool:
        """Could an empty pool hold that many sequences of that many tokens, sharing nothing?"""
        ...

    def fits(self, spans: Sequence[Span]) -> bool:
        """Would `reserve` succeed?"""
        ...

    def reserve(self, spans: Sequence[Span]) -> bool:
        """Take memory for all of `spans`, or change nothing and return False.

        A sequence that holds nothing attaches to the prefix that `cached` reported, as far as its span's
        start, and what of it is swapped out is swapped in. Memory shared with another sequence is copied here
        before it is written to. What that takes is queued as `Move`s.
        """
        ...

    def commit(self, sequence: TokenSequence, upto: int) -> None:
        """Positions below `upto` are final and may be shared from now on. Frees nothing."""
        ...

    def fork(self, parent: TokenSequence, child: TokenSequence) -> None:
        """`child` shares all that `parent` holds; what was committed of it is final for both. Cannot fail."""
        ...

    def release(self, sequences: Iterable[TokenSequence], *, swap_out: bool = False) -> None:
        """Give back what they hold, in the pool and in host memory; one that holds nothing is fine.

        `swap_out`: copy what is computed of them to host memory, all of it or, where there is no room,
        nothing.
        """
        ...

    def drain(self) -> list[Move]:
        """The moves queued since the last call, to be carried out in this order before the step."""
        ...

    def snapshot(self) -> KVSnapshot:
        """How the pool stands; cheap enough to be asked every second."""
        ...

    @property
    def prefixes(self) -> PrefixPins | None:
        """Where prefixes can be pinned; None: this backend keeps none."""
        ...


class PrefixPins(Protocol):
    """Prefixes whose cached memory is given up last, when a running request needs it.

    Pinned by their tokens: computed or not, whoever computes them keeps them.
    """

    def pin(self, name: str, tokens: Sequence[int], salt: str) -> PinnedPrefix:
        """Keep this prefix, replacing what had the same name.

        Raises ConfigError when the pool is too small for it, or it is too short to be kept.
        """
        ...

    def unpin(self, name: str) -> bool:
        """False: no prefix has that name."""
        ...

    def pinned(self) -> list[PinnedPrefix]: ...


class KVBackend(ABC):
    """The plugin: a matching pair of halves and its arithmetic."""

    def bytes_per_token(self, spec: ModelSpec, itemsize: int) -> int:
        """Bytes of KV memory a token position costs over all layers."""
        return 2 * spec.layers * spec.kv_heads * spec.head_dim * itemsize

    unit: int = 1
    """Token positions that it gives out at a time: the size of its blocks, if it has blocks."""
    grows_at: int | None = None
    """A sequence that grows by a token a step, alone of its request, takes memory and shares what it has only
    at multiples of so many positions; 0: never. None: nobody knows. A simulation passes over what is
    between."""
    evicts: bool = False
    """It keeps memory that nobody holds, and asks an `EvictionPolicy` what to give up first."""
    approximation: str = ""
    """What it makes of keys and values where that changes what a model says, such as the dtype that they are
    rounded to, or how many are kept. Backends with the same one are expected to say the same; empty: all is
    read as it was written."""

    @abstractmethod
    def cache(self, size: PoolSize, eviction: EvictionPolicy) -> KVCache:
        """The host half, for a pool of at most that many positions."""

    @abstractmethod
    def attention(self, spec: ModelSpec, cache: KVCache, context: ComputeContext) -> AttentionBackend:
        """Builds the device half that reads the tables of `cache`.

        context: what the model computes with: keys and values come on its device, in its dtype.
        """
