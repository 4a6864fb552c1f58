"""litellm over chat, Responses and Messages, translating between them: tools, streams, structured answers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would ask GitHub for prices

import litellm
import pytest
from pydantic import BaseModel
from script import Script, call, rule, thought

URL = os.environ["TURNOUT_URL"]
NAME = os.environ["TURNOUT_MODEL"]
SCRIPT = Script(Path(os.environ["TURNOUT_SCRIPT"]))
ANSWER = "It is sunny in Bern."
ASK = [{"role": "user", "content": "Is it sunny?"}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "Of a city.", "parameters": PARAMETERS},
}
LOOP = (thought("I must look.") + "Let me look.\n" + call("weather", city="Bern"), ANSWER)
WAYS = {
    "openai": {"model": f"openai/{NAME}", "api_base": f"{URL}/v1"},
    "vllm": {"model": f"hosted_vllm/{NAME}", "api_base": f"{URL}/v1"},
    "responses": {"model": f"openai/responses/{NAME}", "api_base": f"{URL}/v1"},
    "anthropic": {"model": f"anthropic/{NAME}", "api_base": URL},
}
# For a model that it doesn't know it makes a stream of a whole response, with the arguments of calls twice.
KNOWN = {"litellm_provider": "openai", "mode": "chat", "supports_native_streaming": True}
litellm.register_model({NAME: KNOWN})


class Weather(BaseModel):
    city: str
    sunny: bool


@pytest.fixture(params=WAYS)
def way(request) -> dict[str, Any]:
    return {**WAYS[request.param], "api_key": "none", "max_tokens": 500, "num_retries": 0}


@pytest.mark.parametrize("streamed", [False, True])
def test_a_loop_with_a_tool(way, streamed: bool) -> None:
    SCRIPT.say(*LOOP)
    messages: list[Any] = list(ASK)
    for turn in range(2):
        more = {"stream_options": {"include_usage": True}} if streamed else {}
        response = litellm.completion(messages=messages, tools=[TOOL], stream=streamed, **more, **way)
        if streamed:
            response = litellm.stream_chunk_builder(list(response), messages=messages)
        choice = response.choices[0]
        messages.append(choice.message.model_dump(exclude_none=True))
        if turn == 0:
            (called,) = choice.message.tool_calls
            assert choice.finish_reason == "tool_calls" and choice.message.content.strip() == "Let me look."
            assert json.loads(called.function.arguments) == {"city": "Bern"}
            if "responses" not in way["model"]:  # of those it reads summaries of reasoning, and no reasoning
                assert choice.message.reasoning_content == "I must look."
            messages.append({"role": "tool", "tool_call_id": called.id, "content": "sunny"})
    assert choice.message.content == ANSWER and choice.finish_reason == "stop"
    assert response.usage.prompt_tokens > 100


def test_a_structured_answer(way) -> None:
    by_tool = rule(call("json_tool_call", city="Bern", sunny=True), '"json_tool_call"')
    SCRIPT.play(by_tool, rule('{"city": "Bern", "sunny": true}'))
    response = litellm.completion(messages=ASK, response_format=Weather, **way)
    assert Weather.model_validate_json(response.choices[0].message.content) == Weather(
        city="Bern", sunny=True
    )


def test_a_call_that_must_be_made(way) -> None:
    SCRIPT.say(call("weather", city="Bern"))
    named = {"type": "function", "function": {"name": "weather"}}
    for choice in ("required", named):
        response = litellm.completion(messages=ASK, tools=[TOOL], tool_choice=choice, **way)
        assert response.choices[0].message.tool_calls[0].function.name == "weather"


def test_responses() -> None:
    SCRIPT.say(*LOOP)
    asked: Any = {**WAYS["openai"], "api_key": "none"}
    tool = {"type": "function", "name": "weather", "parameters": PARAMETERS}
    first = litellm.responses(input=ASK, tools=[tool], **asked)
    called = first.output[-1]
    items = [item.model_dump(exclude_none=True) for item in first.output]
    result = {"type": "function_call_output", "call_id": called.call_id, "output": "sunny"}
    events = list(litellm.responses(input=[*ASK, *items, result], tools=[tool], stream=True, **asked))
    assert events[-1].type == "response.completed"
    assert events[-1].response.output[-1].content[0].text == ANSWER


# Streams of Anthropic's own API go through a part of litellm that needs its whole proxy.
@pytest.mark.parametrize(
    ("way", "streamed"), [("anthropic", False), ("openai", False), ("openai", True)], indirect=["way"]
)
async def test_messages(way, streamed: bool) -> None:
    SCRIPT.say(*LOOP)
    tool = {"name": "weather", "description": "Of a city.", "input_schema": PARAMETERS}
    response = await litellm.anthropic.messages.acreate(messages=ASK, tools=[tool], stream=streamed, **way)
    if streamed:
        text = b"".join(
            [each if isinstance(each, bytes) else each.encode() async for each in response]
        ).decode()
        assert '"tool_use"' in text and "message_stop" in text
    else:
        assert response["stop_reason"] == "tool_use"
        assert response["content"][-1]["input"] == {"city": "Bern"}
