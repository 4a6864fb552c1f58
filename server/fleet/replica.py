"""One engine of a fleet, and what a router is told about it."""

from __future__ import annotations

from typing import Literal

from turnout.core.interfaces.router import Replica
from turnout.core.types.request import RequestSpec
from turnout.server.engine.client import ProcessClient
from turnout.server.engine.request_stream import RequestStream

__all__ = ["Condition", "FleetReplica"]

Condition = Literal["starting", "serving", "restarting", "draining", "drained", "failed"]


class FleetReplica:
    """Counts what was sent to its engine, from when it is sent until the client's generator is left."""

    def __init__(self, name: str, client: ProcessClient) -> None:
        self.name = name
        self.client = client
        self.draining = False
        """It gets no more requests."""
        self.started = False
        """Its engine has been ready once."""
        self.view = Replica(name, 0, 0)
        """What routers see of it."""

    @property
    def condition(self) -> Condition:
        if self.client.failure is not None:
            return "failed"
        if not self.started:
            return "starting"
        if self.draining:
            return "drained" if self.client.idle else "draining"
        return "restarting" if self.client.restarting else "serving"

    @property
    def serves(self) -> bool:
        """It takes requests, and its engine is there to begin with them at once."""
        client = self.client
        return self.takes and not client.restarting and not client.streams.closed

    @property
    def takes(self) -> bool:
        """It takes requests, which may wait until another engine has taken the place of one that died."""
        return self.started and not self.draining and self.client.room

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
        name, requests, held = self.view
        self.view = Replica(name, requests + sign, held + sign * tokens)
