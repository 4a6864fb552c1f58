"""``/admin/ab``: the arms of a live A/B test."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from turnout.core.interfaces.trial import Trial
from turnout.server.api.context import context_of
from turnout.server.fleet.arms import Arms, ServedArm
from turnout.server.http.bodies.body import read_body
from turnout.server.http.errors import ApiError
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import operation

__all__ = ["ABReport", "ArmChange", "ArmState", "change_arms", "report_of", "show_arms"]


class ArmChange(BaseModel):
    """The body of a request to stop an arm, or to promote it."""

    model_config = ConfigDict(strict=True, extra="forbid")

    action: Literal["stop", "promote"]
    """`stop` this arm, or `promote` it, which stops the other."""
    arm: str
    """Name of the arm."""


class ArmState(msgspec.Struct):
    """An arm, as clients see it."""

    name: str
    """Name of the arm; `base` is the server's own configuration."""
    changes: dict[str, str]
    """Its options that differ from the server's own configuration, as given."""
    share: float
    """Its share of the sessions, as given at the start."""
    state: str
    """`serving`; `draining`: it gets no more requests, and still has some; `stopped`; `failed`: its engine
    was given up."""
    reason: str | None
    """Why it failed, else null."""
    restarts: int
    """Engines of it that were [lost and replaced](../how-to/serve.md#when-the-engine-dies)."""
    policy_faults: int
    """Answers of its scheduling policies that could not be carried out, so that its requests were served in
    arrival order; counted by the engines that run."""
    session: str | None
    """A name for `X-Session-Id` that has a request served by this arm, while it serves."""


class ABReport(msgspec.Struct):
    """The arms and their comparison."""

    arms: list[ArmState]
    comparison: dict[str, Any]
    """What the test can tell so far, as `Trial.results` returns it."""


@operation(answer=ABReport)
async def show_arms(request: Request) -> Response:
    """Compares the arms of a live test."""
    arms = _arms(request)
    return _report(arms, _trial(arms))


@operation(body=ArmChange, answer=ABReport)
async def change_arms(request: Request) -> Response:
    """Stops an arm, or promotes it."""
    context = context_of(request)
    arms = _arms(request)
    trial = _trial(arms)
    body = await read_body(request, ArmChange, limit=context.config.max_body_size)
    arm = arms.any_named(body.arm)
    if body.action == "stop":
        arms.stop(arm)
    else:
        arms.promote(arm)
    return _report(arms, trial)


def _arms(request: Request) -> Arms:
    return context_of(request).of(request.query_params.get("model")).arms


def _trial(arms: Arms) -> Trial:
    if arms.trial is None:
        message = "this server runs no A/B test; start it with --ab NAME:field=value"
        raise ApiError(404, message, code="no_ab")
    return arms.trial


def _report(arms: Arms, trial: Trial) -> Response:
    return JsonResponse(report_of(arms, trial))


def report_of(arms: Arms, trial: Trial) -> ABReport:
    """What is told of the arms."""
    states = [_state(arm, arms.sessions.get(arm.name)) for arm in arms.all]
    return ABReport(states, trial.results({state.name: state.policy_faults for state in states}))


def _state(arm: ServedArm, session: str | None) -> ArmState:
    stats = arm.client.stats
    return ArmState(
        name=arm.name,
        changes=dict(arm.changes),
        share=arm.share,
        state=arm.state,
        reason=arm.reason,
        restarts=arm.client.restarts,
        policy_faults=stats.policy_faults if stats is not None else 0,
        session=session,
    )
