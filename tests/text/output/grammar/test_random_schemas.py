"""Whatever the schema: every call that a model without any sense writes is valid."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any, Literal

import pytest
from jsonschema import Draft202012Validator
from random_schemas import random_schema

from turnout.core.registry.registry import Registry
from turnout.core.types.output_format import OutputFormat
from turnout.testing.checks.babbler import Babbler
from turnout.text.output.events import ToolArguments, ToolBegin, ToolEnd, merged
from turnout.text.output.grammar.call_grammar import Wanted, call_form
from turnout.text.output.markers import markers
from turnout.text.output.reading.splitter import OutputSplitter
from turnout.text.output.tools import Tool

FEW, MANY = range(8), 500
KINDS = ["hermes", "qwen3-coder", "glm-4.5", "pythonic", "functiongemma", "gemma4"]
"""A format of each kind of body."""
SPECIALS = {
    "qwen3-coder": ["<tool_call>", "</tool_call>"],
    "glm-4.5": ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"],
    "functiongemma": ["<start_function_call>", "<end_function_call>", "<escape>"],
}
Choice = Literal["auto", "required"]


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.load()


def arguments_schema(seed: int) -> Mapping[str, Any]:
    """A schema of arguments, one of them a text and one perhaps none."""
    schema = random_schema(seed)
    if seed % 3 == 0 and schema.get("type") == "object":
        return schema
    definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
    properties = {"a": schema, "b b": {"type": ["string", "null"]}, "c": {"type": "string"}}
    return {"type": "object", "properties": properties, "required": ["a"], **definitions}


def check(format: OutputFormat, babbler: Babbler, seed: int, choice: Choice) -> int:
    """Returns how many calls were made."""
    schema = arguments_schema(seed)
    tool = Tool("f", schema)
    form = call_form(format, Wanted([tool], choice), babbler.tokens)
    assert format.calls is not None
    begin = (format.calls.marker or format.calls.lead) if choice == "auto" and seed % 2 else ""
    output = babbler.output(form.grammar or "", random.Random(seed), most=600, begin=begin, free=form.free)
    if output is None:
        return 0
    splitter = OutputSplitter(format, [tool])
    events = merged(splitter.feed(output) + splitter.finish())
    begun = [event.name for event in events if isinstance(event, ToolBegin)]
    arguments = [event.text for event in events if isinstance(event, ToolArguments)]
    ended = [event for event in events if isinstance(event, ToolEnd)]
    assert len(begun) == len(arguments) == len(ended), output
    assert begun or choice == "auto", output
    for text in arguments:
        Draft202012Validator(schema).validate(json.loads(text))
    return len(begun)


def check_all(registry: Registry, name: str, seeds: range) -> None:
    format = registry.create("format", name)
    assert isinstance(format, OutputFormat)
    babbler = Babbler(SPECIALS.get(name, ()), words=[*markers(format), *'"}])'])
    for choice in ("required", "auto"):
        calls = sum(check(format, babbler, seed, choice) for seed in seeds)
        assert calls >= len(seeds) // (3 if choice == "required" else 10)


@pytest.mark.parametrize("name", KINDS)
def test_every_call_is_valid(registry: Registry, name: str) -> None:
    check_all(registry, name, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_every_call_is_valid_of_many_more(registry: Registry, name: str) -> None:
    check_all(registry, name, range(MANY))
