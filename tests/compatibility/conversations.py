"""The rows of the second table of docs/reference/compatibility.md: how to ask for each, and how it shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jsonschema

__all__ = ["CONVERSATIONS", "PROMPTS", "Answer", "Conversation", "Part", "joined_parts"]

Body = dict[str, Any]
PROMPTS = ["import os\nimport sys\n", "class Stack:\n    # 你好，世界\n"]
SCHEMA: Body = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 4}, "days": {"enum": [1, 2, 3]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
FUNCTION: Body = {"name": "forecast", "description": "Weather.", "parameters": SCHEMA}
TOOLS = [{"type": "function", "function": FUNCTION}]
GREEDY = {"temperature": 0}
NAMED = {"type": "json_schema", "name": "answer", "schema": SCHEMA}


class Part(NamedTuple):
    """A part of an answer: `reasoning`, `text` or `call`."""

    kind: str
    text: str
    name: str = ""
    """The tool's, of a call."""


Choice = list[Part]
Answer = list[Choice]


def joined_parts(parts: Iterator[Part]) -> Choice:
    """Parts with the pieces of one part joined. A call without a name goes on with the one before."""
    joined: Choice = []
    for part in parts:
        goes_on = joined and joined[-1].kind == part.kind and not part.name
        if goes_on:
            joined[-1] = joined[-1]._replace(text=joined[-1].text + part.text)
        elif part.text or part.name:
            joined.append(part)
    return joined


# ------------------------------------------------------------------ what each API's answers hold


def chat_choices(body: Body) -> Answer:
    return [joined_parts(_of_message(choice["message"])) for choice in body["choices"]]


def chat_stream(events: list[Body]) -> Answer:
    found: dict[int, list[Part]] = {}
    for event in events:
        for choice in event["choices"]:
            found.setdefault(choice["index"], []).extend(_of_message(choice["delta"]))
    return [joined_parts(iter(found[index])) for index in sorted(found)]


def _of_message(message: Body) -> Iterator[Part]:
    yield Part("reasoning", message.get("reasoning_content") or "")
    yield Part("text", message.get("content") or "")
    for call in message.get("tool_calls") or ():
        yield Part("call", call["function"]["arguments"], call["function"].get("name") or "")


def responses_items(body: Body) -> Answer:
    return [joined_parts(part for item in body["output"] for part in _of_item(item))]


def responses_stream(events: list[Body]) -> Answer:
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = {"output_text": "text", "reasoning_text": "reasoning", "function_call_arguments": "call"}

    def parts() -> Iterator[Part]:
        for event in events:
            kind = kinds.get(event["type"].removeprefix("response.").removesuffix(".delta"))
            if event["type"] == "response.output_item.added" and event["item"]["type"] == "function_call":
                yield Part("call", "", event["item"]["name"])
            elif kind is not None and event["type"].endswith(".delta"):
                yield Part(kind, event["delta"])

    told = [joined_parts(parts())]
    assert told == responses_items(events[-1]["response"])
    return told


def _of_item(item: Body) -> Iterator[Part]:
    if item["type"] == "function_call":
        yield Part("call", item["arguments"], item["name"])
    for part in item.get("content") or ():
        yield Part("reasoning" if item["type"] == "reasoning" else "text", part["text"])


def messages_blocks(body: Body) -> Answer:
    def parts() -> Iterator[Part]:
        for block in body["content"]:
            if block["type"] == "tool_use":
                yield Part("call", json.dumps(block["input"]), block["name"])
            else:
                yield Part(
                    *{"text": ("text",), "thinking": ("reasoning",)}[block["type"]], block[block["type"]]
                )

    return [joined_parts(parts())]


def messages_stream(events: list[Body]) -> Answer:
    def parts() -> Iterator[Part]:
        for event in events:
            if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
                yield Part("call", "", event["content_block"]["name"])
            elif event["type"] == "content_block_delta":
                delta = event["delta"]
                for kind, key in (("text", "text"), ("reasoning", "thinking"), ("call", "partial_json")):
                    yield Part(kind, delta.get(key) or "")

    return [[_rewritten(part) for part in joined_parts(parts())]]


def ollama_message(body: Body) -> Answer:
    return [joined_parts(_of_ollama(body["message"]))]


def ollama_stream(lines: list[Body]) -> Answer:
    return [joined_parts(part for line in lines for part in _of_ollama(line["message"]))]


def _of_ollama(message: Body) -> Iterator[Part]:
    yield Part("reasoning", message.get("thinking") or "")
    yield Part("text", message.get("content") or "")
    for call in message.get("tool_calls") or ():
        yield Part("call", json.dumps(call["function"]["arguments"]), call["function"]["name"])


def texts(body: Body) -> Answer:
    return [joined_parts(iter([Part("text", choice["text"])])) for choice in body["choices"]]


def text_stream(events: list[Body]) -> Answer:
    found: dict[int, list[Part]] = {}
    for event in events:
        for choice in event["choices"]:
            found.setdefault(choice["index"], []).append(Part("text", choice["text"]))
    return [joined_parts(iter(found[index])) for index in sorted(found)]


def _rewritten(part: Part) -> Part:
    """A call's arguments as an API that reads them writes them."""
    try:
        return part._replace(text=json.dumps(json.loads(part.text))) if part.kind == "call" else part
    except ValueError:
        return part  # cut at the most tokens


# ------------------------------------------------------------------ what must hold


def calls_are_valid(choice: Choice) -> None:
    """One call, behind reasoning that may have taken all tokens."""
    *before, last = choice
    assert [part.kind for part in before] in ([], ["reasoning"])
    if before or last.kind != "reasoning":
        assert last.kind == "call"
        is_valid(last)


def is_valid(part: Part) -> None:
    assert part.kind == "text" or part.name == "forecast"
    jsonschema.validate(json.loads(part.text), SCHEMA)


def reasons(choice: Choice) -> None:
    assert choice[0].kind == "reasoning"
    assert [part.kind for part in choice[1:]] in ([], ["text"])


def says_something(choice: Choice) -> None:
    assert choice


def is_object(choice: Choice) -> None:
    """A text of the form, or a call; behind reasoning that may have taken all tokens."""
    for part in choice:
        if part.kind != "reasoning":
            is_valid(part)


def matches(choice: Choice) -> None:
    (part,) = choice
    assert len(part.text) == 9 and set(part.text) <= set("abcd")


Check = Callable[[Choice], None]


@dataclass(frozen=True)
class Conversation:
    name: str
    """As the table has it."""
    path: str
    asked: Callable[[str], Body]
    """The body for a prompt."""
    whole: Callable[[Body], Answer]
    """The choices of an answer in one piece."""
    streamed: Callable[[list[Body]], Answer]
    """Those of a stream."""
    check: Check
    formed: Mapping[str, Any] = field(default_factory=dict)
    """What asks for a form of the text beside it."""
    formed_check: Check = is_object
    choices: bool = True
    """The API can be asked for several."""


def _chat(prompt: str, **more: Any) -> Body:
    return {"messages": [{"role": "user", "content": prompt}], **GREEDY, **more}


RESPONSE_FORMAT = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}}

CONVERSATIONS = [
    Conversation(
        "tools",
        "/v1/chat/completions",
        lambda prompt: _chat(
            prompt, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_tokens=300
        ),
        chat_choices,
        chat_stream,
        calls_are_valid,
        {**RESPONSE_FORMAT, "tool_choice": "auto"},
    ),
    Conversation(
        "reasoning",
        "/v1/chat/completions",
        lambda prompt: _chat(prompt, chat_template_kwargs={"begin_thinking": True}, max_tokens=100),
        chat_choices,
        chat_stream,
        reasons,
        RESPONSE_FORMAT,
    ),
    Conversation(
        "Responses",
        "/v1/responses",
        lambda prompt: {
            "input": prompt,
            "tools": [{"type": "function", **FUNCTION}],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "max_output_tokens": 300,
            **GREEDY,
        },
        responses_items,
        responses_stream,
        calls_are_valid,
        {"text": {"format": NAMED}, "tool_choice": "auto"},
        choices=False,
    ),
    Conversation(
        "Messages",
        "/v1/messages",
        lambda prompt: _chat(
            prompt,
            tools=[{"name": "forecast", "input_schema": SCHEMA}],
            tool_choice={"type": "any", "disable_parallel_tool_use": True},
            max_tokens=300,
        ),
        messages_blocks,
        messages_stream,
        calls_are_valid,
        {
            "output_config": {"format": NAMED},
            "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        },
        choices=False,
    ),
    Conversation(
        "Ollama",
        "/api/chat",
        lambda prompt: {
            "model": "talker",
            "messages": [{"role": "user", "content": prompt}],
            "tools": TOOLS,
            "options": {**GREEDY, "num_predict": 30},
            "stream": False,
        },
        ollama_message,
        ollama_stream,
        says_something,
        {"format": SCHEMA, "options": {**GREEDY, "num_predict": 300}},
        choices=False,
    ),
    Conversation(
        "suffix",
        "/v1/completions",
        lambda prompt: {"prompt": prompt, "suffix": "\n    return a", "max_tokens": 14, **GREEDY},
        texts,
        text_stream,
        says_something,
        {"structured_outputs": {"regex": "[a-d]{9}"}},
        matches,
    ),
    Conversation(
        "infill",
        "/infill",
        lambda prompt: {"input_prefix": prompt, "input_suffix": "\n", "n_predict": 14, **GREEDY},
        lambda body: [joined_parts(iter([Part("text", body["content"])]))],
        lambda events: [joined_parts(Part("text", event["content"]) for event in events)],
        says_something,
        {"json_schema": SCHEMA, "n_predict": 300},
        choices=False,
    ),
]
