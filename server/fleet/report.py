"""What all replicas together report, as one engine would."""

from __future__ import annotations

from turnout.core.types.messages import Stats
from turnout.server.fleet.replica import FleetReplica
from turnout.server.fleet.totals import total_stats

__all__ = ["FleetReport"]


class FleetReport:
    """The part of an `EngineClient` that only reads."""

    def __init__(self) -> None:
        self.replicas: list[FleetReplica] = []
        self._lost = 0
        """Engines of replicas that are no longer here, which died and were replaced."""

    @property
    def stats(self) -> Stats | None:
        live = (replica.client for replica in self.replicas if replica.condition != "restarting")
        return total_stats([client.stats for client in live if client.stats is not None])

    @property
    def failure(self) -> str | None:
        """Why no engine is left; None while one is, or is to take the place of another."""
        reasons = [None if each.replaced else each.client.failure for each in self.replicas]
        return None if None in reasons else next(iter(reasons), None)

    @property
    def dismissed(self) -> bool:
        """Whether `failure` is what was asked for, and no engine's."""
        return all(replica.client.dismissed for replica in self.replicas)

    @property
    def restarting(self) -> bool:
        """Whether requests wait for an engine: no other serves meanwhile."""
        live = [replica.client for replica in self.replicas if replica.client.failure is None]
        return bool(live) and all(client.restarting for client in live)

    @property
    def restarts(self) -> int:
        return self._lost + sum(replica.client.restarts for replica in self.replicas)

    @property
    def silence(self) -> float:
        return max((replica.client.silence for replica in self.replicas), default=0.0)

    @property
    def idle(self) -> bool:
        return all(replica.client.idle for replica in self.replicas)

    @property
    def progress(self) -> float | None:
        """Which part of their weights starting engines have loaded; None: none has told."""
        told = [each.client.progress for each in self.replicas if not each.started]
        known = [part for part in told if part is not None]
        return min(known, default=None)
