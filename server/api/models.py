"""What is served: ``GET /``, ``/version`` and ``/v1/models``."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from turnout.core.version import own_version
from turnout.server.api.context import Context, context_of
from turnout.server.http.errors import of_anthropic
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import fields, operation
from turnout.server.protocol.messages.answer import ModelInfo, ModelPage
from turnout.server.protocol.responses import ModelCard, ModelList

__all__ = ["index", "list_models", "show_model", "show_version"]


@operation(answer=fields("Index", turnout=str, model=str, api=str, health=str))
async def index(request: Request) -> Response:
    """Says what this server is."""
    if "text/plain" in request.headers.get("accept", ""):  # clients of Ollama's, which wait for these words
        return PlainTextResponse("Ollama is running")
    names = ", ".join(model.name for model in context_of(request).models.all)
    return JsonResponse({"turnout": own_version(), "model": names, "api": "/v1", "health": "/health"})


@operation(answer=fields("Version", version=str))
async def show_version(request: Request) -> Response:
    """Says which version of Turnout this is."""
    return JsonResponse({"version": own_version()})


@operation(answer=ModelList)
async def list_models(request: Request) -> Response:
    """Lists the models."""
    each = context_of(request).each
    if of_anthropic(request):
        infos = [_info(context) for context in each]
        return JsonResponse(ModelPage(infos, infos[0].id, infos[-1].id))
    return JsonResponse(ModelList([_card(context) for context in each]))


@operation(answer=ModelCard)
async def show_model(request: Request) -> Response:
    """Describes a model."""
    context = context_of(request).of(request.path_params["name"])
    return JsonResponse(_info(context) if of_anthropic(request) else _card(context))


def _info(context: Context) -> ModelInfo:
    name, created = context.model_name, datetime.fromtimestamp(context.created, UTC)
    return ModelInfo(name, created, name, context.arms.first.known.max_model_len or None)


def _card(context: Context) -> ModelCard:
    model, progress = context.served, context.served.residence.progress
    return ModelCard(
        model.name,
        context.created,
        context.arms.first.known.max_model_len or None,
        state=model.state,
        progress=UNSET if progress is None else round(progress, 2),
        reason=model.reason or UNSET,
        aliases=list(model.aliases),
    )
