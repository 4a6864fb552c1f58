"""``GET /admin/history``: figures of the last hour, which the server keeps whether or not a client watches.

Every 15 seconds there is a point of each engine, made of what its reports and the server's metrics count
anyway: what the engine computed meanwhile, and its state at the end. Latencies are of all replicas of an arm.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.core.clock import Clock
from turnout.core.types.messages import Stats
from turnout.server.admin.live.engine import EngineKey
from turnout.server.admin.live.latencies import Latencies
from turnout.server.api.context import Context
from turnout.server.api.metrics import measured
from turnout.server.fleet.arms import ServedArm
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import operation

__all__ = ["EngineHistory", "History", "HistoryPoint", "HistoryReport", "show_history"]

logger = logging.getLogger(__name__)

SECONDS = 15
POINTS = 240
"""An hour."""
COUNTERS = ("output_tokens", "computed_tokens", "preemptions")


class HistoryPoint(msgspec.Struct, omit_defaults=True):
    """An engine in some seconds. Counts are of these, the others as of their end."""

    at: float
    """When they began."""
    output_tokens: int = 0
    """Tokens produced."""
    computed_tokens: int = 0
    """Tokens run through the model."""
    preemptions: int = 0
    """How often requests were preempted."""
    running: int = 0
    """Requests that run."""
    waiting: int = 0
    """Requests that wait."""
    kv: float = 0.0
    """Share of the KV pool that is held."""
    ttft: float | None = None
    """Median time to first token, in seconds, of all replicas of the arm; left out where there was none."""
    ttft95: float | None = None
    """Its 95th percentile."""
    tpot: float | None = None
    """Median time for each token after the first, of the choices that ended."""
    tpot95: float | None = None
    """Its 95th percentile."""


class EngineHistory(msgspec.Struct):
    """What is known of one engine."""

    model: str
    arm: str
    replica: str
    points: list[HistoryPoint]
    """The oldest first. Where one is missing, the engine was not there."""


class HistoryReport(msgspec.Struct):
    """The last hour."""

    seconds: int
    """Of each point."""
    engines: list[EngineHistory]


@dataclass
class _Kept:
    """Of one engine."""

    points: deque[HistoryPoint] = field(default_factory=lambda: deque(maxlen=POINTS))
    stats: Stats | None = None
    """Its last report of the point before."""


class History:
    """Of all engines of a server."""

    def __init__(self, context: Context, wall: Clock = time.time) -> None:
        self._context, self._wall = context, wall
        self._kept: dict[EngineKey, _Kept] = {}
        self._latencies: dict[tuple[str, str], Latencies] = {}
        """By model and arm."""

    async def run(self) -> None:
        """Takes a point whenever it is due."""
        while True:
            await asyncio.sleep(SECONDS - self._wall() % SECONDS)
            try:
                await self.take()
            except Exception:  # such as a front's that is gone
                logger.exception("a point of the history could not be taken")

    async def take(self) -> None:
        """Takes a point of each engine that is there."""
        at = round(self._wall() / SECONDS) * SECONDS - SECONDS
        for context in self._context.each:
            for arm in context.arms.all if context.served.loaded else ():
                if arm.active and arm.client.described:
                    await self._of_arm(context, arm, at)
        stale = at - POINTS * SECONDS
        for key in [key for key, kept in self._kept.items() if kept.points and kept.points[-1].at <= stale]:
            del self._kept[key]

    async def _of_arm(self, context: Context, arm: ServedArm, at: float) -> None:
        of_arm = context.model_name, arm.name
        latencies = self._latencies.setdefault(of_arm, Latencies())
        found = latencies.since(await measured(context, arm, Latencies.NAMES))
        for replica in arm.client.replicas:
            if (stats := replica.client.stats) is None or not replica.reports:
                continue
            kept = self._kept.setdefault(EngineKey(*of_arm, replica.name), _Kept())
            kept.points.append(_point(at, kept.stats, stats, found))
            kept.stats = stats

    def report(self) -> HistoryReport:
        engines = [EngineHistory(*key, list(kept.points)) for key, kept in self._kept.items()]
        return HistoryReport(SECONDS, engines)


def _point(at: float, before: Stats | None, now: Stats, latencies: Mapping[str, float]) -> HistoryPoint:
    if before is not None and now.steps < before.steps:  # another engine has taken its place
        before = None
    counted = {name: getattr(now, name) - (getattr(before, name) if before else 0) for name in COUNTERS}
    told: dict[str, Any] = {**counted, **latencies}
    return HistoryPoint(
        at=at,
        running=now.running,
        waiting=now.waiting,
        kv=round(1 - now.kv_free / now.kv_capacity, 4) if now.kv_capacity else 0.0,
        **told,
    )


@operation(answer=HistoryReport)
async def show_history(request: Request) -> Response:
    """Shows figures of the last hour, by engine."""
    history: History = request.app.state.history
    return JsonResponse(msgspec.to_builtins(history.report()))
