"""``GET /health``."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from turnout.server.api.context import context_of
from turnout.server.fleet.arms import ServedArm
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import fields, operation

__all__ = ["health"]

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
    serving = [arm for arm in arms.all if arm.serves]
    restarting = any(arm.client.restarting for arm in serving)
    silence = max((arm.client.silence for arm in serving), default=0.0)
    report: dict[str, object] = {"status": "ok"}
    if arms.closing:
        report = {"status": "draining", "reason": "the server is shutting down"}
    elif not serving:
        report = {"status": "failed", "reason": arms.failure}
    elif restarting:
        report = {"status": "restarting", "reason": "the engine died"}
    elif silence > STUCK_SECONDS:
        reason = f"the engine has sent nothing for {silence:.0f} seconds, though requests wait"
        report = {"status": "stuck", "reason": reason}
    if arms.trial is not None:
        report["arms"] = {arm.name: _condition(arm) for arm in arms.all}
    elif len(arms.first.client.replicas) > 1:
        report["replicas"] = {replica.name: replica.condition for replica in arms.first.client.replicas}
    return JsonResponse(report, status_code=200 if report["status"] == "ok" else 503)


def _condition(arm: ServedArm) -> str:
    if arm.active and arm.client.failure is not None:
        return "failed"
    return "restarting" if arm.active and arm.client.restarting else arm.state
