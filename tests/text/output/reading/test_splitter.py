"""Outputs are told apart as their formats say, and the same way however they come."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from output_examples import EXAMPLES, TOOLS, Example

from turnout.plugins.formats.hermes import hermes
from turnout.text.output.events import Event, Text, merged
from turnout.text.output.reading.splitter import OutputSplitter

NAMES = list(EXAMPLES)


def events_of(example: Example, pieces: Iterable[str], *, tools: bool = True) -> list[Event]:
    offered = TOOLS if tools else ()
    splitter = OutputSplitter(example.format, offered, example.within, either=example.either)
    events = [event for piece in pieces for event in splitter.feed(piece)]
    return merged(events + splitter.finish())


@pytest.mark.parametrize("name", NAMES)
def test_an_output_has_these_parts(name: str) -> None:
    example = EXAMPLES[name]
    assert events_of(example, [example.output]) == example.events


@pytest.mark.parametrize("name", NAMES)
def test_how_an_output_is_cut_changes_nothing(name: str) -> None:
    example = EXAMPLES[name]
    text = example.output
    assert events_of(example, text) == example.events  # character by character
    for cut in range(len(text)):
        assert events_of(example, [text[:cut], text[cut:]]) == example.events, cut


@pytest.mark.parametrize("name", NAMES)
def test_it_says_where_the_answer_lies(name: str) -> None:
    """Behind a call of GLM without a line break it said the wrong place."""
    example = EXAMPLES[name]
    splitter = OutputSplitter(example.format, TOOLS, example.within, either=example.either)
    for output in (f"{example.output} and so on", example.output):
        events = splitter.feed(output) + splitter.finish()
        said = "".join(event.text for event in events if isinstance(event, Text))
        assert "".join(output[start:end] for start, end in splitter.answer) == said
        splitter = OutputSplitter(example.format, TOOLS, example.within, either=example.either)


def test_without_tools_a_call_is_text() -> None:
    output = 'a <tool_call>{"name": "f", "arguments": {}}</tool_call> '
    example = Example(hermes(), output, [])
    assert events_of(example, [output], tools=False) == [Text(output)]


def test_arguments_come_as_they_are_written() -> None:
    splitter = OutputSplitter(hermes(), TOOLS)
    assert splitter.feed('<tool_call>{"name": "f", "arguments": {"ci')
    assert [type(event).__name__ for event in splitter.feed('ty": "Pa')] == ["ToolArguments"] * 3


def test_half_an_escape_at_the_end_of_a_call_that_is_cut_is_no_text() -> None:
    """It was shown as the answer's text, behind the call."""
    for cut in ("\\", '"a\\'):
        output = '<tool_call>{"name": "f", "arguments": {"city": "Bern' + cut
        assert not any(
            isinstance(event, Text) for event in events_of(Example(hermes(), output, []), [output])
        )
