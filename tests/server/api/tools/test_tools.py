"""Tools over HTTP, with the embedded model, which knows none: its calls are valid all the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from asking import strict_client
from tiny_server import TinyServer, serving

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"enum": [1, 2, 3]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "forecast", "description": "Weather.", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "now"}},
]
ASKED: Any = [{"role": "user", "content": "How warm is it?"}]
FORECAST: Any = {"type": "function", "function": {"name": "forecast"}}

NO_TYPE = {"type": "strin"}
NO_NUMBER = {"type": "integer", "minimum": 3, "maximum": 1}
"""The compiler alone finds that there is none."""
FAULTY: Any = {
    "type": "function",
    "function": {
        "name": "faulty",
        "parameters": {"type": "object", "properties": {"a": NO_NUMBER}, "required": ["a"]},
    },
}


def function(name: str, schema: Any, **fields: Any) -> Any:
    parameters = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return {"type": "function", "function": {"name": name, "parameters": parameters, **fields}}


FAULTY_SCHEMA = "tools[2].function.parameters"


@pytest.fixture(scope="module")
def server() -> Iterator[TinyServer]:
    with serving() as server:
        yield server


@pytest.fixture
def client(server: TinyServer) -> Iterator[openai.OpenAI]:
    with strict_client(server.url) as client:
        yield client


def ask(client: openai.OpenAI, **fields: Any) -> Any:
    asked = {"messages": ASKED, "tools": TOOLS, "seed": 1, "max_tokens": 300, **fields}
    return client.chat.completions.create(model="turnout-tiny", **asked)


def test_a_named_function_is_called_once(client: openai.OpenAI) -> None:
    (choice,) = ask(client, tool_choice=FORECAST).choices
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    (call,) = choice.message.tool_calls
    assert call.function.name == "forecast" and call.id.startswith("call_")
    arguments = json.loads(call.function.arguments)
    assert arguments["days"] in (1, 2, 3) and len(arguments["city"]) <= 8


def test_a_required_call_is_made_in_every_choice(client: openai.OpenAI) -> None:
    for choice in ask(client, tool_choice="required", parallel_tool_calls=False, n=3).choices:
        (call,) = choice.message.tool_calls
        assert call.function.name in ("forecast", "now") and isinstance(
            json.loads(call.function.arguments), dict
        )


def test_a_streamed_call_is_the_same_as_a_whole_one(client: openai.OpenAI) -> None:
    whole = ask(client, tool_choice=FORECAST).choices[0]
    chunks = [chunk.choices[0] for chunk in ask(client, tool_choice=FORECAST, stream=True)]
    pieces = [call for chunk in chunks for call in chunk.delta.tool_calls or ()]
    assert [bool(piece.id) for piece in pieces] == [True] + [False] * (len(pieces) - 1)
    assert pieces[0].function.name == "forecast" and pieces[0].type == "function"
    arguments = "".join(piece.function.arguments for piece in pieces)
    assert arguments == whole.message.tool_calls[0].function.arguments
    assert len(pieces) > 3, "arguments come as they are written"
    assert chunks[-1].finish_reason == "tool_calls"


def _among(mode: str, *names: str) -> Any:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def test_of_the_tools_only_those_that_are_allowed_are_called(client: openai.OpenAI) -> None:
    answers = ask(client, tool_choice=_among("required", "now"), n=4)
    calls = [call for choice in answers.choices for call in choice.message.tool_calls]
    assert {call.function.name for call in calls} == {"now"}
    told = ask(client, tool_choice="required", max_tokens=1).usage.prompt_tokens
    assert answers.usage.prompt_tokens == told, "the model is told of all"


def test_allowed_tools_may_be_left_alone(client: openai.OpenAI) -> None:
    (choice,) = ask(client, tool_choice=_among("auto", "now"), max_tokens=12).choices
    assert choice.message.tool_calls is None and choice.message.content


def test_text_without_a_call_is_the_answer(client: openai.OpenAI) -> None:
    (choice,) = ask(client, tool_choice="auto", max_tokens=12).choices
    assert choice.message.tool_calls is None and choice.message.content
    assert choice.finish_reason == "length"


def test_tools_that_may_not_be_called_change_nothing(client: openai.OpenAI) -> None:
    without = ask(client, tools=openai.NOT_GIVEN, max_tokens=12).choices[0]
    assert ask(client, tool_choice="none", max_tokens=12).choices[0] == without


def test_results_go_back_to_the_model(client: openai.OpenAI) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    conversation = [
        *ASKED,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "18 degrees"},
    ]
    answered = ask(client, messages=conversation, max_tokens=8)
    assert answered.usage.prompt_tokens > ask(client, max_tokens=8).usage.prompt_tokens


def test_the_answer_has_the_form_that_is_asked_for_where_no_tool_is_called(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"yes": {"type": "boolean"}},
        "required": ["yes"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "yes", "schema": schema}}
    for choice in ask(client, tools=TOOLS[:1], response_format=form, n=4).choices:
        calls = choice.message.tool_calls or ()
        texts = [call.function.arguments for call in calls] or [choice.message.content]
        if choice.finish_reason != "length":
            assert {tuple(json.loads(text)) for text in texts} <= {
                ("yes",),
                ("city", "days"),
                ("days", "city"),
            }


@pytest.mark.slow
def test_what_a_tool_that_is_not_strict_cannot_hold_is_ignored(client: openai.OpenAI) -> None:
    """It was refused, where formats that write arguments as tags ignored it."""
    schemas: list[Any] = [
        {"type": "string", "pattern": r"^(?=.*[A-Z]).{8,}$", "maxLength": 8},
        {"type": "string", "pattern": r"\bfoo\b", "maxLength": 8},
        {"type": "number", "minimum": 1e20},
        {"enum": [2**60]},
    ]
    for schema in schemas:
        (choice,) = ask(client, tools=[function("f", schema)], tool_choice="required").choices
        assert choice.finish_reason in ("tool_calls", "length")


def test_functions_are_the_older_form_of_tools(client: openai.OpenAI) -> None:
    fields: Any = {"functions": [TOOLS[0]["function"]], "function_call": {"name": "forecast"}}
    (call,) = ask(client, tools=openai.NOT_GIVEN, **fields).choices[0].message.tool_calls
    assert call.function.name == "forecast"


@pytest.mark.parametrize(
    ("fields", "param", "why"),
    [
        ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice", "not among"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice", "no tools"),
        ({"tool_choice": _among("auto", "now", "x")}, "tool_choice", "names 'x', which is not among"),
        ({"tool_choice": _among("required")}, "tool_choice", "no tools"),
        (
            {"tool_choice": _among("perhaps", "now")},
            "tool_choice",
            "should be 'auto' or 'required', not",
        ),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools", "two tools are called 'forecast'"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "letters"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "function"),
        (
            {"tools": [*TOOLS, FAULTY]},
            FAULTY_SCHEMA,
            "of 'faulty': the schema of a tool cannot be compiled: Uns",
        ),
        ({"tools": [*TOOLS, FAULTY], "tool_choice": {**FAULTY}}, FAULTY_SCHEMA, "of 'faulty': "),
        (
            {"tools": openai.omit, "functions": [{"name": "now"}, FAULTY["function"]]},
            "functions[1].parameters",
            "of 'faulty': ",
        ),
        (
            {"tools": [*TOOLS, function("f", NO_TYPE)]},
            FAULTY_SCHEMA,
            "of 'f': its keyword 'type' should be one of array, boolean, integer, null, number, object, "
            "string, or a list of these, not 'strin'",
        ),
        (
            {"tools": [*TOOLS, function("f", {"type": "string", "minLength": "x"})]},
            FAULTY_SCHEMA,
            "of 'f': its keyword 'minLength' should be a whole number that is not negative, not 'x'",
        ),
        (
            {"tools": [function("f", {"enum": [2**60]}, strict=True)]},
            "tools[0].function.parameters",
            "of 'f': the JSON schema cannot be held: enum has 1152921504606846976",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": NO_TYPE}}},
            "response_format",
            "the form of the answer cannot be compiled: Invalid type: strin",
        ),
        ({"tools": TOOLS * 300}, "tools", "at most 512"),
        ({"extra_body": {"guided_grammar": 'start: "a"'}}, "guided_grammar", "a grammar goes neither"),
        (
            {
                "messages": [
                    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}
                ]
            },
            "messages",
            "tool_calls[0].function.arguments should be the JSON of an object",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    client: openai.OpenAI, fields: dict[str, Any], param: str, why: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, **fields)
    assert why in refused.value.message
    assert refused.value.param == param
