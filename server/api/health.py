"""``GET /health`` and ``GET /live``."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from turnout.server.api.context import context_of
from turnout.server.fleet.arms import Arms, ServedArm
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import fields, operation

__all__ = ["health", "live"]

STUCK_SECONDS = 300.0
"""Longer than the longest step of a large model on a slow machine."""


@operation(
    answer=fields("Health", status=str), statuses={503: "The engine does not serve; `reason` says why."}
)
async def health(request: Request) -> Response:
    """Answers 200 while the engine serves, else 503 with the reason.

    That is, while the server takes requests, and every engine that gets them serves and makes progress.
    """
    arms = context_of(request).arms
    restarting = any(arm.client.restarting for arm in arms.all if arm.serves)
    report: dict[str, object] = {"status": "ok"}
    if arms.closing:
        report = {"status": "draining", "reason": "the server is shutting down"}
    elif (lasting := _lasting(arms)) is not None and lasting["status"] == "failed":
        report = lasting
    elif restarting:
        report = {"status": "restarting", "reason": "the engine died"}
    elif lasting is not None:
        report = lasting
    if arms.trial is not None:
        report["arms"] = {arm.name: _condition(arm) for arm in arms.all}
    elif len(arms.first.client.replicas) > 1:
        report["replicas"] = {replica.name: replica.condition for replica in arms.first.client.replicas}
    return JsonResponse(report, status_code=200 if report["status"] == "ok" else 503)


@operation(answer=fields("Liveness", status=str), statuses={503: "Only a restart helps; `reason` says why."})
async def live(request: Request) -> Response:
    """Answers 503 where only a restart of the server helps, else 200.

    That is, where an engine makes no progress or none is left: not while the server drains, or an engine is
    replaced.
    """
    report = _lasting(context_of(request).arms)
    return JsonResponse(report or {"status": "ok"}, status_code=200 if report is None else 503)


def _lasting(arms: Arms) -> dict[str, object] | None:
    """What does not pass by itself."""
    active = [arm for arm in arms.all if arm.active and arm.client.failure is None]
    if not any(arm.serves for arm in active) and not arms.closing:
        return {"status": "failed", "reason": arms.failure}
    silence = max((arm.client.silence for arm in active), default=0.0)
    if silence <= STUCK_SECONDS:
        return None
    reason = f"the engine has sent nothing for {silence:.0f} seconds, though requests wait"
    return {"status": "stuck", "reason": reason}


def _condition(arm: ServedArm) -> str:
    if arm.active and arm.client.failure is not None:
        return "failed"
    return "restarting" if arm.active and arm.client.restarting else arm.state
