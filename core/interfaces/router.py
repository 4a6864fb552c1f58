"""The routing seam: which of several engines a request goes to. A policy answers, it sends nothing itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

__all__ = ["Replica", "Routable", "Router", "rendezvous"]


class Routable(NamedTuple):
    """What a router may look at of a request."""

    id: str
    """The request's."""
    prompt: Sequence[int]
    """Token ids."""
    max_tokens: int
    """Of output, at most."""
    session: str = ""
    """What the client calls the conversation; "" for a request on its own."""
    client: str = ""
    """Whose request this is, as `RequestView.client` says."""


class Replica(NamedTuple):
    """An engine that may be chosen, as it stands."""

    name: str
    """The same as long as the engine is there, whoever joins or leaves."""
    requests: int
    """Sent there and not ended."""
    tokens: int
    """Prompt and `max_tokens` of those requests."""


class Router(ABC):
    """Answers which engine gets a request. Deterministic: any randomness is a function of what it sees."""

    watches: bool = True
    """It looks at how replicas stand. False: only at their names and at the requests, one after the other;
    then a simulation may run each replica on its own."""

    @abstractmethod
    def route(self, request: Routable, replicas: Sequence[Replica]) -> int:
        """Which of `replicas` gets it, as an index; called once for each request, in order of arrival.

        `replicas`: those that are up, at least one, in an order that does not change while they are.
        """


def rendezvous(key: bytes, replicas: Sequence[Replica]) -> list[int]:
    """Indices of `replicas`, in the order in which they are preferred for `key`.

    Highest random weight (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998):
    one that leaves moves its own keys and no others. The same in every process.
    """
    weights = [blake2b(key, digest_size=8, salt=_salt(replica.name)).digest() for replica in replicas]
    return sorted(range(len(replicas)), key=weights.__getitem__, reverse=True)


def _salt(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=16).digest()
