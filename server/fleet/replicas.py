"""Replicas that come and go: added, drained, restarted and replaced while others serve."""

from __future__ import annotations

import asyncio
import json
import logging
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from itertools import count
from typing import Any

import msgspec

from turnout.core import limits
from turnout.core.engine.prefix_index import PrefixIndex
from turnout.core.errors import ConfigError, EngineError, EngineGone, TurnoutError
from turnout.core.types.messages import Ready
from turnout.runner.choices import changed
from turnout.server.engine.client import Place, ProcessClient
from turnout.server.engine.streams.request_stream import RequestStream
from turnout.server.fleet.agreement import check_agreement
from turnout.server.fleet.generation import Generation
from turnout.server.fleet.replica import REPLACED, FleetReplica, ReplicaOrder
from turnout.server.fleet.report import FleetReport
from turnout.server.fleet.rollout import FleetError, Rollout

__all__ = ["Launch", "Replicas"]

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.02
"""How often to look whether a replica has finished its requests."""

Launch = Callable[[ReplicaOrder], ProcessClient]
"""Starts the process of a replica. Raises OSError if the system has no room for it."""


class Replicas(FleetReport):
    """The part of a `Fleet` that starts and ends engines."""

    def __init__(self, launch: Launch, *, sharing: int | None) -> None:
        """`sharing`: how many of them share this machine; None: all."""
        super().__init__()
        self._sharing = sharing
        self.expects: dict[str, str] = {}
        """What the server itself knows of the identity that engines must have (`Ready.identity`)."""
        self._launch = launch
        self.generation: Generation | None = None
        """What replicas to come are started with."""
        self.rollout: Rollout | None = None
        """The latest."""
        self._prefixes = PrefixIndex()
        self._names = map(str, count())
        self.had_several = False
        """Replicas are told apart by name from then on, even where one is left."""
        self._ready: Ready | None = None
        self._gone = asyncio.Event()
        self.closed = False
        """No engine is started any more."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._departures: set[asyncio.Task[None]] = set()
        """Of them, those that remove or restart a replica."""

    @property
    def ready(self) -> Ready:
        assert self._ready is not None, "start() has not returned yet"
        return self._ready

    def describe(self, ready: Ready) -> None:
        """Take what an engine says of itself for the whole fleet; the model keeps its first name."""
        memory = sum(replica.client.ready.host_memory for replica in self.replicas if replica.started)
        name = ready.model if self._ready is None else self._ready.model
        self._ready = msgspec.structs.replace(ready, host_memory=memory, model=name)

    @abstractmethod
    def move_away(self, replica: FleetReplica) -> None:
        """Have others take over what a replica serves, as far as requests can go on elsewhere."""

    @abstractmethod
    def _rehome(self, stream: RequestStream, lost: FleetReplica) -> bool:
        """Have another replica serve a request that `lost` can serve no more; False: none serves."""

    @property
    def _shares(self) -> int:
        return len(self.replicas) if self._sharing is None else self._sharing

    def add(self, worker: str = "") -> FleetReplica:
        """Start another replica, of the worker at an address if one is named. It serves once it is ready.

        Raises FleetError where there are as many as may be, or the system has no room for it.
        """
        if len(self.replicas) >= limits.REPLICAS.most:
            raise FleetError(f"there are {len(self.replicas)} replicas, the most that a server may have")
        self._check_no_rollout()
        for other in self.replicas:
            if worker and other.client.place == worker:
                raise FleetError(f"the worker at {worker} is replica {other.name!r} already")
        replica = self.launch(place=worker)
        self.in_background(self.join(replica))
        return replica

    def launch(
        self, generation: Generation | None = None, like: FleetReplica | None = None, place: str = ""
    ) -> FleetReplica:
        """Start another replica of a generation, by default the present one. Raises FleetError.

        `like`: one that has ended, whose name and place it takes.
        """
        generation = generation or self.generation
        assert generation is not None
        name, place = (next(self._names), place) if like is None else (like.name, like.client.place)
        changes = json.dumps(generation.all_changes) if place and generation.all_changes else ""
        try:
            replica = self._launched(ReplicaOrder(name, generation.journal, Place(place, changes)))
            self._prepare(replica, generation)
        except (OSError, TurnoutError) as error:
            message = f"no process can be started for replica {name!r}: {error}"
            self._fail(name, message)
            raise FleetError(message) from None
        self._vacate(name)
        self.replicas.append(replica)
        return replica

    @staticmethod
    def _prepare(replica: FleetReplica, generation: Generation) -> None:
        """Tell the engine what to build; end it where its launcher fails. Raises PluginError."""
        try:
            replica.prepare(generation)
        except TurnoutError:
            replica.client.kill()
            raise

    def _check_no_rollout(self) -> None:
        if self.rollout is not None and self.rollout.busy:
            raise FleetError("a rollout is replacing the replicas; pause it first, or wait for its end")

    def drain(self, name: str) -> FleetReplica:
        """Give a replica no more requests, and those that it has to others. Raises FleetError."""
        replica = self._staying(name)
        if not any(other.serves for other in self.replicas if other is not replica):
            raise FleetError(f"replica {name!r} is the only one that serves; add another first")
        if not replica.draining:
            replica.draining = True
            logger.info("replica %s gets no more requests", name)
            self.move_away(replica)
        return replica

    def remove(self, name: str) -> FleetReplica:
        """Drain a replica, and end its engine after the last request. Raises FleetError."""
        stay = [other for other in self.replicas if other.name != name and not other.leaving]
        if self.named(name).condition == "failed" and not stay:
            raise FleetError(f"replica {name!r} is the last one that stays; add another first, or restart it")
        return self._leaving(name, self._remove)

    def restart(self, name: str) -> FleetReplica:
        """Drain a replica, and start another in its place. Raises FleetError."""
        return self._leaving(name, self._replace)

    def _leaving(self, name: str, end: Callable[[FleetReplica], Coroutine[Any, Any, None]]) -> FleetReplica:
        self._check_no_rollout()
        replica = self._staying(name)
        if replica.condition != "failed":
            self.drain(name)
        replica.leaving = True
        departure = self.in_background(end(replica))
        self._departures.add(departure)
        departure.add_done_callback(self._departures.discard)
        return replica

    def _staying(self, name: str) -> FleetReplica:
        """The replica of this name. Raises FleetError if there is none, or its engine is being ended."""
        replica = self.named(name)
        if replica.leaving:
            raise FleetError(f"replica {name!r} is being ended already, once its last request has")
        return replica

    async def settled(self) -> None:
        """Waits until replicas that are being removed or restarted have been."""
        if leaving := [replica.name for replica in self.replicas if replica.leaving]:
            logger.info("the rollout waits for the end of replica %s", ", ".join(leaving))
        while self._departures:
            await asyncio.wait(self._departures)

    def named(self, name: str) -> FleetReplica:
        """Raises FleetError if there is none of this name."""
        for replica in self.replicas:
            if replica.name == name:
                return replica
        known = ", ".join(replica.name for replica in self.replicas)
        raise FleetError(f"there is no replica {name!r}; known: {known}")

    def _launched(self, order: ReplicaOrder) -> FleetReplica:
        name = order.name
        self.had_several |= any(other.name != name for other in self.replicas)
        replica = FleetReplica(name, self._launch(order), self._prefixes.find)
        replica.client.hear_of_block = lambda event: self._prefixes.note(name, (event,))
        replica.client.elsewhere = lambda stream: self._rehome(stream, replica)
        return replica

    async def start_replica(self, replica: FleetReplica) -> Ready:
        try:
            ready = await replica.client.start()
        except (ConfigError, EngineError) as error:
            if len(self.replicas) == 1:
                raise
            kind = ConfigError if isinstance(error, ConfigError) else EngineGone
            raise kind(f"replica {replica.name}: {error}") from None
        try:
            check_agreement(replica, self.replicas, self.expects)
        except ConfigError:
            await replica.client.close()
            raise
        replica.started = True
        self.in_background(self._watch(replica))
        return ready

    async def _watch(self, replica: FleetReplica) -> None:
        await replica.client.gone()
        if len(self.replicas) > 1 and not replica.client.dismissed:
            logger.error("replica %s has failed: %s", replica.name, replica.client.failure)
        self._end_if_failed()

    def _end_if_failed(self) -> None:
        """Have `gone` return if no engine is left, and none is to come."""
        if self.failure is not None:
            self._gone.set()

    async def join(self, replica: FleetReplica) -> None:
        try:
            await self.start_replica(replica)
        except TurnoutError as error:
            if not replica.client.dismissed:
                logger.error("%s", error)
            self._end_if_failed()
            return
        logger.info("replica %s serves", replica.name)

    async def bring_back(self, ended: FleetReplica, *, drained: bool = False) -> None:
        """Start an engine again as it was; return when it is ready, or could not be at the first attempt.

        One that has served is tried again then, as after its death. `drained`: it gets no requests.
        """
        replica = self.launch(ended.generation, like=ended)
        replica.draining = drained
        if not ended.started:
            await self.join(replica)
            return
        replica.client.take_over(ended.client.ready)
        replica.started = True
        self.in_background(self._watch(replica))
        while replica.client.restarting and not replica.client.restarts:
            await asyncio.sleep(POLL_SECONDS)

    async def _remove(self, replica: FleetReplica) -> None:
        await self.end(replica, "the replica has been removed")

    async def end(self, replica: FleetReplica, reason: str) -> None:
        """End its engine after the last request that it has, and for this reason."""
        await self.discard(replica, reason)
        logger.info("replica %s has ended", replica.name)

    async def discard(self, replica: FleetReplica, reason: str) -> None:
        """As `end`, of one whose end the log tells otherwise."""
        await self._last_request_of(replica)
        self._take_off(replica)
        self._end_if_failed()
        await replica.client.close(reason)

    async def end_for_another(self, replica: FleetReplica) -> None:
        """As `end`, of one that stays listed until `launch` starts another like it."""
        await self.make_room(replica)
        logger.info("replica %s has ended", replica.name)

    async def make_room(self, replica: FleetReplica, reason: str = REPLACED) -> None:
        """As `end_for_another`, of one whose end the log tells otherwise: the fleet waits."""
        await self._last_request_of(replica)
        replica.replaced = True
        await replica.client.close(reason)

    async def _last_request_of(self, replica: FleetReplica) -> None:
        while not replica.client.idle and replica.client.failure is None:
            await asyncio.sleep(POLL_SECONDS)

    def _vacate(self, name: str) -> None:
        for replica in [each for each in self.replicas if each.name == name]:
            self._take_off(replica)

    def _fail(self, name: str, reason: str) -> None:
        """List a replica as failed whose next engine cannot be started; it can be restarted or removed."""
        for replica in self.replicas:
            if replica.name == name:
                replica.replaced = replica.leaving = False
                replica.client.failure = reason
        self._end_if_failed()

    def _take_off(self, replica: FleetReplica) -> None:
        with suppress(ValueError):  # asked for twice
            self.replicas.remove(replica)
            self._lost += replica.client.restarts
            self._prefixes.forget(replica.name)

    async def _replace(self, replica: FleetReplica) -> None:
        await self.make_room(replica)
        try:
            if replica.client.place:  # the worker may be away for a while
                await self.bring_back(replica)
            else:
                await self.join(self.launch(like=replica))
        except FleetError as error:
            logger.error("%s", error)

    def roll_out(self, changes: Mapping[str, object], drain_seconds: float) -> Rollout:
        """Begin to replace all engines by those of a changed configuration.

        Raises ConfigError for one that cannot be, FleetError while another rollout has not ended.
        """
        if self.rollout is not None and self.rollout.state not in ("done", "undone"):
            raise FleetError(f"a rollout is {self.rollout.state}; resume or undo it first")
        self._check_no_rollout()
        self._check_another_serves()
        self._check_none_is_lost()
        assert self.generation is not None
        given = changed(self.generation.given, changes)
        new = self.generation.next(given, changes, self._shares)
        self.rollout = Rollout(self, new, drain_seconds)
        self.rollout.begin()
        return self.rollout

    def _check_another_serves(self) -> None:
        """Raise FleetError where none would serve while a worker has one engine ended and another started."""
        left = [replica for replica in self.replicas if replica.leaving or not replica.draining]
        if [bool(replica.client.place) for replica in left] == [True]:
            raise FleetError(
                "the only replica that is not drained is a worker's, which has one engine at a time; add "
                "another worker first, so that a replica serves meanwhile"
            )

    def _check_none_is_lost(self) -> None:
        """Raise FleetError for a replica that would have to be ended to be replaced, and is not there."""
        for replica in self.replicas:
            if replica.lost and not replica.leaving:
                raise FleetError(
                    f"replica {replica.name!r} has lost the engine at {replica.client.place}, and tries it "
                    "again; begin the rollout when it serves, or remove it first"
                )

    def in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have work done until the fleet is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
