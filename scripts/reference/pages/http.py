"""The HTTP pages: every path with what it does, the fields of bodies and answers, and errors."""

from __future__ import annotations

import inspect
import json
import re

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from starlette.routing import Route

from turnout.core.types.live.event import LiveEngine
from turnout.core.types.live.news import EngineNews, LiveRequest, StepTrace
from turnout.core.types.messages import KVSnapshot, PluginState, SchedulerState
from turnout.scripts.reference import api_page
from turnout.scripts.reference.blocks import Blocks
from turnout.scripts.reference.tables import code, markdown, paragraph, table
from turnout.scripts.reference.values import field_values
from turnout.server.admin.ab import ArmState
from turnout.server.admin.kv import KVReport
from turnout.server.admin.live.history import HistoryPoint
from turnout.server.admin.models import ModelChange, ModelStatus
from turnout.server.admin.prefixes import PrefixRequest, PrefixState
from turnout.server.admin.replicas import ReplicaState
from turnout.server.admin.rollout import RolloutReport
from turnout.server.app import ROUTES
from turnout.server.http.access.auth import is_admin
from turnout.server.http.error_codes import ERRORS
from turnout.server.http.errors import error_type
from turnout.server.http.openapi.docstrings import field_docstrings
from turnout.server.protocol.responses import TimingReport, Usage
from turnout.server.protocol.tokenization import DetokenizeRequest, TokenizeRequest

REFUSED = ("pull", "push", "create", "copy", "delete", "blobs/{digest}")
POOLING = (
    *("/v1/embeddings", "/v1/rerank", "/rerank", "/v2/rerank", "/v1/score", "/score"),
    *("/classify", "/pooling", "/api/embed", "/api/embeddings"),
)
TOLD = {
    "/": "http-api.md#models-and-version",
    "/health": "../how-to/serve.md#health",
    "/live": "../how-to/serve.md#health",
    "/ping": "../how-to/serve.md#health",
    "/load": "http-api.md#models-and-version",
    "/metrics": "metrics.md",
    "/version": "http-api.md#models-and-version",
    "/v1/models": "http-api.md#models-and-version",
    "/v1/models/{name:path}": "http-api.md#models-and-version",
    "/v1/completions": "http-api.md#completions",
    "/v1/chat/completions": "http-api.md#chat",
    **dict.fromkeys(POOLING, "http-api.md#embeddings-and-scores"),
    "/v1/responses": "http-api.md#responses",
    "/v1/responses/{response_id}": "http-api.md#responses",
    "/v1/responses/{response_id}/cancel": "http-api.md#responses",
    "/v1/responses/{response_id}/input_items": "http-api.md#responses",
    "/v1/messages": "http-api.md#messages",
    "/v1/messages/count_tokens": "http-api.md#messages",
    "/api/chat": "http-api.md#ollama",
    "/api/generate": "http-api.md#ollama",
    "/api/tags": "http-api.md#ollama",
    "/api/ps": "http-api.md#ollama",
    "/api/show": "http-api.md#ollama",
    "/api/version": "http-api.md#ollama",
    **{f"/api/{name}": "http-api.md#ollama" for name in REFUSED},
    "/v1/files": "http-api.md#batches",
    "/v1/files/{file_id}": "http-api.md#batches",
    "/v1/files/{file_id}/content": "http-api.md#batches",
    "/v1/batches": "http-api.md#batches",
    "/v1/batches/{batch_id}": "http-api.md#batches",
    "/v1/batches/{batch_id}/cancel": "http-api.md#batches",
    "/openapi.json": "api.md",
    "/docs": "api.md",
    "/console": "../how-to/observe.md",
    "/console/{file:path}": "../how-to/observe.md",
    "/infill": "http-api.md#filling-in",
    "/tokenize": "http-api.md#tokens",
    "/detokenize": "http-api.md#tokens",
    "/tokenizer_info": "http-api.md#tokens",
    "/admin/scheduler": "admin-api.md#the-scheduling-policy",
    "/admin/ab": "admin-api.md#the-arms-of-a-live-test",
    "/admin/history": "admin-api.md#the-last-hour",
    "/admin/live": "admin-api.md#live-events",
    "/admin/trace": "../how-to/observe.md#programs",
    "/start_profile": "../how-to/observe.md#profiles",
    "/stop_profile": "../how-to/observe.md#profiles",
    "/admin/kv": "admin-api.md#the-kv-pool",
    "/admin/models": "admin-api.md#the-models",
    "/admin/plugins": "admin-api.md#the-plugins",
    "/admin/prefixes": "admin-api.md#pinned-prefixes",
    "/admin/replicas": "admin-api.md#the-replicas",
    "/admin/rollout": "admin-api.md#a-rollout",
    "/admin/prefixes/{name}": "admin-api.md#pinned-prefixes",
}
"""Where a page tells more of a path."""
PATTERNED = {"name": "1 to 64 letters, digits, `.`, `_`, `-`; begins with a letter or digit"}
"""What a field with a pattern takes, in words."""


def blocks() -> Blocks:
    return {
        "api": api_page.written,
        "paths": lambda: _paths(ROUTES),
        "admin paths": lambda: _paths([route for route in ROUTES if is_admin(route.path)]),
        "errors": _errors,
        "usage": lambda: _answer(Usage),
        "timing": lambda: _answer(TimingReport),
        "body of tokenize": lambda: _body(TokenizeRequest),
        "body of detokenize": lambda: _body(DetokenizeRequest),
        "arms": lambda: _answer(ArmState),
        "replicas": lambda: _answer(ReplicaState),
        "models": lambda: _answer(ModelStatus),
        "body of models": lambda: _body(ModelChange),
        "rollout": lambda: _answer(RolloutReport),
        "scheduling policy": lambda: _answer(SchedulerState),
        "plugins": lambda: _answer(PluginState),
        "KV pool": lambda: _answer(KVReport, KVSnapshot),
        "live engine": lambda: _answer(LiveEngine, EngineNews),
        "live request": lambda: _answer(LiveRequest),
        "live step": lambda: _answer(StepTrace),
        "history": lambda: _answer(HistoryPoint),
        "body of prefixes": lambda: _body(PrefixRequest),
        "prefixes": lambda: _answer(PrefixState),
    }


def _paths(routes: list[Route]) -> str:
    """Raises KeyError for a path that no page tells of."""
    rows = []
    for route in routes:
        (method,) = (route.methods or set()) - {"HEAD"}
        path = re.sub(r":\w+}", "}", route.path)
        does = paragraph(inspect.getdoc(route.endpoint) or "").removesuffix(".")
        rows.append((code(f"{method} {path}"), f"[{does}]({TOLD[route.path]})"))
    return table(("path", "what it does"), rows)


def _errors() -> str:
    return table(
        ("status", "`type`", "`code`", "when"),
        [
            (
                ", ".join(map(str, told.statuses)),
                code(error_type(told.statuses[0])),
                ", ".join(map(code, told.codes)),
                told.when,
            )
            for told in ERRORS
        ],
    )


def _answer(*kinds: type) -> str:
    """The fields of a struct. `kinds` after the first tell what fields of the same name are."""
    docstrings = {name: text for kind in reversed(kinds) for name, text in field_docstrings(kind).items()}
    names: tuple[str, ...] = kinds[0].__struct_fields__  # type: ignore[attr-defined]
    return table(
        ("field", "what"), [(code(name), markdown(_of(docstrings, name, kinds[0]))) for name in names]
    )


def _body(model: type[BaseModel]) -> str:
    docstrings = field_docstrings(model)
    rows = [
        (code(name), _taken(name, field), _default(field), markdown(_of(docstrings, name, model)))
        for name, field in model.model_fields.items()
    ]
    return table(("field", "type", "default", "meaning"), rows)


def _of(docstrings: dict[str, str], name: str, kind: type) -> str:
    if name not in docstrings:
        raise LookupError(f"{kind.__name__}.{name} has no docstring")
    return docstrings[name]


def _taken(name: str, field: FieldInfo) -> str:
    patterned = any(getattr(mark, "pattern", None) for mark in field.metadata)
    return PATTERNED[name] if patterned else field_values(field)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return "none" if field.default is None else json.dumps(field.default)
