"""The server's ASGI application, with every route in one place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.routing import Route

from turnout.config import ServerConfig
from turnout.core import limits
from turnout.core.errors import TurnoutError
from turnout.server.admin import ab as admin_ab
from turnout.server.admin import kv as admin_kv
from turnout.server.admin import models as admin_models
from turnout.server.admin import plugins as admin_plugins
from turnout.server.admin import prefixes as admin_prefixes
from turnout.server.admin import profile as admin_profile
from turnout.server.admin import replicas as admin_replicas
from turnout.server.admin import rollout as admin_rollout
from turnout.server.admin import scheduler as admin_scheduler
from turnout.server.admin.console.page import show_console, show_file
from turnout.server.admin.live.feed import LiveFeed
from turnout.server.admin.live.handler import show_live
from turnout.server.admin.live.history import History, show_history
from turnout.server.admin.live.trace import show_trace
from turnout.server.api import models, tokenization
from turnout.server.api.batches import batches, files
from turnout.server.api.batches.runner import running_batches
from turnout.server.api.chat import chat
from turnout.server.api.completions import completions
from turnout.server.api.context import Context
from turnout.server.api.health import health, live
from turnout.server.api.llama_cpp.infill import infill
from turnout.server.api.load import show_load
from turnout.server.api.messages import count_tokens, messages
from turnout.server.api.metrics import collected, metrics
from turnout.server.api.ollama import embed as ollama_embed
from turnout.server.api.ollama import models as ollama_models
from turnout.server.api.ollama.chat import chat as ollama_chat
from turnout.server.api.ollama.generate import generate as ollama_generate
from turnout.server.api.ollama.refused import refuse_change
from turnout.server.api.pooling import embeddings as pooling_api
from turnout.server.api.pooling import scores
from turnout.server.api.responses import stored
from turnout.server.api.responses.create import responses
from turnout.server.fleet.arm_header import ARM_HEADER, ArmHeaderMiddleware
from turnout.server.fleet.fronts.fronts import Fronts
from turnout.server.fleet.models.models import Models
from turnout.server.http.access.auth import HEALTH, AuthMiddleware
from turnout.server.http.access.cors import PagesMiddleware
from turnout.server.http.access.key_usage import KeyUsage
from turnout.server.http.access.keys import Keys
from turnout.server.http.bodies.pace import Pace
from turnout.server.http.bodies.turns import Turns
from turnout.server.http.connections.beginnings import BeginningsMiddleware
from turnout.server.http.connections.forwarding import ForwardedMiddleware, ForwardingMiddleware
from turnout.server.http.early_events import EarlyEventsMiddleware
from turnout.server.http.errors import REQUEST_ID, respond_to_disconnect, respond_to_error
from turnout.server.http.load import GENERATING, LoadMiddleware, ServerLoad
from turnout.server.http.openapi import page
from turnout.server.http.records.access_log import AccessLog
from turnout.server.http.request_id import PROCESSING, RequestIdMiddleware
from turnout.server.http.request_memory import RequestMemory, RequestMemoryMiddleware
from turnout.server.http.root_path import RootPathMiddleware
from turnout.server.http.telemetry.middleware import RecordMiddleware
from turnout.server.http.telemetry.opening import opened_metrics, opened_traces
from turnout.server.http.trailing_slash import TrailingSlashMiddleware
from turnout.server.storage.stores import Stores

if TYPE_CHECKING:
    from turnout.server.http.telemetry.traces import Traces

__all__ = ["create_app"]

Run = Callable[[], Coroutine[object, object, None]]

ROUTES = [
    Route("/v1/chat/completions", chat, methods=["POST"]),
    Route("/v1/completions", completions, methods=["POST"]),
    Route("/", models.index),
    Route("/health", health),
    Route("/live", live),
    Route("/ping", health),
    Route("/ping", health, methods=["POST"]),
    Route("/load", show_load),
    Route("/metrics", metrics),
    Route("/version", models.show_version),
    Route("/v1/models", models.list_models),
    Route("/v1/models/{name:path}", models.show_model),
    Route("/v1/embeddings", pooling_api.embeddings, methods=["POST"]),
    *(Route(path, scores.rerank, methods=["POST"]) for path in ("/v1/rerank", "/rerank", "/v2/rerank")),
    *(Route(path, scores.score, methods=["POST"]) for path in ("/v1/score", "/score")),
    Route("/classify", scores.classify, methods=["POST"]),
    Route("/pooling", pooling_api.pooling, methods=["POST"]),
    Route("/v1/messages", messages, methods=["POST"]),
    Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
    Route("/v1/responses", responses, methods=["POST"]),
    Route("/api/chat", ollama_chat, methods=["POST"]),
    Route("/api/generate", ollama_generate, methods=["POST"]),
    Route("/api/tags", ollama_models.list_models),
    Route("/api/ps", ollama_models.list_running),
    Route("/api/show", ollama_models.show, methods=["POST"]),
    Route("/api/version", ollama_models.show_version),
    *(Route(f"/api/{name}", refuse_change, methods=["POST"]) for name in ("pull", "push", "create", "copy")),
    Route("/api/delete", refuse_change, methods=["DELETE"]),
    Route("/api/blobs/{digest}", refuse_change, methods=["POST"]),
    Route("/api/embed", ollama_embed.embed, methods=["POST"]),
    Route("/api/embeddings", ollama_embed.embeddings, methods=["POST"]),
    Route("/v1/responses/{response_id}", stored.show_response),
    Route("/v1/responses/{response_id}", stored.delete_response, methods=["DELETE"]),
    Route("/v1/responses/{response_id}/cancel", stored.cancel_response, methods=["POST"]),
    Route("/v1/responses/{response_id}/input_items", stored.list_input_items),
    Route("/v1/files", files.list_files),
    Route("/v1/files", files.upload_file, methods=["POST"]),
    Route("/v1/files/{file_id}", files.show_file),
    Route("/v1/files/{file_id}", files.delete_file, methods=["DELETE"]),
    Route("/v1/files/{file_id}/content", files.show_content),
    Route("/v1/batches", batches.list_batches),
    Route("/v1/batches", batches.create_batch, methods=["POST"]),
    Route("/v1/batches/{batch_id}", batches.show_batch),
    Route("/v1/batches/{batch_id}/cancel", batches.cancel_batch, methods=["POST"]),
    Route("/openapi.json", page.show_openapi),
    Route("/docs", page.show_docs),
    Route("/console", show_console),
    Route("/console/{file:path}", show_file),
    Route("/infill", infill, methods=["POST"]),
    Route("/tokenize", tokenization.tokenize, methods=["POST"]),
    Route("/detokenize", tokenization.detokenize, methods=["POST"]),
    Route("/tokenizer_info", tokenization.show_tokenizer),
    Route("/admin/scheduler", admin_scheduler.show_scheduler),
    Route("/admin/scheduler", admin_scheduler.set_scheduler, methods=["POST"]),
    Route("/admin/ab", admin_ab.show_arms),
    Route("/admin/ab", admin_ab.change_arms, methods=["POST"]),
    Route("/admin/kv", admin_kv.show_kv),
    Route("/admin/history", show_history),
    Route("/admin/live", show_live),
    Route("/admin/models", admin_models.show_models),
    Route("/admin/models", admin_models.change_models, methods=["POST"]),
    Route("/admin/trace", show_trace),
    Route("/start_profile", admin_profile.start_profile, methods=["POST"]),
    Route("/stop_profile", admin_profile.stop_profile, methods=["POST"]),
    Route("/admin/plugins", admin_plugins.list_plugins),
    Route("/admin/prefixes", admin_prefixes.list_prefixes),
    Route("/admin/prefixes", admin_prefixes.pin_prefix, methods=["POST"]),
    Route("/admin/replicas", admin_replicas.show_replicas),
    Route("/admin/replicas", admin_replicas.change_replicas, methods=["POST"]),
    Route("/admin/rollout", admin_rollout.show_rollout),
    Route("/admin/rollout", admin_rollout.change_rollout, methods=["POST"]),
    Route("/admin/prefixes/{name}", admin_prefixes.unpin_prefix, methods=["DELETE"]),
]
"""Every path, the most asked first, since they are tried in turn; `server.http.access.auth` decides which of
them need a key."""


TOKENIZING = frozenset({"/v1/messages/count_tokens", "/tokenize", "/detokenize"})
"""Beside those that generate, what a front answers itself."""

BATCHED = {
    "/v1/completions": completions,
    "/v1/chat/completions": chat,
    "/v1/responses": responses,
    "/v1/embeddings": pooling_api.embeddings,
    "/v1/rerank": scores.rerank,
    "/v1/score": scores.score,
}
"""What answers the lines of batches, by their `url`."""


@dataclass(frozen=True)
class FrontParts:
    """What is different in a front."""

    load: ServerLoad
    usage: Callable[[bytes], KeyUsage]
    """What counts for a key, from its digest."""
    inside: str
    """The Unix socket that answers what a front does not."""
    stores_responses: bool
    """Elsewhere: so that responses are made there."""


def create_app(
    models: Models, config: ServerConfig, *, fronts: Fronts | None = None, front: FrontParts | None = None
) -> Starlette:
    """The application that serves the models, whose engines are ready. Raises ConfigError.

    fronts: the processes that it serves for, if others take the clients' connections. front: given if this
    process is one of them.
    """
    load = ServerLoad() if front is None else front.load
    keys = Keys.for_api(config, None if front is None else front.usage)
    if fronts is not None:
        fronts.serve(keys, load)
    writers, traces = [AccessLog(config).write], opened_traces(config)
    if traces is not None:
        writers.append(traces.write)
    untraced = None if traces is None else config.disable_access_log_for_endpoints
    context = Context(models, config, load, keys, Stores.open(config), writers=writers, fronts=fronts)
    memory, history = RequestMemory(config.request_memory), History(context)
    app = Starlette(
        routes=ROUTES,
        middleware=[
            *_between(config, fronts, front),
            Middleware(RootPathMiddleware, config.root_path),
            *_cors(config, keyless=not keys),
            Middleware(TrailingSlashMiddleware),
            Middleware(RecordMiddleware, writers, untraced=untraced),
            Middleware(RequestIdMiddleware),
            Middleware(BeginningsMiddleware, HEALTH),
            Middleware(AuthMiddleware, config, keys),
            Middleware(RequestMemoryMiddleware, memory),
            Middleware(ArmHeaderMiddleware),
            Middleware(LoadMiddleware, load),
            Middleware(EarlyEventsMiddleware),
        ],
        exception_handlers={
            ClientDisconnect: respond_to_disconnect,
            HTTPException: respond_to_error,
            TurnoutError: respond_to_error,
            Exception: respond_to_error,
        },
        lifespan=partial(
            _lifespan, context, memory, traces, _beside(context, history) if front is None else []
        ),
    )
    app.state.context = context
    app.state.live = LiveFeed(models)
    app.state.history = history
    app.state.pace = Pace()
    app.state.decoding = Turns("bodies", limits.BODIES_BEFORE, limits.TURN_SECONDS)
    return app


def _beside(context: Context, history: History) -> list[Run]:
    """What goes on for as long as the server serves."""
    measured = opened_metrics(context.config)
    sending = [] if measured is None else [partial(measured.run, partial(collected, context, keys=True))]
    return [history.run, *sending]


@asynccontextmanager
async def _lifespan(
    context: Context, memory: RequestMemory, traces: Traces | None, beside: Sequence[Run], app: Starlette
) -> AsyncGenerator[None, None]:
    tasks = [asyncio.create_task(run()) for run in beside]
    try:
        async with context.lifespan(app), running_batches(app, context, memory, BATCHED):
            yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if traces is not None:
            await asyncio.to_thread(traces.close)


def _between(config: ServerConfig, fronts: Fronts | None, front: FrontParts | None) -> Iterator[Middleware]:
    """What passes requests on from a front to the fleet's process; outermost, since the other end has all."""
    if fronts is not None:
        yield Middleware(ForwardedMiddleware)
    if front is not None:
        stored = {"/v1/responses"} if front.stores_responses else set()
        own = (GENERATING | TOKENIZING) - stored
        yield Middleware(ForwardingMiddleware, partial(_is_own, own, config.root_path), front.inside)


def _is_own(own: frozenset[str], root: str, path: str) -> bool:
    """Whether a front answers a path itself, which may begin with the proxy's prefix and end with a slash."""
    return path.removeprefix(root).rstrip("/") in own


def _cors(config: ServerConfig, *, keyless: bool) -> list[Middleware]:
    """Lets pages of the allowed origins read responses; outermost, since refusals are responses too."""
    if not (config.allowed_origins or keyless):
        return []
    exposed = [REQUEST_ID, PROCESSING, ARM_HEADER, "Retry-After"]
    return [Middleware(PagesMiddleware, config, exposed, keyless=keyless)]
