"""The routing interface: which of several engines a request goes to. A router chooses, and sends nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from turnout.core.errors import PolicyError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Replica", "Routable", "Router", "chosen_replica", "first_by_rendezvous", "rendezvous"]


class Routable(NamedTuple):
    """The part of a request that a router sees."""

    id: str
    """The id of the request."""
    prompt: Sequence[int]
    """Token ids."""
    max_tokens: int
    """Output tokens, at most; 0: the request sets no limit, or generates nothing."""
    session: str = ""
    """The client's name for the conversation; empty for a single request."""
    client: str = ""
    """The client, as in `RequestView.client`."""
    cache_salt: str = ""
    """Only requests with the same salt share cached prefixes."""


def _find_nothing(_: Routable) -> Mapping[str, int]:
    return {}


class Replica(NamedTuple):
    """An engine that may be chosen, and its current load."""

    name: str
    """Stays the same while the engine is there, whichever others join or leave."""
    requests: int
    """Requests sent to it that have not ended."""
    tokens: int
    """Tokens of those requests: prompt and `max_tokens`."""
    waiting: int = 0
    """Of those requests, the ones that waited to run when the engine last told, a quarter of a second ago or
    less."""
    kv_use: float = 0.0
    """Share of its KV memory that requests hold, from 0 to 1, when it last told."""
    find: Callable[[Routable], Mapping[str, int]] = _find_nothing
    """By the names of replicas: what `cached` returns."""

    def cached(self, request: Routable) -> int:
        """How many leading tokens of a prompt its KV memory has, as it last told: multiples of its block
        size up to 256 tokens, then of 256. 0 unless the router `reads_caches`."""
        return self.find(request).get(self.name, 0)


class Router(ABC):
    """Chooses the engine for each request. Deterministic: randomness may only derive from what it sees."""

    watches: bool = True
    """True: it reads the load of replicas. False: it reads only their names and the requests, one after the
    other, so a simulation may run replicas in several processes."""

    reads_caches: bool = False
    """True: it asks `Replica.cached`, so engines tell of the prefixes that they keep."""

    @abstractmethod
    def route(self, request: Routable, replicas: Sequence[Replica]) -> int:
        """Returns the index in `replicas` for a request. Called once for each, in order of arrival.

        `replicas`: those that are up, at least one, in an order that stays the same while they are up.
        """


def chosen_replica(router: Router, request: Routable, replicas: Sequence[Replica]) -> int:
    """Asks a router for a request's replica, an index in `replicas`.

    Raises PolicyError for an answer that is none, and what the router raises.
    """
    answer: object = router.route(request, replicas)
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(replicas):
        return answer
    count = len(replicas)
    raise PolicyError(f"answered {answer!r}; expected the index of one of {count} replicas, from 0 on")


def rendezvous(key: bytes, replicas: Sequence[Replica]) -> list[int]:
    """Returns the indices of `replicas` in order of preference for `key`.

    Highest random weight (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998):
    when a replica leaves, only its own keys move. The order is the same in each process.
    """
    weights = _weights(_factor(key), _hashes(_names(replicas)))
    return sorted(range(len(replicas)), key=weights.__getitem__, reverse=True)


def first_by_rendezvous(key: bytes, replicas: Sequence[Replica]) -> int:
    """Returns the first of `rendezvous`; quicker, since the others are not ordered."""
    names, factor = _names(replicas), _factor(key)
    if len(names) >= MANY:
        return int((_array_of_hashes(names) * factor).argmax())
    weights = _weights(factor, _hashes(names))
    return weights.index(max(weights))


MANY = 128
"""Replicas for which one multiplication of an array is quicker."""
_MASK = (1 << 64) - 1


def _names(replicas: Sequence[Replica]) -> tuple[str, ...]:
    return tuple([replica.name for replica in replicas])


def _factor(key: bytes) -> int:
    return _hash(key) | 1


def _weights(factor: int, hashes: Sequence[int]) -> list[int]:
    """Products of a key and names, modulo a power of two: of an odd factor the high bits are a good hash
    (Dietzfelbinger et al., "A reliable randomized algorithm for the closest-pair problem", 1997)."""
    return [name * factor & _MASK for name in hashes]


@lru_cache(maxsize=16)
def _hashes(names: tuple[str, ...]) -> list[int]:
    return [_hash(name.encode()) for name in names]


@lru_cache(maxsize=16)
def _array_of_hashes(names: tuple[str, ...]) -> NDArray[np.uint64]:
    """The same, for products that wrap around at 64 bits."""
    import numpy  # only a fleet of many needs it

    return numpy.array(_hashes(names), dtype=numpy.uint64)


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")
