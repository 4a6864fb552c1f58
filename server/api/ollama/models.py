"""What Ollama's API tells of the served models: ``tags``, ``ps``, ``show`` and ``version``."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from turnout.core.errors import RequestError
from turnout.core.version import own_version
from turnout.server.api.context import Context, context_of
from turnout.server.api.ollama.answer import LATEST
from turnout.server.fleet.arms import ServedArm
from turnout.server.http.bodies.body import read_body
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import operation
from turnout.server.protocol.ollama.requests import ShowRequest
from turnout.text.prompt.fill_in import fill_in_of

__all__ = ["list_models", "list_running", "show", "show_version"]

OLLAMA_VERSION = "0.12.11"
"""The version of Ollama whose API this is: clients look whether it is new enough for them."""
NEVER = "2318-01-01T00:00:00Z"
"""When a model is unloaded that stays."""
YEAR = 365 * 86400
UNITS = ((10**9, "B"), (10**6, "M"), (10**3, "K"))
TASK = re.compile(r"(Model|For[A-Z][A-Za-z]*)$")
"""What an architecture's name ends with."""


@operation()
async def show_version(request: Request) -> Response:
    """Says which version of Ollama's API this is, and which of Turnout."""
    return JsonResponse({"version": OLLAMA_VERSION, "turnout": own_version()})


@operation()
async def list_models(request: Request) -> Response:
    """Lists the models, as Ollama does."""
    cards = [{**_card(each), "modified_at": _started(each)} for each in context_of(request).each]
    return JsonResponse({"models": cards})


@operation()
async def list_running(request: Request) -> Response:
    """Lists the models that are loaded."""
    running = [_running(context) for context in context_of(request).each if context.served.loaded]
    return JsonResponse({"models": running})


def _running(context: Context) -> dict[str, Any]:
    card, first = _card(context), context.arms.first
    on_gpu = first.config.device != "cpu" and not first.client.ready.cpu_kernels
    return {
        **card,
        "expires_at": _expires(context),
        "size_vram": card["size"] if on_gpu else 0,
        "context_length": first.client.ready.max_model_len,
    }


@operation(body=ShowRequest, generates=True)
async def show(request: Request) -> Response:
    """Describes the model, as Ollama does: what it can, and its sizes."""
    context = context_of(request)
    asked = await read_body(request, ShowRequest, limit=context.config.max_body_size, any_media_type=True)
    name = asked.model or asked.name
    if name is None:
        raise RequestError("model: this field is required", "model")
    context = context.of(name, tag=LATEST)
    arm = context.arms.first
    defaults = arm.known.defaults
    return JsonResponse(
        {
            "modelfile": f"FROM {context.model_name}\n",
            "parameters": "\n".join(f"{name} {value}" for name, value in defaults.items()),
            "template": arm.tokenizer.description["chat_template"] or "{{ .Prompt }}",
            "details": _details(arm),
            "model_info": _model_info(context, arm),
            "capabilities": _capabilities(arm),
            "modified_at": _started(context),
        }
    )


def _expires(context: Context) -> str:
    left = context.served.residence.idle_left
    return NEVER if left > YEAR else _moment(datetime.now(UTC) + timedelta(seconds=left))


def _card(context: Context) -> dict[str, Any]:
    name = _tagged(context.model_name)
    ready = context.arms.first.known
    return {
        "name": name,
        "model": name,
        "size": ready.facts.weight_bytes,
        "digest": hashlib.sha256(f"{name} {ready.fingerprint}".encode()).hexdigest(),
        "details": _details(context.arms.first),
    }


def _tagged(name: str) -> str:
    """Clients look for a name with its tag."""
    return name if ":" in name.rpartition("/")[2] else name + LATEST


def _details(arm: ServedArm) -> dict[str, Any]:
    facts, family = arm.known.facts, _family(arm)
    return {
        "parent_model": "",
        "format": "gguf" if arm.known.model.endswith(".gguf") else "safetensors",
        "family": family,
        "families": [family],
        "parameter_size": _rounded(facts.parameters),
        "quantization_level": facts.weights,
    }


def _family(arm: ServedArm) -> str:
    """Such as ``qwen2``, of ``Qwen2ForCausalLM``, and ``bert``, of ``BertModel``."""
    return TASK.sub("", arm.known.facts.architecture).lower()


def _model_info(context: Context, arm: ServedArm) -> dict[str, Any]:
    ready, family = arm.known, _family(arm)
    return {
        "general.architecture": family,
        "general.basename": context.model_name,
        "general.parameter_count": ready.facts.parameters,
        f"{family}.context_length": ready.max_model_len,
        f"{family}.vocab_size": ready.vocab_size,
    }


def _capabilities(arm: ServedArm) -> list[str]:
    """What clients may ask for. Any model with a chat template can call tools."""
    pooling = arm.known.pooling
    generates = pooling is None or pooling.generates
    chats = generates and arm.tokenizer.has_chat_template
    found = {
        "completion": generates,
        "tools": chats,
        "insert": generates and fill_in_of(arm.tokenizer) is not None,
        "thinking": chats and arm.client.described and arm.format.reasons,
        "embedding": pooling is not None and (not pooling.generates or pooling.embedder),
    }
    return [name for name, holds in found.items() if holds]


def _started(context: Context) -> str:
    return _moment(datetime.fromtimestamp(context.created, UTC))


def _moment(when: datetime) -> str:
    return when.isoformat().replace("+00:00", "Z")


def _rounded(count: int) -> str:
    """Such as ``7.6B``."""
    for size, unit in UNITS:
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return str(count)
