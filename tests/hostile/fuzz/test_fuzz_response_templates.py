"""A `response_template` of a checkpoint is a format or refused, and no answer hangs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fuzzing import Fuzz
from hypothesis import strategies as st
from values import mutated

from turnout.core.errors import ConfigError, RequestError
from turnout.core.types.output_format import OutputFormat
from turnout.runner.response_template import NotExpressible, format_of
from turnout.text.output.grammar.call_grammar import Wanted, call_grammar
from turnout.text.output.reading.splitter import OutputSplitter
from turnout.text.output.tools import Tool

Json = dict[str, Any]

SECONDS = 5
"""Of processor time, for what takes milliseconds."""
TOOLS = [Tool("f", {"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"}}})]
FUNCTION = {"function": {"name": "{name}", "arguments": "{content}"}}
CALLS: list[Json] = [
    {"open_pattern": r"\s*<tool_call>", "close": "</tool_call>", "content": "json", "transform": "{content}"},
    {
        "open_pattern": r"\s*<tool_call>\s*<function=(?P<name>[^>\n]+)>",
        "close_pattern": r"</function>\s*</tool_call>",
        "content": "xml-inline",
        "content_args": {"tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\s*(?P<value>.*?)\s*</parameter>"},
        "transform": FUNCTION,
    },
    {
        "open_pattern": r"<\|tool_call>call:(?P<name>\w+)",
        "close": "<tool_call|>",
        "content": "json",
        "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
        "transform": FUNCTION,
    },
    {
        "open": "[TOOL_CALLS]",
        "content": "json",
        "transform_each": True,
        "transform": {"function": {"name": "{name}", "arguments": "{arguments}"}},
    },
]
THINK = {"open": "<think>", "close": "</think>", "content": "text"}
PIECES = [
    "<tool_call>",
    '{"name": "f", "arguments": {"s": "a"}}',
    "</tool_call>",
    "<think>",
    "</think>",
    "a\n",
]
PIECES += [
    "<function=f>",
    "<parameter=s>",
    "</parameter>",
    "</function>",
    "[TOOL_CALLS]",
    "[{",
    '"',
    "{",
    "}",
    " ",
]
markers = st.sampled_from(
    ["", " ", "\n", "<", "{", '"', "<think>", "\\s*", "(?P<name>x)", "(" * 50, "[", "\\"]
)


@st.composite
def templates(draw: st.DrawFn) -> Json:
    fields = {
        "tool_calls": draw(st.sampled_from(CALLS)),
        "reasoning_content": THINK,
        "content": {"close": "x"},
    }
    template = {"start_anchor": "x", "fields": fields}
    for name in draw(st.lists(st.sampled_from(["tool_calls", "reasoning_content"]), max_size=2)):
        key = draw(st.sampled_from(["open", "close", "open_pattern", "close_pattern"]))
        template = {**template, "fields": {**fields, name: {**fields[name], key: draw(markers)}}}
    return draw(mutated(template)) if draw(st.booleans()) else template


outputs = st.lists(st.sampled_from(PIECES), max_size=12)


def test_a_template_is_a_format_or_refused(fuzz: Fuzz) -> None:
    fuzz(st.tuples(templates(), outputs), _check, few=300)


def _check(example: tuple[Json, list[str]]) -> None:
    template, output = example
    with _limited():
        try:
            format = format_of(template)
        except NotExpressible as reason:
            assert str(reason)
            return
        _read(format, output)
        try:
            call_grammar(format, Wanted(TOOLS, "required"), {}, within=None)
        except (RequestError, ConfigError) as refusal:
            assert str(refusal)


def _read(format: OutputFormat, output: list[str]) -> None:
    for within in (None, *format.regions):
        splitter = OutputSplitter(format, TOOLS, within)
        for piece in output:
            splitter.feed(piece)
        splitter.finish()


@contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise AssertionError(f"not done within {SECONDS} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
