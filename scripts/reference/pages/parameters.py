"""docs/reference/parameters.md: the fields of requests, from the models that validate them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from turnout.core import limits
from turnout.core.types.sampling_params import RANGES, SamplingParams
from turnout.plugins.decoding.beam.strategy import Beam
from turnout.plugins.decoding.sampling import Sampling
from turnout.scripts.reference.blocks import Blocks
from turnout.scripts.reference.tables import Row, code, markdown, table
from turnout.scripts.reference.values import field_values
from turnout.server.http.openapi.docstrings import field_docstrings
from turnout.server.protocol.base import GenerationRequest
from turnout.server.protocol.chat import ChatRequest
from turnout.server.protocol.completions import CompletionRequest
from turnout.server.protocol.structured import StructuredRequest
from turnout.server.protocol.unsupported import HARMLESS, LLAMA_CPP, OPENAI, SGLANG, VLLM

HEADS = ("parameter", "type and range", "default", "meaning")
TAKEN = {
    "allowed_token_ids": "list of token ids, at least one",
    "bad_words": f"list of at most {limits.BAD_WORDS.whole:,} strings",
    "early_stopping": 'boolean, or `"never"`',
    "guided_choice": "list of strings, none of them empty",
    "guided_json": "JSON schema: an object, or its text",
    "logit_bias": "object: token id to a number, -100 to 100",
    "messages": "list of messages, at least one",
    "prompt": "string, token ids, or a list of either",
    "stop": f"string, or list of at most {limits.STOP_STRINGS.whole}",
    "stop_token_ids": f"list of at most {limits.STOP_TOKENS.whole:,} token ids",
    "truncate_prompt_tokens": "integer above 0, or -1",
    "top_p": "number, above 0, at most 1",
    "vllm_xargs": "object: names to strings, numbers, booleans or lists of those",
}
"""Where a validator takes more, or less, than the field's type says."""
RANGED_AS = {"max_completion_tokens": "max_tokens", "top_logprobs": "logprobs"}
"""The parameter whose range a parameter has."""

_MANY = 2**31 - 1
"""As an upper bound it is none that a client meets."""
_DEFAULT = re.compile(r" ?Default: (.+)\.$", re.DOTALL)


def blocks() -> Blocks:
    return {
        "parameters": _both,
        "parameters of completions": partial(_added, CompletionRequest),
        "parameters of chat": partial(_added, ChatRequest),
        "refused parameters": _refused,
    }


def _both() -> str:
    """What `GenerationRequest` adds comes before what it inherits."""
    inherited = StructuredRequest.model_fields
    own = [name for name in GenerationRequest.model_fields if name not in inherited]
    return _table(GenerationRequest, [*own, *inherited])


def _refused() -> str:
    """Whatever API a name is of, it stands in the last line if one of completions and chat takes it."""
    taken = CompletionRequest.model_fields.keys() | ChatRequest.model_fields.keys()
    apis = {"Of OpenAI": OPENAI, "Of vLLM": VLLM, "Of SGLang": SGLANG, "Of llama.cpp": LLAMA_CPP}
    lines = {api: [name for name in refused if name not in taken] for api, refused in apis.items()}
    lines["Of completions or chat alone, sent to the other"] = sorted(HARMLESS.keys() & taken)
    return "".join(f"- {api}: {', '.join(map(code, names))}.\n" for api, names in lines.items())


def _added(model: type[BaseModel]) -> str:
    return _table(model, [name for name in model.model_fields if name not in GenerationRequest.model_fields])


def _table(model: type[BaseModel], names: Iterable[str]) -> str:
    """Raises LookupError for a field without a docstring."""
    docstrings, fields = field_docstrings(model), model.model_fields
    if missing := [name for name in names if name not in docstrings]:
        raise LookupError(f"{model.__name__} has fields without a docstring: {', '.join(missing)}")
    return table(HEADS, [_row(name, fields[name], docstrings[name]) for name in names])


def _row(name: str, field: FieldInfo, docstring: str) -> Row:
    stated = _DEFAULT.search(docstring)
    default = markdown(stated[1]) if stated else _default(name, field)
    dagger = " †" if name in _given_by_the_server() else ""
    meaning = markdown(_DEFAULT.sub("", docstring))
    return code(name), _taken(name, field), default + dagger, meaning


def _taken(name: str, field: FieldInfo) -> str:
    taken = TAKEN.get(name) or field_values(field)
    for ranged, _, low, high in RANGES:
        if ranged == RANGED_AS.get(name, name) and taken in ("integer", "number"):
            return f"{taken}, {_range(low, high)}"
    return taken


def _range(low: float, high: float) -> str:
    if low == -(2**63):
        return "64 bits signed"
    return f"from {low:g}" if high == _MANY else f"{low:g} to {high:g}"


def _default(name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.default
    if default is None:  # which means: not given
        default = getattr(SamplingParams(), name, None)
    if default is None and field_values(field) == "boolean":
        default = False
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, int | float) else "none"


def _given_by_the_server() -> set[str]:
    """Parameters that the server's ``--decoding`` or the model may set for requests that do not."""
    sampling = Sampling(temperature=1, top_p=1, top_k=0, min_p=0, repetition_penalty=1)
    return {*sampling.defaults, *Beam().defaults}
