"""What a grammar holds an output to beyond its format: `OutputFormatSuite` tests the formats themselves."""

from __future__ import annotations

import json
import random

import pytest

from turnout.core.types.output_format import Region
from turnout.plugins.formats.gemma import function_gemma
from turnout.plugins.formats.harmony import harmony
from turnout.plugins.formats.hermes import THINK, hermes
from turnout.plugins.formats.qwen import qwen3_coder
from turnout.testing.checks.babbler import Babbler
from turnout.text.output.events import Event, Reasoning, Text, ToolArguments, merged
from turnout.text.output.grammar.call_grammar import Wanted, call_form, call_grammar
from turnout.text.output.reading.splitter import OutputSplitter
from turnout.text.output.tools import Tool

DESCRIBED = {
    "type": "object",
    "description": "long " * 10_000,
    "properties": {"description": {"enum": ["a"], "description": "a property by the name of a keyword"}},
    "required": ["description"],
    "additionalProperties": False,
}
SPECIALS = ("<tool_call>", "</tool_call>", "<think>", "</think>")


def written(wanted: Wanted, within: Region | None = None, count: int = 12) -> list[list[Event]]:
    """What is read of outputs under the grammar of Hermes."""
    babbler, rng = Babbler(SPECIALS), random.Random(1)
    form = call_form(hermes(), wanted, babbler.tokens, within=within)
    found = []
    for _ in range(count):
        if (output := babbler.output(form.grammar or "", rng, free=form.free)) is not None:
            splitter = OutputSplitter(hermes(), wanted.tools, within)
            found.append(merged(splitter.feed(output) + splitter.finish()))
    assert found
    return found


def test_no_text_stands_before_an_answer_of_a_form() -> None:
    """gpt-oss could write a preamble as commentary, so that all of the text was no JSON."""
    wanted = Wanted(answer='%json {"type": "boolean"}')
    ends = ("<|return|>", "<|call|>")
    grammar = call_grammar(harmony(), wanted, {}, ends=ends)
    preamble = "<|channel|>commentary<|message|>I see.<|end|><|start|>assistant"
    thoughts = "<|channel|>analysis<|message|>I see.<|end|><|start|>assistant"
    final = "<|channel|>final<|message|>true"
    babbler = Babbler(())
    assert babbler.may_write(grammar, thoughts + final)
    assert not babbler.may_write(grammar, preamble + final)
    assert babbler.may_write(call_grammar(harmony(), Wanted(), {}, ends=ends), preamble + final)


def test_an_answer_has_its_form_where_no_tool_is_called() -> None:
    wanted = Wanted([Tool("f", DESCRIBED)], answer='%json {"type": "boolean"}')
    texts = [event.text for events in written(wanted) for event in events if isinstance(event, Text)]
    assert texts and {text.strip() for text in texts} <= {"true", "false"}


def test_an_answer_has_its_form_after_the_reasoning() -> None:
    wanted = Wanted(answer='%json {"type": "boolean"}')
    for events in written(wanted, within=THINK, count=40):
        *before, answer = events
        assert isinstance(answer, Text) and answer.text.strip() in ("true", "false")
        assert all(isinstance(event, Reasoning) for event in before)


def test_what_only_describes_a_schema_is_left_out() -> None:
    wanted = Wanted([Tool("f", DESCRIBED)], "required", parallel=False)
    assert len(call_grammar(hermes(), wanted, {})) < 5000
    for events in written(wanted, count=3):
        (arguments,) = [event.text for event in events if isinstance(event, ToolArguments)]
        assert json.loads(arguments) == {"description": "a"}


def test_white_space_is_free_where_models_are_trained_to_write_it() -> None:
    """Qwen breaks the line before the closing marker; a grammar without room for it would bend each call."""
    call = '<tool_call>\n{"name": "f", "arguments": {"description": "a"}}\n</tool_call>'
    wrong = call.replace('"a"', '"b"')
    for babbler in (Babbler(SPECIALS), Babbler(("<unused>",))):
        known = {text: id for text, id in babbler.tokens.items() if text in SPECIALS}
        grammar = call_grammar(hermes(), Wanted([Tool("f", DESCRIBED)]), known)
        assert babbler.may_write(grammar, f"Let me see.\n{call}\n{call}")
        assert not babbler.may_write(grammar, f"Let me see.\n{wrong}")


@pytest.mark.parametrize(
    ("format", "valid", "invalid"),
    [
        (
            "date",
            ["2026-11-30", "2026-12-31", "2026-03-29", "2024-02-29", "2000-02-29"],
            ["2026-11-31", "2026-02-30", "2026-02-29", "2100-02-29", "2026-13-01", "2026-12-32"],
        ),
        ("date-time", ["2026-12-31T23:59:59.123456789Z"], ["2026-11-31T00:00:00Z"]),
        ("uuid", ["01234567-89AB-CDEF-0123-456789abcdef"], ["01234567-89AB-CDEF-0123"]),
    ],
)
def test_every_text_of_a_format_can_be_written(format: str, valid: list[str], invalid: list[str]) -> None:
    """Where texts stand as they are, no month had more than 28 days, and no UUID had capitals."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "format": format}}, "required": ["a"]}
    babbler = Babbler(())
    grammar = call_grammar(function_gemma(), Wanted([Tool("f", schema)], "required"), {})
    for text in (*valid, *invalid):
        call = f"<start_function_call>call:f{{a:<escape>{text}<escape>}}<end_function_call>"
        assert babbler.may_write(grammar, call) == (text in valid), text


TEXTS = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}


@pytest.mark.parametrize(
    ("schema", "written", "value"),
    [
        ({"type": ["string", "integer"]}, "true: see [1]", "true: see [1]"),
        ({"type": ["string", "integer"]}, "", ""),
        ({"type": ["string", "integer"]}, '"42"', "42"),
        ({"type": ["string", "integer"]}, "42", 42),
        ({"type": ["string", "boolean"]}, "True", True),
        (TEXTS, 'def f():\n    return ["a"]', 'def f():\n    return ["a"]'),
        (TEXTS, '["a", "</parameter>"]', ["a", "</parameter>"]),
        ({"enum": ["a b", 1]}, "a b", "a b"),
        ({}, "See it", "See it"),
    ],
)
def test_a_string_stands_as_it_is_beside_other_types(schema: object, written: str, value: object) -> None:
    """Qwen3-Coder had to write it between quotes, as it does not, if the value might be of another type."""
    parameters = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    tool = Tool("f", parameters)
    call = f"<tool_call>\n<function=f>\n<parameter=a>\n{written}\n</parameter>\n</function>\n</tool_call>"
    assert Babbler(()).may_write(call_grammar(qwen3_coder(), Wanted([tool], "required"), {}), call)
    splitter = OutputSplitter(qwen3_coder(), [tool])
    (arguments,) = [e.text for e in merged(splitter.feed(call)) if isinstance(e, ToolArguments)]
    assert json.loads(arguments) == {"a": value}
