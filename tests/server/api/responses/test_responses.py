"""OpenAI's client, in its strictest mode, understands the Responses API that the server speaks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import httpx
import openai
import pytest
from asking import strict_client
from tiny_server import TinyServer, serving

from turnout.server.protocol.response_tools import offered_tools
from turnout.server.renderers.responses import ResponsesRenderer
from turnout.text.choice_text import TextDelta
from turnout.text.output.events import Reasoning, Text, ToolArguments, ToolBegin, ToolEnd

MODEL = "turnout-tiny"
ASKED = "How warm is it?"
TOOL: Any = {
    "type": "function",
    "name": "forecast",
    "description": "Weather.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"enum": [1, 2]}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}
REPEATED = (
    *("instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "previous_response_id"),
    *("reasoning", "temperature", "text", "tool_choice", "tools", "top_p", "user"),
)
"""The fields of a response that are its request's."""
CALLED: Any = {"tools": [TOOL], "tool_choice": {"type": "function", "name": "forecast"}}
NAMESPACE: Any = {"type": "namespace", "name": "weather", "description": "The sky.", "tools": [TOOL]}


@pytest.fixture(scope="module")
def server() -> Iterator[TinyServer]:
    with serving() as server:
        yield server


@pytest.fixture
def client(server: TinyServer) -> Iterator[openai.OpenAI]:
    with strict_client(server.url) as client:
        yield client


def ask(client: openai.OpenAI, **fields: Any) -> Any:
    asked = {"input": ASKED, "max_output_tokens": 24, "temperature": 0, **fields}
    return client.responses.create(model=MODEL, **asked)


def test_it_says_what_chat_says(client: openai.OpenAI, server: TinyServer) -> None:
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": ASKED}]
    body = {"messages": messages, "max_tokens": 24, "temperature": 0}
    chat = httpx.post(f"{server.url}/v1/chat/completions", json=body).json()
    response = ask(client, instructions="Be short.")
    assert response.output_text == chat["choices"][0]["message"]["content"]
    assert response.status == "incomplete" and response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.output_tokens == 24 and response.store is False


def test_a_streamed_response_is_the_same_as_a_whole_one(client: openai.OpenAI) -> None:
    events = list(ask(client, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == ask(client).output_text == events[-1].response.output_text


@pytest.mark.parametrize("streamed", [False, True])
def test_a_function_is_called(client: openai.OpenAI, streamed: bool) -> None:
    response = ask(client, **CALLED, stream=streamed, max_output_tokens=300)
    if streamed:
        *events, last = response
        response = last.response
        pieces = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
        assert "".join(pieces) == response.output[0].arguments and len(pieces) > 3
    (call,) = response.output
    assert call.type == "function_call" and call.name == "forecast" and call.call_id.startswith("call_")
    assert json.loads(call.arguments)["days"] in (1, 2) and response.status == "completed"


@pytest.mark.parametrize("called", [{}, CALLED], ids=["message", "call"])
def test_an_item_that_is_cut_is_incomplete_when_it_ends(client: openai.OpenAI, called: Any) -> None:
    """Its last event said `completed`, and only the response's said `incomplete`."""
    asked = {**called, "max_output_tokens": 24}
    *_, done, last = ask(client, **asked, stream=True)
    assert (done.type, last.type) == ("response.output_item.done", "response.incomplete")
    (whole,) = ask(client, **asked).output
    assert done.item.status == last.response.output[0].status == whole.status == "incomplete"
    assert done.item.type == whole.type == ("function_call" if called else "message")


@pytest.mark.parametrize("streamed", [False, True])
def test_items_that_ended_before_the_cut_are_complete(streamed: bool) -> None:
    call = [ToolBegin(0, "now"), ToolArguments(0, "{}"), ToolEnd(0)]
    for events, statuses in (
        ([Text("a"), *call], ["completed", "completed"]),
        ([*call, Text("a")], ["completed", "incomplete"]),
        ([Reasoning("a"), *call[:2]], ["completed", "incomplete"]),
    ):
        renderer = ResponsesRenderer("resp_1", MODEL, 0, dict.fromkeys(REPEATED), {})
        ended = TextDelta(0, events=events, finish_reason="length")
        generation = MagicMock(splitter=object(), prompt_tokens=1, completion_tokens=3)
        if streamed:
            sent = renderer.delta(ended, generation).decode().splitlines()
            told = [json.loads(line.removeprefix("data: ")) for line in sent if line.startswith("data: ")]
            done = [event["item"]["status"] for event in told if event["type"] == "response.output_item.done"]
            assert done == statuses
        body = renderer.ended(generation) if streamed else renderer.whole([ended], generation)
        assert [item["status"] for item in body.output] == statuses and body.status == "incomplete"


def test_a_conversation_goes_on(client: openai.OpenAI) -> None:
    (call,) = ask(client, **CALLED, max_output_tokens=300).output
    items: Any = [
        {"role": "developer", "content": "Be short."},
        {"role": "user", "content": [{"type": "input_text", "text": ASKED}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        call.model_dump(exclude_none=True),
        {"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"},
    ]
    assert ask(client, input=items, tools=[TOOL]).usage.input_tokens > ask(client).usage.input_tokens


def test_the_text_has_the_form_that_is_asked_for(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"yes": {"type": "boolean"}},
        "required": ["yes"],
        "additionalProperties": False,
    }
    form: Any = {"format": {"type": "json_schema", "name": "yes", "schema": schema, "strict": True}}
    response = ask(client, text=form, max_output_tokens=200)
    assert list(json.loads(response.output_text)) == ["yes"]


def test_tools_of_other_types_are_left_out(client: openai.OpenAI) -> None:
    """Codex sends them beside its own; the response says so."""
    response = ask(client, tools=[{"type": "web_search"}, TOOL])
    assert [tool.type for tool in response.tools] == ["function"]
    left_out = {"param": "tools[0]", "message": "tools of the type 'web_search' are left out"}
    assert response.to_dict()["warnings"] == [left_out]
    assert "warnings" not in ask(client, tools=[TOOL]).to_dict()


def test_tools_that_are_left_out_are_counted(client: openai.OpenAI) -> None:
    """Errors named the place among the tools that are left."""
    search = {"type": "web_search"}
    for tool, field in (({**TOOL, "name": "a b"}, "name"), ({**TOOL, "parameters": FAULTY}, "parameters")):
        with pytest.raises(openai.BadRequestError, match=rf"- tools\[2\]\.{field}") as refused:
            ask(client, tools=[search, {**TOOL, "name": "other"}, tool, search])
        assert refused.value.param == f"tools[2].{field}"


def test_of_the_tools_only_those_that_are_allowed_are_called(client: openai.OpenAI) -> None:
    """A tool that is left out, such as OpenAI's web search, is left out of them."""
    now: Any = {**TOOL, "name": "now", "parameters": {"type": "object", "properties": {}}}
    allowed: Any = [{"type": "web_search"}, {"type": "function", "name": "now"}]
    choice: Any = {"type": "allowed_tools", "mode": "required", "tools": allowed}
    response = ask(client, tools=[{"type": "web_search"}, TOOL, now], tool_choice=choice)
    calls = [item for item in response.output if item.type == "function_call"]
    assert calls and {call.name for call in calls} == {"now"}
    assert response.to_dict()["tool_choice"] == choice


def test_what_is_included_anyway_may_be_asked_for(client: openai.OpenAI) -> None:
    """Codex and openai-agents ask for encrypted reasoning."""
    include: Any = ["reasoning.encrypted_content", "web_search_call.action.sources"]
    assert ask(client, include=include).output_text


def test_a_refusal_in_the_history_is_text(client: openai.OpenAI) -> None:
    said: Any = {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    plain: Any = {"role": "assistant", "content": "no"}
    asked: Any = {"role": "user", "content": "a"}
    counts = {ask(client, input=[each, asked]).usage.input_tokens for each in (said, plain)}
    assert len(counts) == 1


def test_functions_of_a_namespace_are_called_by_their_own_names(client: openai.OpenAI) -> None:
    """Codex sends the tools of MCP servers so; they were left out."""
    name = {"type": "function", "name": "forecast", "namespace": "weather"}
    streamed = ask(client, tools=[NAMESPACE, TOOL], tool_choice=name, max_output_tokens=300, stream=True)
    *events, last = streamed
    (added,) = [event.item for event in events if event.type == "response.output_item.added"]
    (call,) = last.response.output
    for item in (added, call):
        assert (item.type, item.name, item.namespace) == ("function_call", "forecast", "weather")
    assert json.loads(call.arguments)["days"] in (1, 2)
    assert [tool.type for tool in last.response.tools] == ["namespace", "function"]
    items: Any = [
        {"role": "user", "content": ASKED},
        call.model_dump(exclude_none=True),
        {"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"},
    ]
    assert ask(client, input=items, tools=[NAMESPACE]).usage.input_tokens > 0


def test_a_namespace_may_be_what_is_allowed(client: openai.OpenAI) -> None:
    allowed: Any = [{"type": "namespace", "name": "weather"}]
    choice: Any = {"type": "allowed_tools", "mode": "required", "tools": allowed}
    response = ask(client, tools=[TOOL, NAMESPACE], tool_choice=choice, max_output_tokens=300)
    calls = [item for item in response.output if item.type == "function_call"]
    assert calls and {call.namespace for call in calls} == {"weather"}


def test_the_model_is_told_what_a_namespace_is_for() -> None:
    bare = {"type": "function", "name": "now"}
    tools = [{**NAMESPACE, "tools": [TOOL, bare]}, TOOL, {**NAMESPACE, "name": "mcp__sky__", "tools": [bare]}]
    found = [each.for_chat()["function"] for each in offered_tools(tools)]
    assert [each["name"] for each in found] == [
        "weather__forecast",
        "weather__now",
        "forecast",
        "mcp__sky__now",
    ]
    told = ["The sky.\n\nWeather.", "The sky.", "Weather.", "The sky."]
    assert [each["description"] for each in found] == told


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"input": [{"type": "computer_call"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 2**40}, "max_output_tokens"),
        ({"input": 5}, "input"),
        ({"input": []}, "input"),
        ({"input": "word " * 5000}, "input"),
        ({"input": [{"role": 5, "content": "a"}], "instructions": "Be short."}, "input"),
        ({"text": {"format": {"type": "nope"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "schema": {"type": "strin"}}}}, "text.format"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "required", "tools": [{"type": "web_search"}]}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
        ({"tool_choice": {"type": "function"}, "tools": [TOOL]}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "any", "tools": []}}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto"}}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": []}}, "tool_choice"),
        (
            {
                "tools": [TOOL],
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "auto",
                    "tools": [{"type": "function", "name": "f"}],
                },
            },
            "tool_choice",
        ),
        ({"tools": [{**NAMESPACE, "tools": [TOOL, {"type": "custom"}]}]}, "tools[0].tools[1].name"),
        ({"tools": [{**NAMESPACE, "name": None}]}, "tools[0].name"),
        ({"tools": [{**NAMESPACE, "tools": None}]}, "tools[0].tools"),
        ({"tools": [{**NAMESPACE, "description": 5}]}, "tools[0].description"),
        ({"tools": [{**TOOL, "description": 5}]}, "tools[0].description"),
        ({"tools": [{**NAMESPACE, "tools": [{"type": "function"}]}]}, "tools[0].tools[0].name"),
        ({"tools": [TOOL, {**NAMESPACE, "tools": [{**TOOL, "name": "a b"}]}]}, "tools[1].tools[0].name"),
        ({"tools": [NAMESPACE, {**TOOL, "name": "weather__forecast"}]}, "tools"),
        ({"input": [{"type": "function_call", "name": "f", "namespace": 5}]}, "input"),
        ({"include": ["reasoning.encrypted_content", "zzz"]}, "include[1]"),
        ({"include": ["message.output_text.logprobs"]}, "include[0]"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"input": [{"type": "reasoning", "summary": [], "content": [{"text": None}]}]}, "input"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    client: openai.OpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, **fields)
    assert refused.value.param == param


FAULTY: Any = {"type": "object", "properties": {"a": {"type": "strin"}}}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_output_tokens": 2**40}, "max_output_tokens must be between"),
        ({"text": {"format": {"type": "nope"}}}, "text.format.type must be"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema must be"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "'input_text' without a text"),
        ({"tool_choice": "required"}, "tool_choice is 'required', but there are no tools"),
        ({"top_logprobs": 2}, "- top_logprobs is not supported; /v1/chat/completions has log-prob"),
        ({"prompt": {"id": "pmpt_1"}}, "- prompt is not supported$"),
        ({"conversation": "conv_1"}, "conversation is not supported; send the whole conversation as input"),
        ({"include": ["message.output_text.logprobs"]}, r"include\[0\]: .* is not supported; /v1/chat"),
        ({"include": ["zzz"]}, r"include\[0\]: should be one of .*reasoning\.encrypted_content.*'zzz'"),
        ({"tools": [{**TOOL, "name": "a b"}]}, r"tools\[0\]\.name: "),
        (
            {"tools": [{**TOOL, "parameters": {"type": "array"}}]},
            r"tools\[0\]\.parameters: a schema of an object",
        ),
        (
            {"tools": [{**TOOL, "parameters": FAULTY}]},
            r"tools\[0\]\.parameters of '\w+': its keyword 'type' should be one of .* not 'strin'",
        ),
    ],
)
def test_a_message_names_the_field_that_was_sent(
    client: openai.OpenAI, fields: dict[str, Any], words: str
) -> None:
    """It named the field of chat that it is translated to."""
    with pytest.raises(openai.BadRequestError, match=words):
        ask(client, **fields)


def test_a_choice_of_tools_that_forces_none_needs_none(client: openai.OpenAI) -> None:
    for choice in ("auto", "none"):
        assert ask(client, tool_choice=choice).status == "incomplete"
