"""Several engines behind one interface: a request goes to one, and on to another when that one dies.

::

    submit ──▶ router ──▶ replica ──▶ engine
                 ▲                      │ dies, or is drained
                 └──────────────────────┘

What resumes on the next engine of one replica resumes on any: a token depends on the request's seed and its
position alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from itertools import chain, count

import msgspec

from turnout.config import EngineConfig
from turnout.core.clock import monotonic
from turnout.core.engine.client import TakesAtOnce
from turnout.core.errors import ConfigError, EngineGone, TurnoutError
from turnout.core.interfaces.router import Routable, Router
from turnout.core.logs import current_request
from turnout.core.types.messages import (
    AdminCommand,
    Delta,
    PinPrefix,
    Ready,
    Reply,
    StopProfile,
    UnpinPrefix,
)
from turnout.core.types.request import RequestSpec
from turnout.runner.memory.host_memory import free_host_memory
from turnout.server.engine.admin_journal import AdminJournal, lasts
from turnout.server.engine.client import SHUTTING_DOWN, Place
from turnout.server.engine.streams.request_stream import RequestStream
from turnout.server.engine.streams.unread import Unread
from turnout.server.fleet.generation import Generation
from turnout.server.fleet.guarded_router import GuardedRouter
from turnout.server.fleet.replica import FleetReplica, ReplicaOrder
from turnout.server.fleet.replica_memory import check_replicas_memory
from turnout.server.fleet.replicas import Launch, Replicas
from turnout.server.fleet.rollout import FleetError
from turnout.server.fleet.totals import merged_reply
from turnout.server.http.records.record import tracing

__all__ = ["Fleet", "FleetError", "Launch", "arrived"]

logger = logging.getLogger(__name__)

UNLOADED = "the model's engines have been unloaded; ask again"


class Fleet(Replicas):
    """An `EngineClient` over replicas. Starts their processes when constructed, as `ProcessClient` does."""

    def __init__(
        self,
        launch: Launch,
        replicas: int = 1,
        router: Router | None = None,
        *,
        sharing: int | None = None,
        workers: Sequence[str] = (),
        asleep: bool = False,
        event_interval: float = 0,
    ) -> None:
        """`router`: needed where there are, or will be, several replicas. `sharing`: how many of them share
        this machine; None: all. `workers`: addresses of those whose engines are replicas too. `asleep`: no
        process is started before `wake`. `event_interval`: as `SetEventInterval`."""
        super().__init__(launch, sharing=sharing)
        self._router = GuardedRouter(router)
        self._reads_caches = router is not None and router.reads_caches
        self._journal = AdminJournal(announce=self._reads_caches, event_interval=event_interval)
        self._place: dict[str, FleetReplica] = {}
        """Of each request that a client waits for."""
        self._unread = Unread(self._give_up_slowest)
        self._places = [*[""] * replicas, *workers]
        """Where engines run while the fleet is awake."""
        if not asleep:
            self._launch_all(self._journal)

    def _launch_all(self, journal: AdminJournal) -> None:
        """Start a replica at each place: all, or none where the system has no room for one."""
        try:
            for place in self._places:
                order = ReplicaOrder(next(self._names), journal, Place(place))
                self.replicas.append(self._launched(order))
        except (OSError, TurnoutError):
            self.kill()
            self.replicas.clear()
            raise

    # -------------------------------------------------------------- what the engines report

    @property
    def unread(self) -> int:
        """About the bytes that have come from engines and clients have not taken."""
        return self._unread.size

    @property
    def router_faults(self) -> int:
        """Answers of the router that could not be carried out."""
        return self._router.faults

    # -------------------------------------------------------------- start and end

    @property
    def configured(self) -> bool:
        """The first engine has been told what to build."""
        return self.generation is not None

    def configure(self, config: EngineConfig) -> None:
        """Tell the first engine what to build; the others are told when it is ready."""
        self.generation = Generation.first(config, self._shares, self._journal)
        self.replicas[0].prepare(self.generation)

    async def start(self) -> Ready:
        """Wait until all engines are assembled.

        The first decides what the others take over, such as the kernels for a CPU: so all give the same
        tokens. Raises EngineError if one cannot be assembled, ConfigError if the configuration is the reason.
        """
        first, *others = self.replicas
        ready = await self.start_replica(first)
        assert self.generation is not None
        self.generation.follow(ready)
        if self._reads_caches and len(self.replicas) > 1 and not ready.announces:
            raise ConfigError(
                f"the router asks which prefixes engines keep, and the KV backend {ready.kv} does not tell; "
                "choose --kv paged with prefix caching, or another --router"
            )
        check_replicas_memory(ready, self._shares, free_host_memory())
        for replica in others:
            replica.prepare(self.generation)
        await asyncio.gather(*map(self.start_replica, others))
        self.describe(ready)
        return self.ready

    async def gone(self) -> None:
        await self._gone.wait()

    def refuse(self, reason: str) -> None:
        """End all requests with `reason`, and take no more."""
        for replica in self.replicas:
            replica.client.dismiss(reason)

    async def close(self, reason: str = SHUTTING_DOWN) -> None:
        self.closed = True
        for task in self._tasks:
            task.cancel()
        self._gone.set()
        await asyncio.gather(*(replica.client.close(reason) for replica in self.replicas))

    def kill(self) -> None:
        """Stop all processes at once. Needs no event loop."""
        for replica in self.replicas:
            replica.client.kill()

    # -------------------------------------------------------------- sleep

    @property
    def described(self) -> bool:
        """An engine has told what the model is; it may have ended since."""
        return self._ready is not None

    async def wake(self, config: EngineConfig) -> Ready:
        """Start engines where there are none, of the latest configuration; `config` is the first one.

        Raises what `start` raises, and OSError if the system has no room for a process. `sleep` ends what has
        been started then.
        """
        if self._gone.is_set():
            self._gone = asyncio.Event()
        self._launch_all(self._journal if self.generation is None else self.generation.journal)
        if self.generation is None:
            self.configure(config)
        else:
            self.replicas[0].prepare(self.generation)
        return await self.start()

    async def sleep(self) -> None:
        """End all engines. What they were told by commands is kept for those that `wake` starts."""
        self._places = [replica.client.place for replica in self.replicas] or self._places
        ended, self.replicas = self.replicas, []
        self._names = map(str, count())
        for task in self._tasks:
            task.cancel()
        for replica in ended:
            self._lost += replica.client.restarts
            self._prefixes.forget(replica.name)
        await asyncio.gather(*(replica.client.close("the model is being unloaded") for replica in ended))

    # -------------------------------------------------------------- requests

    async def submit(
        self, request: RequestSpec, at_once: TakesAtOnce | None = None
    ) -> AsyncGenerator[Delta, None]:
        stream = RequestStream(arrived(request), self._unread, at_once)
        self.begin(stream)
        try:
            while (delta := await stream.next()) is not None:
                yield delta
        finally:
            self.leave(stream)
            stream.forget_unread()

    def begin(self, stream: RequestStream) -> None:
        """Have an engine serve a request. Raises EngineGone, Overloaded."""
        replica = self._choose(stream.spec)
        replica.check()
        self._put(stream, replica)

    def leave(self, stream: RequestStream) -> None:
        """Have a request that has begun served no longer: its client has all, or has left."""
        self._place.pop(stream.spec.id).detach(stream)

    def packed(self, prompt: list[int]) -> list[int]:
        """A prompt as the router reads it fastest; to be called in the thread that tokenizes."""
        return self._prefixes.packed(prompt) if self._reads_caches and len(self.replicas) > 1 else prompt

    def abort(self, request_id: str, index: int | None = None) -> None:
        replica = self._place.get(request_id)
        if replica is not None:
            replica.client.abort(request_id, index)

    async def admin(self, command: AdminCommand) -> Reply:
        """Have all engines carry a command out; those that are not there are told when they start. A prefix
        that one engine refuses stays pinned in none."""
        if not self.replicas:
            raise EngineGone(UNLOADED)
        undoing = self._undoing(command.name) if isinstance(command, PinPrefix) else None
        asked = self._asked(command) or list(self.replicas)
        replies = await asyncio.gather(*(replica.admin(command) for replica in asked))
        reply = merged_reply(replies)
        if lasts(command) and not reply.error_kind:
            # Engines that came meanwhile were told what had been carried out before they did.
            come = [replica for replica in self._at_work if replica not in asked]
            late = await asyncio.gather(*(replica.admin(command) for replica in come))
            reply = merged_reply([*replies, *(each for each in late if each.error_kind != "missing")])
            asked, replies = [*asked, *come], [*replies, *late]
        if undoing is not None and reply.error_kind:
            took = [replica for replica, each in zip(asked, replies, strict=True) if not each.error_kind]
            await asyncio.gather(*(replica.admin(undoing) for replica in took), return_exceptions=True)
        return reply

    def _undoing(self, name: str) -> PinPrefix | UnpinPrefix:
        """The command that brings back what a prefix of this name is now."""
        pinned = None if self.generation is None else self.generation.journal.pin(name)
        return UnpinPrefix(name) if pinned is None else PinPrefix(name, pinned.tokens, pinned.salt)

    def _asked(self, command: AdminCommand) -> list[FleetReplica]:
        """The replicas at work; one that was drained since its profile began still has that to end."""
        if isinstance(command, StopProfile):
            return [replica for replica in self.replicas if replica.reports]
        return self._at_work

    @property
    def _at_work(self) -> list[FleetReplica]:
        return [replica for replica in self.replicas if replica.condition in ("serving", "draining")]

    def _choose(self, request: RequestSpec, among: Sequence[FleetReplica] | None = None) -> FleetReplica:
        """The replica for a request: one that serves, else one whose next engine the request will wait for.

        Where there is neither, one that says why it takes no requests. Raises EngineGone if there is none.
        """
        some = self.replicas if among is None else among
        able = [replica for replica in some if replica.serves] or [r for r in some if r.takes]
        able = able or [replica for replica in some if replica.client.failure is None] or [*some]
        if not able:
            raise EngineGone(UNLOADED)
        if len(able) == 1:
            return able[0]
        views = [replica.view for replica in able]
        return able[self._router.route(_routable(request), views)]

    def _give_up_slowest(self) -> None:
        """End the request whose client has left most unread. `submit` learns of it when it is read again."""
        streams = chain.from_iterable(replica.client.streams.all() for replica in self.replicas)
        stream = max(streams, key=lambda stream: stream.unread)
        stream.give_up()
        self._place[stream.spec.id].client.abort(stream.spec.id)

    def _put(self, stream: RequestStream, replica: FleetReplica) -> None:
        self._place[stream.spec.id] = replica
        replica.attach(stream)

    # -------------------------------------------------------------- requests that move

    def _rehome(self, stream: RequestStream, lost: FleetReplica) -> bool:
        """Have another replica serve a request that `lost` can serve no more; False: none serves."""
        if not (homes := self._homes(stream, lost)):
            return False
        lost.forget(stream)
        self._put(stream, self._choose(stream.spec, homes))
        return True

    def _homes(self, stream: RequestStream, lost: FleetReplica) -> list[FleetReplica]:
        """The other replicas that serve and would go on with the same tokens, if the stream has some."""
        others = [replica for replica in self.replicas if replica.serves and replica is not lost]
        return [other for other in others if not stream.outputs or other.same_tokens(lost)]

    def move_away(self, replica: FleetReplica) -> None:
        """Have others take over what a replica serves, as far as requests can go on elsewhere."""
        if not self.ready.resumes:
            return
        for stream in replica.client.streams.movable():
            if homes := self._homes(stream, replica):
                replica.detach(stream)
                stream.interrupt()
                self._put(stream, self._choose(stream.spec, homes))


def arrived(request: RequestSpec) -> RequestSpec:
    """The request with what the task that serves it knows: when it came, and what the log calls it."""
    if request.arrival is not None:
        return request
    # The engine reads the time after its step, on the same clock.
    return msgspec.structs.replace(
        request, arrival=monotonic(), log_id=current_request.get(), traced=tracing.get()
    )


def _routable(request: RequestSpec) -> Routable:
    longest = request.params.max_tokens or 0
    return Routable(request.id, request.prompt, longest, request.session, request.client, request.cache_salt)
