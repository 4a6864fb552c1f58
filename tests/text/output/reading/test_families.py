"""What a family's chat template writes of a message is read back as that message, however it is cut."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from family_templates import FAMILIES, Family

from turnout.core.registry.registry import Registry
from turnout.core.types.output_format import NamedCall, OutputFormat, XmlCall
from turnout.runner.output_format import find_format
from turnout.testing.checks.babbler import Babbler
from turnout.text.chat_template import ChatTemplate
from turnout.text.output.events import Event, Reasoning, Text, ToolArguments, ToolBegin, merged
from turnout.text.output.grammar.call_grammar import Wanted, call_grammar
from turnout.text.output.reading.splitter import OutputSplitter
from turnout.text.output.tools import Tool

FEW, MANY = 25, 1000
ENDS = ("<|call|>", "<|return|>")
"""Of harmony, whose answers end with them."""
WORDS = [
    *(
        "the",
        "weather",
        "in",
        "名字",
        "ключ",
        "🙂",
        "a\nb",
        "<",
        "</",
        "<|",
        "[",
        "{",
        "}",
        '"',
        "'",
        "\\",
        "\\n",
    ),
    *("x=1", "f(a=1)", "<b>", "```", "null", "True", "0", "-", ":", ",", "&amp;", "\t", "%", "é", "\u2028"),
]
"""Of these are texts: some begin as a marker does, none is one."""
CODED = re.compile("[名字ключé🙂\u2028]")
NUMBERS = [0, -1, 7, 10**40, -(2**63), 0.5, -2.25, 1e300, 5e-324, 123456789.123456]
USER = {"role": "user", "content": "hi"}


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.load()


def text(rng: random.Random, least: int = 0) -> str:
    return "".join(rng.choice(WORDS) + rng.choice(["", " "]) for _ in range(rng.randint(least, 8)))


def value(rng: random.Random, depth: int = 3) -> Any:
    kinds = ["text", "text", "number", "simple"] + ["list", "object"] * (depth > 0)
    match rng.choice(kinds):
        case "text":
            return text(rng)
        case "number":
            return rng.choice(NUMBERS)
        case "simple":
            return rng.choice([None, True, False])
        case "list":
            return [value(rng, depth - 1) for _ in range(rng.randint(0, 3))]
        case _:
            return {f"k{n}": value(rng, depth - 1) for n in range(rng.randint(0, 3))}


def schema_of(value: Any) -> dict[str, Any]:
    kinds: dict[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array"}
    return {"type": "null" if value is None else kinds.get(type(value), "object")}


def calls_of(rng: random.Random, most: int) -> tuple[list[dict[str, Any]], list[Tool]]:
    calls, tools = [], []
    for number in range(rng.randint(0, most)):
        name = rng.choice(["f", "get_weather", "mcp.files-read"]) + str(number)
        arguments = {f"key_{n}": value(rng) for n in range(rng.choice([0, 1, 1, 2, 4]))}
        calls.append({"type": "function", "function": {"name": name, "arguments": arguments}})
        schemas = {key: schema_of(each) for key, each in arguments.items()}
        tools.append(Tool(name, {"type": "object", "properties": schemas}))
    return calls, tools


def message(family: Family, rng: random.Random) -> tuple[dict[str, Any], list[Tool]]:
    calls, tools = calls_of(rng, 1 if family.format == "harmony" else 4)
    said = "" if calls and not family.talks else f"I {text(rng)}.".strip()
    made: dict[str, Any] = {"role": "assistant", "content": said, "tool_calls": calls}
    if family.reasons and rng.random() < 0.5:
        made["reasoning_content"] = f"so {text(rng)}."
    return made, [*tools, Tool("other", {"type": "object"})]


def written(family: Family, message: dict[str, Any]) -> str:
    """What a model writes whose answer is the message."""
    template = ChatTemplate(family.template, {})
    prompt = template.render([USER])
    whole = template.render([USER, message], add_generation_prompt=False)
    assert whole.startswith(prompt), (prompt, whole)
    end = "<|return|>" if family.format == "harmony" and not message["tool_calls"] else family.end
    assert whole.endswith(end)
    return whole[len(prompt) : -len(end)]


def read(format: OutputFormat, pieces: list[str], tools: list[Tool]) -> list[Event]:
    splitter = OutputSplitter(format, tools)
    events = [event for piece in pieces for event in splitter.feed(piece)]
    return merged(events + splitter.finish())


def check(family: Family, format: OutputFormat, seed: int) -> None:
    rng = random.Random(f"{family.format} {seed}")
    sent, tools = message(family, rng)
    output = written(family, sent)
    events = read(format, [output], tools)
    assert read(format, list(output), tools) == events, output
    cut = rng.randrange(len(output))
    assert read(format, [output[:cut], output[cut:]], tools) == events, (cut, output)
    names = [event.name for event in events if isinstance(event, ToolBegin)]
    arguments = [json.loads(event.text) for event in events if isinstance(event, ToolArguments)]
    calls = [call["function"] for call in sent["tool_calls"]]
    assert names == [call["name"] for call in calls], output
    assert arguments == [call["arguments"] for call in calls], output
    said = "".join(event.text for event in events if isinstance(event, Text))
    thought = "".join(event.text for event in events if isinstance(event, Reasoning))
    assert said == sent["content"], output
    assert thought == sent.get("reasoning_content", ""), output


@pytest.fixture(params=FAMILIES, ids=lambda family: family.format)
def family(request: pytest.FixtureRequest) -> Family:
    family: Family = request.param
    return family


@pytest.fixture
def format(family: Family, registry: Registry, tmp_path: Path) -> OutputFormat:
    """The format that is found by the family's template."""
    (tmp_path / "chat_template.jinja").write_text(family.template, encoding="utf-8")
    found = find_format(registry, None, tmp_path).format
    assert found is not None
    named = find_format(registry, family.format, tmp_path).format
    assert found == named, "another format is found by the template"
    return found


def test_messages_are_read_as_they_were_written(family: Family, format: OutputFormat) -> None:
    for seed in range(FEW):
        check(family, format, seed)


def check_allowed(family: Family, format: OutputFormat, seeds: range) -> None:
    """What the template writes of calls is an output of the grammar, so that models may write it."""
    babbler = Babbler(())
    for seed in seeds:
        sent, tools = message(family, random.Random(f"{family.format} {seed}"))
        output = written(family, sent)
        grammar = call_grammar(format, Wanted(tools), {}, ends=ENDS)
        assert babbler.may_write(grammar, output), output


def test_messages_are_what_the_grammar_allows(family: Family, format: OutputFormat) -> None:
    check_allowed(family, format, range(2))


def test_calls_in_ascii_are_allowed_and_mean_the_same(family: Family, format: OutputFormat) -> None:
    """So do many models write: Python's JSON is ASCII by default."""
    assert format.calls is not None
    body, babbler = format.calls.body, Babbler(())
    if isinstance(body, XmlCall) or (isinstance(body, NamedCall) and body.notation.quote):
        pytest.skip("nothing is escaped in this format's texts")
    for seed in range(2):
        sent, tools = message(family, random.Random(f"{family.format} {seed}"))
        output = written(family, {**sent, "content": "", "reasoning_content": ""})
        escaped = CODED.sub(lambda found: json.dumps(found[0])[1:-1], output)
        events = read(format, list(escaped), tools)
        assert read(format, [escaped], tools) == events
        arguments = [json.loads(event.text) for event in events if isinstance(event, ToolArguments)]
        assert arguments == [call["function"]["arguments"] for call in sent["tool_calls"]], escaped
        assert babbler.may_write(call_grammar(format, Wanted(tools), {}, ends=ENDS), escaped), escaped


@pytest.mark.slow
def test_many_messages_are_what_the_grammar_allows(family: Family, format: OutputFormat) -> None:
    check_allowed(family, format, range(2, 200))


@pytest.mark.slow
def test_a_thousand_messages_are_read_as_they_were_written(family: Family, format: OutputFormat) -> None:
    for seed in range(FEW, MANY):
        check(family, format, seed)
