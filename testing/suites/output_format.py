"""The conformance suite of output formats."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from turnout.core.types.output_format import OutputFormat
from turnout.testing.checks.babbler import Babbler
from turnout.testing.suites.suite import Suite, not_for_it, skip
from turnout.text.output.events import Event, Text, ToolArguments, ToolBegin, ToolEnd, merged
from turnout.text.output.grammar.call_grammar import Wanted, call_form
from turnout.text.output.markers import markers
from turnout.text.output.reading.splitter import OutputSplitter
from turnout.text.output.tools import Tool

__all__ = ["OutputFormatSuite"]

TRIES = 2
"""Times as many outputs are begun as are to be read: some do not end soon."""
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
BITS = {
    "type": "object",
    "properties": {"bits": {"type": "array", "items": {"$ref": "#/$defs/bit"}, "maxItems": 3}},
    "$defs": {"bit": {"type": "boolean"}},
    "required": ["bits"],
    "additionalProperties": False,
}
TOOLS = (Tool("get_weather", CITY), Tool("bits.of", BITS))


def _is_city(arguments: Any) -> bool:
    return (
        set(arguments) == {"city", "days"}
        and isinstance(arguments["city"], str)
        and len(arguments["city"]) <= 12
        and isinstance(arguments["days"], int)
    )


def _is_bits(arguments: Any) -> bool:
    return set(arguments) == {"bits"} and all(isinstance(bit, bool) for bit in arguments["bits"])


FITS: dict[str, Callable[[Any], bool]] = {"get_weather": _is_city, "bits.of": _is_bits}


class OutputFormatSuite(Suite[OutputFormat]):
    """Whatever a model writes under the format's grammar, its calls are valid, and can be read."""

    kind = "format"
    light = True

    specials: ClassVar[Sequence[str]] = ()
    """The special tokens of the model's vocabulary that occur in markers."""
    ends: ClassVar[Sequence[str]] = ()
    """Those of them that end an output."""
    outputs: ClassVar[int] = 8
    """Outputs to try for each way to offer tools."""

    def test_it_says_by_what_its_models_are_known(self) -> None:
        format = self.make()
        assert format.found_by and all(format.found_by), (
            "`found_by` is empty, or holds an empty text; name texts that the models' chat templates hold"
        )

    def test_its_regions_have_markers_that_differ(self) -> None:
        format = self.make()
        opens = [region.open for region in format.regions]
        for region in format.regions:
            assert region.open and region.close, f"the region {region} lacks a marker"
        if format.calls is not None and format.calls.marker:
            opens.append(format.calls.marker)
        assert len(set(opens)) == len(opens), f"two parts of the output begin with the same marker: {opens}"

    def test_calls_are_valid_where_one_is_required(self) -> None:
        for events, output in self._written(Wanted(TOOLS, "required")):
            assert _check_calls(events, output) >= 1, f"no call was read in {output!r}"

    def test_calls_are_valid_where_the_model_chooses(self) -> None:
        for events, output in self._written(Wanted(TOOLS)):
            _check_calls(events, output)

    def test_there_is_one_call_where_one_is_wanted(self) -> None:
        for events, output in self._written(Wanted(TOOLS, "required", parallel=False)):
            assert _check_calls(events, output) == 1, f"not one call was read in {output!r}"

    def test_how_an_output_is_cut_changes_nothing(self) -> None:
        format = self.make()
        for events, output in self._written(Wanted(TOOLS, "required")):
            splitter = OutputSplitter(format, TOOLS)
            cut = [event for character in output for event in splitter.feed(character)]
            assert merged(cut + splitter.finish()) == events, f"read otherwise by characters: {output!r}"

    def test_an_answer_without_calls_is_text(self) -> None:
        format = self.make()
        if format.outside != "text":
            not_for_it("its answers stand in a region")
        splitter = OutputSplitter(format, TOOLS)
        assert merged(splitter.feed("hello, ") + splitter.feed("world") + splitter.finish()) == [
            Text("hello, world")
        ], "a plain answer is not read as it is written"

    def _written(self, wanted: Wanted) -> Iterator[tuple[list[Event], str]]:
        """Outputs under the grammar, each with what the splitter reads."""
        format = self.make()
        if format.calls is None:
            not_for_it("the format has no calls")
        babbler, rng = Babbler(self.specials, self.ends, markers(format)), random.Random(0)
        form = call_form(format, wanted, babbler.tokens, ends=self.ends)
        ended = 0
        for number in range(TRIES * self.outputs):
            begin = format.calls.marker if number % 2 else ""  # in a free text, no call would ever come
            output = babbler.output(form.grammar or "", rng, begin=begin, free=form.free)
            if output is None:
                continue
            splitter = OutputSplitter(format, TOOLS)
            yield merged(splitter.feed(output) + splitter.finish()), output
            ended += 1
            if ended == self.outputs:
                return
        if not ended:
            skip(f"none of {TRIES * self.outputs} outputs under its grammar came to an end; raise `outputs`")


def _check_calls(events: Sequence[Event], output: str) -> int:
    names = [event.name for event in events if isinstance(event, ToolBegin)]
    arguments = [event.text for event in events if isinstance(event, ToolArguments)]
    ended = sum(isinstance(event, ToolEnd) for event in events)
    assert len(names) == len(arguments) == ended, f"a call is not whole in {output!r}: {events}"
    for name, text in zip(names, arguments, strict=True):
        assert name in FITS, f"there is no tool {name!r}, which was read in {output!r}"
        assert FITS[name](json.loads(text)), f"the arguments {text} of {name} do not fit its schema"
    return len(names)
