"""``/admin/rollout``: replaces all engines by those of another configuration, one by one, under load."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from turnout.core.errors import ConfigError, RequestError
from turnout.server.api.context import context_of
from turnout.server.fleet.fleet import Fleet, FleetError
from turnout.server.fleet.rollout import Rollout
from turnout.server.http.bodies.body import read_body
from turnout.server.http.errors import ApiError
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import ARM, MODEL, operation

__all__ = ["RolloutChange", "RolloutReport", "change_rollout", "show_rollout"]


class RolloutChange(BaseModel):
    """The body of a request to begin a rollout, or to steer one."""

    model_config = ConfigDict(strict=True, extra="forbid")

    action: Literal["start", "pause", "resume", "undo"]
    """`start` one; `pause` it where it stands; `resume` one that was paused or has failed; `undo` it, which
    brings the engines of the configuration before back."""
    changes: dict[str, str | int | float | bool | list[str] | None] | None = None
    """With `start`: options of `serve` for engines, by name, such as `scheduler` or `max_num_seqs`; null: the
    default."""
    drain_timeout: Annotated[float, Field(ge=0, le=86400, allow_inf_nan=False)] = 300.0
    """With `start`: seconds that requests may take to end that cannot go on in a new engine, because it would
    give other tokens; those that take longer end with an error."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.changes is None) != (self.action != "start"):
            needed = "needs changes" if self.action == "start" else "takes no changes"
            raise RequestError(f"{self.action} {needed}", "changes")
        return self


class RolloutReport(msgspec.Struct):
    """Where a rollout stands."""

    state: str
    """`none`: there was no rollout; `rolling`; `paused`; `undoing`: the engines of the configuration before
    are brought back; `done`; `undone`; `failed`: neither way was possible."""
    replaced: int
    """Replicas of the configuration that it brings (or brings back) that have served."""
    replicas: int
    """All replicas, those included that start or drain."""
    changes: dict[str, Any]
    """What it changes."""
    reason: str | None
    """Why it was undone or has failed, else null."""


@operation(answer=RolloutReport, parameters=(MODEL, ARM))
async def show_rollout(request: Request) -> Response:
    """Shows the latest rollout."""
    with context_of(request).named_arm(request) as arm:
        return _report(arm.client)


@operation(
    body=RolloutChange,
    answer=RolloutReport,
    parameters=(MODEL, ARM),
    statuses={409: "There is no rollout for this, another has not ended, or a replica has lost its worker."},
)
async def change_rollout(request: Request) -> Response:
    """Begins a rollout, pauses, resumes or undoes it."""
    context = context_of(request)
    body = await read_body(request, RolloutChange, limit=context.config.max_body_size)
    with context.named_arm(request, changes=True) as arm:
        try:
            _change(arm.client, body)
        except FleetError as error:
            raise ApiError(409, str(error), param="action", code="rollout_unchanged") from None
        except ConfigError as error:
            raise RequestError(str(error), "changes") from None
        return _report(arm.client)


def _change(fleet: Fleet, body: RolloutChange) -> None:
    if body.changes is not None:
        fleet.roll_out(body.changes, body.drain_timeout)
        return
    if fleet.rollout is None:
        raise FleetError("there was no rollout since the server started")
    {"pause": Rollout.pause, "resume": Rollout.resume, "undo": Rollout.undo}[body.action](fleet.rollout)


def _report(fleet: Fleet) -> Response:
    rollout, replicas = fleet.rollout, len(fleet.replicas)
    if rollout is None:
        return JsonResponse(RolloutReport("none", 0, replicas, {}, None))
    report = RolloutReport(rollout.state, rollout.replaced, replicas, rollout.new.changes, rollout.reason)
    return JsonResponse(report)
