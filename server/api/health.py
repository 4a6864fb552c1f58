"""``GET /health`` and ``GET /live``."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from turnout.server.api.context import context_of
from turnout.server.fleet.arms import Arms, ServedArm
from turnout.server.fleet.models.hosted_model import HostedModel
from turnout.server.fleet.models.models import Models
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import MODEL, fields, operation

__all__ = ["health", "live"]

STUCK_SECONDS = 300.0
"""Longer than the longest step of a large model on a slow machine."""


@operation(
    answer=fields("Health", status=str),
    statuses={503: "The engine does not serve; `reason` says why."},
    parameters=(MODEL,),
)
async def health(request: Request) -> Response:
    """Answers 200 while the engine serves, else 503 with the reason.

    That is, while the server takes requests, and every engine that gets them serves and makes progress. Of
    several models, one that does so is enough; `?model=` asks for one.
    """
    context, name = context_of(request), request.query_params.get("model")
    if name is None and context.models.alone is None:
        return _answer(_of_all(context.models, _report))
    return _answer(_report(context.of(name).served))


def _answer(report: dict[str, object]) -> Response:
    return JsonResponse(report, status_code=200 if report["status"] == "ok" else 503)


def _of_all(models: Models, look: Callable[[HostedModel], dict[str, object]]) -> dict[str, object]:
    """What is reported of several models: the first that is well, loaded if one is; and each one's status."""
    reports = {model.name: look(model) for model in models.all}
    well = [report for report in reports.values() if report["status"] == "ok"]
    loaded = [report for report in well if "state" not in report]
    first = next(iter(loaded or well or reports.values()))
    return {**first, "models": {name: report["status"] for name, report in reports.items()}}


def _report(model: HostedModel) -> dict[str, object]:
    arms = model.arms
    restarting = any(arm.client.restarting for arm in arms.all if arm.serves)
    report: dict[str, object] = {"status": "ok"}
    if arms.closing:
        report = {"status": "draining", "reason": "the server is shutting down"}
    elif not model.loaded:
        report = _unloaded(model)
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
    return report


@operation(answer=fields("Liveness", status=str), statuses={503: "Only a restart helps; `reason` says why."})
async def live(request: Request) -> Response:
    """Answers 503 where only a restart of the server helps, else 200.

    That is, where an engine makes no progress or none is left: not while the server drains, or an engine is
    replaced.
    """
    models = context_of(request).models
    if models.alone is None:
        return _answer(_of_all(models, _liveness))
    return _answer(_liveness(models.alone))


def _liveness(model: HostedModel) -> dict[str, object]:
    return (model.loaded and _lasting(model.arms)) or {"status": "ok"}


def _unloaded(model: HostedModel) -> dict[str, object]:
    """A model that a request loads is well; but for a while not one that could not be loaded."""
    if model.residence.retry_in:
        return {"status": "failed", "reason": model.residence.reason}
    return {"status": "ok", "state": model.state}


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
