"""``/admin/models``: which models are loaded, and which stay."""

from __future__ import annotations

import math
from typing import Literal

import msgspec
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from turnout.server.api.context import context_of
from turnout.server.fleet.models.hosted_model import HostedModel
from turnout.server.fleet.models.models import Models
from turnout.server.http.bodies.body import read_body
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import operation

__all__ = ["ModelChange", "ModelStates", "ModelStatus", "change_models", "show_models"]


class ModelChange(BaseModel):
    """The body of a request to load, unload, pin or unpin a model."""

    model_config = ConfigDict(strict=True, extra="forbid")

    action: Literal["load", "unload", "pin", "unpin"]
    """`load` it, for which another may make room; `unload` it once its requests have ended: the next request
    loads it again; `pin` it: once loaded, it stays; `unpin` it."""
    model: str | None = None
    """Name of the model; null: the only one."""


class ModelStatus(msgspec.Struct):
    """A model, as operators see it."""

    name: str
    """The name that clients give it."""
    state: str
    """As in [`/v1/models`](http-api.md#models-and-version)."""
    pinned: bool
    """It is unloaded neither for others nor when it is idle."""
    waiting: int
    """Requests that wait until it is loaded."""
    progress: float | None
    """While it is loaded: the part of its weights that are in memory, else null."""
    reason: str | None
    """Why it has failed, else null."""
    retry_in: float
    """Seconds until a request tries again to load it after a failure."""
    loads: int
    """How often it was loaded since the server started, its start left out."""
    load_seconds: float
    """What the last of these took."""
    unloads_in: float | None
    """Seconds until it is unloaded if no request comes; null: it stays."""


class ModelStates(msgspec.Struct):
    """The models."""

    models: list[ModelStatus]


@operation(answer=ModelStates)
async def show_models(request: Request) -> Response:
    """Lists the models, loaded or not."""
    return _report(context_of(request).models)


@operation(
    body=ModelChange,
    answer=ModelStates,
    statuses={409: "The model has to stay, or others would have no room."},
)
async def change_models(request: Request) -> Response:
    """Loads, unloads, pins or unpins a model."""
    context = context_of(request)
    body = await read_body(request, ModelChange, limit=context.config.max_body_size)
    models, model = context.models, context.models.named(body.model)
    if body.action == "load":
        models.load(model)
    elif body.action == "unload":
        models.unload(model)
    else:
        models.pin(model, pinned=body.action == "pin")
    return _report(models)


def _report(models: Models) -> Response:
    return JsonResponse(ModelStates([_status(model) for model in models.all]))


def _status(model: HostedModel) -> ModelStatus:
    residence = model.residence
    stays = not model.loaded or residence.idle_left == math.inf
    return ModelStatus(
        name=model.name,
        state=model.state,
        pinned=residence.pinned,
        waiting=len(residence.requests),
        progress=residence.progress,
        reason=model.reason,
        retry_in=math.ceil(10 * residence.retry_in) / 10,
        loads=residence.loads,
        load_seconds=round(residence.load_seconds, 3),
        unloads_in=None if stays else round(residence.idle_left, 1),
    )
