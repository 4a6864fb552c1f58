"""The pages of the HTTP API have every error, and their examples are valid."""

from __future__ import annotations

import ast
import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from documents import HTTP_API, PARAMETERS, README, SERVING, code, rows
from pydantic import BaseModel
from starlette.requests import Request

from turnout.core.errors import EngineError, EngineGone, Overloaded, RequestError, StorageError
from turnout.core.types.param_groups import BEAM_SEARCH
from turnout.core.types.sampling_params import SamplingParams
from turnout.server.admin.scheduler import PolicyChange
from turnout.server.http import admin_client
from turnout.server.http.admin_client import CODES, STATUS
from turnout.server.http.error_codes import ERRORS
from turnout.server.http.errors import ApiError, ErrorBody, error_body, respond_to_error
from turnout.server.protocol.chat import ChatRequest
from turnout.server.protocol.completions import CompletionRequest
from turnout.server.protocol.responses import (
    ChatChoice,
    ChatLogprobs,
    CompletionChoice,
    CompletionLogprobs,
    Envelope,
    ModelCard,
    Usage,
)
from turnout.server.protocol.tokenization import DetokenizeRequest, TokenizeRequest, TokenizeResponse

PAGES = (SERVING, HTTP_API, PARAMETERS)
SERVER = Path(admin_client.__file__).parents[1]

# ------------------------------------------------------------------ parameters


def tables() -> dict[str, dict[str, list[str]]]:
    """The rows of the three tables of parameters, by name."""
    text = PARAMETERS.section("Parameters")
    parts = re.split(r"^(Both endpoints|Completions only|Chat only):$", text, flags=re.MULTILINE)
    return {
        heading: {code(row[0])[0]: row for row in rows(part)}
        for heading, part in zip(parts[1::2], parts[2::2], strict=True)
    }


def ranges() -> dict[str, tuple[float, float]]:
    found = {}
    for name, (_, kind, *_) in tables()["Both endpoints"].items():
        if match := re.search(r"(-?[\d.]+) to (-?[\d.]+)$", kind):
            found[name] = (float(match[1]), float(match[2]))
        elif match := re.search(r", from (-?\d+)$", kind):
            found[name] = (float(match[1]), float("inf"))
    del found["logit_bias"]  # of its values
    return found


def test_most_ranges_are_found() -> None:
    assert len(ranges()) >= 9


@pytest.mark.parametrize("name", ranges())
def test_a_range_is_the_range(name: str) -> None:
    low, high = ranges()[name]
    kind = float if isinstance(getattr(SamplingParams(), name), float) else int
    step = 1 if kind is int else 0.001
    search = name in BEAM_SEARCH  # which refuses to be narrowed down for nothing
    for inside in {low, min(high, 1000)}:
        assert SamplingParams(**{"max_tokens": None, "use_beam_search": search, name: kind(inside)})
    for outside in {low - step, high + step} - {float("inf")}:
        with pytest.raises(RequestError):
            SamplingParams(**{name: kind(outside)})


def test_defaults_are_the_defaults() -> None:
    checked = 0
    for name, (_, _, cell, *_) in tables()["Both endpoints"].items():
        default = getattr(SamplingParams(), name, None)
        if isinstance(default, bool):
            assert cell.removesuffix(" †") == str(default).lower(), name
        elif isinstance(default, int | float):
            assert re.match(r"-?[\d.]+", cell), name
            assert float(re.match(r"-?[\d.]+", cell)[0]) == default, name  # type: ignore[index]
        checked += isinstance(default, int | float)
    assert checked > 12


def test_what_chat_leaves_open_is_as_said() -> None:
    assert ChatRequest.UNSET_SAMPLING == {"max_tokens": None}
    assert CompletionRequest.UNSET_SAMPLING == {}


# ------------------------------------------------------------------ examples

REQUESTS: dict[str, type[BaseModel]] = {
    "/v1/completions": CompletionRequest,
    "/v1/chat/completions": ChatRequest,
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
    "/admin/scheduler": PolicyChange,
}


def test_requests_are_valid() -> None:
    blocks = [block for document in (README, *PAGES) for block in document.blocks("")]
    calls = [
        call
        for block in blocks
        for call in re.findall(r"curl (?:-N )?http://[\d.:]+(/\S+) -H[^{]*-d '(.*?)'", block, re.DOTALL)
    ]
    assert {path for path, _ in calls} == set(REQUESTS)
    for path, body in calls:
        assert REQUESTS[path].model_validate(json.loads(body))


def test_answers_have_the_form_of_answers() -> None:
    forms = [check_form(json.loads(block)) for page in PAGES for block in page.blocks("json")]
    assert forms.count("envelope") >= 2 and {"struct", "models", "plain"} < set(forms)


def check_form(answer: dict[str, Any]) -> str:
    """Nothing missing, nothing that the server does not send."""
    if "choices" in answer:
        on_request = {"prompt_logprobs", "prompt_token_ids"}
        assert set(answer) == set(Envelope.__struct_fields__) - on_request
        choice = CompletionChoice if answer["object"] == "text_completion" else ChatChoice
        for example in answer["choices"]:
            round_trip(example, choice)
        round_trip(answer["usage"], Usage)
        return "envelope"
    if "data" in answer:
        for example in answer["data"]:
            round_trip(example, ModelCard)
        return "models"
    structs = {
        "error": ErrorBody,
        "token_logprobs": CompletionLogprobs,
        "content": ChatLogprobs,
        "count": TokenizeResponse,
    }
    for key, struct in structs.items():
        if key in answer:
            round_trip(answer, struct)
            return "struct"
    return "plain"


def round_trip(example: object, struct: type[msgspec.Struct]) -> None:
    assert json.loads(msgspec.json.encode(msgspec.convert(example, struct))) == example


# ------------------------------------------------------------------ errors


def raised_codes() -> Iterator[tuple[str, int, str]]:
    """Where the server's code makes errors with a status and a code that are written there."""
    for file in sorted(SERVER.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ApiError":
                named = {keyword.arg: keyword.value for keyword in node.keywords}
                status, told = node.args[0] if node.args else None, named.get("code")
                if isinstance(status, ast.Constant) and isinstance(told, ast.Constant):
                    yield str(file.relative_to(SERVER)), status.value, told.value


def test_every_code_that_is_raised_is_in_the_table_with_its_status() -> None:
    """A dozen codes of `/admin`, of models and of stored items were missing."""
    known = {(status, name) for told in ERRORS for status in told.statuses for name in told.codes}
    raised = list(raised_codes())
    assert len(raised) > 25
    assert [each for each in raised if each[1:] not in known] == []
    assert {(STATUS[kind], name) for kind, name in CODES.items()} <= known


@pytest.mark.parametrize(
    "error",
    [
        RequestError("x"),
        Overloaded("x"),
        EngineGone("x"),
        EngineError("x"),
        ValueError("x"),
        ApiError(413, "x"),
        ApiError(401, "x", code="invalid_api_key"),
        ApiError(404, "x", code="model_not_found"),
        ApiError(404, "x", code="no_ab"),
        ApiError(404, "x", code="prefix_not_found"),
        ApiError(409, "x", code="arm_gone"),
        ApiError(409, "x", code="last_arm"),
        ApiError(409, "x", code="prefixes_unsupported"),
        ApiError(503, "x", code="prefix_not_computed"),
        ApiError(404, "x", code="previous_response_not_found"),
        ApiError(404, "x", code="no_response_store"),
        ApiError(404, "x", code="no_batches"),
        StorageError("x"),
        StorageError("x", full=True),
    ],
    ids=lambda error: f"{type(error).__name__} {getattr(error, 'code', '')}",
)
def test_an_error_is_in_the_table(error: Exception) -> None:
    details = error_body(error).error
    status = asyncio.run(respond_to_error(Request({"type": "http"}), error)).status_code
    listed = [
        (int(status), *code(kind), *(code(name) or [None]))
        for statuses, kind, name, *_ in rows(HTTP_API.section("Errors"))
        for status in statuses.split(", ")
    ]
    assert (status, details.type, details.code) in listed
