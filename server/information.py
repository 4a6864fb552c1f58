"""What can be asked about the server."""

from __future__ import annotations

from importlib.metadata import version

from starlette.requests import Request
from starlette.responses import Response

from turnout.server.context import Context, context_of
from turnout.server.json_response import JsonResponse
from turnout.server.protocol.responses import ModelCard

__all__ = ["health", "index", "list_models", "show_model", "show_version"]


async def index(request: Request) -> Response:
    name = context_of(request).model_name
    return JsonResponse({"turnout": version("turnout"), "model": name, "api": "/v1", "health": "/health"})


async def health(request: Request) -> Response:
    """200 while the engine serves, else 503 with the reason."""
    client = context_of(request).client
    if client.failure is not None:
        return JsonResponse({"status": "failed", "reason": client.failure}, status_code=503)
    if client.restarting:
        return JsonResponse({"status": "restarting", "reason": "the engine died"}, status_code=503)
    return JsonResponse({"status": "ok"})


async def show_version(request: Request) -> Response:
    return JsonResponse({"version": version("turnout")})


async def list_models(request: Request) -> Response:
    return JsonResponse({"object": "list", "data": [_card(context_of(request))]})


async def show_model(request: Request) -> Response:
    context = context_of(request)
    context.check_model(request.path_params["name"])
    return JsonResponse(_card(context))


def _card(context: Context) -> ModelCard:
    return ModelCard(context.model_name, context.created, context.client.ready.max_model_len)
