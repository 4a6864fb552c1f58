"""One engine of a fleet, and what a router is told about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from turnout.core.errors import EngineGone
from turnout.core.interfaces.router import Replica, Routable
from turnout.core.types.messages import AdminCommand, Reply, Stats
from turnout.core.types.request import RequestSpec
from turnout.server.engine.admin_journal import AdminJournal
from turnout.server.engine.client import Place, ProcessClient
from turnout.server.engine.streams.request_stream import RequestStream
from turnout.server.fleet.generation import Generation, Tokens, tokens_of

__all__ = ["REPLACED", "Condition", "FleetReplica", "ReplicaOrder"]

Find = Callable[[Routable], Mapping[str, int]]
Condition = Literal["starting", "serving", "restarting", "draining", "drained", "failed"]

REPLACED = "the replica is being replaced"
"""Why an engine ends whose replica stays, with another engine."""


class ReplicaOrder(NamedTuple):
    """What a replica is started as."""

    name: str
    journal: AdminJournal
    """What its engines are told when they start."""
    place: Place = Place()
    """The worker whose engine it is, if it is one's."""


class FleetReplica:
    """Counts what was sent to its engine, from when it is sent until the client's generator is left."""

    def __init__(self, name: str, client: ProcessClient, find: Find) -> None:
        """`find`: how many tokens of a prompt replicas have in memory, by name."""
        self.name = name
        self.client = client
        self.draining = False
        """It gets no more requests."""
        self.leaving = False
        """Its engine is ended after its last request, by a command."""
        self.replaced = False
        """Its engine is being ended, and another will take its place: the name stays listed meanwhile."""
        self.started = False
        """Its engine has been ready once."""
        self.requests = 0
        """Those sent to it that clients wait for."""
        self.tokens = 0
        """Tokens of those requests: prompt and `max_tokens`."""
        self.generation: Generation | None = None
        self._find = find
        self._view = Replica(name, 0, 0, find=find)
        self._told: Stats | None = None
        """The engine's report that the view has."""

    def prepare(self, generation: Generation) -> None:
        """Tell the engine what to build."""
        self.generation = generation
        self.client.configure(generation.config)

    def same_tokens(self, other: FleetReplica) -> bool:
        """Whether a request may move between the two in mid-stream; both have been ready."""
        return self.tokens_key == other.tokens_key

    @property
    def tokens_key(self) -> Tokens:
        assert self.generation is not None
        return tokens_of(self.generation.config, self.client.ready)

    @property
    def condition(self) -> Condition:
        if self.replaced:
            return "restarting"
        if self.client.failure is not None:
            return "failed"
        if not self.started:
            return "starting"
        if self.draining:
            return "drained" if self.client.idle else "draining"
        return "restarting" if self.client.restarting else "serving"

    @property
    def reports(self) -> bool:
        """Its engine is there, so that what it told last is true of it."""
        return self.condition in ("serving", "draining", "drained")

    @property
    def lost(self) -> bool:
        """It is a worker's whose engine is gone, and which is tried again until it has another."""
        return bool(self.client.place) and self.client.restarting

    @property
    def serves(self) -> bool:
        """It takes requests, and its engine is there to begin with them at once."""
        client = self.client
        return self.takes and not client.restarting and not client.streams.closed

    @property
    def takes(self) -> bool:
        """It takes requests, which may wait until another engine has taken the place of one that died."""
        return self.started and not self.draining and self.client.room

    @property
    def view(self) -> Replica:
        """What routers see of it."""
        if self.client.stats is not self._told:
            self._view = self._viewed()
        return self._view

    def check(self) -> None:
        """Raise EngineGone if it has no engine, Overloaded if it may be given no other request now."""
        self.client.check()
        self._check_started()

    async def admin(self, command: AdminCommand) -> Reply:
        """As `EngineClient.admin` says."""
        self._check_started()
        return await self.client.admin(command)

    def _check_started(self) -> None:
        if self.condition == "starting":
            raise EngineGone("the engine is still starting; try again later")

    def attach(self, stream: RequestStream) -> None:
        """Have the engine serve a request, and count it."""
        self.client.attach(stream)
        self._count(stream.spec, 1)

    def detach(self, stream: RequestStream) -> None:
        """Have the engine serve a request no longer."""
        self.client.detach(stream)
        self.forget(stream)

    def forget(self, stream: RequestStream) -> None:
        """Count a request no longer, which the engine's client has given away."""
        self._count(stream.spec, -1)

    def _count(self, spec: RequestSpec, sign: int) -> None:
        tokens = len(spec.prompt) + (spec.params.max_tokens or 0)
        self.requests += sign
        self.tokens += sign * tokens
        self._view = self._viewed()

    def _viewed(self) -> Replica:
        waiting, use, self._told = 0, 0.0, self.client.stats
        if self._told is not None:
            waiting = self._told.waiting
            use = 1 - self._told.kv_free / self._told.kv_capacity if self._told.kv_capacity else 0.0
        return Replica(self.name, self.requests, self.tokens, waiting, use, self._find)
