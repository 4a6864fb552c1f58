"""Our routers, each with one mistake."""

from __future__ import annotations

from collections.abc import Sequence

from turnout.core.interfaces.router import Replica, Routable, Router
from turnout.plugins.routers.round_robin import RoundRobin


class HashesSessions(Router):
    """Finds the replica of a session by a number that each process draws anew."""

    watches = False

    def route(self, request: Routable, replicas: Sequence[Replica]) -> int:
        return hash(request.session or request.id) % len(replicas)


class CountsTooFar(RoundRobin):
    """Forgets that replicas leave."""

    def route(self, request: Routable, replicas: Sequence[Replica]) -> int:
        return super().route(request, [*replicas, *replicas])


class DividesByTheLimit(Router):
    """Does not think of requests that set no limit to their output."""

    watches = False

    def route(self, request: Routable, replicas: Sequence[Replica]) -> int:
        return 997 * len(request.prompt) // request.max_tokens % len(replicas)


ROUTERS = [HashesSessions, CountsTooFar, DividesByTheLimit]
