"""What can be asked about the server."""

from __future__ import annotations

from importlib.metadata import version

from starlette.requests import Request
from starlette.responses import Response

from turnout.server.ab.arms import ServedArm
from turnout.server.api.context import Context, context_of
from turnout.server.http.json_response import JsonResponse
from turnout.server.protocol.responses import ModelCard

__all__ = ["health", "index", "list_models", "show_model", "show_version"]

STUCK = 300.0
"""Seconds: longer than the longest step of a large model on a slow machine."""


async def index(request: Request) -> Response:
    name = context_of(request).model_name
    return JsonResponse({"turnout": version("turnout"), "model": name, "api": "/v1", "health": "/health"})


async def health(request: Request) -> Response:
    """200 while requests are taken, and the engine serves and gets on, or all engines that they are given to;
    else 503 with the reason.
    """
    arms = context_of(request).arms
    serving = [arm for arm in arms.all if arm.serves]
    restarting = any(arm.client.restarting for arm in serving)
    silence = max((arm.client.silence for arm in serving), default=0.0)
    told: dict[str, object] = {"status": "ok"}
    if arms.closing:
        told = {"status": "draining", "reason": "the server is shutting down"}
    elif not serving:
        told = {"status": "failed", "reason": arms.failure}
    elif restarting:
        told = {"status": "restarting", "reason": "the engine died"}
    elif silence > STUCK:
        reason = f"the engine has said nothing for {silence:.0f} seconds, though requests wait"
        told = {"status": "stuck", "reason": reason}
    if arms.trial is not None:
        told["arms"] = {arm.name: _condition(arm) for arm in arms.all}
    return JsonResponse(told, status_code=200 if told["status"] == "ok" else 503)


def _condition(arm: ServedArm) -> str:
    if arm.there and arm.client.failure is not None:
        return "failed"
    return "restarting" if arm.there and arm.client.restarting else arm.state


async def show_version(request: Request) -> Response:
    return JsonResponse({"version": version("turnout")})


async def list_models(request: Request) -> Response:
    return JsonResponse({"object": "list", "data": [_card(context_of(request))]})


async def show_model(request: Request) -> Response:
    context = context_of(request)
    context.check_model(request.path_params["name"])
    return JsonResponse(_card(context))


def _card(context: Context) -> ModelCard:
    return ModelCard(context.model_name, context.created, context.arms.first.client.ready.max_model_len)
