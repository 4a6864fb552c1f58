"""Routes to the less loaded of two replicas that a hash of the request's id picks."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from turnout.core.interfaces.router import Replica, Routable, Router

__all__ = ["PowerOfTwo"]


class PowerOfTwo(Router):
    """Routes to the less loaded of two replicas, so that several servers do not all choose the same one.

    Mitzenmacher, "The power of two choices in randomized load balancing" (IEEE TPDS, 2001).
    """

    def route(self, request: Routable, replicas: Sequence[Replica]) -> int:
        count = len(replicas)
        if count == 1:
            return 0
        number = int.from_bytes(blake2b(request.id.encode(), digest_size=8).digest(), "little")
        one = number % count
        other = (one + 1 + number // count % (count - 1)) % count
        return other if replicas[other].requests < replicas[one].requests else one
