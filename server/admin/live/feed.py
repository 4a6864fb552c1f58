"""What all engines do, as events for those that watch: made once for all of them, and only while one watches.

::

    engines ── EngineNews ──▶ WatchedEngine ──┐ every TICK_SECONDS
                                              ├──▶ LiveEvent ──▶ all watchers
    replicas' states, arms ───────────────────┘

A watcher that is not there for an event, because its client reads slowly, gets all that is known next time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager, suppress
from functools import partial

import msgspec

from turnout.core.clock import Clock, monotonic
from turnout.core.registry.kinds import POLICY_KINDS
from turnout.core.types.live.event import LiveEngine, LiveEvent
from turnout.core.types.live.news import EngineNews, LiveRequest
from turnout.plugins.defaults import KV, KV_EVICTION
from turnout.server.admin.ab import report_of
from turnout.server.admin.live.engine import EngineKey, WatchedEngine
from turnout.server.admin.live.parts import decoded, encoded
from turnout.server.fleet.arms import ServedArm
from turnout.server.fleet.models.models import Models
from turnout.server.fleet.replica import FleetReplica

__all__ = ["TICK_SECONDS", "LiveFeed"]

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.25
LEASE_SECONDS, RENEW_SECONDS = 6.0, 2.0
"""How long engines record unless they are told to go on, and how often they are told."""
ARMS_SECONDS = 1.0
"""The least time between two looks at a live test."""
LEFT_REMEMBERED = 1000
"""Requests that were aborted: another engine may go on with them."""


class LiveFeed:
    """For one event loop."""

    def __init__(self, models: Models, clock: Clock = monotonic, wall: Clock = time.time) -> None:
        self._models, self._clock, self._wall = models, clock, wall
        self._watchers = 0
        self._task: asyncio.Task[None] | None = None
        self._engines: dict[EngineKey, WatchedEngine] = {}
        self._clients: dict[EngineKey, FleetReplica] = {}
        """The replica whose news are heard, of each engine."""
        self._left: dict[str, str] = {}
        """The engines that aborted requests, by the requests' ids."""
        self._arms = b""
        """As they were told."""
        self._next_arms = self._next_renewal = 0.0
        self._number = 0
        """Of the latest event."""
        self._latest: list[bytes] = []
        self._told = asyncio.Event()
        """Set, and replaced, with each event."""

    @property
    def watched(self) -> bool:
        return self._watchers > 0

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Yields server-sent events until the server shuts down."""
        with self._watching():
            seen = -1
            if self._number:  # others watch already
                seen, first = self._number, self._first()
                for event in first:
                    yield event
            while not self._models.closing:
                if seen == self._number or not self._number:
                    await self._told.wait()
                    continue
                follows, seen = seen + 1 == self._number, self._number
                for event in list(self._latest) if follows else self._first():
                    yield event

    async def record(self, seconds: float) -> list[LiveEvent]:
        """Returns the events of so many seconds, or until the server shuts down."""
        told: list[LiveEvent] = []
        async with aclosing(self.events()) as events:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    async for event in events:
                        told.append(decoded(event))
        return told

    @contextmanager
    def _watching(self) -> Iterator[None]:
        self._watchers += 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers and self._task is not None:
                self._task.cancel()
                self._end()

    # -------------------------------------------------------------- rounds

    async def _run(self) -> None:
        self._next_renewal = self._next_arms = 0.0
        while not self._models.closing:
            self._renew()
            await asyncio.sleep(TICK_SECONDS)
            try:
                self._publish()
            except Exception:  # such as a live test's figures, which a plugin may make
                logger.exception("an event for those that watch could not be made")
        self._tell()

    def _end(self) -> None:
        """Forgets all, and has engines record no longer: nobody watches any more."""
        for replica in self._clients.values():
            replica.client.hear_news = _ignore
            replica.client.watch(0.0, anew=False)
        self._task = None
        self._engines, self._clients, self._left = {}, {}, {}
        self._number, self._latest, self._arms = 0, [], b""

    def _tell(self) -> None:
        told, self._told = self._told, asyncio.Event()
        told.set()

    def _renew(self) -> None:
        """Has engines record, those too that have come since."""
        due = self._clock() >= self._next_renewal
        if due:
            self._next_renewal = self._clock() + RENEW_SECONDS
        for key, arm, replica in self._replicas():
            known = self._clients.get(key) is replica
            if not known:
                self._clients[key] = replica
                self._engines[key] = WatchedEngine(key, _policies(arm, replica))
                replica.client.hear_news = partial(self._hear, self._engines[key])
            if due or not known:
                replica.client.watch(LEASE_SECONDS, anew=not known)

    def _replicas(self) -> Iterator[tuple[EngineKey, ServedArm, FleetReplica]]:
        for model in self._models.all:
            for arm in model.arms.all if model.loaded else ():
                for replica in arm.client.replicas if arm.active else ():
                    yield EngineKey(model.name, arm.name, replica.name), arm, replica

    def _hear(self, engine: WatchedEngine, news: EngineNews) -> None:
        before = engine.live if news.began else {}
        for request in news.requests:
            if request.state == "ended":
                self._note_left(engine, request)
            elif request.id not in engine.live and request.id not in before:
                request.moved_from = self._served_before(engine, request)
        engine.hear(news)

    def _note_left(self, engine: WatchedEngine, request: LiveRequest) -> None:
        if request.finish_reason != "abort":
            return
        self._left[request.id] = engine.key.name
        if len(self._left) > LEFT_REMEMBERED:
            del self._left[next(iter(self._left))]

    def _served_before(self, engine: WatchedEngine, request: LiveRequest) -> str:
        """The name of the engine that a request came from; empty: it is new."""
        for other in self._engines.values():
            if other is not engine and (moved := other.live.get(request.id)) is not None:
                other.put(msgspec.structs.replace(moved, state="ended", finish_reason="moved"))
                return other.key.name
        return self._left.pop(request.id, "") if request.resumed else ""

    # -------------------------------------------------------------- events

    def _publish(self) -> None:
        present = {key: replica for key, _, replica in self._replicas()}
        for key, replica in present.items():
            if self._clients.get(key) is replica:
                self._engines[key].set_state(replica.condition)
        engines = [told for engine in self._engines.values() if (told := engine.take()) is not None]
        engines += [self._gone(key) for key in list(self._engines) if key not in present]
        arms = self._fresh_arms()
        if engines or arms is not None or not self._number:
            self._number += 1
            first = self._number == 1
            self._latest = encoded(LiveEvent(at=self._wall(), first=first, engines=engines, arms=arms))
            self._tell()

    def _gone(self, key: EngineKey) -> LiveEngine:
        engine = self._engines.pop(key)
        self._clients.pop(key).client.hear_news = _ignore
        engine.set_state("gone")
        return msgspec.structs.replace(
            engine.whole(), requests=[], spans=[], breadths=[], kv=None, policies={}
        )

    def _first(self) -> list[bytes]:
        """Events with all that is known."""
        engines = [engine.whole() for engine in self._engines.values()]
        arms = msgspec.json.decode(self._arms) if self._arms else None
        return encoded(LiveEvent(at=self._wall(), first=True, engines=engines, arms=arms))

    def _fresh_arms(self) -> object:
        """The arms of a live test, if that has changed."""
        if self._clock() < self._next_arms:
            return None
        self._next_arms = self._clock() + ARMS_SECONDS
        for model in self._models.all:
            if model.arms.trial is not None:
                report = report_of(model.arms, model.arms.trial)
                told, self._arms = self._arms, msgspec.json.encode(report)
                return report if told != self._arms else None
        return None


def _policies(arm: ServedArm, replica: FleetReplica) -> dict[str, str]:
    config = arm.config if replica.generation is None else replica.generation.config
    chosen = {kind: getattr(config, kind, None) for kind in POLICY_KINDS}
    if str(chosen["kv"]).partition(":")[0] == KV:  # which evicts
        chosen["kv_eviction"] = chosen["kv_eviction"] or KV_EVICTION
    return {kind: str(value) for kind, value in chosen.items() if value is not None}


def _ignore(_: EngineNews) -> None:
    pass
