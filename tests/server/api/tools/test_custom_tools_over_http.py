"""Custom tools over HTTP, as OpenAI's client in its strictest mode has them, with the embedded model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from asking import CHAT, strict_client
from tiny_server import TinyServer, serving

MODEL = "turnout-tiny"
ASKED = "How warm is it?"
DATE = r"^(?P<month>May|June) [0-9]{1,2}$"
REGEX: Any = {"type": "grammar", "syntax": "regex", "definition": DATE}
RUN: Any = {"type": "custom", "name": "run", "description": "Runs code."}
WHEN: Any = {"type": "custom", "name": "when", "format": REGEX}
LOOK: Any = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
SKY: Any = {"type": "namespace", "name": "sky", "description": "The sky.", "tools": [WHEN]}
CALL_WHEN: Any = {"tools": [RUN, WHEN], "tool_choice": {"type": "custom", "name": "when"}}


def in_chat(tool: Any) -> Any:
    """A tool, or the name of one, as chat has it."""
    kind, form = tool["type"], tool.get("format")
    fields = {key: value for key, value in tool.items() if key != "type"}
    if form and form["type"] == "grammar":
        fields["format"] = {"type": "grammar", "grammar": {k: v for k, v in form.items() if k != "type"}}
    return {"type": kind, kind: fields}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyServer]:
    store = tmp_path_factory.mktemp("store") / "responses.db"
    with serving("--response-store", str(store), "--event-interval", "0") as server:
        yield server


@pytest.fixture
def client(server: TinyServer) -> Iterator[openai.OpenAI]:
    with strict_client(server.url) as client:
        yield client


def respond(client: openai.OpenAI, **fields: Any) -> Any:
    asked = {"input": ASKED, "max_output_tokens": 300, "temperature": 0, **CALL_WHEN, **fields}
    return client.responses.create(model=MODEL, **asked)


def chat(client: openai.OpenAI, *tools: Any, **fields: Any) -> Any:
    asked = {"messages": [{"role": "user", "content": ASKED}], "max_tokens": 300, "temperature": 0, **fields}
    return client.chat.completions.create(model=MODEL, tools=[in_chat(tool) for tool in tools], **asked)


# ---------------------------------------------------------------- responses


@pytest.mark.parametrize("streamed", [False, True])
def test_a_response_calls_a_custom_tool_with_a_text(client: openai.OpenAI, streamed: bool) -> None:
    response = respond(client, stream=streamed)
    if streamed:
        *told, last = response
        response = last.response
        pieces = [event.delta for event in told if event.type == "response.custom_tool_call_input.delta"]
        assert "".join(pieces) == response.output[0].input and len(pieces) > 1
        (begun,) = (event.item for event in told if event.type == "response.output_item.added")
        assert (begun.input, begun.status) == ("", "in_progress")
        assert [event.type for event in told[-2:]] == [
            "response.custom_tool_call_input.done",
            "response.output_item.done",
        ]
        assert told[-2].input == told[-1].item.input == response.output[0].input
        assert {told[-2].item_id, told[-1].item.id} == {begun.id}
    (call,) = response.output
    assert (call.type, call.name, call.status) == ("custom_tool_call", "when", "completed")
    assert call.id.startswith("ctc_") and call.call_id.startswith("call_") and call.namespace is None
    assert re.fullmatch(DATE, call.input), "the whole text matches"


def test_a_response_repeats_the_custom_tools_as_they_were_given(server: TinyServer) -> None:
    tools = [RUN, {**WHEN, "defer_loading": False}, SKY, LOOK]
    body = {"input": ASKED, "tools": tools, "tool_choice": CALL_WHEN["tool_choice"], "max_output_tokens": 2}
    told = server.post("/v1/responses", body).json()
    assert told["tools"][:3] == tools[:3] and told["tool_choice"] == CALL_WHEN["tool_choice"]
    assert "warnings" not in told


@pytest.mark.parametrize("streamed", [False, True])
def test_a_call_that_is_cut_is_incomplete(client: openai.OpenAI, streamed: bool) -> None:
    asked = {"tools": [RUN], "tool_choice": "required", "max_output_tokens": 24}
    response = respond(client, **asked, stream=streamed)
    if streamed:
        *_, done, last = response
        assert (done.type, done.item.status) == ("response.output_item.done", "incomplete")
        response = last.response
    (call,) = response.output
    assert (call.type, call.status, response.status) == ("custom_tool_call", "incomplete", "incomplete")


def test_a_custom_tool_of_a_namespace_is_called_by_its_own_name(client: openai.OpenAI) -> None:
    choice = {"type": "custom", "name": "when", "namespace": "sky"}
    (call,) = respond(client, tools=[SKY, RUN], tool_choice=choice).output
    assert (call.name, call.namespace) == ("when", "sky") and re.fullmatch(DATE, call.input)


@pytest.mark.parametrize(
    "allowed",
    [
        {"type": "custom", "name": "when"},
        {"type": "function", "name": "look"},
        {"type": "namespace", "name": "sky"},
    ],
)
def test_only_the_tools_that_are_allowed_are_called(client: openai.OpenAI, allowed: Any) -> None:
    tools = [RUN, LOOK, SKY if allowed["type"] == "namespace" else WHEN]
    choice: Any = {"type": "allowed_tools", "mode": "required", "tools": [allowed]}
    output = respond(client, tools=tools, tool_choice=choice, parallel_tool_calls=False).output
    assert [item.type for item in output] == [
        "function_call" if allowed["type"] == "function" else "custom_tool_call"
    ]


def test_a_conversation_with_custom_calls_goes_on_by_its_items_and_by_its_name(client: openai.OpenAI) -> None:
    first = respond(client)
    (call,) = first.output
    result: Any = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "It was."}
    parts: Any = {**result, "output": [{"type": "input_text", "text": "It was."}]}
    whole: Any = [{"role": "user", "content": ASKED}, call.model_dump(exclude_none=True), result]
    asked: Any = {"tool_choice": "none", "max_output_tokens": 12}
    by_items = respond(client, input=whole, **asked)
    by_name = respond(client, input=[parts], previous_response_id=first.id, **asked)
    assert by_items.output_text == by_name.output_text
    assert by_items.usage.input_tokens == by_name.usage.input_tokens
    kept = {item.type for item in client.responses.input_items.list(by_items.id)}
    assert kept == {"message", "custom_tool_call", "custom_tool_call_output"}
    assert client.responses.retrieve(first.id).output == first.output


# ---------------------------------------------------------------- chat


def test_chat_calls_a_custom_tool_with_a_text(client: openai.OpenAI) -> None:
    (choice,) = chat(client, RUN, WHEN, tool_choice=in_chat(CALL_WHEN["tool_choice"])).choices
    (call,) = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    assert (call.type, call.custom.name) == ("custom", "when") and call.id.startswith("call_")
    assert re.fullmatch(DATE, call.custom.input)


def test_a_streamed_call_is_the_same_as_a_whole_one(client: openai.OpenAI, server: TinyServer) -> None:
    """The official types of streamed calls know functions alone, so that a strict client reads none of these;
    the form is the one that OpenAI's API streams."""
    choice = in_chat(CALL_WHEN["tool_choice"])
    (whole,) = chat(client, RUN, WHEN, tool_choice=choice).choices[0].message.tool_calls
    asked = {"messages": [{"role": "user", "content": ASKED}], "max_tokens": 300, "temperature": 0}
    tools = [in_chat(RUN), in_chat(WHEN)]
    body = {**asked, "tools": tools, "tool_choice": choice, "stream": True}
    *lines, done = server.post(CHAT, body).text.strip().split("\n\n")
    assert done == "data: [DONE]"
    deltas = [json.loads(line.removeprefix("data: "))["choices"][0]["delta"] for line in lines]
    first, *more = [call for delta in deltas for call in delta.get("tool_calls", ())]
    id = first.pop("id")
    assert id.startswith("call_")
    assert first == {"index": 0, "type": "custom", "custom": {"name": "when", "input": ""}}
    assert all(call.keys() == {"index", "custom"} and call["custom"].keys() == {"input"} for call in more)
    assert "".join(call["custom"]["input"] for call in more) == whole.custom.input and len(more) > 1


def test_the_official_client_gathers_a_streamed_call(server: TinyServer) -> None:
    choice = in_chat(CALL_WHEN["tool_choice"])
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as lenient:
        whole = chat(lenient, RUN, WHEN, tool_choice=choice).choices[0].message.tool_calls[0]
        asked: Any = {"messages": [{"role": "user", "content": ASKED}], "max_tokens": 300, "temperature": 0}
        tools: Any = [in_chat(RUN), in_chat(WHEN)]
        with lenient.chat.completions.stream(model=MODEL, **asked, tools=tools, tool_choice=choice) as stream:
            for _ in stream:
                pass
            message = stream.current_completion_snapshot.choices[0].message
    (call,) = message.tool_calls or ()
    assert call.to_dict()["custom"] == whole.custom.to_dict()


def test_functions_and_custom_tools_are_called_together(client: openai.OpenAI) -> None:
    choices = chat(client, LOOK, WHEN, tool_choice="required", n=4, temperature=1, seed=1).choices
    for choice in choices:
        for call in choice.message.tool_calls:
            if call.type == "custom":
                assert re.fullmatch(DATE, call.custom.input)
            else:
                assert call.function.name == "look"
    assert {call.type for choice in choices for call in choice.message.tool_calls} == {"custom", "function"}


def test_a_chat_with_custom_calls_goes_on_as_one_with_functions_does(client: openai.OpenAI) -> None:
    custom = {"type": "custom", "custom": {"name": "run", "input": 'print("é")\n'}}
    function = {
        "type": "function",
        "function": {"name": "run", "arguments": '{"input": "print(\\"é\\")\\n"}'},
    }
    counts = []
    for call in (custom, function):
        messages: Any = [
            {"role": "user", "content": ASKED},
            {"role": "assistant", "tool_calls": [{"id": "call_1", **call}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "é"},
        ]
        answer = chat(client, RUN, messages=messages, tool_choice="none", max_tokens=8)
        counts.append((answer.usage.prompt_tokens, answer.choices[0].message.content))
    assert counts[0] == counts[1]


# ---------------------------------------------------------------- refusals

LARK: Any = {"type": "custom", "name": "run", "format": {**REGEX, "syntax": "lark"}}
AHEAD: Any = {"type": "custom", "name": "run", "format": {**REGEX, "definition": "(?=a)b"}}
FAULTY: Any = {"type": "custom", "name": "run", "format": {**REGEX, "definition": r"\p{Foo}"}}
REFUSED = [
    (LARK, "syntax", "of 'run': 'lark' is not supported; give a 'regex', or the format {\"type\": \"text\"}"),
    (AHEAD, "definition", "of 'run': the regular expression '(?=a)b' cannot be held"),
    (FAULTY, "definition", "of 'run': the schema of a tool cannot be compiled: regex parse error"),
]


@pytest.mark.parametrize(("tool", "field", "why"), REFUSED)
def test_a_form_that_cannot_be_held_is_refused_by_its_tool_and_field(
    client: openai.OpenAI, tool: Any, field: str, why: str
) -> None:
    space: Any = {"type": "namespace", "name": "sky", "tools": [{**tool, "name": "other"}]}
    with pytest.raises(openai.BadRequestError) as refused:
        respond(client, tools=[LOOK, tool], tool_choice="auto")
    assert refused.value.param == f"tools[1].format.{field}"
    assert f"tools[1].format.{field} {why}" in refused.value.message
    with pytest.raises(openai.BadRequestError) as refused:
        respond(client, tools=[LOOK, space], tool_choice="auto")
    assert refused.value.param == f"tools[1].tools[0].format.{field}"
    with pytest.raises(openai.BadRequestError) as refused:
        chat(client, LOOK, tool)
    assert refused.value.param == f"tools[1].custom.format.grammar.{field}"
    assert f"tools[1].custom.format.grammar.{field} {why}" in refused.value.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "custom"}]}, "tools[0].name"),
        ({"tools": [{**RUN, "name": "a b"}]}, "tools[0].name"),
        ({"tools": [{**RUN, "format": "text"}]}, "tools[0].format"),
        ({"tools": [{**RUN, "format": {"type": "sql"}}]}, "tools[0].format"),
        (
            {"tools": [{**RUN, "format": {"type": "grammar", "syntax": "regex"}}]},
            "tools[0].format.definition",
        ),
        ({"tools": [{**RUN, "format": {**REGEX, "syntax": "peg"}}]}, "tools[0].format.syntax"),
        ({"tools": [RUN, RUN]}, "tools"),
        ({"tools": [RUN, {**LOOK, "name": "run"}]}, "tools"),
        ({"tools": [RUN], "tool_choice": {"type": "custom", "name": "when"}}, "tool_choice"),
        ({"tools": [RUN], "tool_choice": {"type": "custom"}}, "tool_choice"),
        ({"input": [{"type": "custom_tool_call", "call_id": "c", "name": "run"}]}, "input"),
        ({"input": [{"type": "custom_tool_call", "call_id": "c", "input": "a"}]}, "input"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    client: openai.OpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        respond(client, **{"tool_choice": "auto", **fields})
    assert refused.value.param == param


def test_a_tool_of_another_type_is_refused_with_those_that_there_are(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="'function' or 'custom' is expected") as refused:
        client.chat.completions.create(model=MODEL, messages=[], tools=[{"type": "web_search"}])  # type: ignore[list-item]
    assert refused.value.param == "tools[0].type"


def test_ollamas_api_has_no_custom_tools(server: TinyServer) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": ASKED}], "tools": [in_chat(RUN)]}
    refused = server.post("/api/chat", body)
    assert refused.status_code == 400 and "tools[0].type: 'function' is expected" in refused.text
