"""A schema that the compiler refuses is traced to its tool, whatever the format makes of it."""

from __future__ import annotations

import pytest
from llguidance import LLMatcher, LLTokenizer, grammar_from

from turnout.core.errors import RequestError
from turnout.core.registry.registry import Registry
from turnout.core.types.output_format import OutputFormat
from turnout.plugins.logits_processors.structured.compilation import reason_of
from turnout.text.output.grammar.call_grammar import Wanted, call_grammar
from turnout.text.output.grammar.faulty_part import FaultyPart, faulty_part, tool_of_rule, tool_rule
from turnout.text.output.tools import Tool

REGISTRY = Registry.load()
FORMATS = {entry.name: REGISTRY.create("format", entry.name) for entry in REGISTRY.usable("format")}
NO_NUMBER = {"type": "integer", "minimum": 3, "maximum": 1}
NONE = {"type": "object", "properties": {"b": NO_NUMBER}, "required": ["b"]}


def tool(name: str, schema: object = True) -> Tool:
    return Tool(name, {"type": "object", "properties": {"a": schema}, "required": ["a"]})


def found(format: OutputFormat, wanted: Wanted) -> FaultyPart | None:
    grammar = call_grammar(format, wanted, {})
    matcher = LLMatcher(LLTokenizer("byte"), grammar_from("grammar", grammar), log_level=0)
    assert matcher.is_error()
    return faulty_part(grammar, reason_of(matcher.get_error()))


def writes_json(format: OutputFormat) -> bool:
    """Whether values are written as JSON, which the compiler reads schemas for."""
    return format.calls is not None and "%json" in call_grammar(format, Wanted([tool("f", NONE)]), {})


@pytest.mark.parametrize("format", [name for name, format in FORMATS.items() if writes_json(format)])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_tool_is_named(format: str, number: int) -> None:
    tools = [tool(f"f{each}", NONE if each == number else True) for each in range(3)]
    part = found(FORMATS[format], Wanted(tools))
    assert part is not None and part.tool == tool_rule(number) and tool_of_rule(part.tool) == number
    assert part.reason.startswith("Unsatisfiable schema: ")


def test_a_keyword_that_the_format_cannot_hold_is_its_tools() -> None:
    strict = Tool("f1", {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=a)"}}}, True)
    with pytest.raises(RequestError, match="of a strict tool cannot be held") as refused:
        call_grammar(FORMATS["qwen3-coder"], Wanted([tool("f0"), strict]), {})
    assert refused.value.param == tool_rule(1)


def test_the_answer_is_no_tools() -> None:
    wanted = Wanted([tool("f")], answer='%json {"type": "strin"}')
    assert found(FORMATS["hermes"], wanted) == FaultyPart(None, "Invalid type: strin")


def test_other_messages_and_grammars_tell_no_part() -> None:
    assert faulty_part(call_grammar(FORMATS["hermes"], Wanted([tool("f")]), {}), "it takes too long") is None
    assert faulty_part("start: tool_0\ntool_0: [", "at 2(9): Expected token ']'") is None
