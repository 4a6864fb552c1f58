"""The routing interface: which of several engines a request goes to. A router chooses, and sends nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

__all__ = ["Replica", "Routable", "Router", "rendezvous"]


class Routable(NamedTuple):
    """The part of a request that a router sees."""

    id: str
    """The id of the request."""
    prompt: Sequence[int]
    """Token ids."""
    max_tokens: int
    """Output tokens, at most."""
    session: str = ""
    """The client's name for the conversation; empty for a single request."""
    client: str = ""
    """The client, as in `RequestView.client`."""


class Replica(NamedTuple):
    """An engine that may be chosen, and its current load."""

    name: str
    """Stays the same while the engine is there, whichever others join or leave."""
    requests: int
    """Requests sent to it that have not ended."""
    tokens: int
    """Tokens of those requests: prompt and `max_tokens`."""


class Router(ABC):
    """Chooses the engine for each request. Deterministic: randomness may only derive from what it sees."""

    watches: bool = True
    """True: it reads the load of replicas. False: it reads only their names and the requests, one after the
    other, so a simulation may run replicas in several processes."""

    @abstractmethod
    def route(self, request: Routable, replicas: Sequence[Replica]) -> int:
        """Returns the index in `replicas` for a request. Called once for each, in order of arrival.

        `replicas`: those that are up, at least one, in an order that stays the same while they are up.
        """


def rendezvous(key: bytes, replicas: Sequence[Replica]) -> list[int]:
    """Returns the indices of `replicas` in order of preference for `key`.

    Highest random weight (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998):
    when a replica leaves, only its own keys move. The order is the same in each process.
    """
    weights = [blake2b(key, digest_size=8, salt=_salt(replica.name)).digest() for replica in replicas]
    return sorted(range(len(replicas)), key=weights.__getitem__, reverse=True)


def _salt(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=16).digest()
