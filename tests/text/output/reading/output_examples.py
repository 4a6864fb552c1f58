"""Outputs of model families, and what they consist of."""

from __future__ import annotations

from typing import NamedTuple

from turnout.core.types.output_format import OutputFormat, Region
from turnout.plugins.formats.deepseek import BEGIN, CALL, CALL_END, END, SEPARATOR, deepseek_v3, deepseek_v31
from turnout.plugins.formats.gemma import function_gemma
from turnout.plugins.formats.glm import glm45
from turnout.plugins.formats.harmony import harmony
from turnout.plugins.formats.hermes import THINK, hermes, thinking
from turnout.plugins.formats.kimi import kimi_k2
from turnout.plugins.formats.llama import llama3_json, llama4_pythonic, pythonic
from turnout.plugins.formats.mistral import mistral, mistral_list
from turnout.plugins.formats.qwen import qwen3_coder
from turnout.text.output.events import Event, Reasoning, Text, ToolArguments, ToolBegin, ToolEnd
from turnout.text.output.tools import Tool

__all__ = ["EXAMPLES", "TOOLS", "Example"]

ARGUMENTS = {
    "s": {"type": "string"},
    "n": {"type": ["integer", "array"]},
    "o": {"type": ["string", "null"]},
    "x": {},
}
TOOLS = [
    *(Tool(name, {"type": "object"}) for name in "fg"),
    Tool("t", {"type": "object", "properties": ARGUMENTS}),
]


class Example(NamedTuple):
    """An output of a model that was offered tools."""

    format: OutputFormat
    output: str
    events: list[Event]
    within: Region | None = None
    either: bool = False
    """The client asks for a form of the text."""


def call(index: int, name: str, arguments: str) -> list[Event]:
    return [ToolBegin(index, name), ToolArguments(index, arguments), ToolEnd(index)]


EXAMPLES = {
    "text": Example(hermes(), "hello  ", [Text("hello  ")]),
    "text that begins as a marker does": Example(hermes(), "a <tool_cal", [Text("a <tool_cal")]),
    "halves of pairs": Example(
        hermes(),
        r'<tool_call>{"name": "f", "arguments": {"a": "\uD83D \\ud83d\uDE00\ud83d\ude00", '
        r'"\ud83d": "\\\ud83d"}}</tool_call>',
        call(0, "f", r'{"a": "\ufffd \\ud83d\ufffd\ud83d\ude00", "\ufffd": "\\\ufffd"}'),
    ),
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
    "a first call cut before its name": Example(hermes(), '<tool_call>{"na', [Text('<tool_call>{"na')]),
    "a further call cut before its name": Example(
        hermes(),
        '<tool_call>{"name": "f"}</tool_call>\n<tool_call>\n{"name": "g',
        call(0, "f", "{}"),
    ),
    "a further call that is none": Example(
        hermes(),
        '<tool_call>{"name": "f"}</tool_call>\n<tool_call> b',
        [*call(0, "f", "{}"), Text("<tool_call> b")],
    ),
    "a call without arguments": Example(hermes(), '<tool_call>{"name": "f"}</tool_call>', call(0, "f", "{}")),
    "codes of characters": Example(
        hermes(),
        r'<tool_call>{"name": "\u0066", "arguments": {"a": "caf\u00e9 \ud83d\ude00\\u0041\""}}</tool_call>',
        call(0, "f", r'{"a": "caf\u00e9 \ud83d\ude00\\u0041\""}'),
    ),
    "a name with half a pair of codes": Example(
        hermes(),
        r'<tool_call>{"name": "f\ud83d", "arguments": {}}</tool_call>',
        [Text(r'<tool_call>{"name": "f\ud83d", "arguments": {}}</tool_call>')],
    ),
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
    "harmony: an answer in JSON": Example(
        harmony(), '<|channel|>final <|constrain|>json<|message|>{"a": 1}', [Text('{"a": 1}')]
    ),
    "harmony: an answer": Example(
        harmony(),
        "<|channel|>analysis<|message|>think<|end|><|start|>assistant<|channel|>final<|message|>Hello",
        [Reasoning("think"), Text("Hello")],
    ),
    "qwen3-coder: a string is as it stands, other values are JSON": Example(
        qwen3_coder(),
        "ok\n<tool_call>\n<function=t>\n<parameter=s>\n\n{1}\n</parameter>\n<parameter=n>\n[1, 2]\n"
        "</parameter>\n<parameter=o>\nNone\n</parameter>\n<parameter=x>\nnot JSON\n</parameter>\n"
        "</function>\n</tool_call>",
        [Text("ok"), *call(0, "t", '{"s": "\\n{1}", "n": [1, 2], "o": null, "x": "not JSON"}')],
    ),
    "qwen3-coder: a call without arguments": Example(
        qwen3_coder(), "<tool_call><function=t></function></tool_call>", call(0, "t", "{}")
    ),
    "qwen3-coder: a text that may be nothing": Example(
        qwen3_coder(),
        "<tool_call><function=t><parameter=o>42</parameter></function></tool_call>",
        call(0, "t", '{"o": "42"}'),
    ),
    "qwen3-coder: a text that may be nothing, and has quotes": Example(
        qwen3_coder(),
        '<tool_call><function=t><parameter=o>"use strict"</parameter><parameter=x>"a"</parameter>'
        "</function></tool_call>",
        call(0, "t", r'{"o": "\"use strict\"", "x": "a"}'),
    ),
    "qwen3-coder: half of a pair": Example(
        qwen3_coder(),
        r'<tool_call><function=t><parameter=n>["\uD83D"]</parameter></function></tool_call>',
        call(0, "t", r'{"n": ["\ufffd"]}'),
    ),
    "a text of a form that holds a marker": Example(
        hermes(),
        '{"x": "write <tool_call>{\\"name\\": \\"f\\"}"}',
        [Text('{"x": "write <tool_call>{\\"name\\": \\"f\\"}"}')],
        either=True,
    ),
    "calls in place of a text of a form": Example(
        hermes(),
        '<think>so</think>\n<tool_call>{"name": "f", "arguments": {}}</tool_call>\n'
        '<tool_call>{"name": "g", "arguments": {}}</tool_call>',
        [Reasoning("so"), *call(0, "f", "{}"), *call(1, "g", "{}")],
        either=True,
    ),
    "llama 3: an object that is no call": Example(
        llama3_json(), '{"name": "Ann", "age": 3}', [Text('{"name": "Ann", "age": 3}')]
    ),
    "llama 3: an object that has a tool's name": Example(
        llama3_json(), '{"name": "f", "age": {"x": 3}}', [Text('{"name": "f", "age": {"x": 3}}')]
    ),
    "llama 3: an object whose parameters are none": Example(
        llama3_json(), '{"name": "f", "parameters": "x"}', [Text('{"name": "f", "parameters": "x"}')]
    ),
    "llama 3: a name alone": Example(llama3_json(), '{"name": "f"}', call(0, "f", "{}")),
    "llama 3: a name alone, cut": Example(llama3_json(), '{"name": "f"', [Text('{"name": "f"')]),
    "llama 3: parameters behind another key, or before the name": Example(
        llama3_json(),
        '{"type": "function", "name": "f", "x": 1, "parameters": {"y": 2}}; {"parameters": {}, "name": "g"}',
        [*call(0, "f", '{"y": 2}'), *call(1, "g", "{}")],
    ),
    "python: a call of no tool": Example(
        pythonic(), "[Paris(France)] is a city", [Text("[Paris(France)] is a city")]
    ),
    "qwen3-coder: a list that holds what ends a value": Example(
        qwen3_coder(),
        '<tool_call><function=t><parameter=n>\n["a\\"</parameter>", 1]\n</parameter></function></tool_call>!',
        [*call(0, "t", '{"n": ["a\\"</parameter>", 1]}'), Text("!")],
    ),
    "glm: no name": Example(glm45(), "a <tool_call></tool_call> b", [Text("a <tool_call></tool_call> b")]),
    "glm: nothing behind the name": Example(
        glm45(),
        "<tool_call>t<arg_key>n</arg_key><arg_value>1</arg_value></tool_call><tool_call>f</tool_call>",
        [*call(0, "t", '{"n": 1}'), *call(1, "f", "{}")],
    ),
    "python: strings, names, numbers": Example(
        pythonic(),
        "[f(a='it\\'s', b=\"\\u00e9\\n\", c=None, d=(1, 2.50,), e={'k': True}), g()]",
        [
            *call(0, "f", '{"a": "it\'s", "b": "é\\n", "c": null, "d": [1, 2.50], "e": {"k": true}}'),
            *call(1, "g", "{}"),
        ],
    ),
    "python: codes of characters": Example(
        pythonic(),
        r'[f(a="caf\u00e9 \ud83d\ude00\\u0041", b={"\u0061": "\U0001f600"})]',
        call(0, "f", r'{"a": "café \ud83d\ude00\\u0041", "b": {"a": "😀"}}'),
    ),
    "python: halves of pairs": Example(
        pythonic(),
        r'[f(a="\ud83d", b="\ude00\ud83d!\ud83d\ude00")]',
        call(0, "f", r'{"a": "\ufffd", "b": "\ufffd\ufffd!\ud83d\ude00"}'),
    ),
    "python: a list that holds no calls": Example(pythonic(), "[1] see below", [Text("[1] see below")]),
    "python: a link": Example(pythonic(), "[f](http://x)", [Text("[f](http://x)")]),
    "llama 4: calls between marks": Example(
        llama4_pythonic(), "<|python_start|>[f(x=1)]<|python_end|>", call(0, "f", '{"x": 1}')
    ),
    "gemma: strings in which nothing is escaped": Example(
        function_gemma(),
        '<start_function_call>call:f{a:<escape>"x",{\\<escape>,b:{c:[1,true]}}<end_function_call>',
        call(0, "f", '{"a": "\\"x\\",{\\\\", "b": {"c": [1, true]}}'),
    ),
    "kimi: calls have numbers": Example(
        kimi_k2(),
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
        "<|tool_call_end|><|tool_calls_section_end|>",
        call(0, "f", "{}"),
    ),
}
