"""`LLM` answers random requests as the server does."""

from __future__ import annotations

import random
from typing import Any

import pytest
from random_requests import random_request
from tiny_server import serving

from turnout import LLM, RequestOutput, SamplingParams, StructuredOutputs, TurnoutError

REQUESTS = 150
NOT_OFFLINE = {"echo", "truncate_prompt_tokens"}
ELSEWHERE = {"prompt", "messages", "tools", "tool_choice", "cache_salt", "logprobs", "top_logprobs"}
"""Fields that are no sampling parameters of `LLM`, or other ones."""

Json = dict[str, Any]


@pytest.mark.slow
def test_llm_answers_as_the_server_does() -> None:
    llm, drawn = LLM("turnout-tiny", kv_memory="64MiB", max_num_seqs=3), random.Random(0)
    asked = [random_request(drawn) for _ in range(REQUESTS)]
    asked = [(path, body) for path, body in asked if not NOT_OFFLINE & set(body)]
    assert len(asked) > REQUESTS // 2
    with serving("--kv-memory", "64MiB") as server:
        for path, body in asked:
            response = server.post(path, body, timeout=120)
            answer = response.json()
            if response.status_code == 200:
                assert [_offline(choice) for choice in _choices(llm, body)] == [
                    _served(choice) for choice in answer["choices"]
                ], body
            else:
                with pytest.raises(TurnoutError) as refusal:
                    _choices(llm, body)
                assert str(refusal.value) == answer["error"]["message"], body


def _choices(llm: LLM, body: Json) -> list[Any]:
    params, salt = _params(llm, body), body.get("cache_salt", "")
    outputs: list[RequestOutput]
    if "prompt" in body:
        outputs = llm.generate(body["prompt"], params, cache_salt=salt, progress=False)
    else:
        outputs = llm.chat(
            body["messages"],
            params,
            tools=body.get("tools"),
            tool_choice=body.get("tool_choice"),
            cache_salt=salt,
            progress=False,
        )
    return [choice for output in outputs for choice in output.outputs]


def _params(llm: LLM, body: Json) -> SamplingParams:
    given = {name: value for name, value in body.items() if name not in ELSEWHERE}
    form = given.pop("response_format", None)
    if form is not None:
        schema = form.get("json_schema", {}).get("schema")
        given["structured_outputs"] = {"json_object": True} if schema is None else {"json": schema}
    if "structured_outputs" in given:
        given["structured_outputs"] = StructuredOutputs(**given["structured_outputs"])
    if "logit_bias" in given:
        given["logit_bias"] = {int(token): bias for token, bias in given["logit_bias"].items()}
    return llm.default_params(**given)


def _offline(choice: Any) -> tuple[str, list[tuple[str, str]], str]:
    return choice.text, [(call.name, call.arguments) for call in choice.tool_calls], choice.finish_reason


def _served(choice: Json) -> tuple[str, list[tuple[str, str]], str]:
    message = choice.get("message") or {"content": choice["text"]}
    calls = [each["function"] for each in message.get("tool_calls") or ()]
    return (
        message["content"] or "",
        [(call["name"], call["arguments"]) for call in calls],
        choice["finish_reason"],
    )
