"""``/admin/replicas``: the engines behind the port, which can be added, drained, restarted and removed."""

from __future__ import annotations

from typing import Literal, Self

import msgspec
from pydantic import BaseModel, ConfigDict, model_validator
from starlette.requests import Request
from starlette.responses import Response

from turnout.core.errors import RequestError
from turnout.server.api.context import context_of
from turnout.server.fleet.fleet import Fleet, FleetError
from turnout.server.fleet.replica import FleetReplica
from turnout.server.http.bodies.body import read_body
from turnout.server.http.errors import ApiError
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import ARM, MODEL, operation

__all__ = ["ReplicaChange", "ReplicaList", "ReplicaState", "change_replicas", "show_replicas"]


class ReplicaChange(BaseModel):
    """The body of a request to change the replicas."""

    model_config = ConfigDict(strict=True, extra="forbid")

    action: Literal["add", "drain", "restart", "remove"]
    """`add` one; `drain` one: it gets no more requests, and others take over those that it has; `restart` it
    once it is drained; `remove` it once it is drained."""
    replica: str | None = None
    """Name of the replica; `add` takes none."""
    worker: str | None = None
    """With `add`: address of the `turnout worker` whose engine it is; null: it runs beside the server."""

    @model_validator(mode="after")
    def _named(self) -> Self:
        if (self.replica is None) != (self.action == "add"):
            needed = "takes no replica" if self.action == "add" else "needs the name of a replica"
            raise RequestError(f"{self.action} {needed}", "replica")
        if self.worker is not None and self.action != "add":
            raise RequestError(f"{self.action} takes no worker", "worker")
        return self


class ReplicaState(msgspec.Struct):
    """A replica, as clients see it."""

    name: str
    """Stays the same when its engine is replaced."""
    state: str
    """`starting`; `serving`; `restarting`: its engine died or is being ended, and another takes its place;
    `draining`: it gets no more requests, and still has some; `drained`: it has none left; `failed`: its
    engine was given up."""
    requests: int
    """Requests sent to it that clients wait for."""
    tokens: int
    """Tokens of those requests: prompt and `max_tokens`."""
    ranks: int
    """Processes of the engine that compute together, on one or several devices; 0: it has not started yet."""
    restarts: int
    """Engines of it that were lost and replaced."""
    reason: str | None
    """Why its engine failed or was ended, else null."""
    worker: str | None
    """Address of the worker whose engine it is; null: it has none."""
    pid: int | None
    """The process of its engine, or of the one that died last; null: it runs on another machine."""


class ReplicaList(msgspec.Struct):
    """The replicas of an arm, or of the server."""

    router: str
    """The policy that chooses among them."""
    router_faults: int
    """Answers of the router that could not be carried out."""
    replicas: list[ReplicaState]


@operation(answer=ReplicaList, parameters=(MODEL, ARM))
async def show_replicas(request: Request) -> Response:
    """Lists the replicas."""
    context = context_of(request)
    with context.named_arm(request) as arm:
        return _report(arm.client, context.config.router)


@operation(
    body=ReplicaChange,
    answer=ReplicaList,
    parameters=(MODEL, ARM),
    statuses={409: "There is no such replica, no room, no other that serves, or it is being ended."},
)
async def change_replicas(request: Request) -> Response:
    """Adds, drains, restarts or removes a replica."""
    context = context_of(request)
    body = await read_body(request, ReplicaChange, limit=context.config.max_body_size)
    with context.named_arm(request, changes=True) as arm:
        try:
            _change(arm.client, body)
        except FleetError as error:
            raise ApiError(409, str(error), param="replica", code="replica_unchanged") from None
        return _report(arm.client, context.config.router)


def _change(fleet: Fleet, body: ReplicaChange) -> None:
    if body.replica is None:
        fleet.add(body.worker or "")
        return
    change = {"drain": fleet.drain, "restart": fleet.restart, "remove": fleet.remove}[body.action]
    change(body.replica)


def _report(fleet: Fleet, router: str) -> Response:
    states = [_state(replica) for replica in fleet.replicas]
    return JsonResponse(ReplicaList(router, fleet.router_faults, states))


def _state(replica: FleetReplica) -> ReplicaState:
    view, client = replica.view, replica.client
    return ReplicaState(
        name=replica.name,
        state=replica.condition,
        requests=view.requests,
        tokens=view.tokens,
        ranks=client.ranks,
        restarts=client.restarts,
        reason=client.failure,
        worker=client.place or None,
        pid=client.pid,
    )
