"""Anthropic's client, in its strict mode, understands what the server says to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest
from tiny_server import TinyServer, serving

from turnout.server.protocol.messages.request import MessagesRequest

KEY = "sk-secret"
MODEL = "turnout-tiny"
GREEDY = {"temperature": 0}
"""The client's newer versions have no argument for it."""
ASKED: Any = [{"role": "user", "content": "How warm is it?"}]
NO_NUMBER = {"type": "integer", "minimum": 3, "maximum": 1}
FAULTY = {"type": "object", "properties": {"a": NO_NUMBER}, "required": ["a"]}
TOOL: Any = {
    "name": "forecast",
    "description": "Weather.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"enum": [1, 2]}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
def server() -> Iterator[TinyServer]:
    with serving("--api-key", KEY, key=KEY) as server:
        yield server


@pytest.fixture
def client(server: TinyServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=server.url, api_key=KEY, max_retries=0, _strict_response_validation=True
    ) as client:
        yield client


def ask(client: anthropic.Anthropic, **fields: Any) -> anthropic.types.Message:
    asked = {"messages": ASKED, "max_tokens": 24, "extra_body": GREEDY, **fields}
    message: anthropic.types.Message = client.messages.create(model=MODEL, **asked)
    return message


def test_a_message(client: anthropic.Anthropic) -> None:
    message = ask(client, system=[{"type": "text", "text": "Be short."}])
    (block,) = message.content
    assert block.type == "text" and block.text
    assert message.stop_reason == "max_tokens" and message.usage.output_tokens == 24
    assert message.id.startswith("msg_") and message.model == MODEL


def test_it_says_what_chat_says(client: anthropic.Anthropic, server: TinyServer) -> None:
    body = {"messages": ASKED, "max_tokens": 24, "temperature": 0}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, headers=server.headers).json()
    (block,) = ask(client).content
    assert block.type == "text" and block.text == answer["choices"][0]["message"]["content"]


def test_a_streamed_message_is_the_same_as_a_whole_one(client: anthropic.Anthropic) -> None:
    with client.messages.stream(model=MODEL, messages=ASKED, max_tokens=24, extra_body=GREEDY) as stream:
        kinds = [event.type for event in stream]
        streamed = stream.get_final_message()
    whole = ask(client)
    (told,), (block,) = streamed.content, whole.content
    assert told.type == block.type == "text" and told.text == block.text
    assert streamed.stop_reason == whole.stop_reason
    assert streamed.usage.output_tokens == whole.usage.output_tokens
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_is_called(client: anthropic.Anthropic, streamed: bool) -> None:
    fields: Any = {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "forecast"}, "max_tokens": 300}
    if streamed:
        asked: Any = {"messages": ASKED, **fields}
        with client.messages.stream(model=MODEL, **asked) as stream:
            message = stream.get_final_message()
    else:
        message = ask(client, **fields)
    (block,) = message.content
    assert block.type == "tool_use" and block.name == "forecast" and block.id.startswith("toolu_")
    assert isinstance(block.input, dict) and block.input["days"] in (1, 2)
    assert message.stop_reason == "tool_use"


def test_results_of_tools_go_back(client: anthropic.Anthropic) -> None:
    call: Any = {"type": "tool_use", "id": "toolu_1", "name": "forecast", "input": {"city": "Bern"}}
    told: Any = [{"type": "text", "text": "18 degrees"}]
    result: Any = {"type": "tool_result", "tool_use_id": "toolu_1", "content": told}
    conversation = [
        *ASKED,
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, call]},
        {"role": "user", "content": [result, {"type": "text", "text": "And tomorrow?"}]},
    ]
    assert ask(client, messages=conversation, tools=[TOOL]).usage.output_tokens


def test_a_stop_sequence_is_named(client: anthropic.Anthropic) -> None:
    (block,) = ask(client).content
    assert block.type == "text"
    word = block.text.split()[1]
    message = ask(client, stop_sequences=[word])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", word)


def test_tokens_are_counted(client: anthropic.Anthropic) -> None:
    counted = client.messages.count_tokens(model=MODEL, messages=ASKED).input_tokens
    usage = ask(client).usage
    assert counted == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    assert client.messages.count_tokens(model=MODEL, messages=ASKED, tools=[TOOL]).input_tokens > counted


def test_more_tokens_than_fit_mean_as_many_as_fit(client: anthropic.Anthropic) -> None:
    assert ask(client, max_tokens=8000, stop_sequences=["0"]).stop_reason == "stop_sequence"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0] has the type"),
        (
            {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
            "'web_search_20250305', which runs on Anthropic's servers",
        ),
        (
            {"tools": [TOOL, {"type": "bash_20250124", "name": "bash"}]},
            "tools[1] has the type 'bash_20250124', which is not supported; give the tool without a type, "
            "with a name and an input_schema",
        ),
        (
            {"tools": [{"type": "memory_20250818", "name": "memory"}]},
            "'memory_20250818', which is not supported",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content has a block"),
        ({"tools": [{**TOOL, "name": "a b"}]}, "tools[0].name: "),
        (
            {"tools": [{**TOOL, "input_schema": {"type": "array"}}]},
            "tools[0].input_schema: a schema of an object",
        ),
        (
            {"tools": [{**TOOL, "input_schema": FAULTY}]},
            "tools[0].input_schema of 'forecast': the schema of a",
        ),
        (
            {"tools": [{**TOOL, "input_schema": {"type": "object", "properties": [1]}}]},
            "tools[0].input_schema of 'forecast': its keyword 'properties' should be an object of schemas",
        ),
        ({"messages": []}, "messages"),
        ({"extra_body": {"temperature": -1.0}}, "temperature"),
        ({"tool_choice": {"type": "any"}}, "tool_choice is 'any', but there are no tools"),
        ({"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice is 'tool', but there are no tools"),
        ({"system": 5}, "system: "),
        ({"stop_sequences": [""]}, "stop_sequences must hold strings, none of them empty"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "block of the type 'text' without"),
        (
            {"messages": [*ASKED, {"role": "assistant", "content": [{"type": "thinking", "thinking": 5}]}]},
            "block of the type 'thinking' whose thinking is no text",
        ),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema must be"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    client: anthropic.Anthropic, fields: dict[str, Any], why: str
) -> None:
    with pytest.raises(anthropic.BadRequestError) as refused:
        ask(client, **fields)
    error: Any = refused.value.body
    assert error["type"] == "error" and error["error"]["type"] == "invalid_request_error"
    assert why in error["error"]["message"]


def test_an_empty_thought_is_none() -> None:
    """The model was told that it had thought "None"."""
    blocks = [{"type": "thinking", "thinking": None}, {"type": "text", "text": "Hi."}]
    said = [*ASKED, {"role": "assistant", "content": blocks}, *ASKED]
    asked = MessagesRequest.model_validate({"model": "m", "max_tokens": 1, "messages": said})
    assert [each.get("reasoning_content") for each in asked.chat_fields()["messages"]] == [None, None, None]


def test_a_choice_of_tools_that_forces_none_needs_none(client: anthropic.Anthropic) -> None:
    for choice in ("auto", "none"):
        assert ask(client, tool_choice={"type": choice}).stop_reason == "max_tokens"


def test_errors_have_anthropics_form(client: anthropic.Anthropic, server: TinyServer) -> None:
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="claude", messages=ASKED, max_tokens=1)
    with (
        anthropic.Anthropic(base_url=server.url, api_key="wrong", max_retries=0) as stranger,
        pytest.raises(anthropic.AuthenticationError) as refused,
    ):
        ask(stranger)
    error: Any = refused.value.body
    assert error["error"]["type"] == "authentication_error"


def test_a_prompt_that_exceeds_the_context_is_told_in_anthropics_words(client: anthropic.Anthropic) -> None:
    """By them, agents know that they are to shorten a conversation."""
    with pytest.raises(
        anthropic.BadRequestError, match="prompt is too long: this model's maximum context"
    ) as long:
        client.messages.create(
            model="turnout-tiny", max_tokens=5, messages=[{"role": "user", "content": "word " * 9000}]
        )
    error = long.value.body["error"]  # type: ignore[index]
    assert error["details"] == {"error_code": "context_length_exceeded"}


def test_a_model_that_is_not_there_is_an_error_of_anthropics_for_its_clients(server: TinyServer) -> None:
    url = f"{server.url}/v1/models/none"
    theirs = httpx.get(url, headers={**server.headers, "anthropic-version": "2023-06-01"})
    assert theirs.status_code == 404
    assert theirs.json()["type"] == "error" and theirs.json()["error"]["type"] == "not_found_error"
    assert httpx.get(url, headers=server.headers).json()["error"]["type"] == "invalid_request_error"


# ------------------------------------------------------------------ what Claude Code sends beside


def test_the_paths_and_headers_of_betas(server: TinyServer) -> None:
    """Claude Code asks `HEAD /` first, and sends fields that no documentation has."""
    assert httpx.head(server.url, headers=server.headers).status_code == 200
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "claude-code-20250219,and-more"}
    text = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}, "citations": None}
    body = {
        "model": MODEL,
        "max_tokens": 4,
        "messages": [{"role": "user", "content": [text], "id": "msg_1"}],
        "system": [{**text, "text": "Be short."}],
        "tools": [{**TOOL, "cache_control": {"type": "ephemeral"}, "defer_loading": False}],
        "metadata": {"user_id": "me", "session": "s"},
        "context_management": {"edits": []},
        "service_tier": "auto",
        "something_new": {"a": 1},
    }
    answer = server.post("/v1/messages?beta=true", body, headers=headers)
    assert answer.status_code == 200 and answer.json()["usage"]["output_tokens"] == 4
    counted = server.post("/v1/messages/count_tokens?beta=true", body, headers=headers)
    assert counted.json()["input_tokens"] > 10


def test_a_stream_begins_with_a_ping(server: TinyServer) -> None:
    body = {"model": MODEL, "max_tokens": 3, "messages": ASKED, "stream": True}
    text = server.post("/v1/messages?beta=true", body).text
    names = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
    assert names[:2] == ["message_start", "ping"] and names[-1] == "message_stop"
