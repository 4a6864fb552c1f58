"""Outputs of model families, and what they consist of."""

from __future__ import annotations

from typing import NamedTuple

from turnout.core.types.output_format import OutputFormat, Region
from turnout.plugins.formats.deepseek import BEGIN, CALL, CALL_END, END, SEPARATOR, deepseek_v3, deepseek_v31
from turnout.plugins.formats.harmony import harmony
from turnout.plugins.formats.hermes import THINK, hermes, thinking
from turnout.plugins.formats.llama import llama3_json
from turnout.plugins.formats.mistral import mistral, mistral_list
from turnout.text.output.events import Event, Reasoning, Text, ToolArguments, ToolBegin, ToolEnd

__all__ = ["EXAMPLES", "Example"]


class Example(NamedTuple):
    """An output of a model that was offered tools."""

    format: OutputFormat
    output: str
    events: list[Event]
    within: Region | None = None


def call(index: int, name: str, arguments: str) -> list[Event]:
    return [ToolBegin(index, name), ToolArguments(index, arguments), ToolEnd(index)]


EXAMPLES = {
    "text": Example(hermes(), "hello  ", [Text("hello  ")]),
    "text that begins as a marker does": Example(hermes(), "a <tool_cal", [Text("a <tool_cal")]),
    "reasoning, text, two calls": Example(
        hermes(),
        "<think>\nhm, ok\n\n</think>\n\nhi\n"
        '<tool_call>\n{"name": "f", "arguments": {"a": "}\\"{"}}\n</tool_call>\n'
        '<tool_call>\n{"arguments": {"b": [1, {"c": 2}]}, "name": "g"}\n</tool_call>',
        [
            Reasoning("hm, ok"),
            Text("hi"),
            *call(0, "f", '{"a": "}\\"{"}'),
            *call(1, "g", '{"b": [1, {"c": 2}]}'),
        ],
    ),
    "reasoning that the prompt began": Example(
        thinking(), "let me see\n</think>\n\n42", [Reasoning("let me see"), Text("42")], THINK
    ),
    "reasoning that does not end": Example(thinking(), "<think>let me", [Reasoning("let me")]),
    "a marker later than at the start": Example(hermes(), "a <think> b", [Text("a <think> b")]),
    "a call that is none": Example(
        hermes(), "a <tool_call> b </tool_call>", [Text("a <tool_call> b </tool_call>")]
    ),
    "a call cut short": Example(
        hermes(),
        '<tool_call>{"name": "f", "arguments": {"a": [1',
        [ToolBegin(0, "f"), ToolArguments(0, '{"a": [1')],
    ),
    "a call without arguments": Example(hermes(), '<tool_call>{"name": "f"}</tool_call>', call(0, "f", "{}")),
    "other keys of a call": Example(
        hermes(),
        '<tool_call>{"id": [1, "]"], "name": "\\u0066", "x": null, "arguments": {}}</tool_call>',
        call(0, "f", "{}"),
    ),
    "llama: two calls": Example(
        llama3_json(),
        '{"name": "f", "parameters": {"x": 1}}; {"name": "g", "parameters": {}}',
        [*call(0, "f", '{"x": 1}'), *call(1, "g", "{}")],
    ),
    "llama: JSON that is no call": Example(llama3_json(), '{"a": 1}', [Text('{"a": 1}')]),
    "llama: a brace in the text": Example(llama3_json(), 'see {"name"', [Text('see {"name"')]),
    "mistral": Example(
        mistral(),
        'Sure.[TOOL_CALLS]f[ARGS]{"x": 1}[TOOL_CALLS]g[ARGS]{}',
        [Text("Sure."), *call(0, "f", '{"x": 1}'), *call(1, "g", "{}")],
    ),
    "mistral: a list": Example(
        mistral_list(),
        '[TOOL_CALLS] [{"name": "f", "arguments": {}}, {"name": "g", "arguments": {"x": "]"}}]',
        [*call(0, "f", "{}"), *call(1, "g", '{"x": "]"}')],
    ),
    "deepseek v3.1": Example(
        deepseek_v31(),
        f'why</think>ok{BEGIN}{CALL}f{SEPARATOR}{{"a": 1}}{CALL_END}{CALL}g{SEPARATOR}{{}}{CALL_END}{END}',
        [Reasoning("why"), Text("ok"), *call(0, "f", '{"a": 1}'), *call(1, "g", "{}")],
        THINK,
    ),
    "deepseek v3": Example(
        deepseek_v3(),
        f'ok{BEGIN}{CALL}function{SEPARATOR}f\n```json\n{{"a": 1}}\n```{CALL_END}\n'
        f"{CALL}function{SEPARATOR}g\n```json\n{{}}\n```{CALL_END}{END}",
        [Text("ok"), *call(0, "f", '{"a": 1}'), *call(1, "g", "{}")],
    ),
    "harmony: a call": Example(
        harmony(),
        "<|channel|>analysis<|message|>think<|end|><|start|>assistant<|channel|>commentary to=functions.f "
        '<|constrain|>json<|message|>{"x": 1}<|call|>',
        [Reasoning("think"), *call(0, "f", '{"x": 1}')],
    ),
    "harmony: a call as the template writes it": Example(
        harmony(),
        '<|channel|>commentary to=functions.f json<|message|>{"x": 1}<|call|>',
        [*call(0, "f", '{"x": 1}')],
    ),
    "harmony: an answer": Example(
        harmony(),
        "<|channel|>analysis<|message|>think<|end|><|start|>assistant<|channel|>final<|message|>Hello",
        [Reasoning("think"), Text("Hello")],
    ),
}
